//! The kernel: what it can do and what it says of itself.

use std::fs;
use std::path::Path;

use tracer_common::config::NONE;

use super::report::{Check, State, plural};
use crate::btf::{Btf, BtfError};
use crate::kallsyms::Kallsyms;
use crate::probe::load;
use crate::{privilege, time};

/// What was read.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) release: String,
    pub(super) arch: String,
    /// Where BTF came from and how many modules have their own, or why none.
    pub(super) btf: Result<(String, usize), String>,
    /// Fields that BTF lacks, as `struct.member`.
    pub(super) fields_missing: Vec<&'static str>,
    /// Fields that the programs read, in all.
    pub(super) fields: usize,
    pub(super) kprobes: bool,
    /// TCX rather than clsact; unknown without BTF.
    pub(super) tcx: Option<bool>,
    /// Named drop reasons; unknown without BTF.
    pub(super) reasons: Option<usize>,
    /// Whether symbols have addresses; none where they cannot be read.
    pub(super) symbols: Option<bool>,
    /// `none`, `integrity` or `confidentiality`, where the kernel says.
    pub(super) lockdown: Option<String>,
    /// `net.core.bpf_jit_enable`.
    pub(super) jit: Option<u32>,
    /// `kernel.unprivileged_bpf_disabled`.
    pub(super) unprivileged: Option<u32>,
    /// What `privilege::missing` says.
    pub(super) privileges: Option<String>,
}

/// Reads it all.
pub(super) fn gather(
    btf: &Result<Btf, BtfError>,
    file: Option<&Path>,
    symbols: Option<&Kallsyms>,
) -> Kernel {
    let source = file.map_or("/sys/kernel/btf/vmlinux".to_owned(), |f| {
        f.display().to_string()
    });
    let modules = if file.is_some() { 0 } else { module_btfs() };
    let (mut fields_missing, mut fields) = (Vec::new(), 0);
    if let Ok(btf) = btf {
        let mut offsets = btf.offsets();
        let entries = offsets.entries();
        fields = entries.len();
        fields_missing.extend(
            entries
                .iter()
                .filter(|(_, at)| **at == NONE)
                .map(|(path, _)| *path),
        );
    }
    Kernel {
        release: time::kernel_release(),
        arch: std::env::consts::ARCH.to_owned(),
        btf: match btf {
            Ok(_) => Ok((source, modules)),
            Err(e) => Err(e.to_string()),
        },
        fields_missing,
        fields,
        kprobes: load::has_kprobes(),
        tcx: btf.as_ref().ok().map(has_tcx),
        reasons: btf.as_ref().ok().map(|b| b.drop_reasons().len()),
        symbols: symbols.map(|s| !s.is_restricted()),
        lockdown: fs::read_to_string("/sys/kernel/security/lockdown")
            .ok()
            .and_then(|t| lockdown(&t)),
        jit: number("/proc/sys/net/core/bpf_jit_enable"),
        unprivileged: number("/proc/sys/kernel/unprivileged_bpf_disabled"),
        privileges: privilege::missing(),
    }
}

/// Told by type information, since trying would attach something.
fn has_tcx(btf: &Btf) -> bool {
    btf.func_params("tcx_prog_attach").is_some() || btf.member_offset("tcx_link.dev").is_some()
}

fn module_btfs() -> usize {
    let entries = fs::read_dir("/sys/kernel/btf")
        .into_iter()
        .flatten()
        .flatten();
    entries.filter(|e| e.file_name() != "vmlinux").count()
}

