//! From a match's options to what it asks (`iptables-extensions(8)`).

use std::sync::Arc;

use super::model::{Condition, CtStatus, CtTest, Direction, Limit, Match, Net, Ports};
use super::parse::{Group, Opt, written};
use super::words::{masked, protocol};

/// Whether a long option needs no module.
pub(super) fn is_plain(name: &str) -> bool {
    matches!(
        name,
        "--source"
            | "--src"
            | "--destination"
            | "--dst"
            | "--in-interface"
            | "--out-interface"
            | "--protocol"
            | "--proto"
            | "--fragment"
    )
}

/// What a group of options asks.
pub(super) fn build(group: &Group) -> Result<Vec<Condition>, String> {
    let whole = match &*group.name {
        "" | "tcp" | "udp" | "udplite" | "sctp" | "dccp" | "multiport" | "icmp" | "icmp6"
        | "set" | "mark" | "connmark" | "conntrack" | "state" | "length" | "physdev" => {
            return group.opts.iter().map(|opt| each(group, opt)).collect();
        }
        "statistic" => statistic(group),
        "addrtype" => return Ok(addrtype(group)),
        "rpfilter" => rpfilter(group),
        "recent" => recent(group),
        // Counts in an object of its own; only one with a quota could say no,
        // and kube-proxy makes none.
        "nfacct" => Some(Condition {
            not: false,
            test: Match::Always,
        }),
        _ => None,
    };
    Ok(vec![whole.unwrap_or_else(|| Condition {
        not: false,
        test: Match::Unknown {
            name: group.name.as_str().into(),
            args: group.args(),
        },
    })])
}

/// One option that is a match by itself.
fn each(group: &Group, opt: &Opt) -> Result<Condition, String> {
    let test = match &*group.name {
        "" => return plain(opt),
        "set" => set(opt),
        "conntrack" | "state" => conntrack(opt).map(Match::Ct),
        _ => simple(&group.name, opt),
    };
    Ok(Condition {
        not: opt.not && test.is_some(),
        test: test.unwrap_or_else(|| Match::Unknown {
            name: group.name.as_str().into(),
            args: written(opt).into(),
        }),
    })
}

fn plain(opt: &Opt) -> Result<Condition, String> {
    let bad = || format!("{} is not understood", written(opt));
    let test = match &*opt.name {
        "-f" | "--fragment" => Some(Match::Fragment),
        "-p" | "--protocol" | "--proto" => {
            let name = opt.arg().ok_or_else(bad)?;
            match protocol(name) {
                Some(0) if opt.not => return Err("no protocol can match".into()),
                Some(0) => Some(Match::Always),
                Some(number) => Some(Match::Protocol(number)),
                None => Some(Match::Unknown {
                    name: "protocol".into(),
                    args: name.into(),
                }),
            }
        }
        "-s" | "--source" | "--src" => opt.arg().and_then(Net::parse).map(Match::Source),
        "-d" | "--destination" | "--dst" => opt.arg().and_then(Net::parse).map(Match::Destination),
        "-i" | "--in-interface" => opt.arg().map(|name| Match::In(name.into())),
        "-o" | "--out-interface" => opt.arg().map(|name| Match::Out(name.into())),
        _ => None,
    };
    let test = test.ok_or_else(bad)?;
    Ok(Condition { not: opt.not, test })
}

fn simple(module: &str, opt: &Opt) -> Option<Match> {
    Some(match (&*opt.name, opt.args.as_slice()) {
        ("--syn", []) => Match::TcpFlags {
            mask: 0x17,
            set: 0x02,
        },
        ("--tcp-flags", [mask, set]) => Match::TcpFlags {
            mask: tcp_flags(mask)?,
            set: tcp_flags(set)?,
        },
        ("--sport" | "--source-port", [port]) => Match::SourcePort(vec![Ports::parse(port)?]),
        ("--dport" | "--destination-port", [port]) => {
            Match::DestinationPort(vec![Ports::parse(port)?])
        }
        ("--sports" | "--source-ports", [list]) => Match::SourcePort(ports(list)?),
        ("--dports" | "--destination-ports", [list]) => Match::DestinationPort(ports(list)?),
        ("--ports", [list]) => Match::EitherPort(ports(list)?),
        ("--icmp-type" | "--icmpv6-type", [kind]) => icmp(kind)?,
        ("--mark", [value]) => {
            let (value, mask) = masked(value)?;
            match module {
                "connmark" => Match::ConnMark(value, mask),
                _ => Match::Mark(value, mask),
            }
        }
        ("--length", [range]) => {
            let (from, to) = range.split_once(':').unwrap_or((range, range));
            let to = if to.is_empty() { "65535" } else { to };
            Match::Length(from.parse().ok()?, to.parse().ok()?)
        }
        ("--physdev-in", [name]) => Match::BridgePortIn(name.as_str().into()),
        ("--physdev-is-in", []) => Match::BridgePortIn("+".into()),
        _ => return None,
    })
}

fn ports(list: &str) -> Option<Vec<Ports>> {
    list.split(',').map(Ports::parse).collect()
}

fn tcp_flags(list: &str) -> Option<u8> {
    let bit = |name: &str| {
        Some(match name {
            "FIN" => 0x01,
            "SYN" => 0x02,
            "RST" => 0x04,
            "PSH" => 0x08,
            "ACK" => 0x10,
            "URG" => 0x20,
            "ALL" => 0x3f,
            "NONE" => 0,
            _ => return None,
        })
    };
    if let Some(hex) = list.strip_prefix("0x") {
        return u8::from_str_radix(hex, 16).ok();
    }
    list.split(',')
        .try_fold(0, |bits, name| Some(bits | bit(name)?))
}

