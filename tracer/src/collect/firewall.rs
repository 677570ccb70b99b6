//! Rules of iptables (both variants), ipsets and nftables, of the thread's
//! namespace, as the machine's own commands write them.
//!
//! Reading must change nothing. Asking `nf_tables` or ipset would load their
//! modules, so they are asked only where they are in the kernel; looking at an
//! old iptables table creates it and registers its hooks (`ipt_find_table_lock`,
//! `net/ipv4/netfilter/ip_tables.c`), so only tables that the namespace already
//! has are dumped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Reader, files, run, unread};
use crate::netlink::{Attrs, Message, collect};
use crate::state::{IptablesDump, Namespace};

/// `NFNL_SUBSYS_NFTABLES`, `include/uapi/linux/netfilter/nfnetlink.h`, with
/// `NFT_MSG_NEWTABLE`, `NFT_MSG_GETTABLE` and `NFTA_TABLE_NAME`, `.../nf_tables.h`.
const NEW_TABLE: u16 = 10 << 8;
const GET_TABLE: u16 = 10 << 8 | 1;
const NFTA_TABLE_NAME: u16 = 1;

/// `NFPROTO_*`, `include/uapi/linux/netfilter.h`, in nft's words.
const FAMILIES: &[(u8, &str)] = &[
    (1, "inet"),
    (2, "ip"),
    (3, "arp"),
    (5, "netdev"),
    (7, "bridge"),
    (10, "ip6"),
];

/// Tables of iptables.
const IPTABLES: &[&str] = &["filter", "nat", "mangle", "raw", "security"];

/// A table of nftables: family and name.
type Table = (&'static str, Arc<str>);

/// Reads all of it.
pub(super) fn read(reader: &Reader, into: &mut Namespace) {
    let mut tables = BTreeSet::new();
    if reader.has_nft() {
        match collect(libc::NETLINK_NETFILTER, GET_TABLE, &[0; 4], table) {
            Ok(all) => tables.extend(all),
            // In the kernel or as a module, but not for this namespace.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            Err(e) => into
                .unread
                .push(unread("nft", format!("tables cannot be listed: {e}"))),
        }
    }
    let (iptables, mut others): (BTreeSet<Table>, BTreeSet<Table>) =
        tables.into_iter().partition(is_iptables);
    for ipv6 in [false, true] {
        let family = if ipv6 { "ip6" } else { "ip" };
        let tables = iptables.iter().filter(|(f, _)| *f == family);
        others.extend(nft_variant(reader, ipv6, tables.cloned().collect(), into));
        legacy_variant(reader, ipv6, into);
    }
    nft(reader, &others, into);
    ipsets(reader, into);
}

/// `struct nfgenmsg`, 4 bytes: family, version, resource id.
fn table(m: Message<'_>) -> Option<Table> {
    if m.kind != NEW_TABLE {
        return None;
    }
    let family = *m.body.first()?;
    let (_, family) = FAMILIES.iter().find(|(number, _)| *number == family)?;
    let mut attrs = Attrs(m.body.get(4..)?);
    let (_, name) = attrs.find(|(kind, _)| *kind == NFTA_TABLE_NAME)?;
    Some((family, name.text()))
}

fn is_iptables((family, name): &Table) -> bool {
    matches!(*family, "ip" | "ip6") && IPTABLES.contains(&&**name)
}

/// `iptables-nft-save`, or what else writes the same; the tables that it does
/// not tell.
fn nft_variant(
    reader: &Reader,
    ipv6: bool,
    tables: BTreeSet<Table>,
    into: &mut Namespace,
) -> BTreeSet<Table> {
    if tables.is_empty() {
        return tables;
    }
    match save(reader, ipv6, "nft", into) {
        Some(text) => {
            let told = |(_, name): &Table| !is_incompatible(&text, name);
            let missing = tables.into_iter().filter(|t| !told(t)).collect();
            keep(ipv6, "nft", text, into);
            missing
        }
        None => tables,
    }
}

/// The old interface's tables, as far as the namespace has any.
fn legacy_variant(reader: &Reader, ipv6: bool, into: &mut Namespace) {
    let names = if ipv6 {
        "ip6_tables_names"
    } else {
        "ip_tables_names"
    };
    let names = files::net(names, "iptables", into).unwrap_or_default();
    if names.trim().is_empty() {
        return;
    }
    // Without `-t` it dumps those that the same file lists, and no others.
    if let Some(text) = save(reader, ipv6, "legacy", into) {
        keep(ipv6, "legacy", text, into);
    }
}

fn keep(ipv6: bool, variant: &str, text: String, into: &mut Namespace) {
    if text.lines().any(|l| l.starts_with('*')) {
        into.iptables.push(IptablesDump {
            ipv6,
            variant: Arc::from(variant),
            text,
        });
    }
}

/// iptables-nft-save puts this in place of a table that it cannot express
/// (`nft_is_table_compatible`, iptables/xtables-save.c).
fn is_incompatible(text: &str, table: &str) -> bool {
    text.contains(&format!("# Table `{table}' is incompatible"))
}

/// What the save program of a variant writes.
fn save(reader: &Reader, ipv6: bool, variant: &str, into: &mut Namespace) -> Option<String> {
    let family = if ipv6 { "ip6tables" } else { "iptables" };
    let own = format!("{family}-{variant}-save");
    let Some(program) = run::find(&own).or_else(|| plain(reader, family, variant)) else {
        let why = format!("{own} is not installed here");
        into.unread.push(unread(&own, why));
        return None;
    };
    command(reader, &own, &program, &["-c"], into)
}

/// `iptables-save`, where that is of the variant wanted.
fn plain(reader: &Reader, family: &str, variant: &str) -> Option<PathBuf> {
    let program = run::find(&format!("{family}-save"))?;
    let said = run::output(&program, &["-V"], reader.left(), 4096).ok()?;
    (variant_of(&said) == variant).then_some(program)
}

/// `iptables-save v1.8.9 (nf_tables)`; before 1.8 there was one variant, and no
/// word about it.
fn variant_of(version: &str) -> &'static str {
    if version.contains("nf_tables") {
        "nft"
    } else {
        "legacy"
    }
}

