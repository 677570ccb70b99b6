//! `pcapng`: what Wireshark reads. An interface of the file is a place where
//! packets were observed: node, interface and direction. Steps inside the
//! kernel are packets on an interface of their own for each node; those that
//! were worked out on another, so that nothing of them looks observed. A
//! comment on each packet says what the step was.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::IpAddr;

use block::Block;
use frame::Link;

use super::order::{Placed, by_time};
use super::phrase;
use super::text::clean;
use crate::trace::{Role, Step, StepKind, Trace};

mod block;
mod frame;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const NAMES: u32 = 4;
const PACKET: u32 = 6;
/// Longest name in a name resolution block.
const NAME: usize = 255;

/// What a packet of the file was seen on, or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Point<'a> {
    /// An interface, and whether the packet came in there.
    Device(&'a str, &'a str, bool),
    /// The kernel of a node.
    Kernel(&'a str),
    /// Conclusions about a node.
    WorkedOut(&'a str),
}

impl<'a> Point<'a> {
    fn of(step: &'a Step) -> Self {
        match step.kind {
            _ if step.inferred => Self::WorkedOut(&step.node),
            StepKind::Ingress => Self::Device(&step.node, &step.iface, true),
            StepKind::Egress => Self::Device(&step.node, &step.iface, false),
            _ => Self::Kernel(&step.node),
        }
    }

    fn link(&self, step: &Step) -> Link {
        match self {
            Self::Device(..) => frame::link(step),
            Self::Kernel(_) | Self::WorkedOut(_) => Link::Raw,
        }
    }

    fn name(&self) -> String {
        let node = |n: &str| {
            if n.is_empty() {
                "unknown node".to_owned()
            } else {
                clean(n)
            }
        };
        match self {
            Self::Device(n, iface, true) => format!("{}: {} in", node(n), clean(iface)),
            Self::Device(n, iface, false) => format!("{}: {} out", node(n), clean(iface)),
            Self::Kernel(n) => format!("{}: kernel", node(n)),
            Self::WorkedOut(n) => format!("{}: worked out", node(n)),
        }
    }

    fn about(&self, role: Option<Role>) -> String {
        match self {
            Self::Device(_, _, ingress) => {
                let way = if *ingress { "entering" } else { "leaving" };
                let what = phrase::role(role.unwrap_or_default());
                format!("packets {way} the stack at this interface ({what})")
            }
            Self::Kernel(_) => {
                "no device: what hooks inside the node's kernel observed, with the packet as it was after the step".into()
            }
            Self::WorkedOut(_) => {
                "no device and not observed: steps worked out from what was, with the packet as it must have been".into()
            }
        }
    }
}

/// Writes the trace as a pcapng file.
pub fn write(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    section(out, trace)?;
    names(out, trace)?;
    let mut points: HashMap<(Point<'_>, Link), u32> = HashMap::new();
    for placed in by_time(trace) {
        let step = placed.step();
        let point = Point::of(step);
        let link = point.link(step);
        let next = points.len() as u32;
        let id = match points.entry((point, link)) {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(new) => {
                let point = &new.key().0;
                interface(out, point, link, step.role)?;
                *new.insert(next)
            }
        };
        packet(out, &placed, id, link)?;
    }
    out.flush()
}

fn section(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    let tool = &trace.header.tool;
    let closing = &trace.closing;
    let verdict = format!("{}: {}", closing.verdict.code, closing.verdict.summary);
    let mut block = Block::new()
        // Byte order, version 1.0, length unknown.
        .u32(0x1a2b_3c4d)
        .u16(1)
        .u16(0)
        .u32(u32::MAX)
        .u32(u32::MAX)
        .option(3, format!("Linux {}", clean(&tool.kernel)).as_bytes())
        .option(4, format!("tracer {}", clean(&tool.version)).as_bytes())
        .option(1, clean(&verdict).as_bytes())
        .option(1, frame::FILLED.as_bytes());
    if closing.losses.any() {
        block = block.option(1, phrase::losses(closing.losses).as_bytes());
    }
    for reason in &tool.degraded {
        block = block.option(1, format!("degraded: {}", clean(reason)).as_bytes());
    }
    block.option(0, b"").write(out, SECTION)
}

/// Addresses with the names that the cluster gives them.
fn names(out: &mut dyn Write, trace: &Trace) -> io::Result<()> {
    let mut known: BTreeMap<IpAddr, &str> = BTreeMap::new();
    for step in trace.packets.iter().flat_map(|p| &p.steps) {
        for end in [&step.src, &step.dst] {
            if let Some(name) = &end.name {
                known.entry(end.addr).or_insert(name);
            }
        }
    }
    if known.is_empty() {
        return Ok(());
    }
    let mut block = Block::new();
    for (addr, name) in known {
        let name: String = clean(name).chars().take(NAME).collect();
        let (code, mut value) = match addr {
            IpAddr::V4(a) => (1, a.octets().to_vec()),
            IpAddr::V6(a) => (2, a.octets().to_vec()),
        };
        value.extend(name.as_bytes());
        value.push(0);
        block = block.option(code, &value);
    }
    block.option(0, b"").write(out, NAMES)
}

fn interface(
    out: &mut dyn Write,
    point: &Point<'_>,
    link: Link,
    role: Option<Role>,
) -> io::Result<()> {
    Block::new()
        .u16(link as u16)
        .u16(0)
        .u32(0)
        .option(2, point.name().as_bytes())
        .option(3, point.about(role).as_bytes())
        // Nanoseconds.
        .option(9, &[9])
        .option(0, b"")
        .write(out, INTERFACE)
}

fn packet(out: &mut dyn Write, placed: &Placed<'_>, interface: u32, link: Link) -> io::Result<()> {
    let step = placed.step();
    // What came out of a tunnel has no outer headers any more.
    let frame = frame::frame(step, link, step.kind == StepKind::Decap);
    let direction: u32 = match step.kind {
        _ if step.inferred => 0,
        StepKind::Ingress => 1,
        StepKind::Egress => 2,
        _ => 0,
    };
    let mut block = Block::new()
        .u32(interface)
        .u32((step.ts >> 32) as u32)
        .u32(step.ts as u32)
        .u32(frame.bytes.len() as u32)
        .u32(frame.len)
        .bytes(&frame.bytes)
        .option(1, comment(placed).as_bytes());
    if direction != 0 {
        block = block.option(2, &direction.to_le_bytes());
    }
    block
        // The same packet, wherever it is seen.
        .option(5, &placed.packet.id.to_le_bytes())
        .option(0, b"")
        .write(out, PACKET)
}

/// What the step was, whose it was, and at a packet's last what became of it.
fn comment(placed: &Placed<'_>) -> String {
    let (packet, step) = (placed.packet, placed.step());
    let mut text = format!(
        "{}\nfrom {} to {}\npacket #{} {} of flow {}, {}, step {} of {}",
        clean(&phrase::step(step, placed.before())),
        clean(&phrase::endpoint(&step.src)),
        clean(&phrase::endpoint(&step.dst)),
        packet.id,
        clean(&packet.summary),
        packet.flow,
        phrase::direction(packet.direction),
        placed.index + 1,
        packet.steps.len(),
    );
    if packet.attempt > 1 {
        let _ = write!(text, ", try {}", packet.attempt);
    }
    if step.inferred {
        let from = step.from.as_deref().unwrap_or("other steps");
        let _ = write!(text, "\nworked out, not observed; from: {}", clean(from));
    }
    if let Some(n) = step.merged {
        let _ = write!(
            text,
            "\none of {n} packets in one buffer of {} bytes",
            step.len
        );
    }
    if placed.index + 1 == packet.steps.len() {
        let _ = write!(text, "\nits last step: {}", phrase::outcome(packet.outcome));
    }
    text
}
