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

/// An IP address: the 16 bytes as on the wire, in two words, so that the BPF
/// backend copies and compares it without calling memcpy and memcmp (a call
/// inside the program, which old verifiers cannot look through). IPv4 addresses
/// are IPv4-mapped (`::ffff:a.b.c.d`, RFC 4291 section 2.5.5.2).
pub type Addr = [u64; 2];

/// A five-tuple, 40 bytes. Ports are in host order. ICMP echo carries its
/// identifier in both ports, so that request and reply invert into each other.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// Source address.
    pub src: Addr,
    /// Destination address.
    pub dst: Addr,
    /// Source port, or the ICMP echo identifier.
    pub sport: u16,
    /// Destination port, or the ICMP echo identifier.
    pub dport: u16,
    /// IP protocol number. A word of its own, so that no padding is left: the
    /// tuple is a map key, and clearing odd bytes would be a call to memset.
    pub proto: u32,
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
        }
    }

    /// The slot of the Bloom array that stands for this tuple, in
    /// `0..BLOOM_SLOTS`. A tuple and its inverse share one slot, since both are
    /// always tagged together.
    #[inline(always)]
    #[must_use]
    pub fn bloom_slot(&self) -> u32 {
        slot(
            [fold(&self.src), fold(&self.dst)],
            [self.sport, self.dport],
            self.proto,
        )
    }
}

/// [`Tuple::bloom_slot`] of IPv4 addresses, as words in network order, without
/// making a tuple of them.
#[inline(always)]
#[must_use]
pub fn bloom_slot_v4(src_be: u32, dst_be: u32, sport: u16, dport: u16, proto: u32) -> u32 {
    const PREFIX: u32 = fold(&mapped(0));
    slot([PREFIX ^ src_be, PREFIX ^ dst_be], [sport, dport], proto)
}

/// All four half words of an address: IPv4 differs in the last only, IPv6 in
/// all of them.
#[inline(always)]
const fn fold(a: &Addr) -> u32 {
    let w = a[0] ^ a[1];
    (w ^ (w >> 32)) as u32
}

#[inline(always)]
fn slot(addrs: [u32; 2], ports: [u16; 2], proto: u32) -> u32 {
    // The multiplications carry upwards, the shifts bring it down again.
    let end = |addr: u32, port: u16| {
        let mut x = addr ^ u32::from(port);
        x ^= x >> 16;
        x = x.wrapping_mul(0x9e37_79b1);
        x ^ (x >> 15)
    };
    // A sum, so that both directions have the same.
    let both = end(addrs[0], ports[0]).wrapping_add(end(addrs[1], ports[1]));
    let h = (both ^ proto).wrapping_mul(0x85eb_ca6b);
    (h ^ (h >> 16)) & (crate::BLOOM_SLOTS - 1)
}

/// An address from its 16 bytes.
#[inline(always)]
#[must_use]
pub const fn from_bytes(b: [u8; 16]) -> Addr {
    [
        u64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
        u64::from_ne_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]),
    ]
}

/// The 16 bytes of an address.
#[inline(always)]
#[must_use]
pub const fn to_bytes(a: Addr) -> [u8; 16] {
    let (h, l) = (a[0].to_ne_bytes(), a[1].to_ne_bytes());
    [
        h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7], l[0], l[1], l[2], l[3], l[4], l[5], l[6],
        l[7],
    ]
}

/// What stands before an IPv4 address in its mapped form.
const MAPPED: u64 = u64::from_ne_bytes([0, 0, 0xff, 0xff, 0, 0, 0, 0]);

/// Puts an IPv4 address, as a word in network order, into the 16-byte form.
#[inline(always)]
#[must_use]
pub const fn mapped(v4_be: u32) -> Addr {
    let shift = if cfg!(target_endian = "little") {
        32
    } else {
        0
    };
    [0, MAPPED | (v4_be as u64) << shift]
}

/// The IPv4 address in an IPv4-mapped one, as a word in network order.
#[inline(always)]
#[must_use]
pub const fn unmapped(a: &Addr) -> Option<u32> {
    let shift = if cfg!(target_endian = "little") {
        32
    } else {
        0
    };
    if is_mapped(a) {
        Some((a[1] >> shift) as u32)
    } else {
        None
    }
}

/// Whether an address is an IPv4-mapped one.
#[inline(always)]
#[must_use]
pub const fn is_mapped(a: &Addr) -> bool {
    let mask = u64::from_ne_bytes([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    a[0] == 0 && a[1] & mask == MAPPED
}

/// From the client to the server.
pub const DIR_REQUEST: u64 = 0;
/// From the server to the client.
pub const DIR_REPLY: u64 = 1;

/// What a followed tuple belongs to, 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Flow id: the boot-time clock in nanoseconds at the first match, shifted
    /// left by six bits, with the CPU number below; never zero.
    pub flow: u64,
    /// [`DIR_REQUEST`] or [`DIR_REPLY`].
    pub dir: u64,
}

impl Tag {
    /// The tag of the other direction.
    #[inline(always)]
    #[must_use]
    pub const fn back(self) -> Self {
        Self {
            flow: self.flow,
            dir: self.dir ^ 1,
        }
    }
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
            src: mapped(u32::from_ne_bytes([10, 244, 80, a])),
            dst: mapped(u32::from_ne_bytes([10, 98, 235, b])),
            sport: 45_266,
            dport: 80,
            proto: u32::from(proto::TCP),
        }
    }

    #[test]
    fn layout_is_pinned() {
        assert_eq!(size_of::<Tuple>(), 40);
        assert_eq!(size_of::<Tag>(), 16);
    }

    #[test]
    fn addresses_keep_their_bytes() {
        let v4 = mapped(u32::from_ne_bytes([10, 244, 80, 65]));
        let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 244, 80, 65];
        assert_eq!(to_bytes(v4), bytes);
        assert_eq!(from_bytes(bytes), v4);
        assert!(is_mapped(&v4));
        assert!(!is_mapped(&from_bytes([0xfd; 16])));
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
    fn a_slot_is_the_same_without_a_tuple() {
        for a in 0..=255 {
            let t = tuple(a, 7);
            let [src, dst] = [t.src, t.dst].map(|a| unmapped(&a).expect("it is IPv4"));
            let slot = bloom_slot_v4(src, dst, t.sport, t.dport, t.proto);
            assert_eq!(slot, t.bloom_slot());
        }
        assert_eq!(unmapped(&from_bytes([0xfd; 16])), None);
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
