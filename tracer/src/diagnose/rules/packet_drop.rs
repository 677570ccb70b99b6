//! `packet-drop`: the kernel dropped the packet, and not netfilter.

use super::drops;
use crate::diagnose::{Check, Rule, sentence};
use crate::trace::Trace;

pub(super) struct PacketDrop;

impl Rule for PacketDrop {
    fn code(&self) -> &'static str {
        "packet-drop"
    }

    fn check(&self, trace: &Trace, _: Option<u64>) -> Check {
        let Some((packet, step)) = drops::first(trace, |s| !drops::by_netfilter(s)) else {
            return Check::Clear;
        };
        let Some(drop) = &step.drop else {
            return Check::Clear;
        };
        let reason = drop.reason.as_deref().filter(|r| *r != "NOT_SPECIFIED");
        let why = reason.map_or_else(String::new, |r| format!(" with reason {r}"));
        let how = format!("dropped by the kernel in {}{why}", drop.function);
        let to = step.dst.addr;
        let mut next = vec![
            sentence::on(&step.node, &format!("ip route get {to}")),
            sentence::on(
                &step.node,
                "nstat -az | grep -iE 'drop|discard|noroute|filter'",
            ),
        ];
        if !step.iface.is_empty() {
            let dev = sentence::word(&step.iface);
            next.push(sentence::on(
                &step.node,
                &format!("ip -s link show dev {dev}"),
            ));
        }
        drops::found(trace, self.code(), (packet, step), &how, next)
    }
}
