//! The connection tracking table of a namespace, over ctnetlink
//! (`include/uapi/linux/netfilter/nfnetlink_conntrack.h`): connections that were
//! there before the tool started.

use std::io;

use tracer_common::tuple::proto;

use crate::event::CtTuple;
use crate::netlink::{Attrs, Message, Value, collect};
use crate::netns::{NetNs, run_in};

const NFNL_SUBSYS_CTNETLINK: u16 = 1 << 8;
const CT_NEW: u16 = NFNL_SUBSYS_CTNETLINK;
const CT_GET: u16 = NFNL_SUBSYS_CTNETLINK | 1;

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_STATUS: u16 = 3;
const CTA_PROTOINFO: u16 = 4;
const CTA_TIMEOUT: u16 = 7;
const CTA_MARK: u16 = 8;
const CTA_ZONE: u16 = 18;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const CTA_PROTO_ICMP_ID: u16 = 4;
const CTA_PROTO_ICMPV6_ID: u16 = 7;
const CTA_PROTOINFO_TCP: u16 = 1;
const CTA_PROTOINFO_TCP_STATE: u16 = 1;

/// `enum tcp_conntrack`, `nf_conntrack_tcp.h`, as `conntrack -L` prints it.
const TCP_STATES: [&str; 10] = [
    "NONE",
    "SYN_SENT",
    "SYN_RECV",
    "ESTABLISHED",
    "FIN_WAIT",
    "CLOSE_WAIT",
    "LAST_ACK",
    "TIME_WAIT",
    "CLOSE",
    "SYN_SENT2",
];

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Original direction, before rewrites.
    pub original: CtTuple,
    /// Reply direction, as answers look on the wire.
    pub reply: CtTuple,
    /// `IPS_*` bits.
    pub status: u32,
    /// Mark.
    pub mark: u32,
    /// Zone.
    pub zone: u16,
    /// Seconds until it expires.
    pub timeout: u32,
    /// Of TCP: `SYN_SENT`, ESTABLISHED, ...
    pub tcp_state: Option<&'static str>,
}

/// What a namespace's table holds.
#[derive(Clone, Debug, Default)]
pub struct Dump {
    /// Entries that the filter let through.
    pub entries: Vec<Entry>,
    /// Why there is no table to read.
    pub missing: Option<String>,
}

fn parse_tuple(attrs: Attrs<'_>) -> Option<CtTuple> {
    let (mut src, mut dst, mut number) = (None, None, None);
    let (mut sport, mut dport) = (0, 0);
    for (kind, value) in attrs {
        for (part, value) in value.nested() {
            match (kind, part) {
                (CTA_TUPLE_IP, CTA_IP_V4_SRC | CTA_IP_V6_SRC) => src = value.addr(),
                (CTA_TUPLE_IP, CTA_IP_V4_DST | CTA_IP_V6_DST) => dst = value.addr(),
                (CTA_TUPLE_PROTO, CTA_PROTO_NUM) => number = value.u8(),
                (CTA_TUPLE_PROTO, CTA_PROTO_SRC_PORT) => sport = value.be16()?,
                (CTA_TUPLE_PROTO, CTA_PROTO_DST_PORT) => dport = value.be16()?,
                (CTA_TUPLE_PROTO, CTA_PROTO_ICMP_ID | CTA_PROTO_ICMPV6_ID) => {
                    sport = value.be16()?;
                    dport = sport;
                }
                _ => {}
            }
        }
    }
    Some(CtTuple {
        src: src?,
        sport,
        dst: dst?,
        dport,
        proto: number?,
    })
}

