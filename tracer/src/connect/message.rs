//! DNS messages (RFC 1035 section 4): one question, and what its answer says.

use std::net::IpAddr;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

use crate::trace::probe::{Kind, Reply};

/// The largest answer without EDNS is 512 bytes; servers are known to send
/// more.
pub(super) const LARGEST: usize = 4096;

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) reply: Reply,
    /// In words.
    pub(super) detail: String,
    pub(super) addrs: Vec<IpAddr>,
}

fn qtype(kind: Kind) -> QTYPE {
    QTYPE::TYPE(match kind {
        Kind::A => TYPE::A,
        Kind::Aaaa => TYPE::AAAA,
    })
}

/// A query for a name, with its final dot or without.
pub(super) fn question(id: u16, name: &str, kind: Kind) -> Result<Vec<u8>, String> {
    let bare = name.strip_suffix('.').unwrap_or(name);
    if bare.split('.').any(str::is_empty) {
        return Err(format!(
            "{name:?} is no name for DNS: it has an empty label"
        ));
    }
    let name = Name::new(bare).map_err(|e| format!("{bare} is no name for DNS: {e}"))?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let class = QCLASS::CLASS(CLASS::IN);
    packet
        .questions
        .push(Question::new(name, qtype(kind), class, false));
    packet.build_bytes_vec().map_err(|e| e.to_string())
}

/// Reads the answer to the question with this id and name; `None` where the
/// message is something else or damaged, so that the answer may yet come.
pub(super) fn answer(message: &[u8], id: u16, name: &str, kind: Kind) -> Option<Answer> {
    let packet = Packet::parse(message).ok()?;
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) {
        return None;
    }
    // A server that cannot read the question need not repeat it.
    if let Some(asked) = packet.questions.first() {
        let bare = name.trim_end_matches('.');
        let same = asked.qname.to_string().eq_ignore_ascii_case(bare);
        if !same || asked.qtype != qtype(kind) {
            return None;
        }
    }
    let records = packet
        .answers
        .iter()
        .filter_map(|r| match (&r.rdata, kind) {
            (RData::A(a), Kind::A) => Some(IpAddr::from(a.address.to_be_bytes())),
            (RData::AAAA(a), Kind::Aaaa) => Some(IpAddr::from(a.address.to_be_bytes())),
            _ => None,
        });
    let mut addrs: Vec<IpAddr> = Vec::new();
    for addr in records {
        if !addrs.contains(&addr) {
            addrs.push(addr);
        }
    }
    let (reply, detail) = match packet.rcode() {
        RCODE::NoError if addrs.is_empty() => (Reply::NoAddress, format!("no {kind} record")),
        RCODE::NoError => {
            let all: Vec<String> = addrs.iter().map(ToString::to_string).collect();
            (Reply::Addresses, all.join(", "))
        }
        RCODE::NameError => (Reply::NoSuchName, "NXDOMAIN".to_owned()),
        other => (Reply::Error, error(other)),
    };
    if reply != Reply::Addresses {
        addrs.clear();
    }
    Some(Answer {
        reply,
        detail,
        addrs,
    })
}

/// The names of RFC 1035 section 4.1.1 and RFC 2136 section 2.2 as dig has them.
fn error(code: RCODE) -> String {
    match code {
        RCODE::FormatError => "FORMERR".to_owned(),
        RCODE::ServerFailure => "SERVFAIL".to_owned(),
        RCODE::NotImplemented => "NOTIMP".to_owned(),
        RCODE::Refused => "REFUSED".to_owned(),
        other => format!("{other:?}").to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "remote.default.svc.cluster.local.";

    /// The answer to [`NAME`], as a server writes it: a pointer to the name.
    fn reply(rcode: u8, records: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = question(7, NAME, Kind::A).unwrap();
        out[2] |= 0x80;
        out[3] = rcode;
        out[7] = records.len() as u8;
        for (kind, data) in records {
            out.extend([0xc0, 12]);
            out.extend(kind.to_be_bytes());
            out.extend([0, 1, 0, 0, 0, 30]);
            out.extend((data.len() as u16).to_be_bytes());
            out.extend(*data);
        }
        out
    }

    fn read(message: &[u8]) -> Option<Answer> {
        answer(message, 7, NAME, Kind::A)
    }

    #[test]
    fn a_question_on_the_wire() {
        let bytes = question(0x1234, "a.bc.", Kind::Aaaa).unwrap();
        assert_eq!(
            bytes,
            [
                0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 2, b'b', b'c', 0, 0, 28, 0, 1
            ]
        );
        assert!(question(1, &format!("{}.", "x".repeat(64)), Kind::A).is_err());
        assert!(question(1, "a..b.", Kind::A).is_err());
    }

    #[test]
    fn answers() {
        let found = read(&reply(
            0,
            &[(1, &[10, 98, 235, 247]), (1, &[10, 98, 235, 247])],
        ))
        .unwrap();
        assert_eq!(found.reply, Reply::Addresses);
        assert_eq!(found.addrs, [IpAddr::from([10, 98, 235, 247])]);
        // An alias, and the address of what it stands for.
        let alias = [(5, &[1, b'x', 0][..]), (1, &[10, 0, 0, 1][..])];
        assert_eq!(read(&reply(0, &alias)).unwrap().detail, "10.0.0.1");
        for (rcode, wanted, detail) in [
            (0, Reply::NoAddress, "no A record"),
            (3, Reply::NoSuchName, "NXDOMAIN"),
            (2, Reply::Error, "SERVFAIL"),
            (5, Reply::Error, "REFUSED"),
        ] {
            let found = read(&reply(rcode, &[])).unwrap();
            assert_eq!((found.reply, &*found.detail), (wanted, detail));
        }
    }

    #[test]
    fn what_is_no_answer_to_this() {
        let good = reply(0, &[(1, &[10, 0, 0, 1])]);
        assert!(read(&good).is_some());
        assert_eq!(answer(&good, 8, NAME, Kind::A), None, "another id");
        assert_eq!(answer(&good, 7, "other.", Kind::A), None, "another name");
        assert_eq!(answer(&good, 7, NAME, Kind::Aaaa), None, "another type");
        assert_eq!(
            read(&question(7, NAME, Kind::A).unwrap()),
            None,
            "a question"
        );
    }

    #[test]
    fn damaged_messages() {
        let good = reply(0, &[(1, &[10, 0, 0, 1])]);
        for length in 0..good.len() {
            assert_eq!(read(&good[..length]), None, "{length} bytes");
        }
        // A name that points at itself, an address of three bytes, a record
        // that is longer than the message.
        let mut looped = good.clone();
        looped[12..14].copy_from_slice(&[0xc0, 12]);
        assert_eq!(read(&looped), None);
        assert_eq!(read(&reply(0, &[(1, &[10, 0, 0])])), None);
        let mut long = good;
        let at = long.len() - 5;
        long[at] = 200;
        assert_eq!(read(&long), None);
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_panic(mut bytes: Vec<u8>) {
            let _ = read(&bytes);
            let mut good = reply(0, &[]);
            good.append(&mut bytes);
            good[7] = 3;
            let _ = read(&good);
        }
    }
}
