//! Bounds hold, and tell what they cost.

use super::{A, Bench, Limits, PA, plain};

const IN: &str = "worker < cali747ff840379";

#[test]
fn open_packets_are_bounded_and_counted() {
    let mut b = Bench::with(Limits {
        open_packets: 4,
        ..Limits::default()
    });
    for n in 0..10 {
        b.skb += 1;
        b.seen(IN, plain(PA, 1000 + n * 10, 1, 10));
    }
    assert_eq!(b.asm.packets(), 10);
    assert_eq!(b.asm.losses().user_space, 6);
}

#[test]
fn packets_that_ended_are_let_go_for_nothing() {
    let mut b = Bench::with(Limits {
        open_packets: 4,
        ..Limits::default()
    });
    for n in 0..10 {
        b.skb += 1;
        b.seen("worker2 > cali1b2c3d4e5f6", plain(PA, 1000 + n * 10, 1, 10));
    }
    assert_eq!(b.asm.losses().user_space, 0);
}

#[test]
fn open_packets_of_all_flows_are_bounded_and_counted() {
    let mut b = Bench::with(Limits {
        all_open: 4,
        ..Limits::default()
    });
    for n in 0..10 {
        b.flow = 1 + u64::from(n % 5);
        b.skb += 1;
        let mut packet = plain(PA, 1000 + n * 10, 1, 10);
        packet.sport += n as u16 % 5;
        b.seen(IN, packet);
    }
    assert_eq!((b.asm.packets(), b.asm.losses().user_space), (10, 6));
}

#[test]
fn flows_are_bounded_and_counted() {
    let mut b = Bench::with(Limits {
        flows: 3,
        ..Limits::default()
    });
    for flow in 1..=5 {
        b.flow = flow;
        b.seen(IN, plain(A, 1, 1, 0));
    }
    assert_eq!(b.asm.losses().user_space, 2);
    assert_eq!(b.steps.last().unwrap().flow, Some(5));
}

#[test]
fn idle_flows_are_forgotten() {
    let mut b = Bench::new();
    b.seen(IN, plain(A, 1, 1, 0));
    b.asm.tick(b.now + 500_000_000_000, &mut b.steps);
    b.seen(IN, plain(A, 1, 1, 0));
    assert_eq!(b.steps.last().unwrap().flow, Some(2));
}

#[test]
fn steps_of_a_packet_are_bounded() {
    let mut b = Bench::with(Limits {
        steps: 3,
        ..Limits::default()
    });
    for _ in 0..10 {
        b.drop("worker", plain(A, 1, 1, 0), None);
        b.now -= 1000;
    }
    assert_eq!((b.steps.len(), b.asm.losses().user_space), (3, 7));
}
