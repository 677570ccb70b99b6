//! Running the machine's own commands: bounded in time and size, with an
//! environment of ours, killed when this process dies.

use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where programs are looked for, whatever the caller's PATH says: this runs
/// as root.
const DIRS: &[&str] = &[
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/usr/local/sbin",
    "/usr/local/bin",
];
/// The same for what the programs start themselves.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin";
/// What is kept of an error message.
const MESSAGE: usize = 4096;

/// A program's full path.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let executable = |path: &PathBuf| {
        let meta = path.metadata();
        meta.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    DIRS.iter()
        .map(|dir| Path::new(dir).join(program))
        .find(executable)
}

/// Standard output of the program, run in the thread's namespaces; else a
/// sentence that says why there is none.
pub(super) fn output(
    program: &Path,
    args: &[&str],
    patience: Duration,
    limit: usize,
) -> Result<String, String> {
    let deadline = Instant::now() + patience;
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is for this process, which reads the state when it ends.
        .process_group(0);
    // SAFETY: prctl is async-signal-safe and takes plain integers.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let mut child = command
        .spawn()
        .map_err(|e| format!("it cannot be started: {e}"))?;
    let result = follow(&mut child, deadline, patience, limit);
    if result.is_err() {
        // It may have ended already; either way nothing of it stays. It leads
        // a group, which takes what it started along.
        // SAFETY: plain integers; the child has not been waited for with
        // success, so the number is not another's.
        unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
        let _ = child.wait();
    }
    result
}

fn follow(
    child: &mut Child,
    deadline: Instant,
    patience: Duration,
    limit: usize,
) -> Result<String, String> {
    let late = || format!("it took longer than {:.1} s", patience.as_secs_f32());
    let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("its output cannot be read".to_owned());
    };
    let (mut text, mut message) = (Vec::new(), Vec::new());
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        let fds = [(out.as_raw_fd(), out_open), (err.as_raw_fd(), err_open)];
        let [out_ready, err_ready] = wait(fds, deadline).ok_or_else(late)?;
        if out_ready {
            out_open = take(&mut out, &mut text, limit + 1);
        }
        if err_ready {
            err_open = take(&mut err, &mut message, MESSAGE);
        }
        if text.len() > limit {
            return Err(format!("it wrote more than {limit} bytes"));
        }
    }
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() >= deadline => return Err(late()),
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(format!("its end was missed: {e}")),
        }
    };
    if !status.success() {
        let message = String::from_utf8_lossy(&message);
        let first = message.lines().map(str::trim).find(|l| !l.is_empty());
        return Err(match first {
            Some(line) => format!("it failed ({status}): {line}"),
            None => format!("it failed ({status})"),
        });
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Waits until one of the open descriptors can be read; `None` when time is up.
fn wait(fds: [(RawFd, bool); 2], deadline: Instant) -> Option<[bool; 2]> {
    // poll(2) passes over negative descriptors.
    let mut polled = fds.map(|(fd, open)| libc::pollfd {
        fd: if open { fd } else { -1 },
        events: libc::POLLIN,
        revents: 0,
    });
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let millis = left.as_millis().clamp(1, 60_000) as libc::c_int;
        // SAFETY: `polled` is valid for the number of entries it has.
        let n = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) };
        if n > 0 {
            return Some(polled.map(|p| p.revents != 0));
        }
    }
}

/// Reads once; false at the end. What is beyond `most` is read and forgotten.
fn take(from: &mut impl Read, into: &mut Vec<u8>, most: usize) -> bool {
    let mut buffer = [0; 16 << 10];
    match from.read(&mut buffer) {
        Ok(0) => false,
        Ok(n) => {
            let n = n.min(most.saturating_sub(into.len()));
            into.extend_from_slice(buffer.get(..n).unwrap_or_default());
            true
        }
        Err(e) => e.kind() == std::io::ErrorKind::Interrupted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, millis: u64, limit: usize) -> Result<String, String> {
        let shell = find("sh").unwrap();
        output(
            &shell,
            &["-c", script],
            Duration::from_millis(millis),
            limit,
        )
    }

    #[test]
    fn output_is_taken_with_an_environment_of_ours() {
        // SAFETY: nothing else in this test program reads the variable.
        unsafe { std::env::set_var("TRACER_TEST_SECRET", "yes") };
        let said = sh("echo \"$LC_ALL,$TRACER_TEST_SECRET\"; cat", 5000, 100);
        assert_eq!(said.as_deref(), Ok("C,\n"));
    }

    #[test]
    fn failures_are_sentences() {
        let failed = sh("echo; echo 'no such table' >&2; exit 3", 5000, 100);
        assert_eq!(
            failed.unwrap_err(),
            "it failed (exit status: 3): no such table"
        );
        assert!(find("no-such-program-anywhere").is_none());
        let missing = output(Path::new("/nowhere"), &[], Duration::from_secs(1), 9);
        assert!(missing.unwrap_err().starts_with("it cannot be started"));
    }

    #[test]
    fn time_and_size_are_bounded() {
        let start = Instant::now();
        let late = sh("sleep 60", 100, 100).unwrap_err();
        assert_eq!(late, "it took longer than 0.1 s");
        let closed = sh("exec >&- 2>&-; sleep 60", 100, 100).unwrap_err();
        assert_eq!(closed, "it took longer than 0.1 s");
        let long = sh("cat /dev/zero", 5000, 1000).unwrap_err();
        assert_eq!(long, "it wrote more than 1000 bytes");
        assert!(start.elapsed() < Duration::from_secs(30));
        // A long message does not block the program.
        let loud = sh("head -c 300000 /dev/zero >&2; echo done", 5000, 100);
        assert_eq!(loud.as_deref(), Ok("done\n"));
    }
}
