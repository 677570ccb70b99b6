//! Observation points as small numbers.

use std::hash::Hasher;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};

/// Where a packet can be seen once: an interface and direction of a node, or
/// a rewrite of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Point(u32);

/// A node's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeId(u32);

/// What is done at a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Seen at the interface.
    Seen { ingress: bool, tunnelled: bool },
    /// Rewritten by the node.
    Nat { source: bool },
    /// Put into a tunnel by the node.
    Encap,
}

/// Gives out the numbers.
#[derive(Debug, Default)]
pub(super) struct Points {
    by_hash: FxHashMap<u64, u32>,
    places: Vec<Place>,
    phrases: FxHashMap<(Option<Point>, Point), &'static str>,
}

#[derive(Debug)]
struct Place {
    node: Arc<str>,
    iface: Arc<str>,
    /// Number of the place that stands for the node as a whole.
    node_id: u32,
    /// Next place with the same hash.
    next: Option<u32>,
}

impl Points {
    /// The point, and the node it lies on.
    pub(super) fn get(&mut self, node: &Arc<str>, iface: &Arc<str>, act: Act) -> (Point, NodeId) {
        let code = match act {
            Act::Seen { ingress, tunnelled } => u32::from(ingress) | u32::from(tunnelled) << 1,
            Act::Nat { source } => 4 | u32::from(source),
            Act::Encap => 6,
        };
        let place = self.find(node, iface);
        let node = self.places[place as usize].node_id;
        // A packet is rewritten once by a node, whatever the interface.
        let place = if code < 4 { place } else { node };
        (Point(place << 3 | code), NodeId(node))
    }

    /// A phrase about a point, or two, made once. It is never freed: there are
    /// only as many as there are points where tunnels begin and end.
    pub(super) fn phrase(
        &mut self,
        before: Option<Point>,
        at: Point,
        make: impl FnOnce() -> String,
    ) -> &'static str {
        self.phrases
            .entry((before, at))
            .or_insert_with(|| Box::leak(make().into_boxed_str()))
    }

    /// The node's number.
    pub(super) fn node(&mut self, node: &Arc<str>) -> NodeId {
        NodeId(self.find(node, ""))
    }

    fn find(&mut self, node: &Arc<str>, iface: &str) -> u32 {
        let mut h = FxHasher::default();
        h.write(node.as_bytes());
        h.write_u8(0xff);
        h.write(iface.as_bytes());
        let hash = h.finish();
        let first = self.by_hash.get(&hash).copied();
        let mut at = first;
        while let Some(i) = at {
            let place = &self.places[i as usize];
            if *place.node == **node && *place.iface == *iface {
                return i;
            }
            at = place.next;
        }
        let node_id = if iface.is_empty() {
            None
        } else {
            Some(self.find(node, ""))
        };
        let id = self.places.len() as u32;
        self.places.push(Place {
            node: Arc::clone(node),
            iface: Arc::from(iface),
            node_id: node_id.unwrap_or(id),
            next: first,
        });
        self.by_hash.insert(hash, id);
        id
    }
}
