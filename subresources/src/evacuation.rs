//! Taking back that an instance is to leave its node (KubeVirt's `pkg/virt-api/rest/evacuate_cancel.go`). The mark is set where the
//! pod of an instance with `evictionStrategy: External` was to be evicted. Pure.

use garboard_api::VirtualMachineInstance;
use garboard_api::v1::non_empty;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::instance::bad;
use crate::options::EvacuateCancelOptions;
use crate::refusal::Refusal;

/// KubeVirt's taint of a node that is being drained (`migrations.nodeDrainTaintKey`, whose other values have no effect here).
const DRAIN_TAINT: &str = "kubevirt.io/drain";
/// The effect with which it counts.
const NO_SCHEDULE: &str = "NoSchedule";

/// The node that an instance is to leave; the one that it runs on, if it is to leave none.
#[must_use]
pub fn node(vmi: &VirtualMachineInstance) -> Option<&str> {
    let status = vmi.status.as_ref()?;
    non_empty(&status.evacuation_node_name).or(non_empty(&status.node_name))
}

/// The JSON patch of the instance that takes it back; nothing where it is to leave no node. It tests that the node is the one that
/// the caller has seen; virtctl 1.7 names none and means whichever it is.
///
/// # Errors
/// The node is being drained.
pub fn cancel(
    vmi: &VirtualMachineInstance,
    node: Option<&Node>,
    options: &EvacuateCancelOptions,
) -> Result<Option<Value>, Refusal> {
    if let Some(node) = node.filter(|node| is_drained(node)) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let taint = format!("{DRAIN_TAINT}:{NO_SCHEDULE}");
        return Err(bad(&format!("Node {name:?} has NodeDrainTaintKey {taint:?}; remove the taint first")));
    }
    let Some(present) = vmi.status.as_ref().and_then(|status| non_empty(&status.evacuation_node_name)) else {
        return Ok(None);
    };
    let meant = non_empty(&options.evacuation_node_name).unwrap_or(present);
    let path = "/status/evacuationNodeName";
    Ok(Some(json!([{ "op": "test", "path": path, "value": meant }, { "op": "remove", "path": path }])))
}

fn is_drained(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == DRAIN_TAINT && taint.effect == NO_SCHEDULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(leaves: Option<&str>) -> VirtualMachineInstance {
        let status = json!({"phase": "Running", "nodeName": "node-1", "evacuationNodeName": leaves});
        serde_json::from_value(
            json!({"metadata": {"name": "vm"}, "spec": {"domain": {"devices": {}}}, "status": status}),
        )
        .unwrap()
    }

    fn a_node(taints: &Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "node-1"}, "spec": {"taints": taints}})).unwrap()
    }

    fn options(node: Option<&str>) -> EvacuateCancelOptions {
        EvacuateCancelOptions { evacuation_node_name: node.map(str::to_owned), dry_run: None }
    }

    #[test]
    fn the_mark_is_taken_away_that_the_caller_has_seen() {
        assert_eq!(node(&vmi(Some("node-2"))), Some("node-2"));
        assert_eq!(node(&vmi(None)), Some("node-1"));
        let path = "/status/evacuationNodeName";
        let patch = |node| json!([{"op": "test", "path": path, "value": node}, {"op": "remove", "path": path}]);
        assert_eq!(cancel(&vmi(Some("node-1")), None, &options(Some("node-2"))), Ok(Some(patch("node-2"))));
        assert_eq!(cancel(&vmi(None), None, &options(None)), Ok(None), "there is nothing to take back");
        assert_eq!(cancel(&vmi(Some("node-1")), None, &options(None)), Ok(Some(patch("node-1"))), "as virtctl asks");
    }

    #[test]
    fn a_node_that_is_being_drained_stays_to_be_left() {
        let table = [
            (json!([{"key": "kubevirt.io/drain", "effect": "NoSchedule"}]), true),
            (json!([{"key": "kubevirt.io/drain", "effect": "NoExecute"}]), false),
            (json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]), false),
            (Value::Null, false),
        ];
        for (taints, is_refused) in table {
            let refusal = cancel(&vmi(Some("node-1")), Some(&a_node(&taints)), &options(Some("node-1"))).err();
            assert_eq!(refusal.map(|refusal| refusal.code()), is_refused.then_some(400), "{taints}");
        }
    }
}
