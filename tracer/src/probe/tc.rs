//! Attaching the tc programs to interfaces: TCX links where the kernel has them
//! (6.6), clsact filters before.

use std::collections::HashSet;

use aya::programs::tc::{
    NlOptions, SchedClassifierLink, SchedClassifierLinkId, TcAttachOptions, TcAttachType,
};
use aya::programs::{LinkOrder, SchedClassifier};

use super::catalog::{TC_L3, TC_LINK};
use super::leftover::{self, Owned};
use super::load::Probes;
use crate::netns::{self, NetNs};

/// What has been attached to interfaces so far.
#[derive(Default)]
pub struct Attached {
    /// Unknown until the first interface.
    tcx: Option<bool>,
    done: HashSet<(u32, u32)>,
    /// TCX links: closing them detaches.
    links: Vec<SchedClassifierLink>,
    filters: Vec<Filter>,
    record: Option<leftover::Record>,
}

/// A clsact filter, which outlives its process unless it is removed.
struct Filter {
    netns: std::sync::Arc<NetNs>,
    link: Option<SchedClassifierLink>,
    owned: Option<Owned>,
}

impl Probes {
    /// Attaches both programs to an interface of a namespace, once. `l3`: the
    /// device has no link-layer header.
    pub fn attach_interface(
        &mut self,
        netns: &std::sync::Arc<NetNs>,
        ifindex: u32,
        name: &str,
        l3: bool,
    ) -> Result<(), String> {
        if !self.attached.done.insert((netns.inode, ifindex)) {
            return Ok(());
        }
        let result = self.attach_both(netns, ifindex, name, l3);
        if result.is_err() {
            self.attached.done.remove(&(netns.inode, ifindex));
        }
        result
    }

    fn attach_both(
        &mut self,
        netns: &std::sync::Arc<NetNs>,
        ifindex: u32,
        name: &str,
        l3: bool,
    ) -> Result<(), String> {
        let _inside =
            netns::enter(netns).map_err(|e| format!("cannot enter its namespace: {e}"))?;
        let programs = if l3 { TC_L3 } else { TC_LINK };
        for (program, at) in programs
            .into_iter()
            .zip([TcAttachType::Ingress, TcAttachType::Egress])
        {
            if self.attached.tcx != Some(false) {
                // First on the way in, last on the way out: what the wire sees.
                let order = match at {
                    TcAttachType::Ingress => LinkOrder::first(),
                    _ => LinkOrder::last(),
                };
                let done = self.classifier(program)?.attach_with_options(
                    name,
                    at,
                    TcAttachOptions::TcxOrder(order),
                );
                match done {
                    Ok(id) => {
                        self.attached.tcx = Some(true);
                        let link = self.take(program, id)?;
                        self.attached.links.push(link);
                        continue;
                    }
                    Err(e) if self.attached.tcx == Some(true) => return Err(chain(&e)),
                    Err(_) => self.attached.tcx = Some(false),
                }
            }
            self.attach_clsact(netns, ifindex, name, program, at)?;
        }
        Ok(())
    }

    fn classifier(&mut self, program: &str) -> Result<&mut SchedClassifier, String> {
        self.ebpf
            .program_mut(program)
            .and_then(|p| p.try_into().ok())
            .ok_or_else(|| format!("program {program} is missing in the object"))
    }

    /// Links are kept here and not by the program, which tells clsact ones apart
    /// by interface index: another namespace may have the same.
    fn take(
        &mut self,
        program: &str,
        id: SchedClassifierLinkId,
    ) -> Result<SchedClassifierLink, String> {
        self.classifier(program)?
            .take_link(id)
            .map_err(|e| chain(&e))
    }

    fn attach_clsact(
        &mut self,
        netns: &std::sync::Arc<NetNs>,
        ifindex: u32,
        name: &str,
        program: &'static str,
        at: TcAttachType,
    ) -> Result<(), String> {
        let ours = leftover::add_clsact(name)?;
        let owned = ours.then_some(Owned {
            netns: netns.inode,
            ifindex,
        });
        // The note is written before the filter exists, so that a run killed in
        // between is still cleaned up after.
        if let Some(owned) = &owned {
            self.attached
                .record
                .get_or_insert_with(leftover::Record::new)
                .add(owned)?;
        } else {
            self.attached
                .record
                .get_or_insert_with(leftover::Record::new)
                .touch()?;
        }
        let classifier = self.classifier(program)?;
        let mut last = String::new();
        let mut link = None;
        // Priority 1 runs first, 65535 last; where somebody else's filter kind
        // holds that priority, any other is better than none.
        let first = if matches!(at, TcAttachType::Ingress) {
            1
        } else {
            u16::MAX
        };
        for priority in [first, 0] {
            let options = TcAttachOptions::Netlink(NlOptions {
                priority,
                ..NlOptions::default()
            });
            match classifier.attach_with_options(name, at, options) {
                Ok(id) => {
                    link = Some(classifier.take_link(id).map_err(|e| chain(&e))?);
                    break;
                }
                Err(e) => last = chain(&e),
            }
        }
        if link.is_none() {
            return Err(last);
        }
        self.attached.filters.push(Filter {
            netns: netns.clone(),
            link,
            owned,
        });
        Ok(())
    }

    /// Interfaces that are watched.
    pub fn interfaces(&self) -> usize {
        self.attached.done.len()
    }

    /// Namespaces with watched interfaces.
    pub fn is_attached(&self, netns: u32, ifindex: u32) -> bool {
        self.attached.done.contains(&(netns, ifindex))
    }

    /// Forgets an interface that is gone.
    pub fn forget_interface(&mut self, netns: u32, ifindex: u32) {
        self.attached.done.remove(&(netns, ifindex));
    }

    /// `tcx` or `clsact`, once anything is attached.
    pub fn tc_kind(&self) -> &'static str {
        if self.attached.tcx == Some(false) {
            "clsact"
        } else {
            "tcx"
        }
    }
}

impl Drop for Probes {
    /// Removes clsact filters and the qdiscs that were added for them. All else
    /// goes with its descriptors.
    fn drop(&mut self) {
        let mut filters = std::mem::take(&mut self.attached.filters);
        for filter in &mut filters {
            let Ok(_inside) = netns::enter(&filter.netns) else {
                continue;
            };
            // The interface may be gone, and the filter with it.
            drop(filter.link.take());
        }
        for filter in &filters {
            if let Some(owned) = &filter.owned
                && let Ok(_inside) = netns::enter(&filter.netns)
            {
                leftover::remove_clsact_if_empty(owned.ifindex);
            }
        }
        if let Some(record) = self.attached.record.take() {
            record.remove();
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(e) = source {
        text = format!("{text}: {e}");
        source = e.source();
    }
    text
}
