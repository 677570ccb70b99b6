//! `checksum-fault`: a wrong checksum.

use super::tell::tale;
use crate::diagnose::netfilter::judged;
use crate::diagnose::stop::{How, Stop};
use crate::diagnose::{Case, Found, Page, Rule};

pub(super) struct ChecksumFault;

static PAGE: Page = Page {
    code: "checksum-fault",
    title: "a wrong checksum on the way",
    meaning: "The packet arrived with a checksum that does not fit: an offload (of the network card, the hypervisor or the tunnel device) computed it wrongly or not at all. The receiver drops it silently, or conntrack calls it INVALID. Ping works, TCP and UDP do not.",
    told: "The kernel freed the packet with reason TCP_CSUM, UDP_CSUM, ICMP_CSUM or IP_CSUM; or a first packet (SYN) was INVALID to conntrack after the tunnel, or the node's checksum error counters grew.",
    ruled_out: "TcpInCsumErrors and UdpInCsumErrors do not grow and conntrack counts no invalid packets.",
    next: &[
        "ethtool -K vxlan.calico tx-checksum-ip-generic off  # as a test",
        "nstat -az TcpInCsumErrors UdpInCsumErrors",
        "conntrack -S",
    ],
};

impl Rule for ChecksumFault {
    fn page(&self) -> &'static Page {
        &PAGE
    }

    fn explain(&self, case: &Case<'_>, stop: &Stop<'_>) -> Option<Found> {
        if stop.how != How::Dropped {
            return None;
        }
        let named = stop.reason().filter(|r| r.ends_with("_CSUM"));
        let node = case.node(stop.node());
        let invalid = node.map_or(0, |n| n.grew("conntrack.invalid"));
        let errors = node.map_or(0, |n| n.grew("TcpInCsumErrors") + n.grew("UdpInCsumErrors"));
        // A SYN begins a connection, so nothing but itself can make it INVALID.
        let first = stop.packet.summary == "SYN";
        let by_rule = first && judged(case, stop).is_some_and(|j| j.invalid);
        let by_count = stop.by_netfilter() && first && by_rule && invalid > 0;
        let by_errors = by_rule && errors > 0;
        if named.is_none() && !by_count && !by_errors {
            return None;
        }
        let sender = stop.packet.steps.first().map_or("", |s| &*s.node);
        let what = named.map_or_else(
            || {
                "conntrack takes this first packet for INVALID, so its checksum or header is wrong"
                    .to_owned()
            },
            |r| format!("its checksum is wrong ({r})"),
        );
        let cause = format!("{what}; look at checksum offload on {sender}");
        tale(case, stop, PAGE.code, &cause)
            .also((invalid > 0).then(|| {
                format!(
                    "conntrack counted {invalid} invalid packets on {}",
                    stop.node()
                )
            }))
            .also((errors > 0).then(|| format!("{errors} checksum errors on {}", stop.node())))
            .check_on(sender, "ethtool -k vxlan.calico | grep checksum")
            .check("conntrack -S")
            .done()
    }
}