fn tcp_state(info: Value<'_>) -> Option<&'static str> {
    let mut parts = info.nested();
    let (_, tcp) = parts.find(|(kind, _)| *kind == CTA_PROTOINFO_TCP)?;
    let mut fields = tcp.nested();
    let (_, state) = fields.find(|(kind, _)| *kind == CTA_PROTOINFO_TCP_STATE)?;
    TCP_STATES.get(usize::from(state.u8()?)).copied()
}

/// `struct nfgenmsg`, 4 bytes: family, version, resource id.
fn parse(message: Message<'_>) -> Option<Entry> {
    if message.kind != CT_NEW {
        return None;
    }
    let (mut original, mut reply, mut state) = (None, None, None);
    let (mut status, mut mark, mut zone, mut timeout) = (0, 0, 0, 0);
    for (kind, value) in Attrs(message.body.get(4..)?) {
        match kind {
            CTA_TUPLE_ORIG => original = parse_tuple(value.nested()),
            CTA_TUPLE_REPLY => reply = parse_tuple(value.nested()),
            CTA_STATUS => status = value.be32()?,
            CTA_MARK => mark = value.be32()?,
            CTA_ZONE => zone = value.be16()?,
            CTA_TIMEOUT => timeout = value.be32()?,
            CTA_PROTOINFO => state = tcp_state(value),
            _ => {}
        }
    }
    let original = original?;
    Some(Entry {
        original,
        reply: reply?,
        status,
        mark,
        zone,
        timeout,
        tcp_state: state.filter(|_| original.proto == proto::TCP),
    })
}

/// The kernel or the namespace has no such table, rather than a failure.
fn is_missing(e: &io::Error) -> bool {
    let codes = [
        libc::EPROTONOSUPPORT,
        libc::EAFNOSUPPORT,
        libc::EOPNOTSUPP,
        libc::ENOENT,
        libc::EINVAL,
    ];
    e.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Entries of both families in the thread's namespace that `filter` lets through.
pub fn dump_here(filter: impl Fn(&Entry) -> bool) -> io::Result<Dump> {
    let wanted = |message: Message<'_>| parse(message).filter(|entry| filter(entry));
    match collect(libc::NETLINK_NETFILTER, CT_GET, &[0; 4], wanted) {
        Ok(entries) => Ok(Dump {
            entries,
            missing: None,
        }),
        Err(e) if is_missing(&e) => Ok(Dump {
            entries: Vec::new(),
            missing: Some(format!(
                "connection tracking cannot be read ({e}); is the module nf_conntrack_netlink there?"
            )),
        }),
        Err(e) => Err(e),
    }
}

/// The same in the namespace `ns`.
pub fn dump(ns: &NetNs, filter: impl Fn(&Entry) -> bool + Send) -> io::Result<Dump> {
    run_in(ns, || dump_here(filter))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Writer, messages};

    fn tuple(src: [u8; 4], dst: [u8; 4], number: u8, ports: &[(u16, u16)]) -> Writer {
        let (mut ip, mut l4, mut all) = (Writer::default(), Writer::default(), Writer::default());
        ip.put(CTA_IP_V4_SRC, &src);
        ip.put(CTA_IP_V4_DST, &dst);
        l4.put(CTA_PROTO_NUM, &[number]);
        for (kind, port) in ports {
            l4.put(*kind, &port.to_be_bytes());
        }
        all.nest(CTA_TUPLE_IP, &ip);
        all.nest(CTA_TUPLE_PROTO, &l4);
        all
    }

    fn message() -> Vec<u8> {
        let ports = |s, d| [(CTA_PROTO_SRC_PORT, s), (CTA_PROTO_DST_PORT, d)];
        let (client, vip, server) = ([10, 244, 80, 65], [10, 96, 0, 10], [10, 244, 2, 10]);
        let (mut tcp, mut info) = (Writer::default(), Writer::default());
        tcp.put(CTA_PROTOINFO_TCP_STATE, &[3]);
        info.nest(CTA_PROTOINFO_TCP, &tcp);
        let mut body = Writer::new(&[2, 0, 0, 0]);
        body.nest(CTA_TUPLE_ORIG, &tuple(client, vip, 6, &ports(40000, 80)));
        body.nest(
            CTA_TUPLE_REPLY,
            &tuple(server, client, 6, &ports(8080, 40000)),
        );
        body.put(CTA_STATUS, &0x18eu32.to_be_bytes());
        body.put(CTA_TIMEOUT, &431_999u32.to_be_bytes());
        body.put(CTA_MARK, &7u32.to_be_bytes());
        body.put(CTA_ZONE, &5u16.to_be_bytes());
        body.nest(CTA_PROTOINFO, &info);
        let mut data = ((body.0.len() + 16) as u32).to_ne_bytes().to_vec();
        data.extend_from_slice(&CT_NEW.to_ne_bytes());
        data.extend_from_slice(&[0; 10]);
        data.extend_from_slice(&body.0);
        data
    }

    #[test]
    fn an_entry_is_read_whole() {
        let data = message();
        let entry = parse(messages(&data).next().unwrap()).unwrap();
        let ends = |t: CtTuple| format!("{}:{} {}:{} {}", t.src, t.sport, t.dst, t.dport, t.proto);
        assert_eq!(ends(entry.original), "10.244.80.65:40000 10.96.0.10:80 6");
        assert_eq!(ends(entry.reply), "10.244.2.10:8080 10.244.80.65:40000 6");
        assert_eq!((entry.status, entry.mark, entry.zone), (0x18e, 7, 5));
        assert_eq!(
            (entry.timeout, entry.tcp_state),
            (431_999, Some("ESTABLISHED"))
        );
    }

    #[test]
    fn icmp_carries_its_id_in_both_ports() {
        let all = tuple([1, 1, 1, 1], [2, 2, 2, 2], 1, &[(CTA_PROTO_ICMP_ID, 77)]);
        let t = parse_tuple(Attrs(&all.0)).unwrap();
        assert_eq!((t.sport, t.dport, t.proto), (77, 77, 1));
    }

    #[test]
    fn truncated_entries_are_no_entries() {
        let data = message();
        for len in 16..data.len() {
            let mut cut = data[..len].to_vec();
            cut[..4].copy_from_slice(&(len as u32).to_ne_bytes());
            for m in messages(&cut) {
                let _ = parse(m);
            }
        }
    }
}
