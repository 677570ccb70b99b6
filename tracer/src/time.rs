//! Clocks, and which kernel this is.

use std::ffi::CStr;

/// Readings of the two clocks that the median is taken of.
const READINGS: usize = 9;

fn read(clock: libc::clockid_t) -> i64 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `ts` is a valid timespec for the call to fill.
    let rc = unsafe { libc::clock_gettime(clock, &raw mut ts) };
    if rc != 0 {
        return 0;
    }
    ts.tv_sec * 1_000_000_000 + ts.tv_nsec
}

/// Nanoseconds to add to `CLOCK_BOOTTIME` (what `bpf_ktime_get_boot_ns` reads)
/// to get nanoseconds since the Unix epoch.
pub fn boot_to_epoch_ns() -> i64 {
    let mut offsets = [0i64; READINGS];
    for offset in &mut offsets {
        let before = read(libc::CLOCK_BOOTTIME);
        let epoch = read(libc::CLOCK_REALTIME);
        let after = read(libc::CLOCK_BOOTTIME);
        *offset = epoch - (before + (after - before) / 2);
    }
    offsets.sort_unstable();
    offsets[READINGS / 2]
}

/// Nanoseconds since boot, suspended time included.
pub fn boot_now_ns() -> u64 {
    u64::try_from(read(libc::CLOCK_BOOTTIME)).unwrap_or(0)
}

/// Nanoseconds since the Unix epoch.
pub fn epoch_now_ns() -> u64 {
    u64::try_from(read(libc::CLOCK_REALTIME)).unwrap_or(0)
}

/// What tells this boot of this kernel from all others; empty where it cannot
/// be read.
pub fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.map_or_else(|_| String::new(), |t| t.trim().to_owned())
}

/// What `uname -r` prints.
pub fn kernel_release() -> String {
    // SAFETY: utsname is plain bytes; all zero is a valid value.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `name` is valid for the call to fill.
    if unsafe { libc::uname(&raw mut name) } != 0 {
        return "unknown".to_owned();
    }
    // SAFETY: on success uname ends each member with a zero byte.
    let release = unsafe { CStr::from_ptr(name.release.as_ptr()) };
    release.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_maps_to_now() {
        let now = boot_now_ns() as i64 + boot_to_epoch_ns();
        let epoch = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        assert!((epoch.as_nanos() as i64 - now).abs() < 1_000_000_000);
    }

    #[test]
    fn the_kernel_has_a_release() {
        assert!(kernel_release().contains('.'));
    }
}
