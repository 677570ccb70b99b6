//! kube-proxy's mode, told by the rules it leaves in a node's namespace.
//!
//! Reading must not load kernel modules: nftables is asked only where its code
//! is in the kernel already, the old iptables only where the namespace has
//! tables of it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use serde::Serialize;

use crate::kallsyms::Kallsyms;
use crate::netlink::{Attrs, Message, collect};
use crate::netns::{self, NetNs};

/// How long `iptables-legacy-save` may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// `NFNL_SUBSYS_NFTABLES`, `include/uapi/linux/netfilter/nfnetlink.h`, with
/// `NFT_MSG_GETCHAIN` and `NFT_MSG_NEWCHAIN`, `.../nf_tables.h`.
const GET_CHAIN: u16 = 10 << 8 | 4;
const NEW_CHAIN: u16 = 10 << 8 | 3;
/// `NFTA_CHAIN_TABLE`, `NFTA_CHAIN_NAME`.
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
/// `AF_INET` in `nfgenmsg.nfgen_family`: table family `ip`.
const FAMILY_IP: u8 = 2;

/// kube-proxy's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mode {
    /// iptables through `nf_tables`.
    IptablesNft,
    /// iptables through the old interface.
    IptablesLegacy,
    /// Its own nftables tables.
    Nftables,
    /// IPVS.
    Ipvs,
    /// Nothing of it was found.
    None,
    /// Nothing was found, and not everything could be read.
    Unknown,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Proxy {
    pub(super) mode: Mode,
    /// What is to be known about it, or what could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

impl Mode {
    /// For people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::IptablesNft => "iptables (nf_tables)",
            Self::IptablesLegacy => "iptables (legacy)",
            Self::Nftables => "nftables",
            Self::Ipvs => "IPVS",
            Self::None => "none found",
            Self::Unknown => "not known",
        }
    }
}

/// What a namespace holds, as far as it could be read.
#[derive(Debug, Default)]
struct Seen {
    /// kube-ipvs0 is there.
    ipvs_device: bool,
    /// `/proc/net/ip_vs` lists a service.
    ipvs_services: bool,
    /// (table, chain) of the nftables family `ip`.
    nft: BTreeSet<(Arc<str>, Arc<str>)>,
    /// The old nat table has the chain KUBE-SERVICES.
    legacy: bool,
    /// Sentences about what could not be read.
    unread: Vec<String>,
}

/// Looks into a node's namespace.
pub(super) fn find(ns: &NetNs, symbols: Option<&Kallsyms>) -> Proxy {
    let nft = symbols.is_some_and(|s| s.has("nft_do_chain"));
    match netns::run_in(ns, || look(nft)) {
        Ok(seen) => judge(&seen),
        Err(e) => Proxy {
            mode: Mode::Unknown,
            note: Some(format!("its namespace cannot be entered: {e}")),
        },
    }
}

/// Reads the thread's own namespace.
fn look(nft: bool) -> Seen {
    // /proc/net is the process's; the thread has been moved.
    let net = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let mut seen = Seen {
        ipvs_device: net("dev").is_ok_and(|text| {
            text.lines()
                .any(|l| l.trim_start().starts_with("kube-ipvs0:"))
        }),
        ipvs_services: net("ip_vs").is_ok_and(|text| lists_services(&text)),
        ..Seen::default()
    };
    if nft {
        match collect(
            libc::NETLINK_NETFILTER,
            GET_CHAIN,
            &[FAMILY_IP, 0, 0, 0],
            chain,
        ) {
            Ok(chains) => seen.nft.extend(chains),
            Err(e) => seen.unread.push(format!("nftables: {e}")),
        }
    }
    match net("ip_tables_names") {
        Ok(names) if names.lines().any(|l| l == "nat") => match legacy() {
            Ok(found) => seen.legacy = found,
            Err(e) => seen.unread.push(format!("iptables-legacy-save: {e}")),
        },
        // Empty, or the file is not there: nobody uses it.
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => seen.unread.push(format!("/proc/net/ip_tables_names: {e}")),
    }
    seen
}

/// Virtual services stand on lines that name their protocol.
fn lists_services(text: &str) -> bool {
    text.lines().any(|l| {
        ["TCP ", "UDP ", "SCTP ", "FWM "]
            .iter()
            .any(|p| l.starts_with(p))
    })
}

