//! Steps of all packets in order of time.

use crate::trace::{Packet, Step, Trace};

/// A step, with the packet that it is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed<'a> {
    pub(super) packet: &'a Packet,
    /// Which of its steps, from 0.
    pub(super) index: usize,
}

impl<'a> Placed<'a> {
    pub(super) fn step(&self) -> &'a Step {
        &self.packet.steps[self.index]
    }

    /// The packet's earlier steps.
    pub(super) fn before(&self) -> &'a [Step] {
        &self.packet.steps[..self.index]
    }
}

/// All steps; those of one moment stay in the order that their packets have.
pub(super) fn by_time(trace: &Trace) -> Vec<Placed<'_>> {
    let all = trace
        .packets
        .iter()
        .flat_map(|packet| (0..packet.steps.len()).map(move |index| Placed { packet, index }));
    let mut all: Vec<Placed<'_>> = all.collect();
    all.sort_by_key(|p| p.step().ts);
    all
}
