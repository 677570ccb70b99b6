//! The words of a line, quoted as `iptables-save` quotes (`xtables_save_string`
//! in iptables' `libxtables/xtables.c`): double quotes, a backslash before a
//! quote or a backslash.

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Without its quotes.
    pub(super) text: String,
    /// Some of it was quoted, so that it is no option.
    pub(super) quoted: bool,
}

impl Word {
    /// Whether it names an option.
    pub(super) fn is_option(&self) -> bool {
        !self.quoted && self.text.len() > 1 && self.text.starts_with('-')
    }

    /// Whether it is the negation.
    pub(super) fn is_not(&self) -> bool {
        !self.quoted && self.text == "!"
    }
}

/// Splits a line; fails when a quote is not closed.
pub(super) fn split(line: &str) -> Result<Vec<Word>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut inside = false;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c.is_whitespace() && !inside {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert(Word {
            text: String::new(),
            quoted: false,
        });
        match c {
            '"' => {
                inside = !inside;
                word.quoted = true;
            }
            '\\' => match chars.next() {
                Some(escaped) => word.text.push(escaped),
                None => return Err("ends in a backslash"),
            },
            c => word.text.push(c),
        }
    }
    if inside {
        return Err("a quote is not closed");
    }
    words.extend(word);
    Ok(words)
}

/// A number, decimal or hexadecimal with `0x`.
pub(super) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// `value` or `value/mask`.
pub(super) fn masked(text: &str) -> Option<(u32, u32)> {
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u32::MAX)),
    }
}

/// The number of a protocol by its name in `/etc/protocols` or in iptables' own
/// list (`xtables_chain_protos`); 0 stands for every protocol.
pub(super) fn protocol(text: &str) -> Option<u8> {
    const NAMES: [(&str, u8); 26] = [
        ("icmp", 1),
        ("igmp", 2),
        ("ipencap", 4),
        ("ipv4", 4),
        ("st", 5),
        ("tcp", 6),
        ("egp", 8),
        ("igp", 9),
        ("udp", 17),
        ("dccp", 33),
        ("ipv6", 41),
        ("rsvp", 46),
        ("gre", 47),
        ("esp", 50),
        ("ipsec-esp", 50),
        ("ah", 51),
        ("ipsec-ah", 51),
        ("ipv6-icmp", 58),
        ("icmpv6", 58),
        ("ospf", 89),
        ("pim", 103),
        ("vrrp", 112),
        ("l2tp", 115),
        ("sctp", 132),
        ("ipv6-mh", 135),
        ("udplite", 136),
    ];
    if text == "all" {
        return Some(0);
    }
    let by_name = NAMES.iter().find(|(name, _)| *name == text).map(|n| n.1);
    by_name.or_else(|| text.parse().ok())
}
