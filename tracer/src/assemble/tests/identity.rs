//! Which packet is which.

use super::{A, Bench, CLIENT, Outcome, PA, Packet, S, SA, plain};

const IN: &str = "worker < cali747ff840379";
const OUT: &str = "worker > vxlan.calico";
const FAR: &str = "worker2 < vxlan.calico";

fn ids(b: &Bench) -> Vec<u64> {
    b.steps.iter().map(|s| s.packet.unwrap()).collect()
}

fn with_id(mut p: Packet, id: u32) -> Packet {
    p.ip_id = id;
    p
}

#[test]
fn three_dropped_syns_are_three_tries_of_one() {
    let mut b = Bench::new();
    for (n, wait) in [(1, 0), (2, 1_000_000_000), (3, 2_000_000_000)] {
        // The clone of a retransmitted skb has a fixed address.
        b.now += wait;
        b.seen(IN, with_id(plain(S, 100, 0, 0), n));
        b.drop("worker", with_id(plain(S, 100, 0, 0), n), Some("FORWARD"));
    }
    assert_eq!(ids(&b), [1, 1, 2, 2, 3, 3]);
    let fold = b.fold();
    let tries: Vec<_> = (1..=3)
        .map(|n| {
            fold.packet(n)
                .map(|p| (p.attempt, p.retransmits, p.outcome))
                .unwrap()
        })
        .collect();
    let o = Outcome::Dropped;
    assert_eq!(tries, [(1, None, o), (2, Some(1), o), (3, Some(1), o)]);
    assert_eq!(fold.flow(1).unwrap().state, "dropped");
}

#[test]
fn drops_before_any_interface_are_tries_too() {
    let mut b = Bench::new();
    for n in 1..=3 {
        b.now += 1_000_000_000;
        b.drop("worker", with_id(plain(S, 100, 0, 0), n), Some("OUTPUT"));
    }
    assert_eq!(ids(&b), [1, 2, 3]);
    assert_eq!(b.fold().packet(3).unwrap().attempt, 3);
}

#[test]
fn lost_syn_and_its_retry_are_told_apart_downstream() {
    let mut b = Bench::new();
    b.seen(IN, plain(S, 100, 0, 0));
    b.now += 1_000_000_000;
    b.seen(IN, plain(S, 100, 0, 0));
    b.skb = 1;
    b.seen(FAR, plain(S, 100, 0, 0));
    assert_eq!(ids(&b), [1, 2, 2]);
}

#[test]
fn duplicate_acks_keep_their_identity_when_swapped() {
    let mut b = Bench::new();
    for n in [7, 8, 9] {
        b.skb += 1;
        b.seen(IN, with_id(plain(A, 100, 500, 0), n));
    }
    for n in [8, 7, 9] {
        b.skb = 0x9000 + u64::from(n);
        b.seen(FAR, with_id(plain(A, 100, 500, 0), n));
    }
    assert_eq!(ids(&b), [1, 2, 3, 2, 1, 3]);
    assert_eq!(b.fold().packet(3).unwrap().attempt, 1);
}

#[test]
fn reused_skb_is_another_packet() {
    let mut b = Bench::new();
    b.seen(IN, plain(PA, 100, 1, 50));
    b.seen(IN, plain(PA, 150, 1, 50));
    b.seen(OUT, plain(PA, 150, 1, 50));
    b.seen(OUT, plain(PA, 100, 1, 50));
    assert_eq!(ids(&b), [1, 2, 2, 1]);
}

#[test]
fn skb_of_another_flow_means_nothing() {
    let mut b = Bench::new();
    b.seen(IN, plain(S, 100, 0, 0));
    b.flow = 78;
    b.seen(OUT, super::tcp((CLIENT, 1), ("10.0.0.9", 2), S, 100, 0));
    assert_eq!(ids(&b), [1, 2]);
    assert_eq!(b.steps[1].flow, Some(2));
}

#[test]
fn super_packet_is_recognised_in_its_segments() {
    let mut b = Bench::new();
    b.seen(IN, plain(PA, 1000, 1, 7000));
    for n in 0..5 {
        b.skb = 0x100 + n;
        let flags = if n == 4 { PA } else { A };
        b.seen(
            FAR,
            with_id(plain(flags, 1000 + 1400 * n as u32, 1, 1400), n as u32),
        );
    }
    assert_eq!(ids(&b), [1; 6]);
    assert!(b.steps.iter().all(|s| s.merged.is_none()));
}

