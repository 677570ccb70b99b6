//! Just enough DNS (RFC 1035) for a cluster resolver and for the client that asks it.

pub mod resolver;

use std::fmt;
use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail};

/// An IPv4 address record.
pub const TYPE_A: u16 = 1;
/// The record that says how long an absence may be remembered.
pub const TYPE_SOA: u16 = 6;
/// An IPv6 address record.
pub const TYPE_AAAA: u16 = 28;

const CLASS_IN: u16 = 1;
const HEADER: usize = 12;

/// Whether a name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rcode {
    /// The name exists, with or without a record of the type asked for.
    NoError,
    /// The question cannot be understood.
    FormErr,
    /// The name does not exist.
    NxDomain,
    /// Anything else.
    Other(u8),
}

impl Rcode {
    fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::NoError,
            1 => Self::FormErr,
            3 => Self::NxDomain,
            other => Self::Other(other),
        }
    }

    fn bits(self) -> u8 {
        match self {
            Self::NoError => 0,
            Self::FormErr => 1,
            Self::NxDomain => 3,
            Self::Other(bits) => bits,
        }
    }
}

impl fmt::Display for Rcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoError => f.write_str("NOERROR"),
            Self::FormErr => f.write_str("FORMERR"),
            Self::NxDomain => f.write_str("NXDOMAIN"),
            Self::Other(bits) => write!(f, "RCODE{bits}"),
        }
    }
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The query's id, which the answer repeats.
    pub id: u16,
    /// The name, lower case, without the final dot.
    pub name: String,
    /// The record type asked for.
    pub kind: u16,
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether the name exists.
    pub rcode: Rcode,
    /// Its IPv4 addresses.
    pub addrs: Vec<Ipv4Addr>,
}

impl Question {
    /// The question as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + self.name.len() + 6);
        // Flags: a standard query, recursion desired. One question, nothing else.
        for word in [self.id, 0x0100, 1, 0, 0, 0] {
            out.extend(word.to_be_bytes());
        }
        self.encode_question(&mut out);
        out
    }

    /// The question in these bytes.
    pub fn decode(message: &[u8]) -> Result<Self> {
        if word(message, 2)? & 0x8000 != 0 || word(message, 4)? != 1 {
            bail!("not one question");
        }
        let (name, after) = decode_name(message, HEADER)?;
        if word(message, after + 2)? != CLASS_IN {
            bail!("not about the Internet");
        }
        Ok(Self {
            id: word(message, 0)?,
            name,
            kind: word(message, after)?,
        })
    }

    /// The answer to this question as bytes; without addresses it carries an SOA record.
    pub fn answer(&self, rcode: Rcode, addrs: &[Ipv4Addr]) -> Vec<u8> {
        let mut out = Vec::new();
        // Flags: response, authoritative, recursion desired and available.
        let flags = 0x8580 | u16::from(rcode.bits());
        let authority = u16::from(addrs.is_empty());
        for word in [self.id, flags, 1, addrs.len() as u16, authority, 0] {
            out.extend(word.to_be_bytes());
        }
        self.encode_question(&mut out);
        for addr in addrs {
            // The owner is the question's name: a pointer to offset 12.
            out.extend([0xc0, HEADER as u8]);
            encode_record(&mut out, TYPE_A, 30, &addr.octets());
        }
        if addrs.is_empty() {
            encode_name(&mut out, "cluster.local");
            let mut soa = Vec::new();
            encode_name(&mut soa, "ns.dns.cluster.local");
            encode_name(&mut soa, "hostmaster.cluster.local");
            for number in [1_u32, 7200, 1800, 86400, 30] {
                soa.extend(number.to_be_bytes());
            }
            encode_record(&mut out, TYPE_SOA, 30, &soa);
        }
        out
    }

    fn encode_question(&self, out: &mut Vec<u8>) {
        encode_name(out, &self.name);
        out.extend(self.kind.to_be_bytes());
        out.extend(CLASS_IN.to_be_bytes());
    }
}