fn number(path: &str) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The word in brackets of `none [integrity] confidentiality`.
fn lockdown(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Judges what was read.
pub(super) fn checks(kernel: &Kernel) -> Vec<Check> {
    let release = format!("{} ({})", kernel.release, kernel.arch);
    let known = matches!(&*kernel.arch, "x86_64" | "aarch64");
    let mut checks = vec![if known {
        Check::new("release", State::Ok, release)
    } else {
        Check::new("release", State::Missing, release)
            .cost("the programs are built for x86_64 and aarch64 only")
    }];
    checks.push(match &kernel.privileges {
        None => Check::new("privileges", State::Ok, "all that is needed"),
        Some(missing) => Check::new("privileges", State::Missing, missing.clone())
            .cost("network namespaces but this one are not looked into below"),
    });
    checks.push(match &kernel.btf {
        Ok((source, 0)) => Check::new("BTF", State::Ok, format!("{source}; no module has its own")),
        Ok((source, n)) => Check::new(
            "BTF",
            State::Ok,
            format!("{source}, and of {n} {}", plural(*n, "module", "modules")),
        ),
        Err(why) => Check::new("BTF", State::Missing, why.clone())
            .cost("nothing can be followed: the programs do not know where the kernel keeps what they read")
            .remedy("use a kernel with CONFIG_DEBUG_INFO_BTF=y, or give --btf FILE (btfhub has files of many older kernels)"),
    });
    if kernel.btf.is_ok() {
        checks.push(fields(kernel));
    }
    checks.push(if kernel.kprobes {
        Check::new("kprobes", State::Ok, "yes")
    } else {
        Check::new("kprobes", State::Missing, "no (CONFIG_KPROBES is off)")
            .cost(
                "rewrites, conntrack entries and encapsulation are worked out from what the interfaces saw; resets and \
                 ICMP errors are seen only as the packets they send; --deep has nothing to attach",
            )
            .remedy("use a kernel with CONFIG_KPROBES=y to see them where they happen")
    });
    checks.push(match kernel.tcx {
        Some(true) => Check::new("tc", State::Ok, "TCX links, which end with the process"),
        Some(false) => Check::new("tc", State::Note, "clsact filters (no TCX before 6.6)")
            .cost("they stay behind when a run is killed")
            .remedy("`tracer cleanup` removes them, and so does the next run"),
        None => Check::new(
            "tc",
            State::Unknown,
            "TCX or clsact cannot be told without BTF",
        ),
    });
    checks.push(match kernel.reasons {
        Some(n) if n > 0 => Check::new("drop reasons", State::Ok, format!("{n}, by name")),
        Some(_) => Check::new("drop reasons", State::Missing, "none (before 5.17)")
            .cost("a drop shows the kernel function only"),
        None => Check::new("drop reasons", State::Unknown, "cannot be told without BTF"),
    });
    checks.push(match kernel.symbols {
        Some(true) => Check::new("symbols", State::Ok, "/proc/kallsyms, with addresses"),
        Some(false) => Check::new("symbols", State::Missing, "/proc/kallsyms shows no addresses")
            .cost("the function that dropped a packet, and the netfilter hook it came from, have no names")
            .remedy("run as root (CAP_SYSLOG) with kernel.kptr_restrict below 2"),
        None => Check::new("symbols", State::Missing, "/proc/kallsyms cannot be read")
            .cost("nothing can be followed: which functions this kernel has is not known")
            .remedy("run as root with /proc mounted"),
    });
    checks.push(match kernel.lockdown.as_deref() {
        Some("confidentiality") => Check::new("lockdown", State::Missing, "confidentiality")
            .cost("nothing can be followed: no eBPF program may read kernel memory")
            .remedy("boot with lockdown=integrity or without lockdown"),
        Some(mode) => Check::new("lockdown", State::Ok, mode.to_owned()),
        None => Check::new(
            "lockdown",
            State::Ok,
            "none known (no /sys/kernel/security/lockdown)",
        ),
    });
    checks.push(match kernel.jit {
        Some(0) => Check::new("BPF JIT", State::Missing, "off")
            .cost("the programs are interpreted, several times slower")
            .remedy("sysctl net.core.bpf_jit_enable=1"),
        Some(_) => Check::new("BPF JIT", State::Ok, "on"),
        None => Check::new(
            "BPF JIT",
            State::Unknown,
            "net.core.bpf_jit_enable cannot be read",
        ),
    });
    if let Some(mode) = kernel.unprivileged {
        let found = if mode == 0 { "allowed" } else { "not allowed" };
        checks.push(Check::new(
            "BPF by users",
            State::Ok,
            format!("{found} (tracer never asks for it)"),
        ));
    }
    checks
}

/// Which fields are there, by what they are for.
fn fields(kernel: &Kernel) -> Check {
    let missing = &kernel.fields_missing;
    let found = format!(
        "{} of {} that the programs read",
        kernel.fields - missing.len(),
        kernel.fields
    );
    if missing.is_empty() {
        return Check::new("fields in BTF", State::Ok, found);
    }
    let conntrack = missing
        .iter()
        .any(|p| p.starts_with("nf_conn") || *p == "sk_buff._nfct");
    let (state, cost) = if conntrack {
        (
            State::Missing,
            "conntrack entries are not read, and translations are worked out from what the interfaces saw",
        )
    } else {
        (State::Note, "only what these fields are for is not told")
    };
    let check = Check::new(
        "fields in BTF",
        state,
        format!("{found}; not {}", missing.join(", ")),
    )
    .cost(cost);
    if conntrack {
        check.remedy("load the module nf_conntrack (any kube-proxy or CNI does), with its BTF")
    } else {
        check
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A 6.12 with everything.
    pub(in super::super) fn healthy() -> Kernel {
        Kernel {
            release: "6.12.1".to_owned(),
            arch: "x86_64".to_owned(),
            btf: Ok(("/sys/kernel/btf/vmlinux".to_owned(), 40)),
            fields_missing: Vec::new(),
            fields: 50,
            kprobes: true,
            tcx: Some(true),
            reasons: Some(90),
            symbols: Some(true),
            lockdown: Some("none".to_owned()),
            jit: Some(1),
            unprivileged: Some(2),
            privileges: None,
        }
    }

    fn check(kernel: &Kernel, what: &str) -> Check {
        checks(kernel).into_iter().find(|c| c.what == what).unwrap()
    }

    #[test]
    fn nothing_is_wrong_with_a_healthy_kernel() {
        let bad: Vec<_> = checks(&healthy())
            .into_iter()
            .filter(|c| c.state != State::Ok)
            .collect();
        assert_eq!(bad, []);
    }

    #[test]
    fn what_is_missing_has_a_cost() {
        let mut kernel = healthy();
        kernel.kprobes = false;
        kernel.reasons = Some(0);
        kernel.symbols = Some(false);
        kernel.jit = Some(0);
        kernel.btf = Err("no BTF at /sys/kernel/btf/vmlinux".to_owned());
        kernel.lockdown = Some("confidentiality".to_owned());
        let missing: Vec<_> = checks(&kernel)
            .into_iter()
            .filter(|c| c.state == State::Missing)
            .collect();
        let names: Vec<_> = missing.iter().map(|c| c.what).collect();
        assert_eq!(
            names,
            [
                "BTF",
                "kprobes",
                "drop reasons",
                "symbols",
                "lockdown",
                "BPF JIT"
            ]
        );
        assert!(missing.iter().all(|c| c.cost.is_some()));
        assert!(check(&kernel, "BTF").remedy.unwrap().contains("--btf FILE"));
    }

    #[test]
    fn clsact_says_how_to_clean_up() {
        let mut kernel = healthy();
        kernel.tcx = Some(false);
        let tc = check(&kernel, "tc");
        assert_eq!(tc.state, State::Note);
        assert!(tc.remedy.unwrap().contains("tracer cleanup"));
    }

    #[test]
    fn conntrack_fields_weigh_more_than_others() {
        let mut kernel = healthy();
        kernel.fields_missing = vec!["nft_chain.name"];
        assert_eq!(check(&kernel, "fields in BTF").state, State::Note);
        kernel.fields_missing.push("nf_conn.tuplehash");
        let fields = check(&kernel, "fields in BTF");
        assert_eq!(fields.state, State::Missing);
        assert!(fields.found.starts_with("48 of 50") && fields.remedy.is_some());
    }

    #[test]
    fn lockdown_is_the_word_in_brackets() {
        assert_eq!(
            lockdown("none [integrity] confidentiality\n").as_deref(),
            Some("integrity")
        );
        assert_eq!(lockdown("").as_deref(), None);
    }
}
