//! Which privileges the tool needs, and giving up those it needs no longer.

use std::fs;

/// `CAP_*`, `include/uapi/linux/capability.h`.
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

const NEEDED: [(u32, &str, &str); 4] = [
    (
        SYS_ADMIN,
        "CAP_SYS_ADMIN",
        "entering the nodes' network namespaces",
    ),
    (NET_ADMIN, "CAP_NET_ADMIN", "attaching to interfaces"),
    (BPF, "CAP_BPF", "loading eBPF programs"),
    (PERFMON, "CAP_PERFMON", "reading kernel memory in them"),
];

/// What stays after attaching: pods that appear later are attached to, and
/// clsact filters are removed at the end.
const KEPT: [u32; 4] = [SYS_ADMIN, NET_ADMIN, BPF, SYS_PTRACE];

/// What programs that are run may still use, though this process does not. The
/// iptables programs open a raw socket, by which the old variant reads its
/// tables, and both find out how to write a match against an ipset
/// (`get_version` in iptables' `extensions/libxt_set.h`). Nothing else that is run needs more
/// than is in [`KEPT`]: not reading other people's files, for one.
const PASSED_ON: [u32; 1] = [NET_RAW];

/// Effective capabilities of this process, as a bit mask.
fn effective() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// One sentence naming what is missing, if anything is.
pub fn missing() -> Option<String> {
    let have = effective()?;
    let names: Vec<String> = NEEDED
        .iter()
        .filter(|(bit, _, _)| have & (1 << bit) == 0)
        .map(|(_, name, what)| format!("{name} ({what})"))
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "not permitted: this needs {}; run it as root, on the node itself or in a privileged container",
            names.join(", ")
        )
    })
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

/// Gives up, for this thread and those it starts, everything but what
/// attaching to later pods and detaching need, and the right to gain more. Errors are of no consequence to the trace.
pub fn reduce() -> std::io::Result<()> {
    let bits = |list: &[u32]| list.iter().fold(0u64, |mask, bit| mask | 1 << bit);
    let have = effective().unwrap_or(u64::MAX);
    let kept = bits(&KEPT) & have;
    // A program that root starts is permitted what this process is.
    let permitted = kept | bits(&PASSED_ON) & have;
    for bit in 0..64 {
        if (bits(&KEPT) | bits(&PASSED_ON)) & (1 << bit) == 0 {
            // SAFETY: plain integers; an unknown capability is an error.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, bit, 0, 0, 0) };
        }
    }
    // SAFETY: plain integers.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let header = CapHeader {
        version: VERSION,
        pid: 0,
    };
    let half = |shift: u32| CapData {
        effective: (kept >> shift) as u32,
        permitted: (permitted >> shift) as u32,
        inheritable: 0,
    };
    let data = [half(0), half(32)];
    // SAFETY: both structures are valid and of the version's layout.
    let rc = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    if rc < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

/// Holds back (or lets through again) the signals that end a run. They wait
/// while hooks are being attached: a run that died in between would leave clsact
/// filters behind on kernels before 6.6.
pub fn hold_signals(hold: bool) {
    let how = if hold {
        libc::SIG_BLOCK
    } else {
        libc::SIG_UNBLOCK
    };
    // SAFETY: sigset_t is plain data, filled in before use.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}
