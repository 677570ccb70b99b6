//! `tracer follow`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{ColorWhen, Failure, Outcome, Output, export, say};
use crate::discover::{self, Override};
use crate::inventory::Inventory;
use crate::pipeline::{self, Job};
use crate::recording::Rotation;
use crate::target::{self, Asked};

/// Arguments of `tracer follow`.
#[allow(
    clippy::struct_excessive_bools,
    reason = "one for each switch of the command line"
)]
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The client's pod
    #[arg(long, value_name = "[NS/]NAME")]
    pod: Option<String>,
    /// The client's address
    #[arg(long, value_name = "ADDR")]
    src: Option<String>,
    /// What the client calls: ADDR[:PORT], NAME[:PORT], svc/[NS/]NAME[:PORT] or pod/[NS/]NAME[:PORT]
    #[arg(long, value_name = "DST")]
    dst: Option<String>,
    /// tcp, udp, icmp or sctp [default: tcp where a port is given, else any]
    #[arg(long)]
    proto: Option<String>,
    /// Stop after this many connections have ended or gone quiet
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Stop after this time: 30s, 500ms, 2m [default: until interrupted]
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Names and addresses of the cluster: the output of
    /// `kubectl get nodes,pods,services,endpointslices,networkpolicies -A -o json`
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// Ask no API server
    #[arg(long)]
    no_kube: bool,
    /// A node, by its network namespace (repeatable; replaces discovery)
    #[arg(long, value_name = "NAME=PATH", value_parser = discover::parse_override)]
    netns: Vec<Override>,
    /// Another UDP port that carries VXLAN (repeatable; 4789 and 8472 are always known)
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    vxlan_port: Vec<u16>,
    /// Record to this file, compressed when its name ends in .zst
    #[arg(short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// When the run ends, write the trace in another form, too (repeatable; see `tracer export`)
    #[arg(long, value_name = "FORMAT=OUT", value_parser = export::parse_export)]
    export: Vec<export::Export>,
    /// Go on in a next file when one has this size: 100M, 2G, 500K. FILE.jsonl.zst becomes
    /// FILE.0001.jsonl.zst, FILE.0002.jsonl.zst and so on, each readable by itself
    #[arg(long, value_name = "SIZE", requires = "write", value_parser = parse_size)]
    rotate_size: Option<u64>,
    /// Keep this many of them, and delete the oldest
    #[arg(long, value_name = "N", requires = "rotate_size", value_parser = clap::value_parser!(u32).range(1..))]
    rotate_count: Option<u32>,
    /// Attach the costly hooks, too: netfilter verdicts, routes, sockets
    #[arg(long)]
    deep: bool,
    /// Type information of the kernel, where it has none itself
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
    /// Size of the buffer between kernel and tool in KiB, rounded up to a power of two
    #[arg(long, value_name = "KIB", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(4..=1_048_576))]
    ring_buffer: u32,
    /// Form of the result [default: tui on a terminal, else text]
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    /// When to use colour
    #[arg(long, value_enum, default_value_t)]
    color: ColorWhen,
    /// Print nothing but the result, errors and the line that says `ready`
    #[arg(short, long)]
    quiet: bool,
    /// Print more about what is found and attached
    #[arg(short, long)]
    verbose: bool,
}

/// Smallest file that is worth a header, in bytes.
const SMALLEST: u64 = 64 << 10;

const EXAMPLES: &str = "Examples:
  tracer follow --pod client --dst 10.98.235.247:80 --inventory cluster.json
  tracer follow --src 10.244.80.65 --dst 10.98.235.247:80
  tracer follow --pod shop/web --dst svc/shop/orders --count 1 -w orders.jsonl.zst

The line `ready: ...` on standard error says that every hook is attached.";

/// `30s`, `500ms`, `2m`, `1h`, or a number of seconds.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits
        .parse()
        .ok()
        .filter(|n: &f64| n.is_finite() && *n > 0.0)
        .ok_or_else(|| format!("{text:?} is no duration; write 30s, 500ms or 2m"))?;
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("unknown unit {unit:?}; write 30s, 500ms or 2m")),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|e| e.to_string())
}

/// `100M`, `2G`, `500K`, or a number of bytes; powers of 1024.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" | "B" => 1,
        "K" | "k" | "KB" | "KiB" => 1 << 10,
        "M" | "m" | "MB" | "MiB" => 1 << 20,
        "G" | "g" | "GB" | "GiB" => 1 << 30,
        unit => return Err(format!("unknown unit {unit:?}; write 500K, 100M or 2G")),
    };
    let size = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    size.filter(|n| *n >= SMALLEST).ok_or_else(|| {
        format!("{text:?} is no size of {SMALLEST} bytes or more; write 500K, 100M or 2G")
    })
}

/// Runs `tracer follow`.
pub fn run(args: &Args) -> Outcome {
    let output = Output::chosen(args.output)?;
    let inventory = match &args.inventory {
        Some(path) => Some(Arc::new(Inventory::load(path).map_err(Failure::new)?)),
        None => None,
    };
    let asked = Asked {
        pod: args.pod.as_deref(),
        src: args.src.as_deref(),
        dst: args.dst.as_deref(),
        proto: args.proto.as_deref(),
    };
    let request = target::resolve(asked, inventory.as_deref())
        .map_err(|e| Failure::with_code(e.exit_code(), &e))?;
    if let Some(missing) = crate::privilege::missing() {
        return Err(Failure::new(missing));
    }
    if !args.quiet {
        say(&format!("following {}", request.description));
        for note in &request.notes {
            say(&format!("note: {note}"));
        }
    }
    pipeline::run(Job {
        request,
        inventory,
        overrides: args.netns.clone(),
        vxlan_ports: args.vxlan_port.clone(),
        deep: args.deep,
        btf: args.btf.clone(),
        ring_bytes: (args.ring_buffer * 1024).next_power_of_two(),
        count: args.count,
        duration: args.duration,
        record: args.write.clone(),
        exports: args.export.clone(),
        output,
        rotation: args.rotate_size.map(|size| Rotation {
            size,
            count: args.rotate_count,
        }),
        color: args.color.on_stdout(),
        quiet: args.quiet,
        verbose: args.verbose,
        probe: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("100M"), Ok(100 << 20));
        assert_eq!(parse_size("65536"), Ok(65536));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        for bad in ["", "0", "M", "1K", "-5M", "5X", "99999999999G", "1.5G"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_mins(2)));
        assert_eq!(parse_duration("5"), Ok(Duration::from_secs(5)));
        for bad in ["", "s", "-1s", "0", "3 weeks", "1e999s", "nan"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