/// `struct nfgenmsg`, 4 bytes, then the chain's attributes.
fn chain(message: Message<'_>) -> Option<(Arc<str>, Arc<str>)> {
    if message.kind != NEW_CHAIN || message.body.first() != Some(&FAMILY_IP) {
        return None;
    }
    let (mut table, mut name) = (None, None);
    for (kind, value) in Attrs(message.body.get(4..)?) {
        match kind {
            CHAIN_TABLE => table = Some(value.text()),
            CHAIN_NAME => name = Some(value.text()),
            _ => {}
        }
    }
    Some((table?, name?))
}

/// Whether the old nat table has kube-proxy's chain. Chains are listed first,
/// so a large table is not read to its end.
fn legacy() -> io::Result<bool> {
    let mut child = Command::new("iptables-legacy-save")
        .args(["-t", "nat"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (tell, told) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut lines = BufReader::new(out).lines().map_while(Result::ok);
            let _ = tell.send(lines.any(|l| l.starts_with(":KUBE-SERVICES ")));
        });
    }
    let found = told.recv_timeout(PATIENCE);
    // It may be gone already; either way nothing of it stays.
    let _ = child.kill();
    let _ = child.wait();
    found.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
}

fn judge(seen: &Seen) -> Proxy {
    let has =
        |table: &str, chain: &str| seen.nft.iter().any(|(t, c)| &**t == table && &**c == chain);
    let nftables = seen.nft.iter().any(|(table, _)| &**table == "kube-proxy");
    let nft = has("nat", "KUBE-SERVICES");
    // IPVS mode keeps KUBE-SERVICES for what must be masqueraded.
    let mode = if seen.ipvs_services || seen.ipvs_device {
        Mode::Ipvs
    } else if nftables {
        Mode::Nftables
    } else if nft {
        Mode::IptablesNft
    } else if seen.legacy {
        Mode::IptablesLegacy
    } else if seen.unread.is_empty() {
        Mode::None
    } else {
        Mode::Unknown
    };
    let note = match mode {
        Mode::Unknown => Some(format!("could not read {}", seen.unread.join("; "))),
        Mode::None => Some("Services are not translated by kube-proxy here; the CNI may do it".to_owned()),
        Mode::Ipvs => Some(
            "IPVS translates outside the hooks that are probed: its rewrites are worked out from the change between two \
             interfaces"
                .to_owned(),
        ),
        _ if usize::from(nftables) + usize::from(nft) + usize::from(seen.legacy) > 1 => Some(
            "rules of more than one backend are loaded, left over by a change of mode perhaps; packets pass all of them"
                .to_owned(),
        ),
        _ => None,
    };
    Proxy { mode, note }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chains(names: &[(&str, &str)]) -> BTreeSet<(Arc<str>, Arc<str>)> {
        names
            .iter()
            .map(|(t, c)| (Arc::from(*t), Arc::from(*c)))
            .collect()
    }

    #[track_caller]
    fn check(seen: &Seen, mode: Mode, noted: bool) {
        let proxy = judge(seen);
        assert_eq!(
            (proxy.mode, proxy.note.is_some()),
            (mode, noted),
            "{proxy:?}"
        );
    }

    #[test]
    fn each_mode_has_its_mark() {
        let nft = || chains(&[("nat", "KUBE-SERVICES"), ("filter", "FORWARD")]);
        check(
            &Seen {
                nft: nft(),
                ..Seen::default()
            },
            Mode::IptablesNft,
            false,
        );
        let tables = chains(&[("kube-proxy", "services")]);
        check(
            &Seen {
                nft: tables,
                ..Seen::default()
            },
            Mode::Nftables,
            false,
        );
        check(
            &Seen {
                legacy: true,
                ..Seen::default()
            },
            Mode::IptablesLegacy,
            false,
        );
        check(
            &Seen {
                ipvs_device: true,
                nft: nft(),
                ..Seen::default()
            },
            Mode::Ipvs,
            true,
        );
        check(
            &Seen {
                legacy: true,
                nft: nft(),
                ..Seen::default()
            },
            Mode::IptablesNft,
            true,
        );
    }

    #[test]
    fn nothing_found_is_told_from_nothing_read() {
        check(&Seen::default(), Mode::None, true);
        let unread = vec!["nftables: Operation not permitted".to_owned()];
        check(
            &Seen {
                unread,
                ..Seen::default()
            },
            Mode::Unknown,
            true,
        );
        // A chain of that name in another table is not kube-proxy's.
        let nft = chains(&[("filter", "KUBE-SERVICES")]);
        check(
            &Seen {
                nft,
                ..Seen::default()
            },
            Mode::None,
            true,
        );
    }

    #[test]
    fn ipvs_without_services_lists_headings_only() {
        let heads = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight\n";
        assert!(!lists_services(heads));
        assert!(lists_services(&format!("{heads}TCP  0A60000A:0035 rr \n")));
    }
}
