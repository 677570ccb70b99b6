//! The laboratory under other kernels: the same test programs, all in one boot per kernel.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};

use super::{
    build::{Built, LAB_BIN, Program, RECORDINGS_DIR, TRACER_BIN},
    libtest::Counts,
};
use crate::{
    kernels::Kernel,
    paths,
    vm::{self, Job},
};

/// Where the programs are in the guest.
const GUEST_DIR: &str = "/opt/tracer";
/// Tells a test which kernel of the matrix it runs on.
const KERNEL_VARIABLE: &str = "TRACER_TEST_KERNEL";
/// Folders of the crate of tests that its tests read, if it has them.
const DATA: &[&str] = &["cases", "data", "testdata"];

/// Where the guest's tests leave their recordings: the folder that comes back.
const RECORDINGS: &str = "/results";

/// Programs of tests that run on this machine's kernel alone: the guest has no tmux.
const NATIVE_ONLY: &[&str] = &["tui"];

/// The programs of tests that the guest runs.
fn tests(built: &Built) -> impl Iterator<Item = &Program> {
    let all = built.tests.iter();
    all.filter(|test| !NATIVE_ONLY.contains(&test.name.as_str()))
}

/// What to run on one kernel.
struct Plan {
    /// Parts of names of tests; none means all.
    filters: &'static [&'static str],
    /// Whether tests run that this machine's own kernel may not be able to.
    ignored_too: bool,
    /// Boot and all tests, under emulation.
    time_limit: Duration,
}

/// All scenarios and cases run on 6.1; on the others those that touch what differs between kernels.
fn plan(kernel: Kernel) -> Plan {
    match kernel {
        Kernel::V6_1 => Plan {
            filters: &[],
            ignored_too: true,
            // Scenarios 11 min and cases 14 on a machine that does nothing else.
            time_limit: Duration::from_hours(1),
        },
        Kernel::V5_10 | Kernel::V6_12 | Kernel::V7 => Plan {
            filters: &["core", "load"],
            ignored_too: false,
            time_limit: Duration::from_mins(15),
        },
    }
}

/// Boots the kernel and runs the test programs in it.
pub(crate) fn run(kernel: Kernel, built: &Built, filters: &[String]) -> Result<Counts> {
    let plan = plan(kernel);
    let filters: Vec<&str> = if filters.is_empty() {
        plan.filters.to_vec()
    } else {
        filters.iter().map(String::as_str).collect()
    };
    let guest = |name: &str| PathBuf::from(GUEST_DIR).join(name);
    let mut files = vec![(built.tracer.clone(), guest("tracer"))];
    // Tests have these paths, and those of their data, built in.
    for program in &built.laboratory {
        files.push((program.path.clone(), program.path.clone()));
    }
    for test in tests(built) {
        files.push((test.path.clone(), guest(&test.file_name())));
    }
    for data in DATA
        .iter()
        .map(|name| paths::workspace().join("tests").join(name))
    {
        if data.is_dir() {
            files.push((data.clone(), data));
        }
    }
    let job = Job {
        name: "test",
        kernel,
        files,
        script: script(kernel, built, &filters, plan.ignored_too),
        time_limit: plan.time_limit,
        results: Some(paths::target().join("cases").join(kernel.name())),
        memory_mib: Job::MEMORY_MIB,
    };
    let mut counts = Counts::default();
    let outcome = vm::run_job(&job, &mut |line| {
        println!("{line}");
        counts.read(line);
    });
    let outcome = match outcome {
        Ok(outcome) => outcome,
        // What had passed until then stays counted.
        Err(error) if counts != Counts::default() => {
            println!("{error:#}");
            counts.failed += 1;
            return Ok(counts);
        }
        Err(error) => return Err(error),
    };
    println!("booted in {:.1} s", outcome.boot.as_secs_f64());
    counts.crashed = outcome.code != 0;
    if counts.passed + counts.failed == 0 && !counts.crashed {
        bail!("no test of the laboratory matches {filters:?}");
    }
    Ok(counts)
}

/// Runs one test program after the other; fails if one did.
fn script(kernel: Kernel, built: &Built, filters: &[&str], ignored_too: bool) -> String {
    let mut script = format!(
        "uname -r\nexport {TRACER_BIN}={GUEST_DIR}/tracer {KERNEL_VARIABLE}={} \
         {RECORDINGS_DIR}={RECORDINGS} RUST_BACKTRACE=0\n",
        kernel.name()
    );
    if let Some(lab) = built.lab() {
        let path = vm::shell_quote(&lab.path.to_string_lossy());
        let line = format!("export {LAB_BIN}={path}\n");
        script.push_str(&line);
    }
    script.push_str("failed=0\n");
    let filters: Vec<String> = filters
        .iter()
        .map(|filter| vm::shell_quote(filter))
        .collect();
    let filters = filters.join(" ");
    let ignored = if ignored_too { "--include-ignored" } else { "" };
    for test in tests(built) {
        let program = vm::shell_quote(&format!("{GUEST_DIR}/{}", test.file_name()));
        let line = format!("{program} --test-threads=1 {ignored} {filters} || failed=1\n");
        script.push_str(&line);
    }
    script + "exit $failed\n"
}
