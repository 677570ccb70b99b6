//! Routing policy, what `ip rule` shows.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use super::route::word;
use super::{Attrs, Message, collect};

// include/uapi/linux/rtnetlink.h, include/uapi/linux/fib_rules.h
const RTM_NEWRULE: u16 = 32;
const RTM_GETRULE: u16 = 34;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
const FRA_OIFNAME: u16 = 17;
const FIB_RULE_INVERT: u32 = 2;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// True for IPv6.
    pub ipv6: bool,
    /// Lowest first.
    pub priority: u32,
    /// Source prefix.
    pub src: Option<(IpAddr, u8)>,
    /// Destination prefix.
    pub dst: Option<(IpAddr, u8)>,
    /// Input interface.
    pub iif: Option<Arc<str>>,
    /// Output interface.
    pub oif: Option<Arc<str>>,
    /// Mark and mask.
    pub fwmark: Option<(u32, u32)>,
    /// Matches what the selectors do not.
    pub invert: bool,
    /// Table, where the action is a look-up.
    pub table: u32,
    /// `FR_ACT_*`.
    pub action: u8,
}

/// `struct fib_rule_hdr`, 12 bytes: family, `dst_len`, `src_len`, tos, table,
/// two reserved, action, flags. Rules of multicast routing have families of
/// their own and are passed over.
fn parse(m: Message<'_>) -> Option<Rule> {
    if m.kind != RTM_NEWRULE {
        return None;
    }
    let family = i32::from(*m.body.first()?);
    if family != libc::AF_INET && family != libc::AF_INET6 {
        return None;
    }
    let (dst_len, src_len) = (*m.body.get(1)?, *m.body.get(2)?);
    let mut rule = Rule {
        ipv6: family == libc::AF_INET6,
        priority: 0,
        src: None,
        dst: None,
        iif: None,
        oif: None,
        fwmark: None,
        invert: word(m.body, 8)? & FIB_RULE_INVERT != 0,
        table: u32::from(*m.body.get(4)?),
        action: *m.body.get(7)?,
    };
    let (mut mark, mut mask) = (None, None);
    for (kind, value) in Attrs(m.body.get(12..)?) {
        match kind {
            FRA_DST => rule.dst = Some((value.addr()?, dst_len)),
            FRA_SRC => rule.src = Some((value.addr()?, src_len)),
            FRA_IIFNAME => rule.iif = Some(value.text()),
            FRA_OIFNAME => rule.oif = Some(value.text()),
            FRA_PRIORITY => rule.priority = value.u32()?,
            FRA_TABLE => rule.table = value.u32()?,
            FRA_FWMARK => mark = value.u32(),
            FRA_FWMASK => mask = value.u32(),
            _ => {}
        }
    }
    // The kernel tells the mask of every rule that has one of either.
    rule.fwmark = match (mark, mask) {
        (None, None | Some(0)) => None,
        (mark, mask) => Some((mark.unwrap_or(0), mask.unwrap_or(u32::MAX))),
    };
    Some(rule)
}

/// Rules of the thread's namespace, both families.
pub fn rules() -> io::Result<Vec<Rule>> {
    collect(libc::NETLINK_ROUTE, RTM_GETRULE, &[0; 12], parse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Writer, each_cut, message};

    /// `ip rule add not from all fwmark 0xca6c/0xffff iif eth0 to 10.0.0.0/8 lookup 300`
    fn body() -> Vec<u8> {
        let mut body = Writer::new(&[2, 8, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0]);
        body.put(FRA_TABLE, &300u32.to_ne_bytes());
        body.put(FRA_PRIORITY, &32_765u32.to_ne_bytes());
        body.put(FRA_FWMARK, &0xca6cu32.to_ne_bytes());
        body.put(FRA_FWMASK, &0xffffu32.to_ne_bytes());
        body.put(FRA_IIFNAME, b"eth0\0");
        body.put(FRA_DST, &[10, 0, 0, 0]);
        body.0
    }

    #[test]
    fn a_rule_is_read_whole() {
        let rule = parse(message(RTM_NEWRULE, &body())).unwrap();
        assert_eq!((rule.priority, rule.table, rule.action), (32_765, 300, 1));
        assert_eq!(rule.fwmark, Some((0xca6c, 0xffff)));
        assert_eq!(rule.dst, Some(("10.0.0.0".parse().unwrap(), 8)));
        assert_eq!((rule.iif.as_deref(), rule.src), (Some("eth0"), None));
        assert!(rule.invert && !rule.ipv6);
    }

    #[test]
    fn multicast_rules_and_cut_ones_are_survived() {
        let mut mroute = body();
        mroute[0] = 128;
        assert_eq!(parse(message(RTM_NEWRULE, &mroute)), None);
        each_cut(RTM_NEWRULE, &body(), |m| {
            let _ = parse(m);
        });
    }
}
