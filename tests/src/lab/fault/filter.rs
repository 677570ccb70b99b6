//! Small tc programs: what a switch, a broken driver or somebody else's agent does to frames.
//!
//! They are written out as instructions, because not every kernel has tc's own matches and actions.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::lab::{netns, program, state};

/// What a program does with frames that it is about; all others pass.
#[derive(Debug, Clone, Copy)]
pub(super) enum Effect {
    /// Drop every IPv4 packet.
    DropIpv4,
    /// Drop VXLAN frames.
    DropVxlan,
    /// Drop fragments of IPv4 datagrams, the first too.
    DropFragments,
    /// Drop all fragments but the first.
    DropLaterFragments,
    /// Write a wrong checksum into TCP segments inside VXLAN.
    SpoilInnerTcp,
}

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_OBJ_PIN: libc::c_long = 6;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;

const PASS: i32 = -1;
const SHOT: i32 = 2;
const LICENSE: &std::ffi::CStr = c"GPL";
/// `bpf_skb_store_bytes`.
const STORE_BYTES: i32 = 9;

/// Offsets from the start of an Ethernet frame with an IPv4 header of 20 bytes.
const ETHERTYPE: i32 = 12;
const FRAGMENT: i32 = 20;
const PROTOCOL: i32 = 23;
const DST_PORT: i32 = 36;
/// To an inner IPv4 header's start come outer IPv4, UDP, VXLAN and the inner Ethernet header.
const INNER: i32 = 20 + 8 + 8 + 14;
/// The TCP header's checksum.
const TCP_CHECKSUM: i32 = 14 + 20 + 16;

/// One instruction, as the kernel takes it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Insn {
    code: u8,
    /// Destination in the low four bits, source in the high ones.
    registers: u8,
    offset: i16,
    value: i32,
}

const fn insn(code: u8, registers: u8, offset: i16, value: i32) -> Insn {
    Insn {
        code,
        registers,
        offset,
        value,
    }
}

/// A program under construction: a list of conditions under which a frame is none of its business.
struct Program(Vec<Insn>);

impl Program {
    fn new() -> Self {
        // r6 = the frame; the loads below want it there.
        Self(vec![insn(0xbf, 0x16, 0, 0)])
    }

    /// Leaves frames alone unless this half-word is that value.
    fn half(self, offset: i32, value: i32) -> Self {
        self.unless(insn(0x28, 0, 0, offset), insn(0x15, 0, 2, value))
    }

    /// The same with a byte.
    fn byte(self, offset: i32, value: i32) -> Self {
        self.unless(insn(0x30, 0, 0, offset), insn(0x15, 0, 2, value))
    }

    /// Leaves frames alone unless this half-word has one of these bits.
    fn bits(self, offset: i32, bits: i32) -> Self {
        self.unless(insn(0x28, 0, 0, offset), insn(0x45, 0, 2, bits))
    }

    fn unless(mut self, load: Insn, skip_next_two: Insn) -> Self {
        self.0.extend([load, skip_next_two]);
        self.end(PASS)
    }

    fn end(mut self, action: i32) -> Self {
        self.0
            .extend([insn(0xb7, 0, 0, action), insn(0x95, 0, 0, 0)]);
        self
    }

    /// Writes a half-word into the frame.
    fn store(mut self, offset: i32, value: i32) -> Self {
        self.0.extend([
            // *(u16 *)(r10 - 2) = value
            insn(0x6a, 0x0a, -2, value),
            // r1 = r6, r2 = offset, r3 = r10 - 2, r4 = 2, r5 = 0
            insn(0xbf, 0x61, 0, 0),
            insn(0xb7, 0x02, 0, offset),
            insn(0xbf, 0xa3, 0, 0),
            insn(0x07, 0x03, 0, -2),
            insn(0xb7, 0x04, 0, 2),
            insn(0xb7, 0x05, 0, 0),
            insn(0x85, 0, 0, STORE_BYTES),
        ]);
        self
    }

