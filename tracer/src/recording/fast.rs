//! Steps as `tracer` itself writes them, in this order of members and without
//! blanks: most lines of a recording, read several times faster than any JSON.
//! Whatever is not exactly so is left to the general way.

use std::borrow::Cow;
use std::sync::Arc;

use crate::trace::{Endpoint, Icmp, Ip, Role, Step, StepKind, Tcp, Tunnel, intern, word};

/// The step in this line, if it is one of the plain kind.
pub(super) fn step(line: &str) -> Option<Step> {
    let mut at = Cursor(line);
    at.take("{\"packet\":")?;
    let packet = Some(at.number()?);
    at.take(",\"flow\":")?;
    let flow = Some(at.number()?);
    at.take(",\"ts\":")?;
    let ts = at.number()?;
    let node = at.name(",\"node\":\"")?;
    let iface = at.name(",\"iface\":\"")?;
    let role = match at.optional(",\"role\":\"")? {
        Some(text) => Some(role(text)?),
        None => None,
    };
    at.take(",\"kind\":\"")?;
    let kind = kind(at.text()?)?;
    let reply = at.has(",\"reply\":true");
    at.take(",\"src\":")?;
    let src = at.endpoint()?;
    at.take(",\"dst\":")?;
    let dst = at.endpoint()?;
    at.take(",\"proto\":\"")?;
    let proto = word(at.text()?);
    at.take(",\"len\":")?;
    let len = at.small()?;
    at.take(",\"payload\":")?;
    let payload = at.small()?;
    let tcp = if at.has(",\"tcp\":{\"flags\":\"") {
        Some(at.tcp()?)
    } else {
        None
    };
    let ip = if at.has(",\"ip\":{\"id\":") {
        Some(at.ip()?)
    } else {
        None
    };
    let icmp = if at.has(",\"icmp\":{\"type\":") {
        Some(at.icmp()?)
    } else {
        None
    };
    let tunnel = if at.has(",\"tunnel\":{\"kind\":\"") {
        Some(at.tunnel()?)
    } else {
        None
    };
    let merged = if at.has(",\"merged\":") {
        Some(at.small()?)
    } else {
        None
    };
    let inferred = at.has(",\"inferred\":true");
    let from = at.optional(",\"from\":\"")?.map(word);
    (at.0 == "}").then_some(Step {
        packet,
        flow,
        ts,
        node,
        iface,
        role,
        kind,
        reply,
        src,
        dst,
        proto,
        len,
        payload,
        tcp,
        ip,
        icmp,
        tunnel,
        rewrite: None,
        rule: None,
        drop: None,
        conntrack: None,
        route: None,
        hook: None,
        merged,
        inferred,
        from,
    })
}

