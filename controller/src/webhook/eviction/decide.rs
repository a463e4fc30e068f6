//! What an eviction of a launcher pod is answered, as KubeVirt answers it where no guest can be moved. Pure.
//!
//! ```text
//!   None, LiveMigrateIfPossible    the pod goes, and its guest is powered down
//!   LiveMigrate                    refused: the guest cannot be moved
//!   External                       refused, and `status.evacuationNodeName` asks another controller to see to it
//! ```

use garboard_api::v1::non_empty;
use garboard_api::{Phase, VirtualMachineInstance};
use k8s_openapi::api::core::v1::Pod;

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionVerdict {
    /// The pod may go.
    Allowed,
    /// Not now; the client asks again.
    Refused {
        /// Why, for who drains the node.
        message: String,
        /// The node that the instance is to be asked to leave, unless it has it already.
        evacuate: Option<String>,
    },
}

/// Judges the eviction of a pod. `vmi` is the instance that owns it, `usual` the strategy of the cluster.
#[must_use]
pub fn decide(pod: &Pod, vmi: Option<&VirtualMachineInstance>, usual: &str) -> EvictionVerdict {
    let Some((vmi, node)) = vmi.filter(|vmi| has_guest(pod, vmi)).zip(node(pod)) else {
        return EvictionVerdict::Allowed;
    };
    let metadata = &vmi.metadata;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    let named = format!("VMI \"{}/{}\"", namespace.unwrap_or_default(), name.unwrap_or_default());
    match non_empty(&vmi.spec.eviction_strategy).unwrap_or(usual) {
        "LiveMigrate" => EvictionVerdict::Refused {
            message: format!(
                "{named} has the evictionStrategy LiveMigrate and cannot be migrated; stop it, or change the strategy"
            ),
            evacuate: None,
        },
        "External" => {
            let marked = vmi.status.as_ref().and_then(|status| status.evacuation_node_name.as_deref());
            let is_marked = marked == Some(node);
            // Descheduler and drain controllers look for this text.
            let triggered = format!("Eviction triggered evacuation of {named}");
            EvictionVerdict::Refused {
                message: if is_marked { format!("Evacuation in progress: {triggered}") } else { triggered },
                evacuate: (!is_marked).then(|| node.to_owned()),
            }
        }
        _ => EvictionVerdict::Allowed,
    }
}

/// Whether there may be a guest that the pod's end would power down.
fn has_guest(pod: &Pod, vmi: &VirtualMachineInstance) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let goes = pod.metadata.deletion_timestamp.is_some() || vmi.metadata.deletion_timestamp.is_some();
    !goes && !matches!(phase, Some("Succeeded" | "Failed")) && !Phase::of(vmi).is_final()
}

fn node(pod: &Pod) -> Option<&str> {
    non_empty(&pod.spec.as_ref()?.node_name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(phase: &str, node: Option<&str>) -> Pod {
        let spec = json!({"nodeName": node, "containers": []});
        serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": {"phase": phase}})).unwrap()
    }

    fn vmi(strategy: Option<&str>, status: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "vm", "namespace": "ns"},
            "spec": {"evictionStrategy": strategy, "domain": {"devices": {}}}, "status": status,
        }))
        .unwrap()
    }

    fn asked(strategy: Option<&str>, status: &Value, usual: &str) -> EvictionVerdict {
        decide(&pod("Running", Some("node-1")), Some(&vmi(strategy, status)), usual)
    }

    fn refused(verdict: EvictionVerdict) -> (String, Option<String>) {
        match verdict {
            EvictionVerdict::Refused { message, evacuate } => (message, evacuate),
            EvictionVerdict::Allowed => panic!("it is allowed"),
        }
    }

    #[test]
    fn every_strategy_has_its_answer() {
        let running = json!({"phase": "Running"});
        for strategy in [None, Some("None"), Some("LiveMigrateIfPossible")] {
            assert_eq!(asked(strategy, &running, "None"), EvictionVerdict::Allowed, "{strategy:?}");
        }
        let (message, evacuate) = refused(asked(Some("LiveMigrate"), &running, "None"));
        assert!(message.starts_with("VMI \"ns/vm\" has the evictionStrategy LiveMigrate"), "{message}");
        assert_eq!(evacuate, None);
        let (message, evacuate) = refused(asked(Some("External"), &running, "None"));
        assert_eq!(message, "Eviction triggered evacuation of VMI \"ns/vm\"");
        assert_eq!(evacuate.as_deref(), Some("node-1"));
    }

    #[test]
    fn the_clusters_strategy_counts_where_the_instance_has_none() {
        let running = json!({"phase": "Running"});
        assert!(matches!(asked(None, &running, "LiveMigrate"), EvictionVerdict::Refused { .. }));
        assert!(matches!(asked(Some(""), &running, "LiveMigrate"), EvictionVerdict::Refused { .. }));
        assert_eq!(asked(Some("None"), &running, "LiveMigrate"), EvictionVerdict::Allowed);
    }

    #[test]
    fn an_instance_is_marked_once_for_a_node() {
        let marked =
            |node: &str| asked(Some("External"), &json!({"phase": "Running", "evacuationNodeName": node}), "None");
        let (message, evacuate) = refused(marked("node-1"));
        assert!(message.starts_with("Evacuation in progress: Eviction triggered evacuation of VMI"), "{message}");
        assert_eq!(evacuate, None);
        assert_eq!(refused(marked("node-0")).1.as_deref(), Some("node-1"));
    }

    #[test]
    fn without_a_guest_nothing_is_kept() {
        let of = |pod: &Pod, vmi: Option<&VirtualMachineInstance>| decide(pod, vmi, "None");
        let (running, lives) = (pod("Running", Some("node-1")), vmi(Some("LiveMigrate"), &json!({"phase": "Running"})));
        assert_eq!(of(&running, None), EvictionVerdict::Allowed);
        assert_eq!(of(&pod("Succeeded", Some("node-1")), Some(&lives)), EvictionVerdict::Allowed);
        assert_eq!(of(&pod("Pending", None), Some(&lives)), EvictionVerdict::Allowed);
        assert_eq!(
            of(&running, Some(&vmi(Some("LiveMigrate"), &json!({"phase": "Failed"})))),
            EvictionVerdict::Allowed
        );
        let mut leaves = running.clone();
        leaves.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(of(&leaves, Some(&lives)), EvictionVerdict::Allowed);
    }
}