/// Lists tables that iptables does not tell.
fn nft(reader: &Reader, tables: &BTreeSet<Table>, into: &mut Namespace) {
    let mut words = Vec::new();
    for (family, name) in tables {
        if !is_identifier(name) {
            let why = format!("table {family} {name:?} has a name that nft does not take");
            into.unread.push(unread("nft", why));
            continue;
        }
        words.extend(["list", "table", family, name, ";"]);
    }
    if words.is_empty() {
        return;
    }
    let Some(program) = run::find("nft") else {
        let why = "nft is not installed here".to_owned();
        return into.unread.push(unread("nft", why));
    };
    into.nft = command(reader, "nft", &program, &words, into).filter(|t| !t.trim().is_empty());
}

/// What nft takes for a name (its scanner's `string`, unquoted).
fn is_identifier(name: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(known)
}

fn ipsets(reader: &Reader, into: &mut Namespace) {
    // It has a parameter, so it is listed built in, too.
    if !Path::new("/sys/module/ip_set").exists() {
        return;
    }
    let Some(program) = run::find("ipset") else {
        let why = "ipset is not installed here".to_owned();
        return into.unread.push(unread("ipsets", why));
    };
    into.ipsets = command(reader, "ipset", &program, &["save"], into).filter(|t| !t.is_empty());
}

fn command(
    reader: &Reader,
    what: &str,
    program: &Path,
    args: &[&str],
    into: &mut Namespace,
) -> Option<String> {
    let done = if reader.is_late() {
        Err("there was no time left to run it".to_owned())
    } else {
        let texts = into.iptables.iter().map(|dump| &dump.text);
        let texts = texts.chain(&into.ipsets).chain(&into.nft);
        let used: usize = texts.map(String::len).sum();
        run::output(
            program,
            args,
            reader.left(),
            reader.limit.saturating_sub(used),
        )
    };
    done.map_err(|why| into.unread.push(unread(what, why))).ok()
}

/// Whether `nf_tables` is a module that is loaded. Where it is built in, only
/// the kernel's symbols tell.
pub(super) fn has_nft_module() -> bool {
    Path::new("/sys/module/nf_tables").exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Writer, each_cut, message};

    fn body(family: u8, name: &[u8]) -> Vec<u8> {
        let mut body = Writer::new(&[family, 0, 0, 0]);
        body.put(NFTA_TABLE_NAME, name);
        body.0
    }

    #[test]
    fn tables_of_iptables_are_told_from_others() {
        let of = |family, name| table(message(NEW_TABLE, &body(family, name))).unwrap();
        assert!(is_iptables(&of(2, b"nat\0")));
        assert!(is_iptables(&of(10, b"raw\0")));
        assert!(!is_iptables(&of(1, b"filter\0")));
        assert!(!is_iptables(&of(2, b"kube-proxy\0")));
        assert_eq!(table(message(NEW_TABLE, &body(99, b"x\0"))), None);
        each_cut(NEW_TABLE, &body(2, b"nat\0"), |m| {
            let _ = table(m);
        });
    }

    #[test]
    fn variants_are_told_by_the_version() {
        assert_eq!(variant_of("iptables-save v1.8.9 (nf_tables)\n"), "nft");
        assert_eq!(variant_of("iptables-save v1.8.4 (legacy)\n"), "legacy");
        assert_eq!(variant_of("iptables-save v1.6.1\n"), "legacy");
    }

    #[test]
    fn what_iptables_cannot_express_is_left_to_nft() {
        let text = "*nat\nCOMMIT\n# Table `filter' is incompatible, use 'nft' tool.\n";
        assert!(is_incompatible(text, "filter") && !is_incompatible(text, "nat"));
    }

    #[test]
    fn only_plain_names_are_given_to_nft() {
        assert!(is_identifier("kube-proxy") && is_identifier("k8s_x.y/z"));
        for bad in ["", "a;flush ruleset", "a b", "-x", "\"q\""] {
            assert!(!is_identifier(bad), "{bad}");
        }
    }
}
