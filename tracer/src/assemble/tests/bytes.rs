//! Every byte is accounted for, once per observation point.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{A, Bench, plain};

/// Cuts `total` bytes at the given places.
fn cut(total: u32, cuts: &[u32]) -> Vec<(u32, u32)> {
    let mut at: Vec<u32> = cuts.iter().map(|c| c % total).filter(|c| *c > 0).collect();
    at.extend([0, total]);
    at.sort_unstable();
    at.dedup();
    at.windows(2).map(|w| (w[0], w[1])).collect()
}

const POINTS: [&str; 4] = [
    "worker < cali747ff840379",
    "worker > vxlan.calico",
    "worker2 < vxlan.calico",
    "worker2 > cali1b2c3d4e5f6",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// However a stream is cut at each point (GSO, GRO), and in whatever order
    /// the pieces pass, each byte is in one step per point, and no packet is
    /// made after the first point.
    #[test]
    fn every_byte_once_per_point(
        start in any::<u32>(),
        cuts in proptest::collection::vec(proptest::collection::vec(any::<u32>(), 0..8), 4),
        swaps in proptest::collection::vec(any::<u16>(), 4),
        same_skb in any::<bool>(),
    ) {
        const TOTAL: u32 = 9000;
        let mut b = Bench::new();
        let mut packets = 0;
        for (n, point) in POINTS.iter().enumerate() {
            let mut pieces = cut(TOTAL, &cuts[n]);
            if n > 0 {
                let turn = usize::from(swaps[n]) % pieces.len();
                pieces.rotate_left(turn);
            }
            for (from, to) in pieces {
                b.skb = if same_skb { 0x4000 } else { b.skb + 1 };
                b.seen(point, plain(A, start.wrapping_add(from), 1, to - from));
            }
            if n == 0 {
                packets = b.asm.packets();
            }
        }
        prop_assert_eq!(b.asm.packets(), packets);
        let mut seen: BTreeMap<(String, String), Vec<(u32, u32)>> = BTreeMap::new();
        for s in b.steps.iter().filter(|s| s.tcp.is_some() && !s.inferred) {
            let at = s.tcp.as_ref().unwrap().seq.wrapping_sub(start);
            let place = (s.node.to_string(), format!("{:?} {}", s.kind, s.iface));
            seen.entry(place).or_default().push((at, at + s.payload));
        }
        prop_assert_eq!(seen.len(), 4);
        for ranges in seen.values_mut() {
            ranges.sort_unstable();
            let mut next = 0;
            for (from, to) in ranges.iter() {
                prop_assert_eq!(*from, next);
                next = *to;
            }
            prop_assert_eq!(next, TOTAL);
        }
    }
}
