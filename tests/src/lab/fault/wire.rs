//! What happens to frames on the way: devices, queues, switches and other programs.

use std::net::Ipv4Addr;

use anyhow::Result;

use super::filter::{Effect, attach};
use super::names::{CLIENT_END, EXTRA, REMOTE_END, SEP, SLICE};
use super::site::{BOTH, endpoint_chain, ip, run, sysctl};
use super::{Fault, pods, unseen};
use crate::lab::topology::{POD_PORT, Pod, UNDERLAY};
use crate::lab::{netns, network};

const BRIDGED: [Pod; 2] = [
    Pod {
        name: "extra",
        node: "worker",
        addr: Ipv4Addr::new(10, 244, 81, 5),
        host_end: "veth7a1c3e5f",
        ..EXTRA
    },
    Pod {
        name: "extra2",
        node: "worker",
        addr: Ipv4Addr::new(10, 244, 81, 6),
        host_end: "veth90b2d4f6",
        label: ("app", "remote"),
        ..EXTRA
    },
];

pub(super) const BRIDGE_SKIPS_NETFILTER: Fault = Fault {
    id: "C15",
    name: "bridge-skips-netfilter",
    about: "two pods on one bridge, whose frames do not pass iptables: a Service's answers are not translated back",
    shown_by: "lab get --ns extra 10.98.235.247:80",
    make: |site| {
        network::modprobe(&["br_netfilter"]);
        // The switch between the nodes is the same kernel's.
        sysctl(UNDERLAY, "net/bridge/bridge-nf-call-iptables", "0")?;
        pods::add_bridged(&BRIDGED)?;
        sysctl("worker", "net/bridge/bridge-nf-call-iptables", "0")?;
        let to = std::net::SocketAddrV4::new(BRIDGED[1].addr, POD_PORT);
        site.rules_everywhere("nat", &endpoint_chain(SEP, "default/remote", "tcp", to))
    },
    show: |objects| {
        let [client, server] = &BRIDGED;
        objects.add_pod(client);
        objects.add_pod(server);
        objects.get("Pod", "remote")["metadata"]["labels"]["app"] = "remote-old".into();
        objects.set_endpoints(SLICE, &[server]);
    },
};

pub(super) const INNER_CHECKSUM: Fault = Fault {
    id: "C24",
    name: "inner-checksum",
    about: "TCP segments leave worker inside VXLAN with a wrong checksum, as with a broken offload",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| {
        // With offload there would be no checksum yet that could be wrong.
        netns::within("client", || set_tx_checksum("eth0", false))?;
        attach("worker", "eth0", Effect::SpoilInnerTcp)
    },
    show: unseen,
};

pub(super) const UNDERLAY_DROPS_VXLAN: Fault = Fault {
    id: "C26",
    name: "underlay-drops-vxlan",
    about: "the network between the nodes drops VXLAN towards worker2",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| attach(UNDERLAY, "p-worker2", Effect::DropVxlan),
    show: unseen,
};

pub(super) const MTU_BLACK_HOLE: Fault = Fault {
    id: "C38",
    name: "mtu-black-hole",
    about: "pods send packets of 1500 bytes, the tunnel takes 1450, and the nodes' answers that say so are dropped",
    shown_by: "lab get --ns client --up 50000 10.98.235.247:80",
    make: |site| {
        larger_mtu()?;
        BOTH.iter().try_for_each(|node| {
            site.iptables(
                node,
                "-I OUTPUT -p icmp -m icmp --icmp-type fragmentation-needed -j DROP",
            )
        })
    },
    show: unseen,
};

pub(super) const LARGER_MTU: Fault = Fault {
    id: "C84",
    name: "larger-mtu",
    about: "pods send packets of 1500 bytes, the tunnel takes 1450, and the nodes say so",
    shown_by: "lab get --ns client --up 50000 10.98.235.247:80",
    make: |_| larger_mtu(),
    show: unseen,
};

/// Lets the pods believe that the way takes 1500 bytes.
fn larger_mtu() -> Result<()> {
    for (node, pod, end) in [
        ("worker", "client", CLIENT_END),
        ("worker2", "remote", REMOTE_END),
    ] {
        ip(pod, "link set eth0 mtu 1500")?;
        ip(node, &format!("link set {end} mtu 1500"))?;
    }
    Ok(())
}

pub(super) const FRAGMENTS_DROPPED: Fault = Fault {
    id: "C40",
    name: "fragments-dropped",
    about: "the network towards worker drops fragments, so large answers over UDP do not arrive",
    shown_by: "a client that asks 172.31.0.5:8080 over UDP for 3000 bytes",
    make: |_| attach(UNDERLAY, "p-worker", Effect::DropFragments),
    show: unseen,
};

pub(super) const LATER_FRAGMENTS_DROPPED: Fault = Fault {
    id: "C40b",
    name: "later-fragments-dropped",
    about: "the network towards worker drops all fragments but the first of each datagram",
    shown_by: "a client that asks 172.31.0.5:8080 over UDP for 3000 bytes",
    make: |_| attach(UNDERLAY, "p-worker", Effect::DropLaterFragments),
    show: unseen,
};

pub(super) const OTHER_PROGRAM: Fault = Fault {
    id: "C63",
    name: "other-program",
    about: "an eBPF program that some agent left on the pod's veth drops what is for the pod",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |_| attach("worker2", REMOTE_END, Effect::DropIpv4),
    show: unseen,
};

pub(super) const RATE_LIMIT: Fault = Fault {
    id: "C68",
    name: "rate-limit",
    about: "what the pod client may receive is limited to 64 kbit/s",
    shown_by: "lab get --ns client --down 40000 --timeout 30 10.98.235.247:80",
    make: |_| {
        network::modprobe(&["sch_tbf"]);
        run(
            "worker",
            "tc",
            &format!("qdisc add dev {CLIENT_END} root tbf rate 64kbit burst 2000 limit 3000"),
        )
    },
    show: |objects| {
        objects.get("Pod", "client")["metadata"]["annotations"]["kubernetes.io/ingress-bandwidth"] =
            "64k".into();
    },
};

/// Switches checksumming by the device on or off, as `ethtool -K DEV tx` does.
fn set_tx_checksum(interface: &str, on: bool) -> Result<()> {
    use std::os::fd::AsRawFd;

    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    const ETHTOOL_STXCSUM: u32 = 0x17;
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        data: *mut Value,
        rest: [u64; 2],
    }
    let mut value = Value {
        command: ETHTOOL_STXCSUM,
        data: u32::from(on),
    };
    let mut request = Request {
        name: [0; libc::IFNAMSIZ],
        data: &raw mut value,
        rest: [0; 2],
    };
    for (to, from) in request.name.iter_mut().zip(interface.bytes()) {
        *to = from;
    }
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    // SAFETY: the request is a whole `struct ifreq`; it and the value that it points to outlive the call.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    anyhow::ensure!(
        status == 0,
        "setting {interface}'s checksumming: {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}