impl Answer {
    /// The answer to that question in these bytes.
    pub fn decode(message: &[u8], question: &Question) -> Result<Self> {
        if word(message, 0)? != question.id || word(message, 2)? & 0x8000 == 0 {
            bail!("not the answer to this question");
        }
        let rcode = Rcode::from_bits((word(message, 2)? & 0x000f) as u8);
        let mut at = HEADER;
        for _ in 0..word(message, 4)? {
            at = decode_name(message, at)?.1 + 4;
        }
        let mut addrs = Vec::new();
        for _ in 0..word(message, 6)? {
            at = decode_name(message, at)?.1;
            let kind = word(message, at)?;
            let length = usize::from(word(message, at + 8)?);
            let data = message
                .get(at + 10..at + 10 + length)
                .context("record cut short")?;
            if let (TYPE_A, &[a, b, c, d]) = (kind, data) {
                addrs.push(Ipv4Addr::new(a, b, c, d));
            }
            at += 10 + length;
        }
        Ok(Self { rcode, addrs })
    }
}

fn encode_record(out: &mut Vec<u8>, kind: u16, ttl: u32, data: &[u8]) {
    out.extend(kind.to_be_bytes());
    out.extend(CLASS_IN.to_be_bytes());
    out.extend(ttl.to_be_bytes());
    out.extend((data.len() as u16).to_be_bytes());
    out.extend(data);
}

fn encode_name(out: &mut Vec<u8>, name: &str) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        out.push(label.len() as u8);
        out.extend(label);
    }
    out.push(0);
}

/// The name at an offset, and the offset after it.
fn decode_name(message: &[u8], start: usize) -> Result<(String, usize)> {
    let mut name = String::new();
    let mut at = start;
    let mut after = None;
    // A name has at most 127 labels; more steps than that is a loop of pointers.
    for _ in 0..128 {
        let length = *message.get(at).context("name cut short")?;
        match length {
            0 => return Ok((name, after.unwrap_or(at + 1))),
            1..=63 => {
                let end = at + 1 + usize::from(length);
                let label = message.get(at + 1..end).context("label cut short")?;
                if !name.is_empty() {
                    name.push('.');
                }
                name.extend(
                    label
                        .iter()
                        .map(|&byte| char::from(byte.to_ascii_lowercase())),
                );
                at = end;
            }
            _ => {
                after.get_or_insert(at + 2);
                at = usize::from(word(message, at)? & 0x3fff);
            }
        }
    }
    bail!("name too long");
}

fn word(message: &[u8], at: usize) -> Result<u16> {
    match message.get(at..at + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => bail!("message cut short"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Question, Rcode, TYPE_A, decode_name};
    use std::net::Ipv4Addr;

    fn question() -> Question {
        Question {
            id: 0x1234,
            name: "remote.default.svc.cluster.local".to_owned(),
            kind: TYPE_A,
        }
    }

    #[test]
    fn question_survives_the_wire() {
        assert_eq!(
            Question::decode(&question().encode()).expect("a well-formed message"),
            question()
        );
    }

    #[test]
    fn answer_survives_the_wire() {
        let addrs = vec![Ipv4Addr::new(10, 98, 235, 247)];
        let bytes = question().answer(Rcode::NoError, &addrs);
        let answer = Answer::decode(&bytes, &question()).expect("a well-formed message");
        assert_eq!((answer.rcode, answer.addrs), (Rcode::NoError, addrs));
        let none = question().answer(Rcode::NxDomain, &[]);
        assert_eq!(
            Answer::decode(&none, &question())
                .expect("a well-formed message")
                .rcode,
            Rcode::NxDomain
        );
    }

    #[test]
    fn garbage_is_an_error() {
        assert!(Question::decode(&[0; 5]).is_err());
        let pointer_to_itself = [0xc0, 0];
        assert!(decode_name(&pointer_to_itself, 0).is_err());
        for length in 0..question().encode().len() {
            assert!(Question::decode(&question().encode()[..length]).is_err());
        }
    }
}
