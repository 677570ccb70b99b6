//! The terminal interface in a real terminal: the built `tracer` in tmux, driven by keys, its screen read back. Needs
//! root, tmux, and the binary (`TRACER_BIN`, else `target/release/tracer`).
//!
//! Virtual machines have no tmux, so these run on this machine's kernel alone (`NATIVE_ONLY` in xtask).

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tracer_tests::lab::client;
use tracer_tests::lab::session::Session;
use tracer_tests::lab::topology::REMOTE_SERVICE;
use tracer_tests::lab::{Launcher, Options, inventory};

/// The longest that anything may take.
const LIMIT: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(50);
/// What the shell says when it waits for a command.
const PROMPT: &str = "ready-for-more>";

fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("TRACER_BIN") {
        return path.into();
    }
    let own = std::env::current_exe().expect("this executable's path");
    let target = own.ancestors().nth(3).expect("a target directory");
    target.join("release/tracer")
}

fn lab() -> Session {
    let options = Options::new(Launcher::binary(env!("CARGO_BIN_EXE_lab")));
    Session::start(&options).expect("the laboratory goes up")
}

/// One request to the Service, answered.
#[track_caller]
fn get() {
    let to = SocketAddr::V4(REMOTE_SERVICE);
    let options = client::Options::default().timeout(LIMIT);
    let response = client::get(Some("client"), to, &options).expect("an answer");
    assert_eq!(response.status, 200);
}

/// A shell in a terminal of its own.
struct Terminal {
    server: String,
    dir: PathBuf,
}

impl Terminal {
    fn open(name: &str, width: u16, height: u16) -> Self {
        // A server that was told to end holds its socket for a while: no two share a name.
        static OPENED: AtomicU32 = AtomicU32::new(0);
        let nth = OPENED.fetch_add(1, Ordering::Relaxed);
        let server = format!("tracer-test-{name}-{}-{nth}", std::process::id());
        let dir = std::env::temp_dir().join(&server);
        fs::create_dir_all(&dir).expect("a directory");
        let terminal = Self { server, dir };
        let shell = format!("env PS1='{PROMPT} ' TERM=screen-256color bash --norc --noprofile");
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width.to_string(),
            "-y",
            &height.to_string(),
            &shell,
        ]);
        terminal.until("a prompt", |screen| screen.contains(PROMPT));
        terminal
    }

    #[track_caller]
    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.server])
            .args(args)
            .env_remove("TMUX")
            .output()
            .expect("tmux is installed");
        assert!(
            output.status.success(),
            "tmux {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// What is on the screen and what was there before.
    fn scrollback(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J", "-S", "-"])
    }

    /// Keys by tmux's names.
    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn write(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    fn command(&self, line: &str) {
        self.write(line);
        self.press(&["Enter"]);
    }

    fn resize(&self, width: u16, height: u16) {
        let (width, height) = (width.to_string(), height.to_string());
        self.tmux(&["resize-window", "-x", &width, "-y", &height]);
    }

    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "{what}: not on\n{screen}");
            thread::sleep(POLL);
        }
    }

    /// Waits until these words are on the screen.
    #[track_caller]
    fn shows(&self, words: &str) -> String {
        self.until(words, |screen| screen.contains(words))
    }

    /// The terminal's settings.
    fn settings(&self) -> String {
        // Words that are neither in the command itself nor on the screen from the last time.
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let nth = ASKED.fetch_add(1, Ordering::Relaxed);
        let file = self.dir.join(format!("stty-{nth}"));
        self.command(&format!(
            "stty -a > {} && printf 'told-%s\\n' {nth}",
            file.display()
        ));
        let told = format!("told-{nth}");
        self.until(&told, |screen| screen.lines().any(|l| l.trim() == told));
        fs::read_to_string(file).expect("stty's words")
    }

    /// Checks that a program has left the terminal as it found it.
    #[track_caller]
    fn is_restored(&self, before: &str) {
        let format = "#{alternate_on} #{mouse_any_flag} #{cursor_flag} #{bracket_paste_flag}";
        let flags = self.tmux(&["display-message", "-p", format]);
        let flags: Vec<&str> = flags.split_whitespace().collect();
        // The last is the shell's own to set.
        assert_eq!(
            flags[..3],
            ["0", "0", "1"],
            "alternate screen, mouse, cursor"
        );
        assert_eq!(self.settings(), before, "stty -a");
    }

    /// The program that the shell runs.
    fn child(&self) -> i32 {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        let children = children.expect("the shell's children");
        let child = children.split_whitespace().next().expect("a child");
        child.parse().expect("a number")
    }

    fn follow(&self, more: &str) {
        self.command(&format!(
            "{} follow --no-kube --inventory {} --pod client --dst 10.98.235.247:80 --duration 1500s {more}",
            binary().display(),
            inventory::path().display()
        ));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .args(["-L", &self.server, "kill-server"])
            .stderr(Stdio::null())
            .status();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// How many packets the status line says there are.
fn packets(screen: &str) -> u64 {
    let line = screen.lines().find(|l| l.contains("degraded"));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let at = words.iter().position(|w| *w == "packets").unwrap_or(0);
    at.checked_sub(1)
        .and_then(|at| words[at].parse().ok())
        .unwrap_or(0)
}

#[test]
fn tmux_follow_from_start_to_end() {
    let _lab = lab();
    let terminal = Terminal::open("follow", 80, 24);
    let before = terminal.settings();
    let recording = terminal.dir.join("trace.jsonl");
    terminal.follow(&format!("-w {}", recording.display()));
    terminal.shows("LIVE");
    get();
    let screen = terminal.until("the call, judged", |screen| {
        packets(screen) >= 8 && screen.contains("SO FAR: ✓ OK")
    });
    assert!(
        screen.starts_with(" SO FAR"),
        "the verdict is on top:\n{screen}"
    );
    assert!(screen.contains("q quit"), "keys are shown:\n{screen}");

    // Held still: the picture, not the capture.
    terminal.press(&["p"]);
    terminal.shows("PAUSED");
    let held = packets(&terminal.screen());
    get();
    let screen = terminal.until("packets that wait", |screen| {
        screen.contains("PAUSED") && !screen.contains("PAUSED, 0 waiting")
    });
    assert_eq!(packets(&screen), held, "{screen}");
    terminal.press(&["p"]);
    terminal.until("what was held", |screen| packets(screen) >= held + 8);

    terminal.command("/SYN");
    terminal.shows("match 1 of");
    terminal.press(&["?"]);
    terminal.shows("the verdict in full: evidence");
    terminal.press(&["Escape"]);

    // Out of it in the middle.
    let out = terminal.dir.join("out.json");
    terminal.press(&["w", "Tab", "C-u"]);
    terminal.command(&out.display().to_string());
    terminal.until("the file", |screen| {
        screen.contains("written to") || out.is_file()
    });
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(&out).expect("the export")).expect("JSON");
    assert_eq!(json["schema"], "tracer.trace/1");
    assert!(json["packets"].as_array().expect("packets").len() >= 16);

    terminal.resize(200, 60);
    terminal.shows("headers at step");
    terminal.resize(40, 8);
    terminal.shows("too small");
    terminal.resize(80, 24);
    terminal.shows("LIVE");

    // To the shell and back.
    terminal.press(&["C-z"]);
    terminal.until("the shell", |screen| screen.contains("Stopped"));
    terminal.is_restored(&before);
    terminal.command("fg");
    terminal.shows("LIVE");
    let seen = packets(&terminal.screen());
    get();
    terminal.until("packets after fg", |screen| packets(screen) >= seen + 8);

    terminal.press(&["q"]);
    terminal.until("the prompt", |screen| screen.trim_end().ends_with(PROMPT));
    terminal.command("echo code=$?");
    terminal.shows("code=0");
    let said = terminal.scrollback();
    assert!(
        said.contains("✓ delivered: tcp from pod/default/client"),
        "{said}"
    );
    terminal.is_restored(&before);
    let lines = fs::read_to_string(&recording).expect("the recording");
    let last = lines.lines().last().expect("a closing line");
    assert!(last.contains("\"verdict\""), "{last}");
}

