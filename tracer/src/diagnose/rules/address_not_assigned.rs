//! `address-not-assigned`: the route of the pod's block leads into a black hole.

use super::tell::tale;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule};
use crate::rules::route::{self, RouteKind};
use crate::trace::{Role, StepKind};

pub(super) struct AddressNotAssigned;

static PAGE: Page = Page {
    code: "address-not-assigned",
    title: "no pod on this node has the address",
    meaning: "The node owns the address block (Calico writes a blackhole route for it), and has no more particular route for this address: the pod is gone, or the address is borrowed by a pod on another node and the route to it is missing. Packets from other hosts vanish, a local process gets 'invalid argument'.",
    told: "The packet was freed where the routing decision fails, and the node's best route for the destination is of type blackhole, unreachable or prohibit.",
    ruled_out: "`ip route get ADDRESS` names a device.",
    next: &[
        "ip route get ADDRESS",
        "ip route show type blackhole",
        "kubectl get pods -A -o wide | grep ADDRESS",
        "calicoctl ipam show --ip=ADDRESS",
    ],
};

impl Rule for AddressNotAssigned {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        let vanished = stop.how == How::Vanished;
        let ended = matches!(stop.how, How::Dropped | How::Rejected);
        if !(vanished || ended && stop.unrouted()) {
            return None;
        }
        let step = stop.place()?;
        let node = case.node(stop.node())?;
        let addr = step.dst.addr;
        let iif = stop
            .last
            .filter(|s| s.kind == StepKind::Ingress && s.role != Some(Role::PodEth0));
        let iif = iif.map(|s| &*s.iface);
        let answer = route::lookup(node, addr, Some(step.src.addr), iif, 0);
        let kind = match answer.kind {
            RouteKind::Blackhole => "blackhole",
            RouteKind::Unreachable => "unreachable",
            RouteKind::Prohibit => "prohibit",
            _ => return None,
        };
        if vanished && stop.last?.kind == StepKind::Egress {
            return None;
        }
        let net = answer
            .route
            .map_or_else(String::new, |r| format!(" {}/{}", r.dst, r.prefix));
        let elsewhere = case.owner(addr).filter(|o| *o != stop.node());
        let why = match elsewhere {
            Some(other) => {
                format!("the address is in use on {other}, and the route to it there is missing")
            }
            None => "no pod has the address".to_owned(),
        };
        let cause = format!(
            "the route for {addr} on {} is {kind}{net}: {why}",
            stop.node()
        );
        tale(case, stop, PAGE.code, &cause)
            .part(&addr.to_string())
            .check(&format!("ip route get {addr}"))
            .ask(format!("kubectl get pods -A -o wide | grep -w {addr}"))
            .done()
    }
}
