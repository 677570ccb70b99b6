//! A terminal of which somebody else holds the other end.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::ptr::null_mut;

use super::Screen;
use crate::tui::THREAD;

/// Not a test by itself: takes the terminal, and panics on a thread of that name.
#[test]
fn child_that_panics() {
    let Some(name) = std::env::var_os("TRACER_TEST_PANIC") else {
        return;
    };
    let screen = Screen::open().unwrap();
    let thread = std::thread::Builder::new().name(name.into_string().unwrap());
    let panicked = thread.spawn(|| panic!("what went wrong")).unwrap();
    assert!(panicked.join().is_err());
    println!("afterwards");
    drop(screen);
}

/// Both ends of a new terminal.
fn terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: both places are written, and the other arguments may be null.
    let done = unsafe {
        libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            null_mut(),
            null_mut(),
            null_mut(),
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both are open and nobody else's.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// Input, output, control and local flags.
fn settings(terminal: &impl AsRawFd) -> [libc::tcflag_t; 4] {
    // SAFETY: termios is plain data, and is written by the call.
    let it = unsafe {
        let mut it: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &raw mut it), 0);
        it
    };
    [it.c_iflag, it.c_oflag, it.c_cflag, it.c_lflag]
}

/// What a run of the child that panics writes to its terminal, whose settings
/// are as before in the end.
fn written_by_a_panic_on(thread: &str) -> String {
    let (mut ours, theirs) = terminal();
    let before = settings(&theirs);
    let stdio = || Stdio::from(theirs.try_clone().unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "tui::term::tests::child_that_panics",
            "--nocapture",
        ])
        .env("TRACER_TEST_PANIC", thread)
        .env("RUST_BACKTRACE", "0")
        .stdin(stdio())
        .stdout(stdio())
        .stderr(stdio())
        .spawn()
        .unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // EIO when the last one has closed it.
        let _ = ours.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    assert!(child.wait().unwrap().success());
    assert_eq!(settings(&theirs), before);
    drop(theirs);
    reader.join().unwrap()
}

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";
const SHOW: &str = "\u{1b}[?25h";

#[test]
fn a_panic_gives_the_terminal_back_before_its_message() {
    let text = written_by_a_panic_on("feed");
    let at = |what: &str| {
        text.find(what)
            .unwrap_or_else(|| panic!("no {what:?} in {text:?}"))
    };
    assert!(at(ENTER) < at(SHOW) && at(SHOW) < at(LEAVE), "{text:?}");
    assert!(at(LEAVE) < at("what went wrong"), "{text:?}");
    assert_eq!(text.matches(LEAVE).count(), 1, "once: {text:?}");
}

#[test]
fn a_panic_of_the_screen_itself_gives_it_back_and_says_nothing() {
    let text = written_by_a_panic_on(THREAD);
    let left = text.find(LEAVE).unwrap();
    assert!(left < text.find("afterwards").unwrap(), "{text:?}");
    assert!(!text.contains("what went wrong"), "{text:?}");
}
