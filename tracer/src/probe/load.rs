//! Loads the object with this kernel's offsets and attaches the function hooks.

use std::os::fd::AsRawFd;
use std::path::Path;

use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf, StackTraceMap};
use aya::programs::{KProbe, RawTracePoint, SchedClassifier};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use tracer_common::config::{Config, Counter, FilterRule, Glance, NONE, flag};
use tracer_common::tuple::{Tag, Tuple};
use tracer_common::{MAX_FILTER_RULES, map};

use super::catalog::{HOOKS, Hook, Kind, TC_L3, TC_LINK, is_optional};
use crate::btf::Btf;
use crate::kallsyms::Kallsyms;

/// What the kernel side is asked to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The request's filter, at most [`MAX_FILTER_RULES`].
    pub rules: Vec<FilterRule>,
    /// More VXLAN ports than 4789 and 8472, at most six.
    pub vxlan_ports: Vec<u16>,
    /// Attach the costly hooks, too.
    pub deep: bool,
    /// Size of the ring buffer in bytes, a power of two.
    pub ring_bytes: u32,
}

/// Why the kernel side cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Not privileged.
    #[error(
        "loading eBPF programs is not permitted: run as root, or with CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN and CAP_SYS_ADMIN"
    )]
    Permission,
    /// The object does not load at all.
    #[error("the kernel refuses the eBPF programs: {0}")]
    Load(String),
    /// Too many rules.
    #[error(
        "the request resolves to {0} address pairs, more than the {MAX_FILTER_RULES} that can be followed at once: name fewer"
    )]
    TooManyRules(usize),
    /// Too many ports.
    #[error("--vxlan-port was given {0} times; six ports can be added to 4789 and 8472")]
    TooManyPorts(usize),
}

/// The loaded programs. Function hooks are attached; interfaces are added with
/// [`Probes::attach_interface`](super::tc). Everything but clsact filters goes
/// away with this value or with the process.
pub struct Probes {
    pub(super) ebpf: Ebpf,
    /// Functions and tracepoints that are attached.
    pub hooks: Vec<String>,
    /// What could not be attached and what that costs.
    pub degraded: Vec<String>,
    pub(super) attached: super::tc::Attached,
}

/// Where the kernel lists the kprobe PMU; absent without `CONFIG_KPROBES`.
const KPROBE_PMU: &str = "/sys/bus/event_source/devices/kprobe/type";

/// Whether this kernel has kprobes.
pub fn has_kprobes() -> bool {
    Path::new(KPROBE_PMU).exists()
}

/// The functions that [`Kallsyms::load`] should look for.
pub fn wanted_symbols() -> Vec<&'static str> {
    HOOKS.iter().map(|h| h.target).collect()
}

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tracer-ebpf"));

/// What BTF and the symbols say about this kernel, as switches.
fn flags(btf: &Btf, kprobes: bool, symbols: &Kallsyms) -> u32 {
    let mut flags = 0;
    if !kprobes || !symbols.has("__nf_conntrack_confirm") {
        flags |= flag::CT_FROM_TC;
    }
    if btf.member_size("nf_hook_state.hook") == Some(1) {
        flags |= flag::HOOK_STATE_U8;
    }
    // `void *priv` first, or `struct sk_buff *skb`.
    let first = |name: &str| btf.func_params(name).and_then(|p| p.into_iter().next());
    let table_first = first("ipt_do_table")
        .or_else(|| first("ip6t_do_table"))
        .map_or_else(
            || btf.member_size("nf_hook_state.hook") == Some(1),
            |p| p.name != "skb",
        );
    if table_first {
        flags |= flag::IPT_TABLE_FIRST;
    }
    let with_sk = btf
        .func_params("nf_send_reset")
        .is_none_or(|p| p.get(1).is_some_and(|p| p.name == "sk"));
    if with_sk {
        flags |= flag::SEND_RESET_HAS_SK;
    }
    flags
}

fn config(
    options: &Options,
    btf: &Btf,
    kprobes: bool,
    symbols: &Kallsyms,
) -> Result<Config, ProbeError> {
    let mut config = Config::EMPTY;
    config.off = btf.offsets();
    config.flags = flags(btf, kprobes, symbols);
    config.n_rules = options.rules.len() as u32;
    if options.rules.len() > MAX_FILTER_RULES as usize {
        return Err(ProbeError::TooManyRules(options.rules.len()));
    }
    for glance in options.rules.iter().filter_map(Glance::of) {
        config.glances[config.n_glances as usize] = glance;
        config.n_glances += 1;
    }
    let ports = &mut config.vxlan_ports[2..];
    if options.vxlan_ports.len() > ports.len() {
        return Err(ProbeError::TooManyPorts(options.vxlan_ports.len()));
    }
    ports[..options.vxlan_ports.len()].copy_from_slice(&options.vxlan_ports);
    Ok(config)
}

