//! Endpoints: the packet arrives at the pod, and the pod does not take it.

use std::net::SocketAddrV4;

use anyhow::{Context, Result};

use super::Fault;
use super::names::{SEP, SLICE};
use super::site::{Site, endpoint_chain, start};
use crate::lab::topology::pod;

const CLOSED_PORT: u16 = 8081;
const STALLED_PORT: u16 = 8082;

pub(super) const WRONG_TARGET_PORT: Fault = Fault {
    id: "C09",
    name: "wrong-target-port",
    about: "targetPort of default/remote is 8081, but the pod listens on 8080",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |site| send_to_port(site, CLOSED_PORT),
    show: |objects| objects.set_target_port(SLICE, CLOSED_PORT),
};

pub(super) const ACCEPT_QUEUE_FULL: Fault = Fault {
    id: "C70",
    name: "accept-queue-full",
    about: "the pod's process accepts no connections any more, and its queue of one is full",
    shown_by: "lab get --ns client 10.98.235.247:80",
    make: |site| {
        start(
            "remote:stall",
            "remote",
            &["stall", &STALLED_PORT.to_string()],
        )?;
        send_to_port(site, STALLED_PORT)
    },
    show: |objects| objects.set_target_port(SLICE, STALLED_PORT),
};

/// Makes the Service send to another port of the pod `remote`.
fn send_to_port(site: &Site, port: u16) -> Result<()> {
    let remote = pod("remote").context("a pod of the laboratory")?;
    let to = SocketAddrV4::new(remote.addr, port);
    site.rules_everywhere("nat", &endpoint_chain(SEP, "default/remote", "tcp", to))
}