#[test]
fn merged_segments_go_to_each_packet() {
    let mut b = Bench::new();
    for n in 0..4 {
        b.skb = 0x100 + n;
        b.seen(
            IN,
            with_id(plain(A, 1000 + 1448 * n as u32, 1, 1448), n as u32),
        );
    }
    // The first segment's skb carries all of them.
    b.skb = 0x100;
    b.seen(FAR, plain(A, 1000, 1, 4 * 1448));
    assert_eq!(ids(&b), [1, 2, 3, 4, 1, 2, 3, 4]);
    let seqs: Vec<u32> = b.steps[4..]
        .iter()
        .map(|s| s.tcp.as_ref().unwrap().seq)
        .collect();
    assert_eq!(seqs, [1000, 2448, 3896, 5344]);
    assert!(
        b.steps[4..]
            .iter()
            .all(|s| s.merged == Some(4) && s.payload == 1448)
    );
}

#[test]
fn sequence_numbers_wrap() {
    let mut b = Bench::new();
    let start = u32::MAX - 1000;
    b.seen(IN, plain(PA, start, 1, 3000));
    for n in 0..3 {
        b.skb += 1;
        b.seen(FAR, plain(A, start.wrapping_add(1000 * n), 1, 1000));
    }
    b.skb += 1;
    b.seen(IN, plain(PA, start.wrapping_add(3000), 1, 10));
    assert_eq!(ids(&b), [1, 1, 1, 1, 2]);
    assert_eq!(b.fold().packet(2).unwrap().attempt, 1);
}

#[test]
fn partly_new_range_makes_a_packet_for_the_new_bytes() {
    let mut b = Bench::new();
    b.seen(IN, plain(A, 1000, 1, 1000));
    b.skb += 1;
    b.seen(FAR, plain(A, 1000, 1, 2500));
    assert_eq!(ids(&b), [1, 1, 2]);
    let last = b.steps.last().unwrap();
    assert_eq!((last.tcp.as_ref().unwrap().seq, last.payload), (2000, 1500));
}

#[test]
fn retransmission_of_a_part_is_a_packet() {
    let mut b = Bench::new();
    b.seen(IN, plain(A, 1000, 1, 3000));
    b.skb += 1;
    b.now += 300_000_000;
    b.seen(IN, plain(A, 2000, 1, 1000));
    assert_eq!(ids(&b), [1, 2]);
    let fold = b.fold();
    let packet = fold.packet(2).unwrap();
    assert_eq!((packet.attempt, packet.retransmits), (2, Some(1)));
}

#[test]
fn looping_packet_stays_one_packet() {
    let mut b = Bench::new();
    for ttl in [64, 62, 60] {
        let mut p = plain(S, 100, 0, 0);
        p.ttl = ttl;
        b.seen(FAR, p);
    }
    assert_eq!(ids(&b), [1, 1, 1]);
}

#[test]
fn interleaved_flows_do_not_mix() {
    let mut b = Bench::new();
    for place in [IN, OUT, FAR] {
        for flow in 1..=5 {
            b.flow = flow;
            b.skb = flow << 8;
            b.seen(place, plain(S, 100, 0, 0));
        }
    }
    assert_eq!(ids(&b), [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5]);
}

#[test]
fn fragments_are_one_datagram() {
    let mut b = Bench::new();
    let part = |offset, more| {
        let mut p = with_id(plain(0, 0, 0, 1480), 99);
        (p.proto, p.frag_offset, p.more_fragments) = (17, offset, more);
        p
    };
    for place in [IN, FAR] {
        for (offset, more) in [(0, true), (1480, true), (2960, false)] {
            b.skb += 1;
            b.seen(place, part(offset, more));
        }
    }
    assert_eq!(ids(&b), [1; 6]);
    assert_eq!(b.steps[2].ip.as_ref().unwrap().frag_offset, Some(2960));
    assert_eq!(b.fold().packet(1).unwrap().attempt, 1);
}

#[test]
fn syn_ack_with_id_zero_is_followed() {
    let mut b = Bench::new();
    b.reply = true;
    b.seen(FAR, plain(SA, 1, 2, 0));
    b.skb = 4;
    b.seen(OUT, plain(SA, 1, 2, 0));
    assert_eq!(ids(&b), [1, 1]);
}
