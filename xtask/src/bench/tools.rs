//! What is attached in a round: the tool, or another.

use std::{path::Path, process::Command, thread};

use anyhow::{Result, anyhow};
use tracer_tests::lab::{netns, topology};

use super::{Programs, traffic};
use crate::{
    paths,
    running::{Output, Running},
};

/// Where what is attached runs; the traffic runs on the other CPU.
const CPU: usize = 1;

/// A condition of the measurement, besides that nothing is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tool {
    /// The program that does nothing, where the tool would attach.
    Empty,
    /// The tool follows another pod.
    Miss,
    /// The tool follows this traffic.
    Hit,
    /// `tcpdump -i any` in both nodes, with a filter that matches nothing.
    Tcpdump,
}

impl Tool {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty program",
            Self::Miss => "not matching",
            Self::Hit => "matching",
            Self::Tcpdump => "tcpdump, not matching",
        }
    }

    /// Starts it and waits until it is attached.
    pub(super) fn start(self, programs: &Programs) -> Result<Vec<Running>> {
        match self {
            Self::Empty => {
                let mut command = Command::new(&programs.empty);
                command.arg(traffic::client_address().to_string());
                Ok(vec![start(command, "ready:")?])
            }
            Self::Miss => Ok(vec![follow(&programs.tracer, "client")?]),
            Self::Hit => Ok(vec![follow(&programs.tracer, traffic::CLIENT)?]),
            Self::Tcpdump => topology::NODES
                .iter()
                .map(|node| netns::within(node.name, tcpdump))
                .collect(),
        }
    }
}

/// Starts the tool on all traffic of a pod. Without a destination it watches every interface.
pub(super) fn follow(tracer: &Path, pod: &str) -> Result<Running> {
    let address = topology::pod(pod).map(|pod| pod.addr.to_string());
    let mut command = Command::new(tracer);
    command.args(["follow", "--no-kube", "--src"]);
    command.args(address);
    start(command, "ready:")
}

/// Whether tcpdump can be compared with.
pub(super) fn has_tcpdump() -> bool {
    paths::find_program("tcpdump").is_some()
}

fn tcpdump() -> Result<Running> {
    let mut command = Command::new("tcpdump");
    command.args(["-i", "any", "-nn", "host", "192.0.2.1"]);
    start(command, "listening on")
}

/// Starts a program on its CPU.
fn start(mut command: Command, ready: &str) -> Result<Running> {
    thread::scope(|scope| {
        let starter = scope.spawn(|| {
            traffic::pin(CPU);
            Running::start(
                &mut command,
                Output::Read,
                |line| line.contains(ready),
                |_| {},
            )
        });
        starter
            .join()
            .map_err(|_| anyhow!("the thread that starts a program panicked"))?
    })
}

/// Ends all; how many events the tool says that it lost.
pub(super) fn stop(running: Vec<Running>) -> Result<u64> {
    let mut lost = 0;
    for program in running {
        lost += losses(&program.stop()?);
    }
    Ok(lost)
}

/// The sum of the numbers in the tool's line about losses.
fn losses(output: &str) -> u64 {
    output.split_once("! LOST").map_or(0, |(_, rest)| {
        rest.split_whitespace()
            .take_while(|word| !word.starts_with("otherwise"))
            .filter_map(|word| word.parse::<u64>().ok())
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::losses;

    #[test]
    fn reads_what_was_lost() {
        let text = "\u{2713} ok: fine\n! LOST      12 events in the ring buffer, 3 in user space, 1\n  otherwise: 99 may\n";
        assert_eq!(losses(text), 16);
        assert_eq!(losses("nothing"), 0);
    }
}
