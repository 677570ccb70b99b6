//! Five-tuples and the tags that mark them as followed.

/// IP protocol numbers (IANA "Assigned Internet Protocol Numbers").
pub mod proto {
    /// ICMP, RFC 792.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP, RFC 2003.
    pub const IPIP: u8 = 4;
    /// TCP, RFC 9293.
    pub const TCP: u8 = 6;
    /// UDP, RFC 768.
    pub const UDP: u8 = 17;
    /// IPv6 in IP, RFC 4213.
    pub const IPV6: u8 = 41;
    /// `ICMPv6`, RFC 4443.
    pub const ICMPV6: u8 = 58;
    /// SCTP, RFC 9260.
    pub const SCTP: u8 = 132;
}

/// A five-tuple, 40 bytes. IPv4 addresses are IPv4-mapped (`::ffff:a.b.c.d`,
/// RFC 4291 section 2.5.5.2), ports are in host order. ICMP echo carries its
/// identifier in both ports, so that request and reply invert into each other.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
    /// Source port, or the ICMP echo identifier.
    pub sport: u16,
    /// Destination port, or the ICMP echo identifier.
    pub dport: u16,
    /// IP protocol number.
    pub proto: u8,
    /// Always zero: the tuple is a map key, every byte counts.
    pub pad: [u8; 3],
}

impl Tuple {
    /// The tuple of an answer.
    #[inline(always)]
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            sport: self.dport,
            dport: self.sport,
            proto: self.proto,
            pad: [0; 3],
        }
    }

    /// The slot of the Bloom array that stands for this tuple, in
    /// `0..BLOOM_SLOTS`. A tuple and its inverse share one slot, since both are
    /// always tagged together.
    #[inline(always)]
    #[must_use]
    pub fn bloom_slot(&self) -> u32 {
        let word = |a: &[u8; 16], at: usize| {
            u32::from_ne_bytes([a[at], a[at + 1], a[at + 2], a[at + 3]])
        };
        // IPv4 differs in the last word only, IPv6 in all of them.
        let src = word(&self.src, 12) ^ word(&self.src, 4) ^ word(&self.src, 0);
        let dst = word(&self.dst, 12) ^ word(&self.dst, 4) ^ word(&self.dst, 0);
        let src = src.wrapping_mul(0x9e37_79b1) ^ (self.sport as u32).wrapping_mul(0x85eb_ca6b);
        let dst = dst.wrapping_mul(0x9e37_79b1) ^ (self.dport as u32).wrapping_mul(0x85eb_ca6b);
        let h = (src.wrapping_add(dst)).wrapping_mul(0xc2b2_ae35) ^ (self.proto as u32);
        (h ^ (h >> 15)) & (crate::BLOOM_SLOTS - 1)
    }
}

/// Puts an IPv4 address, as its four bytes on the wire, into the 16-byte form.
#[inline(always)]
#[must_use]
pub const fn mapped(v4: [u8; 4]) -> [u8; 16] {
    [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, v4[0], v4[1], v4[2], v4[3],
    ]
}

/// From the client to the server.
pub const DIR_REQUEST: u8 = 0;
/// From the server to the client.
pub const DIR_REPLY: u8 = 1;

/// What a followed tuple belongs to, 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Flow id: the boot-time clock in nanoseconds at the first match, shifted
    /// left by six bits, with the CPU number below; never zero.
    pub flow: u64,
    /// [`DIR_REQUEST`] or [`DIR_REPLY`].
    pub dir: u8,
    /// Always zero.
    pub pad: [u8; 7],
}

#[cfg(feature = "user")]
// SAFETY: repr(C), integers only, no implicit padding (see the size test).
unsafe impl aya::Pod for Tuple {}
#[cfg(feature = "user")]
// SAFETY: repr(C), integers only, no implicit padding (see the size test).
unsafe impl aya::Pod for Tag {}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(a: u8, b: u8) -> Tuple {
        Tuple {
            src: mapped([10, 244, 80, a]),
            dst: mapped([10, 98, 235, b]),
            sport: 45_266,
            dport: 80,
            proto: proto::TCP,
            pad: [0; 3],
        }
    }

    #[test]
    fn layout_is_pinned() {
        assert_eq!(size_of::<Tuple>(), 40);
        assert_eq!(size_of::<Tag>(), 16);
    }

    #[test]
    fn a_tuple_and_its_inverse_share_a_slot() {
        for a in 0..=255 {
            for b in [1, 2, 247] {
                let t = tuple(a, b);
                assert_eq!(t.bloom_slot(), t.inverse().bloom_slot());
                assert_eq!(t.inverse().inverse(), t);
            }
        }
    }

    #[test]
    fn neighbouring_tuples_rarely_share_a_slot() {
        let mut bits = std::collections::BTreeSet::new();
        for a in 0..=255 {
            for port in 0..4 {
                let mut t = tuple(a, 247);
                t.sport = 40_000 + port;
                bits.insert(t.bloom_slot());
            }
        }
        // 1,024 tuples in 2^16 slots: about 1 % collide when the hash is fair.
        assert!(bits.len() > 1_000, "only {} distinct slots", bits.len());
    }
}
