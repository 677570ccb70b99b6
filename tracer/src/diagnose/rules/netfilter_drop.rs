//! `netfilter-drop`: a netfilter rule dropped the packet. Told by the drop
//! reason, or by the hook found on the kernel's stack.

use super::drops;
use crate::diagnose::{Check, Rule, sentence};
use crate::trace::Trace;

pub(super) struct NetfilterDrop;

impl Rule for NetfilterDrop {
    fn code(&self) -> &'static str {
        "netfilter-drop"
    }

    fn check(&self, trace: &Trace, _: Option<u64>) -> Check {
        let Some((packet, step)) = drops::first(trace, drops::by_netfilter) else {
            return Check::Clear;
        };
        let hook = step.drop.as_ref().and_then(|d| d.hook.as_deref());
        let how = hook.map_or("dropped by netfilter".into(), |h| {
            format!("dropped by netfilter in {h}")
        });
        let to = sentence::word(&step.dst.addr.to_string());
        let mut next = vec![
            sentence::on(
                &step.node,
                "iptables-save -c | grep -E -- '-j (DROP|REJECT)'",
            ),
            sentence::on(&step.node, &format!("conntrack -L -d {to}")),
        ];
        if let Some((ns, _)) = sentence::named(&step.dst, "pod") {
            next.insert(
                0,
                format!(
                    "kubectl get networkpolicy -n {} -o yaml",
                    sentence::word(ns)
                ),
            );
        }
        drops::found(trace, self.code(), (packet, step), &how, next)
    }
}
