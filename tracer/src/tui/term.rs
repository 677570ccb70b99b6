//! The terminal: taking it, giving it back whatever happens, and signals.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM};

#[cfg(test)]
mod tests;

/// Output is handed over frame by frame.
type Out = BufWriter<Stdout>;

/// The screen has the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// SIGTSTP came from outside.
static STOP: AtomicBool = AtomicBool::new(false);

/// Whether there is a terminal to draw on and to read keys from.
pub fn available() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb" || t.is_empty());
    io::stdout().is_terminal() && io::stdin().is_terminal() && !dumb
}

fn take() -> io::Result<()> {
    // Before anything changes, so that a panic in between is undone, too.
    TAKEN.store(true, Ordering::SeqCst);
    // Anew in any case: a shell may have changed it meanwhile.
    let _ = disable_raw_mode();
    enable_raw_mode()?;
    execute!(
        io::stdout(),
        EnterAlternateScreen,
        EnableMouseCapture,
        EnableBracketedPaste,
        Hide
    )
}

/// Gives the terminal back as it was. Harmless when it was given back before.
pub(super) fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout();
    let _ = queue!(
        out,
        DisableBracketedPaste,
        DisableMouseCapture,
        Show,
        LeaveAlternateScreen
    );
    let _ = out.flush();
    let _ = disable_raw_mode();
}

/// A panic anywhere gives the terminal back before its message is written. On
/// the screen's own thread the message is one sentence, told by who joins it.
fn hook_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            if std::thread::current().name() != Some(super::THREAD) {
                before(info);
            }
        }));
    });
}

/// Signals that have come.
#[derive(Clone, Debug)]
pub(super) struct Signals {
    end: Arc<AtomicBool>,
    resumed: Arc<AtomicBool>,
}

extern "C" fn stopped(_: libc::c_int) {
    STOP.store(true, Ordering::SeqCst);
}

/// Installs an action for SIGTSTP.
fn on_stop(action: libc::sighandler_t) {
    // SAFETY: sigaction is plain data, filled in before use; the handler only
    // stores to an atomic.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = action;
        new.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut new.sa_mask);
        libc::sigaction(libc::SIGTSTP, &raw const new, std::ptr::null_mut());
    }
}

fn handler() -> libc::sighandler_t {
    stopped as extern "C" fn(libc::c_int) as libc::sighandler_t
}

impl Signals {
    /// Listens, beside whoever else does.
    /// `also` is told of the signals that ask for the end.
    pub(super) fn listen(also: &Arc<AtomicBool>) -> io::Result<Self> {
        let signals = Self {
            end: Arc::default(),
            resumed: Arc::default(),
        };
        for signal in [SIGTERM, SIGHUP, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&signals.end))?;
            signal_hook::flag::register(signal, Arc::clone(also))?;
        }
        signal_hook::flag::register(SIGCONT, Arc::clone(&signals.resumed))?;
        on_stop(handler());
        Ok(signals)
    }

    /// Whether the end was asked for; told once.
    pub(super) fn ended(&self) -> bool {
        self.end.swap(false, Ordering::SeqCst)
    }

    fn resumed(&self) -> bool {
        self.resumed.swap(false, Ordering::SeqCst)
    }
}

/// What waiting for keys came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// There is something to read.
    Ready,
    /// Nothing came.
    Quiet,
    /// The terminal is gone.
    Gone,
}

/// The terminal while the screen has it.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Out>>,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn open() -> io::Result<Self> {
        hook_panics();
        let taken = take().and_then(|()| {
            let out = BufWriter::with_capacity(64 << 10, io::stdout());
            Terminal::new(CrosstermBackend::new(out))
        });
        match taken {
            Ok(terminal) => Ok(Self { terminal }),
            Err(e) => {
                give_back();
                Err(e)
            }
        }
    }

    /// Stops this job, as Ctrl-Z does; comes back when it is continued.
    pub(super) fn suspend(&mut self, signals: &Signals) -> io::Result<()> {
        give_back();
        STOP.store(false, Ordering::SeqCst);
        on_stop(libc::SIG_DFL);
        // SAFETY: plain integers. To the whole job: the shell waits for all of
        // it. Ignored by the kernel where no shell could continue it.
        unsafe { libc::kill(0, libc::SIGTSTP) };
        on_stop(handler());
        signals.resumed();
        self.again()
    }

    fn again(&mut self) -> io::Result<()> {
        take()?;
        self.terminal.clear()
    }

    /// Does what stop and continue ask for; whether all has to be drawn anew.
    pub(super) fn job_control(&mut self, signals: &Signals) -> io::Result<bool> {
        if STOP.load(Ordering::SeqCst) {
            self.suspend(signals)?;
            return Ok(true);
        }
        if signals.resumed() {
            self.again()?;
            return Ok(true);
        }
        Ok(false)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
        on_stop(libc::SIG_DFL);
    }
}

/// Waits for input at most so long. A terminal that is gone would be readable
/// for ever.
pub(super) fn wait(timeout: Duration) -> Input {
    let mut poll = libc::pollfd {
        fd: io::stdin().as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let timeout = i32::try_from(timeout.as_millis()).unwrap_or(1000);
    // SAFETY: one valid structure.
    let n = unsafe { libc::poll(&raw mut poll, 1, timeout) };
    if n > 0 && poll.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 {
        return Input::Gone;
    }
    if n > 0 { Input::Ready } else { Input::Quiet }
}
