//! From a target's options to what it does (`iptables-extensions(8)`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::decision::Translation;
use super::model::{Chain, MarkOp, Ports, Target};
use super::parse::{Group, Opt};
use super::words::{masked, number};

/// What `-j` or `-g` does.
pub(super) fn build(
    group: &Group,
    goto: bool,
    chains: &BTreeMap<Arc<str>, Chain>,
) -> Result<Target, String> {
    let name: Arc<str> = group.name.as_str().into();
    if chains.contains_key(&name) {
        return Ok(if goto {
            Target::Goto(name)
        } else {
            Target::Jump(name)
        });
    }
    if goto {
        return Err(format!("there is no chain {name}"));
    }
    let known = match &*name {
        "ACCEPT" => Some(Target::Accept),
        "DROP" => Some(Target::Drop),
        "RETURN" => Some(Target::Return),
        "REJECT" => Some(Target::Reject(
            group
                .opt("--reject-with")
                .and_then(Opt::arg)
                .unwrap_or("icmp-port-unreachable")
                .into(),
        )),
        "MARK" => mark(group).map(Target::Mark),
        "CONNMARK" => connmark(group),
        "DNAT" => translation(group, "--to-destination").map(Target::Dnat),
        "SNAT" => translation(group, "--to-source").map(Target::Snat),
        "MASQUERADE" => ports_only(group).map(Target::Masquerade),
        "REDIRECT" => ports_only(group).map(Target::Redirect),
        "NOTRACK" => Some(Target::NoTrack),
        "CT" if group.opt("--notrack").is_some() => Some(Target::NoTrack),
        "NFQUEUE" | "QUEUE" => Some(Target::Queue),
        // These note something or alter what no rule asks for, and go on.
        "LOG" | "NFLOG" | "ULOG" | "AUDIT" | "TRACE" | "CT" | "TCPMSS" | "TCPOPTSTRIP" | "DSCP"
        | "TOS" | "TTL" | "HL" | "ECN" | "CHECKSUM" | "CLASSIFY" | "SECMARK" | "CONNSECMARK" => {
            Some(Target::Continue(Arc::clone(&name)))
        }
        _ => None,
    };
    Ok(known.unwrap_or_else(|| Target::Unknown {
        name,
        args: group.args(),
    }))
}

fn mark(group: &Group) -> Option<MarkOp> {
    match group.opts.as_slice() {
        [opt] => mark_op(&opt.name, opt.arg()?),
        _ => None,
    }
}

/// The five ways to write it, `libxt_MARK.c`.
fn mark_op(name: &str, arg: &str) -> Option<MarkOp> {
    let (clear, xor) = match name {
        "--set-xmark" => {
            let (value, mask) = masked(arg)?;
            (mask, value)
        }
        "--set-mark" => {
            let (value, mask) = masked(arg)?;
            (mask | value, value)
        }
        "--and-mark" => (!number(arg)?, 0),
        "--or-mark" => (number(arg)?, number(arg)?),
        "--xor-mark" => (0, number(arg)?),
        _ => return None,
    };
    Some(MarkOp { clear, xor })
}

fn connmark(group: &Group) -> Option<Target> {
    let mask = |name| match group.opt(name) {
        None => Some(None),
        Some(opt) => number(opt.arg()?).map(Some),
    };
    let both = mask("--mask")?;
    let nf = mask("--nfmask")?.or(both).unwrap_or(u32::MAX);
    let ct = mask("--ctmask")?.or(both).unwrap_or(u32::MAX);
    let known = |o: &Opt| {
        matches!(
            &*o.name,
            "--mask" | "--nfmask" | "--ctmask" | "--save-mark" | "--restore-mark"
        )
    };
    if group.opts.iter().all(known) {
        if group.opt("--save-mark").is_some() {
            return Some(Target::SaveMark { nf, ct });
        }
        return group
            .opt("--restore-mark")
            .map(|_| Target::RestoreMark { nf, ct });
    }
    mark(group).map(Target::SetConnMark)
}

fn is_random(group: &Group) -> bool {
    group.opt("--random").is_some() || group.opt("--random-fully").is_some()
}

/// `addr[-addr][:port[-port]]`, IPv6 addresses in brackets where a port follows.
fn translation(group: &Group, option: &str) -> Option<Translation> {
    let to = group.opt(option)?.arg()?;
    let (addrs, ports) = if let Some(rest) = to.strip_prefix('[') {
        let (addrs, rest) = rest.rsplit_once(']')?;
        (addrs, rest.strip_prefix(':'))
    } else if to.matches(':').count() > 1 {
        (to, None)
    } else {
        match to.split_once(':') {
            Some((addrs, ports)) => (addrs, Some(ports)),
            None => (to, None),
        }
    };
    let addrs = match addrs.split_once('-') {
        _ if addrs.is_empty() => None,
        Some((from, to)) => Some((addr(from)?, addr(to)?)),
        None => Some((addr(addrs)?, addr(addrs)?)),
    };
    let ports = match ports {
        // `8080-8090/9090` shifts ports; not known.
        Some(ports) if ports.contains('/') => return None,
        Some(ports) => Some(Ports::parse(ports)?),
        None => None,
    };
    Some(Translation {
        addrs,
        ports,
        random: is_random(group),
    })
}

fn addr(text: &str) -> Option<IpAddr> {
    text.trim_matches(['[', ']']).parse().ok()
}

fn ports_only(group: &Group) -> Option<Translation> {
    let ports = match group.opt("--to-ports") {
        None => None,
        Some(opt) => Some(Ports::parse(opt.arg()?)?),
    };
    Some(Translation {
        addrs: None,
        ports,
        random: is_random(group),
    })
}