/// The last lines of a verifier log, on one line.
fn brief(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(e) = source {
        let more = e.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = e.source();
    }
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let from = lines.len().saturating_sub(4);
    if from == 0 {
        lines.join("; ")
    } else {
        format!("{} ... {}", lines[0], lines[from..].join("; "))
    }
}

fn is_permission(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(e) = next {
        let code = e
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::raw_os_error);
        if matches!(code, Some(libc::EPERM | libc::EACCES)) {
            return true;
        }
        next = e.source();
    }
    false
}

impl Probes {
    /// Loads the object and attaches the function hooks. A hook that this
    /// kernel lacks is skipped, with its reason in `degraded`.
    pub fn load(options: &Options, btf: &Btf, symbols: &Kallsyms) -> Result<Self, ProbeError> {
        let kprobes = has_kprobes();
        let config = config(options, btf, kprobes, symbols)?;
        let ebpf = EbpfLoader::new()
            .btf(None)
            .override_global("CONFIG", &config, true)
            .map_max_entries(map::EVENTS, options.ring_bytes)
            .load(OBJECT)
            .map_err(|e| {
                // SAFETY: no arguments.
                let unprivileged = unsafe { libc::geteuid() } != 0;
                if is_permission(&e) && unprivileged {
                    ProbeError::Permission
                } else {
                    ProbeError::Load(brief(&e))
                }
            })?;
        let mut probes = Self {
            ebpf,
            hooks: Vec::new(),
            degraded: Vec::new(),
            attached: super::tc::Attached::default(),
        };
        probes.set_rules(&options.rules)?;
        probes.load_tc()?;
        probes.attach_functions(&config, options.deep, btf, kprobes, symbols);
        Ok(probes)
    }

    fn set_rules(&mut self, rules: &[FilterRule]) -> Result<(), ProbeError> {
        let mut filter: Array<_, FilterRule> = self.typed(map::FILTER)?;
        for (i, rule) in rules.iter().enumerate() {
            filter
                .set(i as u32, *rule, 0)
                .map_err(|e| ProbeError::Load(brief(&e)))?;
        }
        Ok(())
    }

