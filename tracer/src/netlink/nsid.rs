//! Which number a namespace has within another one.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Attrs, Socket, Writer};

// include/uapi/linux/rtnetlink.h, include/uapi/linux/net_namespace.h
const RTM_GETNSID: u16 = 90;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

/// The id that the namespace `ns` has in the namespace of `socket` (a
/// `NETLINK_ROUTE` one), as `IFLA_LINK_NETNSID` counts them. `None` where it
/// was never given one.
pub fn nsid_of(socket: &mut Socket, ns: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    // struct rtgenmsg: one byte of family, padded.
    let mut body = Writer::new(&[0; 4]);
    body.put(NETNSA_FD, &ns.as_raw_fd().to_ne_bytes());
    let id = socket.ask(RTM_GETNSID, &body.0, |message| {
        let mut attrs = Attrs(message.body.get(4..)?);
        attrs.find(|(kind, _)| *kind == NETNSA_NSID)?.1.u32()
    })?;
    // NETNSA_NSID_NOT_ASSIGNED is -1.
    Ok(id.filter(|id| *id != u32::MAX))
}
