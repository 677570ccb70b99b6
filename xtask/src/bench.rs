//! What the tool costs. Every figure comes from the run that prints it; no test depends on one.

mod cost;
mod rates;
mod ready;
mod stats;
mod tools;
mod traffic;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use tracer_tests::lab::{self, Launcher, session::Turn, state::State};

use crate::{
    LAB,
    demo::{GUEST_DIR, VM_KERNEL, check_root, guest_files},
    process::{command, output, run as run_command},
    test::build,
    vm::{self, Job},
};

/// Measure what the tool costs: per packet, in rate of traffic, to start, in user space
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Under Debian 12's kernel in a virtual machine; without the user-space pipeline
    #[arg(long)]
    vm: bool,
    /// Within a minute: fewer and shorter rounds
    #[arg(long)]
    quick: bool,
    /// Inside the virtual machine: the folder with the programs
    #[arg(long, hide = true)]
    prebuilt: Option<PathBuf>,
}

/// Boot and all rounds, under emulation.
const VM_TIME: Duration = Duration::from_mins(12);

/// What is measured.
struct Programs {
    tracer: PathBuf,
    /// Attaches a program that does nothing.
    empty: PathBuf,
}

/// How much is measured, and what is aimed at.
struct Plan {
    /// Requests for the run time per packet.
    requests: u32,
    /// Rounds of each condition.
    rounds: usize,
    /// Length of one measurement.
    window: Duration,
    /// Starts for the time to `ready`.
    starts: usize,
    /// Events through the pipeline.
    events: u64,
    rate_aim: &'static str,
    ready_aim: &'static str,
}

impl Plan {
    fn new(quick: bool, emulated: bool) -> Self {
        let (rate_aim, ready_aim) = if emulated {
            (
                "at least 90 % under emulation",
                "none under emulation (0.5 s without)",
            )
        } else {
            ("at least 97 %", "at most 0.5 s with 50 interfaces")
        };
        let (requests, rounds, millis, starts) = match (quick, emulated) {
            (true, false) => (5_000, 3, 250, 3),
            (false, false) => (20_000, 11, 500, 5),
            (true, true) => (500, 2, 500, 1),
            (false, true) => (2_000, 5, 1000, 3),
        };
        Self {
            requests,
            rounds,
            window: Duration::from_millis(millis),
            starts,
            events: if quick { 100_000 } else { 1_000_000 },
            rate_aim,
            ready_aim,
        }
    }
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(dir) = &options.prebuilt {
        let programs = Programs {
            tracer: dir.join("tracer"),
            empty: dir.join("empty"),
        };
        return in_laboratory(&Plan::new(options.quick, true), &programs);
    }
    check_root("bench")?;
    let since = Instant::now();
    let [tracer, pipeline, empty] = build::benches(["tracer", "pipeline", "empty"])?;
    let programs = Programs { tracer, empty };
    println!("built in {:.0} s", since.elapsed().as_secs_f64());
    let since = Instant::now();
    if options.vm {
        in_vm(options, &programs)?;
    } else {
        let plan = Plan::new(options.quick, false);
        in_laboratory(&plan, &programs)?;
        user_space(&plan, &pipeline)?;
    }
    println!("\nmeasured in {:.0} s", since.elapsed().as_secs_f64());
    Ok(())
}

/// All that needs the kernel.
fn in_laboratory(plan: &Plan, programs: &Programs) -> Result<()> {
    println!("{}", machine()?);
    let laboratory = Laboratory::start()?;
    traffic::start()?;
    let result = cost::run(plan, programs)
        .and_then(|()| rates::run(plan, programs))
        .and_then(|()| ready::run(plan, programs));
    drop(laboratory);
    result
}

/// All that does not.
fn user_space(plan: &Plan, pipeline: &Path) -> Result<()> {
    println!(
        "\n== user space ({} generated events of connections through a Service; one thread; per second of its CPU time, the fastest of 3 runs)",
        plan.events
    );
    run_command(Command::new(pipeline).arg(plan.events.to_string()))?;
    println!(
        "aim: two million events/s, no growth of memory with the length of the run, and a recording of a million steps opened in 2 s"
    );
    Ok(())
}

/// The same inside the virtual machine, in one boot.
fn in_vm(options: &Options, programs: &Programs) -> Result<()> {
    println!("host: {}", machine()?);
    let quick = if options.quick { " --quick" } else { "" };
    let job = Job {
        name: "bench",
        kernel: VM_KERNEL,
        files: guest_files(&[("tracer", &programs.tracer), ("empty", &programs.empty)])?,
        script: format!("{GUEST_DIR}/xtask bench --prebuilt {GUEST_DIR}{quick}\n"),
        time_limit: VM_TIME,
        results: None,
        memory_mib: Job::MEMORY_MIB,
    };
    let outcome = vm::run_job(&job, &mut |line| println!("{line}"))?;
    if outcome.code != 0 {
        bail!("the benchmark failed in the virtual machine; the reason is above");
    }
    println!("booted in {:.0} s", outcome.boot.as_secs_f64());
    Ok(())
}

/// The machine, its kernel, the date, and how busy it is.
fn machine() -> Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("an unknown CPU", |(_, model)| model.trim());
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let date = output(&mut command("date", ["-u", "+%Y-%m-%d %H:%M UTC"]))?;
    Ok(format!(
        "{cpus} x {model}; Linux {}; {}; load average {}",
        kernel.trim(),
        date.trim(),
        load.split_whitespace().next().unwrap_or("unknown")
    ))
}

/// A healthy laboratory of our own; one that was up before is built anew afterwards.
struct Laboratory {
    before: Option<lab::Options>,
    _turn: Turn,
}

impl Laboratory {
    fn start() -> Result<Self> {
        let turn = Turn::wait()?;
        let before = State::load()?
            .filter(State::is_intact)
            .map(|state| state.options);
        lab::up(&lab::Options::new(Launcher::current(LAB)?))?;
        Ok(Self {
            before,
            _turn: turn,
        })
    }
}

impl Drop for Laboratory {
    fn drop(&mut self) {
        let result = match &self.before {
            Some(options) => lab::up(options).map(drop),
            None => lab::down().map(drop),
        };
        if let Err(error) = result {
            eprintln!("warning: the laboratory is not as it was: {error:#}");
        }
    }
}

/// What several measurements of the same thing gave.
struct Spread {
    lowest: f64,
    median: f64,
    highest: f64,
}

impl Spread {
    /// All zero where there is no measurement.
    fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |i: usize| values.get(i).copied().unwrap_or(0.0);
        let last = values.len().saturating_sub(1);
        Self {
            lowest: at(0),
            median: f64::midpoint(at(last / 2), at(values.len() / 2)),
            highest: at(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn the_median_is_in_the_middle() {
        let spread = Spread::of([3.0, 1.0, 2.0]);
        assert!(spread.lowest.to_bits() == 1.0_f64.to_bits());
        assert!(spread.median.to_bits() == 2.0_f64.to_bits());
        assert!(Spread::of([4.0, 1.0]).median.to_bits() == 2.5_f64.to_bits());
        assert!(Spread::of([]).highest.to_bits() == 0.0_f64.to_bits());
    }
}
