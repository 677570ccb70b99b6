//! What is left of the traffic's rate with the tool attached.

use anyhow::Result;

use super::{
    Plan, Programs, Spread,
    tools::{self, Tool},
    traffic::{self, Rate, Way},
};

/// One kind of traffic.
#[derive(Clone, Copy)]
enum Kind {
    Requests,
    Bulk,
}

const MEASURES: [(Kind, Way); 4] = [
    (Kind::Requests, Way::Direct),
    (Kind::Requests, Way::Service),
    (Kind::Bulk, Way::Direct),
    (Kind::Bulk, Way::Service),
];

/// What one round measured, in the order of [`MEASURES`].
type Rates = [Rate; MEASURES.len()];

/// Measures and prints.
pub(super) fn run(plan: &Plan, programs: &Programs) -> Result<()> {
    let mut tools = vec![Tool::Miss, Tool::Hit];
    if tools::has_tcpdump() {
        tools.push(Tool::Tcpdump);
    }
    println!(
        "\n== rate of traffic ({} rounds of {:.2} s each; traffic on CPU 0, the tool on CPU 1; share of the mean of the \
         rounds `off` before and after: median, lowest to highest; by CPU time: per second of client's and server's)",
        plan.rounds,
        plan.window.as_secs_f64()
    );
    if !tools::has_tcpdump() {
        println!("tcpdump is not installed here, so there is nothing to compare with");
    }
    let mut off = Vec::new();
    let mut with: Vec<Vec<Rates>> = vec![Vec::new(); tools.len()];
    let mut lost = vec![0; tools.len()];
    for _ in 0..plan.rounds {
        off.push(round(plan)?);
        for (i, tool) in tools.iter().enumerate() {
            let running = tool.start(programs)?;
            let rates = round(plan);
            lost[i] += tools::stop(running)?;
            with[i].push(rates?);
        }
    }
    off.push(round(plan)?);
    for (m, (kind, way)) in MEASURES.iter().enumerate() {
        let (what, unit) = match kind {
            Kind::Requests => (format!("requests of {} B", traffic::MESSAGE), "/s"),
            Kind::Bulk => ("bulk".to_owned(), "MB/s"),
        };
        let base = Spread::of(off.iter().map(|rates| rates[m].real));
        println!("{what}, {}: off {:.0} {unit}", way.name(), base.median);
        for (tool, rounds) in tools.iter().zip(&with) {
            let rate = Spread::of(rounds.iter().map(|rates| rates[m].real));
            let share = |of: fn(&Rate) -> f64| {
                Spread::of(rounds.iter().zip(off.windows(2)).map(|(rates, around)| {
                    2.0 * of(&rates[m]) / (of(&around[0][m]) + of(&around[1][m]))
                }))
            };
            println!(
                "  {:<22} {:>8.0} {unit:<5} {}   by CPU time {}",
                tool.name(),
                rate.median,
                percent(&share(|rate| rate.real)),
                percent(&share(|rate| rate.cpu)),
            );
        }
    }
    for (tool, lost) in tools.iter().zip(lost) {
        if lost > 0 {
            println!(
                "{}: {lost} events were lost in all rounds together",
                tool.name()
            );
        }
    }
    println!("aim for traffic that is not followed: {}", plan.rate_aim);
    Ok(())
}

fn percent(share: &Spread) -> String {
    format!(
        "{:>6.1} % ({:.1} to {:.1})",
        share.median * 100.0,
        share.lowest * 100.0,
        share.highest * 100.0
    )
}

/// One round of all kinds of traffic.
fn round(plan: &Plan) -> Result<Rates> {
    let mut rates = Rates::default();
    for (rate, (kind, way)) in rates.iter_mut().zip(MEASURES) {
        *rate = match kind {
            Kind::Requests => traffic::requests(way, plan.window)?,
            Kind::Bulk => traffic::bulk(way, plan.window)?,
        };
    }
    Ok(rates)
}