    fn typed<'a, M>(&'a mut self, name: &str) -> Result<M, ProbeError>
    where
        M: TryFrom<&'a mut aya::maps::Map, Error = aya::maps::MapError>,
    {
        self.ebpf
            .map_mut(name)
            .ok_or_else(|| ProbeError::Load(format!("map {name} is missing in the object")))
            .and_then(|m| M::try_from(m).map_err(|e| ProbeError::Load(brief(&e))))
    }

    /// tc programs cannot be done without.
    fn load_tc(&mut self) -> Result<(), ProbeError> {
        for name in TC_LINK.into_iter().chain(TC_L3) {
            let program: &mut SchedClassifier = self
                .ebpf
                .program_mut(name)
                .and_then(|p| p.try_into().ok())
                .ok_or_else(|| {
                    ProbeError::Load(format!("program {name} is missing in the object"))
                })?;
            program.load().map_err(|e| {
                if is_permission(&e) {
                    ProbeError::Permission
                } else {
                    ProbeError::Load(brief(&e))
                }
            })?;
        }
        Ok(())
    }

    fn attach_functions(
        &mut self,
        config: &Config,
        deep: bool,
        btf: &Btf,
        kprobes: bool,
        symbols: &Kallsyms,
    ) {
        if !kprobes {
            self.degraded.push(
                "this kernel has no kprobes (CONFIG_KPROBES is off): rewrites, conntrack entries and encapsulation are \
                 worked out from what the interfaces saw, resets and ICMP errors are seen only as the packets they send"
                    .to_owned(),
            );
            if deep {
                self.degraded
                    .push("--deep has nothing to attach without kprobes".to_owned());
            }
        }
        let reasons = btf
            .typedef_proto_params("btf_trace_kfree_skb")
            .map_or(btf.enum_values("skb_drop_reason").is_some(), |n| n >= 3);
        for hook in HOOKS {
            let wanted = if hook.deep {
                deep
            } else {
                !(deep && hook.shallow_only)
            };
            if !wanted || (hook.kind != Kind::RawTracepoint && !kprobes) {
                continue;
            }
            if hook.target == "kfree_skb" && (hook.program == "drop_reason") != reasons {
                continue;
            }
            if hook.kind != Kind::RawTracepoint
                && let Err(why) = present(hook, symbols)
            {
                self.miss(hook, why);
                continue;
            }
            match self.attach(hook) {
                Ok(()) => {
                    if !self.hooks.iter().any(|h| h == hook.target) {
                        self.hooks.push(hook.target.to_owned());
                    }
                }
                Err(why) => self.miss(hook, Some(why)),
            }
        }
        if !reasons {
            self.degraded.push(
                "this kernel gives no drop reasons (before 5.17): a drop shows the function only"
                    .to_owned(),
            );
        }
        if config.off.skb_nfct == NONE || config.off.ct_tuplehash == NONE {
            self.degraded.push(
                "BTF has no conntrack structures (module nf_conntrack not loaded, or built without BTF): translations are \
                 worked out from what the interfaces saw"
                    .to_owned(),
            );
        }
    }

    /// Notes a hook that is not there; `None` where that is no news.
    fn miss(&mut self, hook: &Hook, why: Option<String>) {
        if let Some(why) = why {
            let line = format!("{}: {why}, so {}", hook.target, hook.loses);
            if !self.degraded.contains(&line) {
                self.degraded.push(line);
            }
        }
    }

    fn attach(&mut self, hook: &Hook) -> Result<(), String> {
        let program = self
            .ebpf
            .program_mut(hook.program)
            .ok_or_else(|| format!("program {} is missing in the object", hook.program))?;
        let result = match hook.kind {
            Kind::Kprobe | Kind::Kretprobe => {
                let program: &mut KProbe = program.try_into().map_err(|e| brief(&e))?;
                program
                    .load()
                    .and_then(|()| program.attach(hook.target, 0).map(|_| ()))
            }
            Kind::RawTracepoint => {
                let program: &mut RawTracePoint = program.try_into().map_err(|e| brief(&e))?;
                program
                    .load()
                    .and_then(|()| program.attach(hook.target).map(|_| ()))
            }
        };
        result.map_err(|e| brief(&e))
    }

    /// Takes the ring buffer out; it can be taken once.
    pub fn take_events(&mut self) -> Option<RingBuf<MapData>> {
        self.ebpf
            .take_map(map::EVENTS)
            .and_then(|m| RingBuf::try_from(m).ok())
    }

    /// Takes the stack traces out; they can be taken once.
    pub fn take_stacks(&mut self) -> Option<StackTraceMap<MapData>> {
        self.ebpf
            .take_map(map::STACKS)
            .and_then(|m| StackTraceMap::try_from(m).ok())
    }

    /// Takes the counters out; they can be taken once.
    pub fn take_counters(&mut self) -> Option<Counters> {
        self.ebpf
            .take_map(map::COUNTERS)
            .and_then(|m| PerCpuArray::try_from(m).ok())
            .map(Counters)
    }

    /// Tags a tuple and its inverse before anything runs: a connection that was
    /// there before the tool.
    pub fn tag(&mut self, tuple: &Tuple, tag: Tag) -> Result<(), ProbeError> {
        {
            let mut tags: HashMap<_, Tuple, Tag> = self.typed(map::TAGS)?;
            for (tuple, tag) in [(*tuple, tag), (tuple.inverse(), tag.back())] {
                tags.insert(tuple, tag, 0)
                    .map_err(|e| ProbeError::Load(brief(&e)))?;
            }
        }
        let mut bloom: Array<_, u8> = self.typed(map::BLOOM)?;
        bloom
            .set(tuple.bloom_slot(), 1, 0)
            .map_err(|e| ProbeError::Load(brief(&e)))
    }

    /// Descriptors of all loaded programs, for their run-time statistics.
    pub fn program_fds(&self) -> Vec<(String, i32)> {
        self.ebpf
            .programs()
            .filter_map(|(name, p)| {
                let fd = p.fd().ok()?;
                Some((name.to_owned(), fd.as_fd().as_raw_fd()))
            })
            .collect()
    }
}

use std::os::fd::AsFd;

/// Whether a function can be probed; why not, or `None` where that is no news.
fn present(hook: &Hook, symbols: &Kallsyms) -> Result<(), Option<String>> {
    match symbols.get(hook.target) {
        Some(symbol) if symbol.is_plain() => Ok(()),
        Some(symbol) => Err(Some(format!(
            "this kernel has it only as {}, whose arguments the compiler may have changed",
            symbol.suffixed.join(", ")
        ))),
        None if is_optional(hook) => Err(None),
        None => Err(Some(
            "not in this kernel, or in a module that is not loaded".to_owned(),
        )),
    }
}

/// The kernel side's counters.
pub struct Counters(PerCpuArray<MapData, u64>);

impl Counters {
    /// The sum over all CPUs since load.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0
            .get(&(counter as u32), 0)
            .map_or(0, |values| values.iter().sum())
    }
}
