//! All rules. The order says which of two findings at the same time is told
//! first.

use super::Rule;

mod delivered;
mod drops;
mod mtu_exceeded;
mod netfilter_drop;
mod no_reply;
mod no_traffic;
mod packet_drop;
mod rejected;
mod underlay_loss;

/// Every rule.
pub static RULES: &[&dyn Rule] = &[
    &no_traffic::NoTraffic,
    &netfilter_drop::NetfilterDrop,
    &packet_drop::PacketDrop,
    &mtu_exceeded::MtuExceeded,
    &rejected::Rejected,
    &underlay_loss::UnderlayLoss,
    &no_reply::NoReply,
    &delivered::Delivered,
];
