//! Netlink attributes: reading (`struct nlattr`) and writing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Flags in an attribute's type that are not part of its number.
const TYPE_MASK: u16 = 0x3fff;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;

/// Attributes in a row of bytes; ends at the first that does not fit.
#[derive(Clone, Debug)]
pub struct Attrs<'a>(pub &'a [u8]);

impl<'a> Iterator for Attrs<'a> {
    type Item = (u16, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let len = u16::from_ne_bytes(self.0.get(..2)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(self.0.get(2..4)?.try_into().ok()?);
        let body = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & TYPE_MASK, Value(body)))
    }
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(pub &'a [u8]);

impl<'a> Value<'a> {
    /// A byte.
    pub fn u8(self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Two bytes in network order.
    pub fn be16(self) -> Option<u16> {
        Some(u16::from_be_bytes(*self.0.first_chunk()?))
    }

    /// Four bytes in host order.
    pub fn u32(self) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.0.first_chunk()?))
    }

    /// Four bytes in network order.
    pub fn be32(self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.0.first_chunk()?))
    }

    /// Text up to the zero byte.
    pub fn text(self) -> Arc<str> {
        let end = self.0.iter().position(|b| *b == 0);
        let bytes = self
            .0
            .get(..end.unwrap_or(self.0.len()))
            .unwrap_or_default();
        Arc::from(String::from_utf8_lossy(bytes))
    }

    /// An address of four or sixteen bytes.
    pub fn addr(self) -> Option<IpAddr> {
        if let Ok(v4) = <[u8; 4]>::try_from(self.0) {
            return Some(Ipv4Addr::from(v4).into());
        }
        let v6 = <[u8; 16]>::try_from(self.0).ok()?;
        Some(Ipv6Addr::from(v6).into())
    }

    /// Eight bytes in host order.
    pub fn u64(self) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.0.first_chunk()?))
    }

    /// An Ethernet address as text; `None` for those of other lengths, which
    /// are a tunnel's own address, or none at all.
    pub fn mac(self) -> Option<Arc<str>> {
        let six = <[u8; 6]>::try_from(self.0).ok()?;
        Some(six.map(|byte| format!("{byte:02x}")).join(":").into())
    }

    /// Attributes within.
    pub fn nested(self) -> Attrs<'a> {
        Attrs(self.0)
    }
}

/// Builds a request's attributes.
#[derive(Clone, Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Starts behind a fixed header.
    pub fn new(header: &[u8]) -> Self {
        Self(header.to_vec())
    }

    /// Appends an attribute.
    pub fn put(&mut self, kind: u16, value: &[u8]) {
        self.0
            .extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Appends attributes within an attribute.
    pub fn nest(&mut self, kind: u16, inner: &Writer) {
        self.put(kind | NESTED, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_truncation_is_survived() {
        let mut inner = Writer::default();
        inner.put(1, b"veth\0");
        let mut all = Writer::default();
        all.put(3, &[7]);
        all.nest(18, &inner);
        all.put(4, &[10, 0, 0, 1]);
        let read: Vec<_> = Attrs(&all.0).collect();
        let kinds: Vec<_> = read.iter().map(|(k, _)| *k).collect();
        assert_eq!(kinds, [3, 18, 4]);
        assert_eq!(read[0].1.u8(), Some(7));
        let (_, kind) = read[1].1.nested().next().unwrap();
        assert_eq!(&*kind.text(), "veth");
        assert_eq!(read[2].1.addr(), Some("10.0.0.1".parse().unwrap()));
        for len in 0..all.0.len() {
            assert!(Attrs(&all.0[..len]).count() <= 3);
        }
        assert_eq!(Attrs(&[0, 0, 1, 0]).count(), 0);
        let mac = Value(&[0x66, 0xb0, 0x94, 0x1d, 0xfb, 0x92]).mac();
        assert_eq!(mac.as_deref(), Some("66:b0:94:1d:fb:92"));
        assert_eq!(Value(&[10, 0, 0, 1]).mac(), None);
    }
}
