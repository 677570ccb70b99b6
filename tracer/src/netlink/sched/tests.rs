use super::*;
use crate::netlink::{Writer, each_cut, message};

fn head(parent: u32, kind: &str) -> Writer {
    let mut head = [0; 20];
    head[4..8].copy_from_slice(&3u32.to_ne_bytes());
    head[8..12].copy_from_slice(&0x8001_0000u32.to_ne_bytes());
    head[12..16].copy_from_slice(&parent.to_ne_bytes());
    let mut body = Writer::new(&head);
    body.put(TCA_KIND, &[kind.as_bytes(), &[0]].concat());
    body
}

fn stats(drops: u32) -> Writer {
    let mut stats = Writer::default();
    let queue: Vec<u8> = [0, 0, drops, 0, 0]
        .iter()
        .flat_map(|w| w.to_ne_bytes())
        .collect();
    stats.put(TCA_STATS_QUEUE, &queue);
    stats
}

/// `tc qdisc add dev eth0 root netem delay 20ms loss 10%`, which dropped 7.
fn netem() -> Vec<u8> {
    let mut body = head(ROOT, "netem");
    let words = [0u32, 1000, u32::MAX / 10, 0, 0, 0];
    let fixed: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let mut options = Writer::new(&fixed);
    options.put(TCA_NETEM_LATENCY64, &20_000_000u64.to_ne_bytes());
    body.put(TCA_OPTIONS, &options.0);
    body.nest(TCA_STATS2, &stats(7));
    body.0
}

/// `tc filter add dev eth0 ingress flower dst_ip 10.0.0.1 action drop`, which dropped 2.
fn flower() -> Vec<u8> {
    let (mut parms, mut action, mut actions, mut options) = (
        Writer::default(),
        Writer::default(),
        Writer::default(),
        Writer::default(),
    );
    let gact: Vec<u8> = [1u32, 0, 2, 1, 1]
        .iter()
        .flat_map(|w| w.to_ne_bytes())
        .collect();
    parms.put(TCA_GACT_PARMS, &gact);
    action.put(TCA_ACT_KIND, b"gact\0");
    action.nest(TCA_ACT_STATS, &stats(2));
    action.nest(TCA_ACT_OPTIONS, &parms);
    actions.nest(1, &action);
    options.nest(3, &actions);
    let mut body = head(INGRESS, "flower");
    body.nest(TCA_OPTIONS, &options);
    body.0
}

#[test]
fn an_emulator_tells_its_loss_and_what_it_dropped() {
    let qdisc = parse(message(RTM_NEWQDISC, &netem()), RTM_NEWQDISC).unwrap();
    assert_eq!((qdisc.ifindex, qdisc.side, qdisc.drops), (3, Side::Root, 7));
    assert_eq!(qdisc.detail, "delay 20 ms loss 10.000% limit 1000");
}

#[test]
fn a_shaper_tells_its_rate() {
    let mut rate = [0; 12];
    rate[8..].copy_from_slice(&125_000u32.to_ne_bytes());
    let (mut body, mut options) = (head(ROOT, "tbf"), Writer::default());
    options.put(TCA_TBF_PARMS, &rate);
    body.nest(TCA_OPTIONS, &options);
    let qdisc = parse(message(RTM_NEWQDISC, &body.0), RTM_NEWQDISC).unwrap();
    assert_eq!(qdisc.detail, "rate 1000000 bit/s");
}

#[test]
fn a_classifier_tells_its_action_or_program() {
    let filter = parse(message(RTM_NEWTFILTER, &flower()), RTM_NEWTFILTER).unwrap();
    assert_eq!((&*filter.kind, &*filter.detail), ("flower", "gact drop"));
    assert_eq!((filter.side, filter.drops), (Side::Ingress, 2));
    let (mut body, mut options) = (head(EGRESS, "bpf"), Writer::default());
    options.put(TCA_BPF_NAME, b"cil_to_netdev\0");
    body.nest(TCA_OPTIONS, &options);
    let filter = parse(message(RTM_NEWTFILTER, &body.0), RTM_NEWTFILTER).unwrap();
    assert_eq!(
        (filter.side, &*filter.detail),
        (Side::Egress, "cil_to_netdev")
    );
    // The head of the list has no options.
    assert_eq!(
        parse(
            message(RTM_NEWTFILTER, &head(INGRESS, "bpf").0),
            RTM_NEWTFILTER
        ),
        None
    );
}

#[test]
fn cut_messages_are_survived() {
    for (kind, body) in [(RTM_NEWQDISC, netem()), (RTM_NEWTFILTER, flower())] {
        each_cut(kind, &body, |m| {
            let _ = parse(m, kind);
        });
    }
}
