//! The few netlink messages that are needed, over a raw socket: links,
//! addresses, routes, routing policy, neighbours and queueing disciplines of a
//! namespace, and news about links.
//!
//! Layouts: `include/uapi/linux/{netlink,rtnetlink,if_link}.h`. The socket
//! belongs to the namespace the thread is in when it is opened.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

mod attr;
mod neigh;
mod nsid;
mod route;
mod rule;
mod sched;

pub use attr::{Attrs, Value, Writer};
pub use neigh::{Neighbour, forwarding, neighbours};
pub use nsid::nsid_of;
pub use route::{Address, Link, LinkEvent, LinkEvents, Route, addresses, links, routes};
pub use rule::{Rule, rules};
pub use sched::{Sched, Side, filters, qdiscs};

const HEADER: usize = size_of::<libc::nlmsghdr>();
const BUFFER: usize = 64 << 10;
/// Seconds to wait for an answer, so that no namespace can hold us up.
const PATIENCE: libc::time_t = 2;
/// Times a dump that the kernel found changing underneath is repeated.
const RETRIES: usize = 3;

/// One message: its type and what follows the netlink header.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// Payload.
    pub body: &'a [u8],
    flags: u16,
    seq: u32,
}

/// Messages in a datagram; stops at the first that does not fit.
pub(crate) fn messages(mut data: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let word = |at: usize| Some(u32::from_ne_bytes(data.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_ne_bytes(data.get(at..at + 2)?.try_into().ok()?));
        let len = word(0)? as usize;
        let message = Message {
            kind: half(4)?,
            flags: half(6)?,
            seq: word(8)?,
            body: data.get(HEADER..len)?,
        };
        data = data.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// A netlink socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    seq: u32,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(rc)
}

/// What an `NLMSG_ERROR` says: a negative errno in front.
fn error(message: Message<'_>) -> io::Error {
    let code = message
        .body
        .first_chunk()
        .map_or(0, |b| i32::from_ne_bytes(*b));
    io::Error::from_raw_os_error(code.saturating_neg())
}

impl Socket {
    /// Opens a socket of a netlink family such as `NETLINK_ROUTE` in the
    /// thread's namespace, joined to the multicast groups of the bit mask.
    pub fn open(family: libc::c_int, groups: u32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers are passed.
        let raw = check(unsafe { libc::socket(libc::AF_NETLINK, kind, family) })?;
        // SAFETY: the descriptor was just made and is owned by nothing else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: sockaddr_nl is plain integers; all zero is a valid value.
        let mut addr: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        addr.nl_family = libc::AF_NETLINK as u16;
        addr.nl_groups = groups;
        let len = size_of_val(&addr) as libc::socklen_t;
        // SAFETY: `addr` is valid and `len` is its size.
        check(unsafe { libc::bind(raw, (&raw const addr).cast(), len) })?;
        let wait = libc::timeval {
            tv_sec: PATIENCE,
            tv_usec: 0,
        };
        let len = size_of_val(&wait) as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
        // SAFETY: `wait` is valid and `len` is its size.
        check(unsafe { libc::setsockopt(raw, level, option, (&raw const wait).cast(), len) })?;
        Ok(Self { fd, seq: 0 })
    }

    /// Reads one datagram. With `MSG_DONTWAIT` in `flags`, `WouldBlock` when
    /// there is none.
    pub(crate) fn receive(&self, buffer: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
        loop {
            let (ptr, len) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: `buffer` is valid for `len` bytes.
            let n = unsafe { libc::recv(self.as_raw_fd(), ptr, len, flags) };
            if let Ok(n) = usize::try_from(n) {
                return Ok(n);
            }
            let e = io::Error::last_os_error();
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(e);
            }
        }
    }

    fn send(&mut self, kind: u16, flags: libc::c_int, body: &[u8]) -> io::Result<()> {
        self.seq += 1;
        let flags = (libc::NLM_F_REQUEST | flags) as u16;
        let mut request = Vec::with_capacity(HEADER + body.len());
        request.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(&flags.to_ne_bytes());
        request.extend_from_slice(&self.seq.to_ne_bytes());
        request.extend_from_slice(&0u32.to_ne_bytes());
        request.extend_from_slice(body);
        let (ptr, len) = (request.as_ptr().cast(), request.len());
        // SAFETY: `request` is valid for `len` bytes.
        if unsafe { libc::send(self.as_raw_fd(), ptr, len, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Sends a request with one answer and hands that to `parse`.
    pub fn ask<T>(
        &mut self,
        kind: u16,
        body: &[u8],
        parse: impl FnOnce(Message<'_>) -> Option<T>,
    ) -> io::Result<Option<T>> {
        self.send(kind, 0, body)?;
        let mut buffer = [0u8; 4096];
        loop {
            let n = self.receive(&mut buffer, 0)?;
            let answer = messages(buffer.get(..n).unwrap_or_default()).find(|m| m.seq == self.seq);
            if let Some(message) = answer {
                if i32::from(message.kind) == libc::NLMSG_ERROR {
                    return Err(error(message));
                }
                return Ok(parse(message));
            }
        }
    }

    /// Sends a request that changes something and waits for its
    /// acknowledgement, an `NLMSG_ERROR` with code 0.
    pub fn change(&mut self, kind: u16, body: &[u8]) -> io::Result<()> {
        self.send(kind, libc::NLM_F_ACK, body)?;
        let mut buffer = [0u8; 4096];
        loop {
            let n = self.receive(&mut buffer, 0)?;
            let answer = messages(buffer.get(..n).unwrap_or_default()).find(|m| m.seq == self.seq);
            if let Some(message) = answer {
                let failed = error(message);
                return match failed.raw_os_error() {
                    Some(0) => Ok(()),
                    _ => Err(failed),
                };
            }
        }
    }

    /// Sends a dump request and hands each answer to `each`. `body` is what
    /// follows the netlink header.
    pub fn dump(
        &mut self,
        kind: u16,
        body: &[u8],
        each: &mut dyn FnMut(Message<'_>),
    ) -> io::Result<()> {
        self.send(kind, libc::NLM_F_DUMP, body)?;
        let mut buffer = vec![0u8; BUFFER];
        let mut changed = false;
        loop {
            let n = self.receive(&mut buffer, 0)?;
            for message in messages(buffer.get(..n).unwrap_or_default()) {
                if message.seq != self.seq {
                    continue;
                }
                changed |= i32::from(message.flags) & libc::NLM_F_DUMP_INTR != 0;
                match i32::from(message.kind) {
                    libc::NLMSG_DONE if changed => {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return Err(error(message)),
                    _ => each(message),
                }
            }
        }
    }
}

/// A whole dump as parsed by `parse`, repeated when the table changed while it
/// was read (`NLM_F_DUMP_INTR`).
pub(crate) fn collect<T, I: IntoIterator<Item = T>>(
    family: libc::c_int,
    kind: u16,
    body: &[u8],
    mut parse: impl FnMut(Message<'_>) -> I,
) -> io::Result<Vec<T>> {
    let mut socket = Socket::open(family, 0)?;
    let mut all = Vec::new();
    for left in (0..RETRIES).rev() {
        all.clear();
        let done = socket.dump(kind, body, &mut |m| all.extend(parse(m)));
        match done {
            // Still changing: what was read is better than nothing.
            Err(e) if e.kind() == io::ErrorKind::Interrupted && left == 0 => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        }
        break;
    }
    Ok(all)
}

/// Every way to cut a message short, for the tests of parsers.
#[cfg(test)]
pub(crate) fn each_cut(kind: u16, body: &[u8], parse: impl Fn(Message<'_>)) {
    for len in 0..=body.len() {
        parse(message(kind, &body[..len]));
    }
}

/// A message of the body alone.
#[cfg(test)]
pub(crate) fn message(kind: u16, body: &[u8]) -> Message<'_> {
    Message {
        kind,
        body,
        flags: 0,
        seq: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_they_do_not_fit() {
        let mut data = Vec::new();
        for (len, kind) in [(20u32, 5u16), (16, 6), (400, 7)] {
            data.extend_from_slice(&len.to_ne_bytes());
            data.extend_from_slice(&kind.to_ne_bytes());
            data.extend_from_slice(&[0; 10]);
            if len == 20 {
                data.extend_from_slice(&[9; 4]);
            }
        }
        let kinds: Vec<_> = messages(&data).map(|m| (m.kind, m.body.len())).collect();
        assert_eq!(kinds, [(5, 4), (6, 0)]);
        assert_eq!(messages(&[0; 16]).count(), 0);
        for len in 0..data.len() {
            assert!(messages(&data[..len]).count() <= 2);
        }
    }

    #[test]
    fn the_own_namespace_has_a_loopback() {
        let links = links().unwrap();
        let lo = links.iter().find(|l| &*l.name == "lo").unwrap();
        assert_eq!(lo.ifindex, 1);
        assert_eq!(lo.arphrd, libc::ARPHRD_LOOPBACK);
        addresses().unwrap();
        routes().unwrap();
        assert!(rules().unwrap().iter().any(|r| r.table == 254));
        neighbours().unwrap();
        forwarding().unwrap();
        qdiscs().unwrap();
    }
}
