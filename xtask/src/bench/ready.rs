//! The time from the tool's start to `ready`.

use std::fmt::Write as _;

use anyhow::Result;
use tracer_tests::lab::{netns, program};

use super::{Plan, Programs, Spread, tools};

/// Interfaces that are added to the node.
const MORE: u32 = 50;
/// The node.
const NODE: &str = "worker";
/// The namespace that their other ends are in.
const OTHER: &str = "tracer-bench";

/// Measures and prints.
pub(super) fn run(plan: &Plan, programs: &Programs) -> Result<()> {
    println!(
        "\n== from start to `ready` ({} starts: median, lowest to highest)",
        plan.starts
    );
    measure("the laboratory as it is", plan, programs)?;
    let more = Interfaces::add()?;
    measure(&format!("with {MORE} more interfaces"), plan, programs)?;
    drop(more);
    println!("aim: {}", plan.ready_aim);
    Ok(())
}

fn measure(name: &str, plan: &Plan, programs: &Programs) -> Result<()> {
    let mut times = Vec::new();
    let mut ready = String::new();
    for _ in 0..plan.starts {
        let running = tools::follow(&programs.tracer, "client")?;
        times.push(running.ready_after.as_secs_f64());
        ready.clone_from(&running.ready);
        running.stop()?;
    }
    let time = Spread::of(times);
    println!(
        "{name:<27} {:.3} s  ({:.3} to {:.3}; {ready})",
        time.median, time.lowest, time.highest
    );
    Ok(())
}

/// veth pairs between the node and a namespace of their own, removed when this goes out of scope.
struct Interfaces;

impl Interfaces {
    fn add() -> Result<Self> {
        if netns::path(OTHER).exists() {
            // Left by a run that was killed: the name is only ever ours.
            program::run("ip", &["netns", "del", OTHER], "")?;
        }
        program::run("ip", &["netns", "add", OTHER], "")?;
        let added = Self;
        let mut batch = String::new();
        for i in 0..MORE {
            // Writing to a String cannot fail.
            let _ = writeln!(
                batch,
                "link add bench{i} type veth peer name b{i} netns {OTHER}"
            );
            let _ = writeln!(batch, "link set bench{i} up");
        }
        netns::within(NODE, || program::feed("ip", &["-batch", "-"], &batch))?;
        Ok(added)
    }
}

impl Drop for Interfaces {
    fn drop(&mut self) {
        let mut batch = String::new();
        for i in 0..MORE {
            let _ = writeln!(batch, "link del bench{i}");
        }
        // -force: goes on after one that is not there.
        let links = netns::within(NODE, || {
            program::feed("ip", &["-force", "-batch", "-"], &batch)
        });
        let namespace = program::run("ip", &["netns", "del", OTHER], "");
        for error in [links.err(), namespace.err()].into_iter().flatten() {
            eprintln!("warning: {error:#}");
        }
    }
}
