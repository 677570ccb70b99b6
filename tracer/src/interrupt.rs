//! Dying of a signal without leaving a mess: half-written files are removed and
//! the progress line is cleared, then the signal does what it would have done,
//! so that a shell sees 130 (SIGINT), 143 (SIGTERM) or 129 (SIGHUP).
//!
//! For commands that work through to their end. The loop of a live trace has
//! handlers of its own and chains older ones: nothing may be caught here while
//! it starts.

use std::ffi::{CString, c_char, c_int};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

const SIGNALS: [c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// Files that may be in the making at once.
const FILES: usize = 16;

/// Paths of files to remove. They are never freed: a handler may be reading.
static UNFINISHED: [AtomicPtr<c_char>; FILES] = [const { AtomicPtr::new(null_mut()) }; FILES];
/// Whether the last line on the terminal is to be cleared.
static LINE: AtomicBool = AtomicBool::new(false);
static CAUGHT: Mutex<Caught> = Mutex::new(Caught {
    users: 0,
    before: [None; SIGNALS.len()],
});

struct Caught {
    users: usize,
    before: [Option<libc::sigaction>; SIGNALS.len()],
}

/// As long as one of these lives, signals clean up before they kill.
#[derive(Debug)]
pub struct Caring(());

/// Starts to care. Signals that are ignored, as under nohup, stay so.
pub fn care() -> Caring {
    let mut caught = CAUGHT.lock().unwrap_or_else(PoisonError::into_inner);
    caught.users += 1;
    if caught.users == 1 {
        for (signal, before) in SIGNALS.into_iter().zip(&mut caught.before) {
            *before = catch(signal);
        }
    }
    Caring(())
}

impl Drop for Caring {
    fn drop(&mut self) {
        let mut caught = CAUGHT.lock().unwrap_or_else(PoisonError::into_inner);
        caught.users -= 1;
        if caught.users > 0 {
            return;
        }
        for (signal, before) in SIGNALS.into_iter().zip(&mut caught.before) {
            if let Some(before) = before.take() {
                // SAFETY: `before` is what the same call filled in.
                unsafe { libc::sigaction(signal, &raw const before, null_mut()) };
            }
        }
    }
}

/// Sets the handler; what was there before, unless the signal is ignored.
fn catch(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: sigaction is plain data, and both calls get valid structures.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut before);
        if before.sa_sigaction == libc::SIG_IGN {
            return None;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = clean_up as *const () as usize;
        action.sa_flags = libc::SA_RESETHAND;
        libc::sigemptyset(&raw mut action.sa_mask);
        (libc::sigaction(signal, &raw const action, null_mut()) == 0).then_some(before)
    }
}

/// The handler: only calls that are safe in one (`signal-safety(7)`).
extern "C" fn clean_up(signal: c_int) {
    for file in &UNFINISHED {
        let path = file.load(Ordering::Acquire);
        if !path.is_null() {
            // SAFETY: a path that was published is a C string and never freed.
            unsafe { libc::unlink(path) };
        }
    }
    if LINE.load(Ordering::Acquire) {
        let clear = crate::progress::CLEAR.as_bytes();
        // SAFETY: writes from a static buffer of that length.
        unsafe { libc::write(libc::STDERR_FILENO, clear.as_ptr().cast(), clear.len()) };
    }
    // The default action was restored (SA_RESETHAND); it follows on return.
    // SAFETY: plain integer.
    unsafe { libc::raise(signal) };
}

/// A file that a signal has to remove.
#[derive(Debug)]
pub struct Unfinished {
    slot: Option<usize>,
    _caring: Caring,
}

/// Has this file removed by signals until the answer is dropped. Beyond
/// [`FILES`] of them it is left lying, under its temporary name.
pub fn remove(path: &Path) -> Unfinished {
    use std::os::unix::ffi::OsStrExt;
    let caring = care();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let slot = CString::new(absolute.as_os_str().as_bytes())
        .ok()
        .and_then(|path| {
            let path = path.into_raw();
            let free = |file: &AtomicPtr<c_char>| {
                file.compare_exchange(null_mut(), path, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            };
            UNFINISHED.iter().position(free)
        });
    Unfinished {
        slot,
        _caring: caring,
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(file) = self.slot.and_then(|i| UNFINISHED.get(i)) {
            file.store(null_mut(), Ordering::Release);
        }
    }
}

/// Notes whether a line on the terminal is to be cleared; whether it was.
pub(crate) fn line(shown: bool) -> bool {
    LINE.swap(shown, Ordering::AcqRel)
}