/// What is left of the line.
struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    /// Passes what has to be here.
    fn take(&mut self, what: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(what)?;
        Some(())
    }

    /// Passes what may be here.
    fn has(&mut self, what: &str) -> bool {
        self.take(what).is_some()
    }

    fn number(&mut self) -> Option<u64> {
        let end = self.0.bytes().position(|b| !b.is_ascii_digit())?;
        let (digits, rest) = self.0.split_at_checked(end)?;
        // JSON has no numbers with zeros before them.
        if digits.len() > 1 && digits.starts_with('0') {
            return None;
        }
        self.0 = rest;
        digits.parse().ok()
    }

    fn small<N: TryFrom<u64>>(&mut self) -> Option<N> {
        N::try_from(self.number()?).ok()
    }

    /// A string whose first quote was passed, without anything escaped.
    fn text(&mut self) -> Option<&'a str> {
        let end = self
            .0
            .bytes()
            .position(|b| b == b'"' || b == b'\\' || b < 0x20)?;
        let (text, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.strip_prefix('"')?;
        Some(text)
    }

    #[allow(
        clippy::option_option,
        reason = "it is not there, or it is not as it should be"
    )]
    fn optional(&mut self, what: &str) -> Option<Option<&'a str>> {
        if self.has(what) {
            self.text().map(Some)
        } else {
            Some(None)
        }
    }

    fn name(&mut self, what: &str) -> Option<Arc<str>> {
        self.optional(what).map(|text| intern(text.unwrap_or("")))
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        self.take("{\"addr\":\"")?;
        let addr = self.text()?.parse().ok()?;
        let port = if self.has(",\"port\":") {
            Some(self.small()?)
        } else {
            None
        };
        let name = self.optional(",\"name\":\"")?.map(intern);
        self.take("}")?;
        Some(Endpoint { addr, port, name })
    }

    fn tcp(&mut self) -> Option<Tcp> {
        let flags = word(self.text()?);
        self.take(",\"seq\":")?;
        let seq = self.small()?;
        self.take(",\"ack\":")?;
        let ack = self.small()?;
        self.take("}")?;
        Some(Tcp { flags, seq, ack })
    }

    fn ip(&mut self) -> Option<Ip> {
        let id = self.small()?;
        self.take(",\"ttl\":")?;
        let ttl = self.small()?;
        let frag_offset = if self.has(",\"frag_offset\":") {
            Some(self.small()?)
        } else {
            None
        };
        let more_fragments = self.has(",\"more_fragments\":true");
        self.take("}")?;
        Some(Ip {
            id,
            ttl,
            frag_offset,
            more_fragments,
        })
    }

    fn icmp(&mut self) -> Option<Icmp> {
        let kind = self.small()?;
        self.take(",\"code\":")?;
        let code = self.small()?;
        let mtu = if self.has(",\"mtu\":") {
            Some(self.small()?)
        } else {
            None
        };
        self.take("}")?;
        Some(Icmp { kind, code, mtu })
    }

    fn tunnel(&mut self) -> Option<Tunnel> {
        let kind: Cow<'static, str> = word(self.text()?);
        let vni = if self.has(",\"vni\":") {
            Some(self.small()?)
        } else {
            None
        };
        self.take(",\"src\":\"")?;
        let src = self.text()?.parse().ok()?;
        self.take(",\"dst\":\"")?;
        let dst = self.text()?.parse().ok()?;
        let sport = if self.has(",\"sport\":") {
            Some(self.small()?)
        } else {
            None
        };
        let dport = if self.has(",\"dport\":") {
            Some(self.small()?)
        } else {
            None
        };
        self.take("}")?;
        Some(Tunnel {
            kind,
            vni,
            src,
            dst,
            sport,
            dport,
        })
    }
}

fn role(text: &str) -> Option<Role> {
    Some(match text {
        "pod-veth" => Role::PodVeth,
        "pod-eth0" => Role::PodEth0,
        "tunnel" => Role::Tunnel,
        "uplink" => Role::Uplink,
        "bridge" => Role::Bridge,
        "other" => Role::Other,
        _ => return None,
    })
}

/// Kinds of steps that have nothing of their own.
fn kind(text: &str) -> Option<StepKind> {
    Some(match text {
        "ingress" => StepKind::Ingress,
        "egress" => StepKind::Egress,
        "encap" => StepKind::Encap,
        "decap" => StepKind::Decap,
        "deliver" => StepKind::Deliver,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    /// Lines of steps in all kept recordings.
    fn lines() -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/recordings");
        let files = std::fs::read_dir(folder).unwrap();
        let paths = files.map(|f| f.unwrap().path()).filter(|p| p.is_file());
        let texts = paths.map(|p| std::fs::File::open(p).unwrap());
        let texts = texts.map(|f| String::from_utf8(zstd::decode_all(f).unwrap()).unwrap());
        let lines: Vec<String> = texts
            .flat_map(|t| t.lines().map(str::to_owned).collect::<Vec<_>>())
            .filter(|l| l.starts_with("{\"packet\""))
            .collect();
        assert!(lines.len() > 2000);
        lines
    }

    #[test]
    fn most_lines_are_read_and_as_by_the_general_way() {
        let lines = lines();
        let read = lines.iter().filter(|line| {
            let fast = step(line);
            let slow: Step = serde_json::from_str(line).unwrap();
            fast.is_some_and(|fast| {
                assert_eq!(fast, slow, "{line}");
                true
            })
        });
        assert!(read.count() > lines.len() * 8 / 10);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn changed_lines_are_read_alike_or_not_at_all(
            line in prop::sample::select(lines()),
            at: prop::sample::Index,
            change in "[ -~\\n]{0,3}",
            cut in 0_usize..4,
        ) {
            let at = at.index(line.len());
            let end = (at + cut).min(line.len());
            prop_assume!(line.is_char_boundary(at) && line.is_char_boundary(end));
            let changed = format!("{}{change}{}", &line[..at], &line[end..]);
            if let Some(fast) = step(&changed) {
                let slow: Step = serde_json::from_str(&changed).unwrap();
                prop_assert_eq!(fast, slow, "{}", changed);
            }
        }
    }
}
