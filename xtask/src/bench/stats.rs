//! The kernel's own run-time statistics of eBPF programs, through `bpf(2)`.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use anyhow::{Context, Result};

/// Commands, `enum bpf_cmd` of `include/uapi/linux/bpf.h`.
const PROG_GET_NEXT_ID: i64 = 11;
const PROG_GET_FD_BY_ID: i64 = 13;
const OBJ_GET_INFO_BY_FD: i64 = 15;
const ENABLE_STATS: i64 = 32;

/// `struct bpf_prog_info` up to and with `run_cnt`, in eight-byte words.
const INFO_WORDS: usize = 26;
/// Words of that: `name[16]`, `run_time_ns`, `run_cnt`.
const NAME: usize = 8;
const RUN_TIME: usize = 24;
const RUN_COUNT: usize = 25;

/// As much of `union bpf_attr` as these commands use.
#[repr(C)]
struct Attr {
    words: [u32; 2],
    address: u64,
}

/// What one program has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Program {
    /// Its name, of which the kernel keeps 15 characters.
    pub(super) name: String,
    /// Nanoseconds in all runs.
    pub(super) time: u64,
    /// Runs.
    pub(super) runs: u64,
}

/// All programs of the kernel, by id.
pub(super) type Programs = BTreeMap<u32, Program>;

/// Statistics are kept as long as this lives.
pub(super) struct Enabled {
    _fd: OwnedFd,
}

impl Enabled {
    /// Has the kernel keep statistics (5.8 and later).
    pub(super) fn new() -> Result<Self> {
        // 0 is BPF_STATS_RUN_TIME.
        let fd = descriptor(ENABLE_STATS, 0)
            .context("the kernel keeps no run-time statistics of eBPF programs")?;
        Ok(Self { _fd: fd })
    }
}

/// What every loaded program has done so far.
pub(super) fn programs() -> Result<Programs> {
    let mut found = Programs::new();
    let mut ids = Attr {
        words: [0, 0],
        address: 0,
    };
    loop {
        if let Err(error) = bpf(PROG_GET_NEXT_ID, &mut ids) {
            if error.raw_os_error() == Some(libc::ENOENT) {
                return Ok(found);
            }
            return Err(error).context("cannot list the kernel's eBPF programs");
        }
        let id = ids.words[1];
        ids.words = [id, 0];
        // A program may go at any time.
        if let Ok(program) = program(id) {
            found.insert(id, program);
        }
    }
}

fn program(id: u32) -> io::Result<Program> {
    let fd = descriptor(PROG_GET_FD_BY_ID, id)?;
    let mut info = [0_u64; INFO_WORDS];
    let mut attr = Attr {
        words: [fd.as_raw_fd() as u32, size_of_val(&info) as u32],
        address: info.as_mut_ptr() as u64,
    };
    bpf(OBJ_GET_INFO_BY_FD, &mut attr)?;
    let name: Vec<u8> = info[NAME..NAME + 2]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .take_while(|byte| *byte != 0)
        .collect();
    Ok(Program {
        name: String::from_utf8_lossy(&name).into_owned(),
        time: info[RUN_TIME],
        runs: info[RUN_COUNT],
    })
}

/// A command that takes one word and returns a descriptor.
fn descriptor(command: i64, word: u32) -> io::Result<OwnedFd> {
    let mut attr = Attr {
        words: [word, 0],
        address: 0,
    };
    let fd = bpf(command, &mut attr)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bpf(command: i64, attr: &mut Attr) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes the attributes, whose length it is told. The only command that is given a
    // further address has it from `program`, with the length of what is there.
    let status =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size_of::<Attr>()) };
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(status as i32)
}

/// What programs that were not there at first have done between two looks, by name.
pub(super) fn between(first: &Programs, from: &Programs, to: &Programs) -> Vec<Program> {
    let mut sums: BTreeMap<&str, Program> = BTreeMap::new();
    for (id, program) in to {
        if first.contains_key(id) {
            continue;
        }
        let before = from.get(id).cloned().unwrap_or_default();
        let sum = sums.entry(&program.name).or_default();
        sum.name.clone_from(&program.name);
        sum.time += program.time.saturating_sub(before.time);
        sum.runs += program.runs.saturating_sub(before.runs);
    }
    sums.into_values().filter(|sum| sum.runs > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::{Program, Programs, between};

    fn programs(all: &[(u32, &str, u64, u64)]) -> Programs {
        all.iter()
            .map(|&(id, name, time, runs)| {
                let name = name.to_owned();
                (id, Program { name, time, runs })
            })
            .collect()
    }

    #[test]
    fn sums_what_new_programs_did() {
        let first = programs(&[(1, "tracer_in", 5, 5)]);
        let from = programs(&[(1, "tracer_in", 6, 6), (2, "tracer_in", 10, 1)]);
        let to = programs(&[
            (1, "tracer_in", 9, 9),
            (2, "tracer_in", 110, 3),
            (3, "tracer_in", 50, 1),
            (4, "idle", 0, 0),
        ]);
        let sums = between(&first, &from, &to);
        let expected = Program {
            name: "tracer_in".to_owned(),
            time: 150,
            runs: 3,
        };
        assert_eq!(sums, [expected]);
    }
}