fn icmp(kind: &str) -> Option<Match> {
    if kind == "any" || kind == "255" {
        return Some(Match::Always);
    }
    Some(match kind.split_once('/') {
        Some((kind, code)) => Match::Icmp(kind.parse().ok()?, Some(code.parse().ok()?)),
        None => Match::Icmp(kind.parse().ok()?, None),
    })
}

fn set(opt: &Opt) -> Option<Match> {
    match (&*opt.name, opt.args.as_slice()) {
        ("--match-set", [name, sides]) => Some(Match::Set {
            name: name.as_str().into(),
            sides: sides.split(',').map(direction).collect::<Option<_>>()?,
        }),
        // Says that elements marked `nomatch` answer as such, which concerns
        // only what is done with the answer.
        ("--return-nomatch", []) => Some(Match::Always),
        _ => None,
    }
}

/// `src` or `dst`.
pub(super) fn direction(side: &str) -> Option<Direction> {
    match side {
        "src" => Some(Direction::Src),
        "dst" => Some(Direction::Dst),
        _ => None,
    }
}

fn conntrack(opt: &Opt) -> Option<CtTest> {
    let arg = opt.arg()?;
    Some(match &*opt.name {
        "--ctstate" | "--state" => CtTest::State(arg.split(',').map(Arc::from).collect()),
        "--ctstatus" => CtTest::Status(arg.split(',').map(ct_status).collect::<Option<_>>()?),
        "--ctproto" => CtTest::Protocol(protocol(arg)?),
        "--ctorigsrc" => CtTest::OriginalSource(Net::parse(arg)?),
        "--ctorigdst" => CtTest::OriginalDestination(Net::parse(arg)?),
        "--ctorigsrcport" => CtTest::OriginalSourcePort(Ports::parse(arg)?),
        "--ctorigdstport" => CtTest::OriginalDestinationPort(Ports::parse(arg)?),
        "--ctdir" => CtTest::Reply(match arg {
            "REPLY" => true,
            "ORIGINAL" => false,
            _ => return None,
        }),
        _ => return None,
    })
}

fn ct_status(name: &str) -> Option<CtStatus> {
    Some(match name {
        "NONE" => CtStatus::None,
        "EXPECTED" => CtStatus::Expected,
        "SEEN_REPLY" => CtStatus::SeenReply,
        "ASSURED" => CtStatus::Assured,
        "CONFIRMED" => CtStatus::Confirmed,
        _ => return None,
    })
}

/// `random` has a probability; `nth` counts, and where its counter stands is as
/// good as chance.
fn statistic(group: &Group) -> Option<Condition> {
    let value = |name| {
        let opt = group.opt(name)?;
        Some((opt.not, opt.arg()?.parse::<f64>().ok()?))
    };
    let (not, chance) = match group.opt("--mode")?.arg()? {
        "random" => value("--probability")?,
        "nth" => {
            let (not, every) = value("--every")?;
            (not, 1.0 / every)
        }
        _ => return None,
    };
    (0.0..=1.0).contains(&chance).then_some(Condition {
        not,
        test: Match::Chance(chance),
    })
}

fn addrtype(group: &Group) -> Vec<Condition> {
    let limit = if group.opt("--limit-iface-in").is_some() {
        Some(Limit::In)
    } else {
        group.opt("--limit-iface-out").map(|_| Limit::Out)
    };
    let one = |opt: &Opt| {
        let side = match &*opt.name {
            "--src-type" => Direction::Src,
            "--dst-type" => Direction::Dst,
            "--limit-iface-in" | "--limit-iface-out" => return None,
            _ => {
                return Some(Condition {
                    not: false,
                    test: Match::Unknown {
                        name: "addrtype".into(),
                        args: written(opt).into(),
                    },
                });
            }
        };
        let types = opt.arg().unwrap_or_default();
        Some(Condition {
            not: opt.not,
            test: Match::AddrType {
                side,
                types: types.split(',').map(Arc::from).collect(),
                limit,
            },
        })
    };
    group.opts.iter().filter_map(one).collect()
}

fn rpfilter(group: &Group) -> Option<Condition> {
    let known = ["--loose", "--validmark", "--invert", "--accept-local"];
    if !group.opts.iter().all(|o| known.contains(&&*o.name)) {
        return None;
    }
    Some(Condition {
        not: group.opt("--invert").is_some(),
        test: Match::ReversePath {
            loose: group.opt("--loose").is_some(),
            validmark: group.opt("--validmark").is_some(),
        },
    })
}

/// `--set` always holds (`net/netfilter/xt_recent.c`), the others ask the list.
fn recent(group: &Group) -> Option<Condition> {
    let asks = |o: &&Opt| matches!(&*o.name, "--rcheck" | "--update" | "--remove" | "--set");
    let opt = group.opts.iter().find(asks)?;
    let test = if opt.name == "--set" {
        Match::Always
    } else {
        Match::Recent {
            list: group
                .opt("--name")
                .and_then(Opt::arg)
                .unwrap_or("DEFAULT")
                .into(),
            options: group.args(),
        }
    };
    Some(Condition { not: opt.not, test })
}
