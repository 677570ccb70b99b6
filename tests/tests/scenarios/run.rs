//! Running the tool: start, wait until it is ready, stop, read what it said.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracer_tests::lab::inventory;

use crate::trace::Trace;

/// The longest that anything may take, in an emulated machine too.
pub(crate) const LIMIT: Duration = Duration::from_mins(8);
const POLL: Duration = Duration::from_millis(10);
/// Ends a run whose test has died.
const DURATION: &str = "1500s";

/// The executable under test.
pub(crate) fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("TRACER_BIN") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "TRACER_BIN={} is no file", path.display());
        return path;
    }
    // target/debug/deps/scenarios-HASH
    let own = std::env::current_exe().expect("this executable's path");
    let target = own.ancestors().nth(3).expect("a target directory");
    let path = target.join("release/tracer");
    assert!(
        path.is_file(),
        "{} does not exist; build it with `cargo build --release -p tracer` or name another in TRACER_BIN",
        path.display()
    );
    path
}

/// Where the evidence of a test is kept.
pub(crate) fn evidence() -> PathBuf {
    let dir = std::env::temp_dir().join("tracer-tests");
    fs::create_dir_all(&dir).expect("a directory for evidence");
    dir
}

/// A command line of the tool.
pub(crate) struct Tool {
    name: String,
    args: Vec<OsString>,
    /// Run this copy without privileges.
    nobody: Option<PathBuf>,
}

/// `tracer follow` in the laboratory with JSON output; the name is the evidence file's.
pub(crate) fn follow(name: &str, args: &[&str]) -> Tool {
    let inventory = inventory::path();
    Tool::new(name, &["follow", "--no-kube", "--duration", DURATION])
        .arg("--inventory")
        .arg(inventory)
        .args(&["-o", "json"])
        .args(args)
}

/// The same from the pod `client` to the Service `remote`.
pub(crate) fn follow_service(name: &str) -> Tool {
    follow(name, &["--pod", "client", "--dst", "10.98.235.247:80"])
}

impl Tool {
    pub(crate) fn new(name: &str, args: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            args: Vec::new(),
            nobody: None,
        }
        .args(args)
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(crate) fn args(self, args: &[&str]) -> Self {
        args.iter().fold(self, Self::arg)
    }

    /// Replaces `-o json`.
    pub(crate) fn output(mut self, form: &str) -> Self {
        let at = self.args.iter().position(|arg| arg == "-o");
        let at = at.expect("a command with an output form");
        self.args[at + 1] = form.into();
        self
    }

    /// Runs a copy of it without privileges.
    pub(crate) fn without_privileges(mut self, copy: PathBuf) -> Self {
        self.nobody = Some(copy);
        self
    }

    fn spawn(self) -> Running {
        let mut command = Command::new(self.nobody.clone().unwrap_or_else(binary));
        command
            .args(&self.args)
            .env("RUST_BACKTRACE", "0")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if self.nobody.is_some() {
            command.uid(65534).gid(65534);
        }
        let mut child = command.spawn().expect("the tool starts");
        let (stdout, out) = collect(child.stdout.take().expect("its standard output"));
        let (stderr, err) = collect(child.stderr.take().expect("its standard error"));
        Running {
            name: self.name,
            args: self.args,
            child,
            stdout,
            stderr,
            readers: vec![out, err],
        }
    }

    /// Starts it and waits until every hook is attached.
    #[track_caller]
    pub(crate) fn start(self) -> Running {
        let mut running = self.spawn();
        let deadline = Instant::now() + LIMIT;
        loop {
            if running
                .stderr()
                .lines()
                .any(|line| line.starts_with("ready: "))
            {
                return running;
            }
            if let Some(status) = running.child.try_wait().expect("its status") {
                running.join();
                panic!(
                    "{} ended before it was ready: {status}\n{}",
                    running.command_line(),
                    running.stderr()
                );
            }
            assert!(
                Instant::now() < deadline,
                "{} is not ready after {LIMIT:?}\n{}",
                running.command_line(),
                running.stderr()
            );
            thread::sleep(POLL);
        }
    }

    /// Runs it until it ends by itself.
    #[track_caller]
    pub(crate) fn run(self) -> Done {
        self.spawn().wait()
    }
}

type Shared = Arc<Mutex<Vec<u8>>>;

fn collect(mut from: impl Read + Send + 'static) -> (Shared, JoinHandle<()>) {
    let shared = Shared::default();
    let into = Arc::clone(&shared);
    let reader = thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            into.lock()
                .expect("no reader panics")
                .extend_from_slice(&buffer[..length]);
        }
    });
    (shared, reader)
}

/// The tool while it runs; killed when dropped.
pub(crate) struct Running {
    name: String,
    args: Vec<OsString>,
    child: Child,
    stdout: Shared,
    stderr: Shared,
    readers: Vec<JoinHandle<()>>,
}

fn text(shared: &Shared) -> String {
    String::from_utf8_lossy(&shared.lock().expect("no reader panics")).into_owned()
}

impl Running {
    pub(crate) fn stdout(&self) -> String {
        text(&self.stdout)
    }