#[test]
fn tmux_a_signal_ends_it_in_good_order() {
    let _lab = lab();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let terminal = Terminal::open("signal", 100, 30);
        let before = terminal.settings();
        terminal.follow("");
        terminal.shows("LIVE");
        get();
        terminal.until("packets", |screen| packets(screen) >= 8);
        // SAFETY: kill takes no pointers; the shell has not waited for it yet.
        unsafe { libc::kill(terminal.child(), signal) };
        terminal.until("the prompt", |screen| screen.trim_end().ends_with(PROMPT));
        terminal.command("echo code=$?");
        terminal.shows("code=0");
        assert!(terminal.scrollback().contains("✓ delivered"));
        terminal.is_restored(&before);
    }
}

/// The terminal goes away: the tool ends, too.
#[test]
fn tmux_a_terminal_that_is_gone_ends_it() {
    let _lab = lab();
    let terminal = Terminal::open("gone", 100, 30);
    terminal.follow("");
    terminal.shows("LIVE");
    let stat = format!("/proc/{}/stat", terminal.child());
    drop(terminal);
    let deadline = Instant::now() + LIMIT;
    while Path::new(&stat).exists() {
        assert!(Instant::now() < deadline, "{stat} is still there");
        thread::sleep(POLL);
    }
}

#[test]
fn tmux_show() {
    let terminal = Terminal::open("show", 120, 40);
    let before = terminal.settings();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tracer/testdata/recordings");
    let file = data.join("c11.jsonl.zst");
    let show = format!("{} show", binary().display());
    terminal.command(&format!("{show} {}", file.display()));
    terminal.shows("✗ FAULT");
    terminal.shows("STOPPED HERE");
    terminal.press(&["v"]);
    terminal.shows("evidence");
    terminal.press(&["Escape", "q"]);
    terminal.until("the prompt", |screen| screen.trim_end().ends_with(PROMPT));
    terminal.command("echo code=$?");
    terminal.shows("code=3");
    assert!(terminal.scrollback().contains("✗ policy-drop"));
    terminal.is_restored(&before);

    // What cannot be shown: one sentence, and the terminal as it was.
    let damaged = terminal.dir.join("damaged.jsonl");
    fs::write(&damaged, "nothing\n").expect("a file");
    terminal.command("clear");
    terminal.command(&format!("{show} {}; echo code=$?", damaged.display()));
    let screen = terminal.shows("code=1");
    assert!(screen.contains("tracer: cannot show"), "{screen}");
    terminal.is_restored(&before);
}

#[test]
fn tmux_is_not_needed_to_be_refused_without_a_terminal() {
    let output = Command::new(binary())
        .args(["show", "-o", "tui", "/no-such-file"])
        .stdin(Stdio::null())
        .output()
        .expect("the tool starts");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("needs a terminal"), "{said}");
}
