//! Text of steps that is read: the same few names come a million times, so that
//! each is kept once. A small table that forgets, whatever a file holds.

use std::borrow::Cow;
use std::cell::RefCell;
use std::hash::Hasher;
use std::sync::Arc;

use rustc_hash::FxHasher;
use serde::de::{Deserializer, Error, Visitor};

/// Names remembered by a thread, a power of two.
const NAMES: usize = 1024;
/// Longer text is not worth it.
const LONGEST: usize = 256;

/// Words that steps are written with.
const WORDS: &[&str] = &[
    "tcp",
    "udp",
    "icmp",
    "icmpv6",
    "sctp",
    "S",
    "S.",
    ".",
    "P.",
    "F.",
    "FP.",
    "R",
    "R.",
    "E",
    "W",
    "SE",
    "SEW",
    "S.E",
    ".E",
    "P.E",
    "vxlan",
    "ipip",
    "ACCEPT",
    "DROP",
    "STOLEN",
    "QUEUE",
    "PREROUTING",
    "INPUT",
    "FORWARD",
    "OUTPUT",
    "POSTROUTING",
    "unicast",
    "local",
    "broadcast",
    "tuple change between two hooks",
    "confirmed conntrack entry carried by the packet",
];

thread_local! {
    static TABLE: RefCell<Vec<Option<Arc<str>>>> = RefCell::new(vec![None; NAMES]);
}

/// The text, shared with whoever had it before.
pub(crate) fn intern(text: &str) -> Arc<str> {
    if text.len() > LONGEST {
        return Arc::from(text);
    }
    let mut hasher = FxHasher::default();
    hasher.write(text.as_bytes());
    let at = hasher.finish() as usize % NAMES;
    TABLE.with_borrow_mut(|table| match table.get_mut(at) {
        Some(Some(known)) if **known == *text => Arc::clone(known),
        Some(slot) => Arc::clone(slot.insert(Arc::from(text))),
        None => Arc::from(text),
    })
}

struct Shared;

impl Visitor<'_> for Shared {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Arc<str>, E> {
        Ok(intern(text))
    }
}

struct Maybe;

impl<'de> Visitor<'de> for Maybe {
    type Value = Option<Arc<str>>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a string or null")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(Shared).map(Some)
    }
}

struct Word;

impl Visitor<'_> for Word {
    type Value = Cow<'static, str>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(known(text))
    }
}

/// One of the tool's own words, or any other.
pub(crate) fn known(text: &str) -> Cow<'static, str> {
    let word = WORDS.iter().find(|w| **w == text);
    word.map_or_else(|| Cow::Owned(text.to_owned()), |w| Cow::Borrowed(*w))
}

/// Reads a name.
pub(super) fn shared<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    from.deserialize_str(Shared)
}

/// Reads a name that may be null.
pub(super) fn maybe<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<str>>, D::Error> {
    from.deserialize_option(Maybe)
}

/// Reads one of the tool's own words, or any other.
pub(super) fn word<'de, D: Deserializer<'de>>(from: D) -> Result<Cow<'static, str>, D::Error> {
    from.deserialize_str(Word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_kept_once() {
        let (a, b) = (intern("worker"), intern("worker"));
        assert!(Arc::ptr_eq(&a, &b));
        for i in 0..10 * NAMES {
            assert_eq!(*intern(&i.to_string()), *i.to_string());
        }
        let long = "x".repeat(LONGEST + 1);
        assert!(!Arc::ptr_eq(&intern(&long), &intern(&long)));
    }
}