    fn ipv4(self) -> Self {
        self.half(ETHERTYPE, 0x0800)
    }

    fn vxlan(self) -> Self {
        self.ipv4()
            .byte(PROTOCOL, libc::IPPROTO_UDP)
            .half(DST_PORT, i32::from(crate::lab::topology::VXLAN_PORT))
    }
}

impl Effect {
    fn program(self) -> Vec<Insn> {
        let program = match self {
            Self::DropIpv4 => Program::new().ipv4().end(SHOT),
            Self::DropVxlan => Program::new().vxlan().end(SHOT),
            Self::DropFragments => Program::new().ipv4().bits(FRAGMENT, 0x3fff).end(SHOT),
            Self::DropLaterFragments => Program::new().ipv4().bits(FRAGMENT, 0x1fff).end(SHOT),
            Self::SpoilInnerTcp => Program::new()
                .vxlan()
                .half(INNER + ETHERTYPE, 0x0800)
                .byte(INNER + PROTOCOL, libc::IPPROTO_TCP)
                .store(INNER + TCP_CHECKSUM, 0x0bad)
                .end(PASS),
        };
        program.0
    }
}

/// Attaches the program to what leaves an interface.
pub(super) fn attach(ns: &str, interface: &str, effect: Effect) -> Result<()> {
    // tc takes a program from a file of bpffs, and holds it when the file is gone.
    let place = Path::new(state::DIR).join("bpf");
    fs::create_dir_all(&place)?;
    let mounted = Bpffs::mount(&place)?;
    let file = place.join("program");
    load(&effect.program(), &file)?;
    netns::within(ns, || {
        program::feed("tc", &["qdisc", "replace", "dev", interface, "clsact"], "")?;
        let path = file.to_string_lossy();
        program::feed(
            "tc",
            &[
                "filter", "add", "dev", interface, "egress", "bpf", "da", "pinned", &path,
            ],
            "",
        )
    })?;
    drop(mounted);
    Ok(())
}

/// Loads a program and pins it to a file.
fn load(program: &[Insn], file: &Path) -> Result<()> {
    #[repr(C)]
    #[derive(Default)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        rest: [u64; 12],
    }
    #[repr(C)]
    struct Pin {
        path: u64,
        fd: u32,
        flags: u32,
        rest: u64,
    }
    let load = Load {
        kind: BPF_PROG_TYPE_SCHED_CLS,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        ..Load::default()
    };
    // SAFETY: the kernel reads the structure, whose size it is told, and the instructions, whose number it is told.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const load,
            size_of::<Load>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error()).context("loading a tc program");
    }
    let path = CString::new(file.to_string_lossy().as_bytes())?;
    let pin = Pin {
        path: path.as_ptr() as u64,
        fd: fd as u32,
        flags: 0,
        rest: 0,
    };
    // SAFETY: the kernel reads the structure and the path, which outlive the call.
    let status =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_OBJ_PIN, &raw const pin, size_of::<Pin>()) };
    let error = io::Error::last_os_error();
    // SAFETY: the descriptor is ours alone, and is not used after this.
    unsafe { libc::close(fd as i32) };
    if status < 0 {
        bail!("pinning a tc program to {}: {error}", file.display());
    }
    Ok(())
}

/// A mounted bpffs, until dropped.
struct Bpffs(CString);

impl Bpffs {
    fn mount(at: &Path) -> Result<Self> {
        let path = CString::new(at.to_string_lossy().as_bytes())?;
        // SAFETY: all three strings end with a zero byte and outlive the call; there are no options.
        let status = unsafe {
            libc::mount(
                c"bpf".as_ptr(),
                path.as_ptr(),
                c"bpf".as_ptr(),
                0,
                std::ptr::null(),
            )
        };
        if status != 0 {
            return Err(io::Error::last_os_error()).context("mounting a bpffs");
        }
        Ok(Self(path))
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        // SAFETY: the path ends with a zero byte. The mount is ours; nothing in it is open any more.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}