    pub(crate) fn stderr(&self) -> String {
        text(&self.stderr)
    }

    fn command_line(&self) -> String {
        let words: Vec<_> = self.args.iter().map(|arg| arg.to_string_lossy()).collect();
        format!("tracer {}", words.join(" "))
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill takes no pointers; the child has not been waited for, so the id is its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Waits until it has worked off what it was given: it hardly uses the processor any more.
    pub(crate) fn settle(&self) {
        let deadline = Instant::now() + LIMIT;
        let mut before = self.ticks();
        while Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1500));
            let now = self.ticks();
            if now - before <= 20 {
                return;
            }
            before = now;
        }
    }

    /// Processor time used, in hundredths of a second.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields = fields.split_whitespace().skip(11).take(2);
        fields.filter_map(|field| field.parse::<u64>().ok()).sum()
    }

    /// Halts it: what happens now finds nobody who reads.
    #[allow(dead_code, reason = "the cases halt it, the scenarios do not")]
    pub(crate) fn pause(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Lets it go on after [`pause`](Self::pause).
    #[allow(dead_code, reason = "the cases halt it, the scenarios do not")]
    pub(crate) fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Lets it work off what it has seen, then asks it to end, as Ctrl-C does.
    #[track_caller]
    pub(crate) fn stop(self) -> Done {
        self.settle();
        self.signal(libc::SIGINT);
        self.wait()
    }

    /// Ends it as nobody should.
    pub(crate) fn kill(mut self) {
        self.signal(libc::SIGKILL);
        self.child.wait().expect("its status");
    }

    fn join(&mut self) {
        for reader in self.readers.drain(..) {
            reader.join().expect("no reader panics");
        }
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub(crate) fn wait(mut self) -> Done {
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("its status") {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "{} did not end in {LIMIT:?}\n{}",
                self.command_line(),
                self.stderr()
            );
            thread::sleep(POLL);
        };
        self.join();
        let file = evidence().join(format!("{}.out", self.name));
        fs::write(&file, self.stdout()).expect("the evidence is written");
        Done {
            status,
            command_line: self.command_line(),
            stdout: self.stdout(),
            stderr: self.stderr(),
            file,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What a run left.
pub(crate) struct Done {
    status: ExitStatus,
    command_line: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// A copy of the standard output.
    pub(crate) file: PathBuf,
}

impl Done {
    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn exit(&self, code: i32) -> &Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "exit code of {} ({})\n--- standard error\n{}--- standard output, the end of it ({})\n{}",
            self.command_line,
            self.status,
            self.stderr,
            self.file.display(),
            tail(&self.file)
        );
        self
    }

    /// Every hook that this kernel has took its program: what is missing may be the kernel's, not refused by it.
    #[track_caller]
    pub(crate) fn nothing_refused(&self) -> &Self {
        let said: serde_json::Value = serde_json::from_str(&self.stdout).unwrap_or_default();
        for line in said["tool"]["degraded"].as_array().into_iter().flatten() {
            let line = line.as_str().unwrap_or_default();
            assert!(
                !line.contains("BPF_PROG_LOAD"),
                "{}: {line}",
                self.command_line
            );
        }
        self
    }

    /// The standard output as a trace.
    #[track_caller]
    pub(crate) fn trace(&self) -> Trace {
        self.nothing_refused();
        let origin = format!(
            "{}\nJSON in {}\n--- standard error\n{}",
            self.command_line,
            self.file.display(),
            self.stderr
        );
        match serde_json::from_str::<Trace>(&self.stdout) {
            Ok(trace) => trace.told_by(&origin),
            Err(error) => panic!("{origin}: the output is not the trace object: {error}"),
        }
    }

    /// Checks that the tool refused with this code and one clear sentence that has these words.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, words: &[&str]) {
        self.exit(code);
        let said = &self.stderr;
        for word in words {
            assert!(
                said.to_lowercase().contains(&word.to_lowercase()),
                "{}: no {word:?} in {said:?}",
                self.command_line
            );
        }
        for bad in ["panicked", "backtrace", "BACKTRACE", "Error {"] {
            assert!(
                !said.contains(bad),
                "{}: {bad:?} in {said:?}",
                self.command_line
            );
        }
        let lines = said.lines().filter(|line| !line.trim().is_empty()).count();
        // A usage error comes with the usage.
        let most = if code == 2 { 8 } else { 2 };
        assert!(
            (1..=most).contains(&lines),
            "{}: {lines} lines instead of one sentence:\n{said}",
            self.command_line
        );
        assert_eq!(self.stdout, "", "{}: standard output", self.command_line);
    }
}

/// Waits for something to become true, and says what did not.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not after {LIMIT:?}");
        thread::sleep(POLL);
    }
}

/// The content of a file.
#[track_caller]
pub(crate) fn slurp(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The last few thousand bytes of a file: a guest takes its files with it.
fn tail(file: &std::path::Path) -> String {
    let text = std::fs::read(file).unwrap_or_default();
    let from = text.len().saturating_sub(9000);
    String::from_utf8_lossy(&text[from..]).into_owned()
}
