//! Run time per packet of each program, by the kernel's own statistics.

use anyhow::Result;

use super::{
    Plan, Programs,
    stats::{self, Enabled},
    tools::{self, Tool},
    traffic::{self, Way},
};

/// Measures and prints.
pub(super) fn run(plan: &Plan, programs: &Programs) -> Result<()> {
    println!(
        "\n== run time per packet ({} requests of {} B to the pod and as many through the Service, one run each)",
        plan.requests,
        traffic::MESSAGE
    );
    println!(
        "{:<15} {:<16} {:>9} {:>9}",
        "", "program", "runs", "ns each"
    );
    let _enabled = Enabled::new()?;
    for tool in [Tool::Empty, Tool::Miss, Tool::Hit] {
        let first = stats::programs()?;
        let running = tool.start(programs)?;
        let from = stats::programs()?;
        for way in Way::ALL {
            traffic::requests_counted(way, plan.requests)?;
        }
        let to = stats::programs()?;
        let lost = tools::stop(running)?;
        let mut label = tool.name();
        for program in stats::between(&first, &from, &to) {
            println!(
                "{label:<15} {:<16} {:>9} {:>9.0}",
                program.name,
                program.runs,
                program.time as f64 / program.runs as f64
            );
            label = "";
        }
        if lost > 0 {
            println!("{:<15} lost {lost} events", "");
        }
    }
    println!(
        "(every figure includes the clock that the kernel reads around each run, as the empty program's does)"
    );
    Ok(())
}
