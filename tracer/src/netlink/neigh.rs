//! Neighbours, and the forwarding databases of bridges and VXLAN devices.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use super::route::word;
use super::{Attrs, Message, collect};

// include/uapi/linux/rtnetlink.h, include/uapi/linux/neighbour.h
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_MASTER: u16 = 9;

/// An entry of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Interface.
    pub ifindex: u32,
    /// Address; in a forwarding database, the remote VTEP.
    pub addr: Option<IpAddr>,
    /// Ethernet address.
    pub mac: Option<Arc<str>>,
    /// `NUD_*`.
    pub state: u16,
    /// Bridge that it belongs to.
    pub master: Option<u32>,
}

/// `struct ndmsg`, 12 bytes: family, three of padding, index, state (16 bits),
/// flags, type.
fn parse(m: Message<'_>) -> Option<Neighbour> {
    if m.kind != RTM_NEWNEIGH {
        return None;
    }
    let mut entry = Neighbour {
        ifindex: word(m.body, 4)?,
        addr: None,
        mac: None,
        state: word(m.body, 8)? as u16,
        master: None,
    };
    for (kind, value) in Attrs(m.body.get(12..)?) {
        match kind {
            NDA_DST => entry.addr = value.addr(),
            NDA_LLADDR => entry.mac = value.mac(),
            NDA_MASTER => entry.master = value.u32(),
            _ => {}
        }
    }
    Some(entry)
}

/// Neighbours of the thread's namespace, both families.
pub fn neighbours() -> io::Result<Vec<Neighbour>> {
    collect(libc::NETLINK_ROUTE, RTM_GETNEIGH, &[0; 12], |m| {
        parse(m).filter(|n| n.addr.is_some())
    })
}

/// Forwarding databases of the thread's namespace. Every Ethernet device has
/// one; it holds what the device is told to receive.
pub fn forwarding() -> io::Result<Vec<Neighbour>> {
    // struct ifinfomsg; newer kernels take nothing shorter (rtnl_fdb_dump).
    let mut body = [0; 16];
    body[0] = libc::AF_BRIDGE as u8;
    collect(libc::NETLINK_ROUTE, RTM_GETNEIGH, &body, |m| {
        parse(m).filter(|n| n.mac.is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Writer, each_cut, message};

    fn body() -> Vec<u8> {
        let mut body = Writer::new(&[7, 0, 0, 0, 5, 0, 0, 0, 0x80, 0, 2, 0]);
        body.put(NDA_LLADDR, &[0x66, 0xb0, 0x94, 0x1d, 0xfb, 0x92]);
        body.put(NDA_DST, &[172, 31, 0, 3]);
        body.put(NDA_MASTER, &9u32.to_ne_bytes());
        body.0
    }

    #[test]
    fn an_entry_is_read_whole() {
        let entry = parse(message(RTM_NEWNEIGH, &body())).unwrap();
        assert_eq!(
            (entry.ifindex, entry.state, entry.master),
            (5, 0x80, Some(9))
        );
        assert_eq!(entry.mac.as_deref(), Some("66:b0:94:1d:fb:92"));
        assert_eq!(entry.addr, Some("172.31.0.3".parse().unwrap()));
    }

    #[test]
    fn cut_entries_are_survived() {
        each_cut(RTM_NEWNEIGH, &body(), |m| {
            let _ = parse(m);
        });
    }
}
