//! The API server's objects, and the few changes that faults make to them.

use serde_json::{Value, json};

use crate::lab::inventory;
use crate::lab::topology::Pod;

/// The items of the inventory's list.
pub(super) struct Objects<'a>(pub(super) &'a mut Vec<Value>);

impl Objects<'_> {
    /// The object of that kind and name; one that is not there can be changed without effect.
    pub(super) fn get(&mut self, kind: &str, name: &str) -> &mut Value {
        let at = self
            .0
            .iter()
            .position(|item| item["kind"] == kind && item["metadata"]["name"] == name);
        let Some(at) = at else {
            panic!("the inventory has no {kind} {name}");
        };
        &mut self.0[at]
    }

    pub(super) fn add(&mut self, item: Value) {
        self.0.push(item);
    }

    pub(super) fn add_pod(&mut self, pod: &Pod) {
        self.add(inventory::pod(pod, None, false));
    }

    pub(super) fn remove_pod(&mut self, name: &str) {
        self.0
            .retain(|item| item["kind"] != "Pod" || item["metadata"]["name"] != name);
    }

    /// Makes these pods the ready endpoints of a slice.
    pub(super) fn set_endpoints(&mut self, slice: &str, pods: &[&Pod]) {
        let endpoints: Vec<Value> = pods.iter().map(|pod| inventory::endpoint(pod)).collect();
        self.get("EndpointSlice", slice)["endpoints"] = json!(endpoints);
    }

    /// The pod fails its readiness probe, so its Service does not count on it.
    pub(super) fn set_not_ready(&mut self, pod: &str, slice: &str) {
        self.get("Pod", pod)["status"]["conditions"] =
            json!([{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]);
        for endpoint in self.get("EndpointSlice", slice)["endpoints"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            endpoint["conditions"] =
                json!({"ready": false, "serving": false, "terminating": false});
        }
    }

    /// The Service `default/remote` sends to another port of its pods.
    pub(super) fn set_target_port(&mut self, slice: &str, port: u16) {
        self.get("Service", "remote")["spec"]["ports"][0]["targetPort"] = json!(port);
        self.get("EndpointSlice", slice)["ports"][0]["port"] = json!(port);
    }
}
