//! Launcher pods of this node, and the part of them that is needed here. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use garboard_api::Quantity;
use garboard_api::metadata::node_label::is_of_agent;
use garboard_api::metadata::{annotation, label};
use garboard_cluster::report::claims::{self, Claims};
use garboard_cluster::report::condition::{UNPAUSED, condition, reported};
use garboard_protocol::pod::ORDER_ANNOTATION;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::identity::PodUid;

/// Value of the label [`label::COMPONENT`] on launcher pods.
pub const LAUNCHER: &str = "virt-launcher";
/// The container that PID 1 and QEMU are in.
const COMPUTE: &str = "compute";
/// The kubelet's reason for a container that the OOM killer ended.
const OOM_KILLED: &str = "OOMKilled";

/// Selectors, of fields and of labels, that give the launcher pods of a node.
#[must_use]
pub fn selectors(node: &str) -> (String, String) {
    (format!("spec.nodeName={node}"), format!("{}={LAUNCHER}", label::COMPONENT))
}

/// How the container of QEMU ended, as far as the kubelet has reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ComputeEnd {
    /// It has reported no end.
    #[default]
    NotYet,
    /// The kernel's OOM killer ended it.
    OutOfMemory {
        /// Its memory limit in bytes, if it has one.
        limit_bytes: Option<u64>,
    },
    /// In another way.
    Otherwise,
}

/// A launcher pod.
#[derive(Clone, Debug, PartialEq)]
pub struct LauncherPod {
    /// Its UID.
    pub uid: PodUid,
    /// Its namespace, which is its VMI's.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its addresses, the first one first.
    pub addresses: Vec<String>,
    /// Labels of the agent's that its node selector names, as long as the pod is not over.
    pub needs: BTreeSet<String>,
    /// What the controller wrote of its claims.
    pub claims: Claims,
    /// `status` of its condition [`UNPAUSED`].
    pub unpaused: Option<String>,
    /// Whether its launcher's first report is on it.
    pub is_reported: bool,
    /// How its container of QEMU ended.
    pub compute_end: ComputeEnd,
    /// Name of the VMI it was made for.
    pub vmi: String,
    /// UID of that VMI.
    pub vmi_uid: String,
    /// What the controller ordered for it ([`ORDER_ANNOTATION`]), as it is written.
    pub order: Option<Arc<str>>,
    /// The trace that it was made in ([`annotation::TRACE`]), as it is written.
    pub trace: Option<Arc<str>>,
}

impl LauncherPod {
    /// The span of its log lines.
    pub(crate) fn span(&self) -> tracing::Span {
        let Self { name, namespace, vmi, vmi_uid, .. } = self;
        tracing::info_span!(parent: None, "launcher", namespace, vmi, vmi_uid, pod = name)
    }
}

/// Reads a pod; nothing if it is no launcher pod of the node.
///
/// Where no admission policy keeps them from it, a tenant may make pods with any label and, in its own namespace, with any
/// owner: that such a pod really belongs to its VMI is settled when a status is written (`status::next_status` looks at the
/// VMI's `activePods`, which only the controller writes).
#[must_use]
pub fn launcher_pod(pod: &Pod, node: &str) -> Option<LauncherPod> {
    let metadata = &pod.metadata;
    let labelled = |key: &str| metadata.labels.as_ref()?.get(key).map(String::as_str);
    let spec = pod.spec.as_ref()?;
    // Interfaces of a pod with the node's network would be made on the node.
    let here = spec.node_name.as_deref() == Some(node) && spec.host_network != Some(true);
    let owner = metadata.owner_references.iter().flatten().find(|owner| is_vmi(owner))?;
    if !here || labelled(label::COMPONENT) != Some(LAUNCHER) || labelled(label::CREATED_BY) != Some(&owner.uid) {
        return None;
    }
    let status = pod.status.as_ref();
    let addresses = status.and_then(|status| status.pod_ips.as_ref());
    let annotated = |key: &str| metadata.annotations.as_ref()?.get(key).map(|value| value.as_str().into());
    Some(LauncherPod {
        uid: PodUid::parse(metadata.uid.as_deref()?)?,
        namespace: metadata.namespace.clone()?,
        name: metadata.name.clone()?,
        addresses: addresses.into_iter().flatten().map(|address| address.ip.clone()).collect(),
        needs: needs(pod),
        claims: claims::of(pod),
        unpaused: condition(pod, UNPAUSED).map(|one| one.status.clone()),
        is_reported: reported(pod, &owner.uid).is_some(),
        compute_end: compute_end(pod),
        vmi: owner.name.clone(),
        vmi_uid: owner.uid.clone(),
        order: annotated(ORDER_ANNOTATION),
        trace: annotated(annotation::TRACE),
    })
}

fn compute_end(pod: &Pod) -> ComputeEnd {
    let mut statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let compute = statuses.find(|status| status.name == COMPUTE).and_then(|status| status.state.as_ref());
    match compute.and_then(|state| state.terminated.as_ref()) {
        None => ComputeEnd::NotYet,
        Some(end) if end.reason.as_deref() == Some(OOM_KILLED) => {
            ComputeEnd::OutOfMemory { limit_bytes: memory_limit(pod) }
        }
        Some(_) => ComputeEnd::Otherwise,
    }
}

fn memory_limit(pod: &Pod) -> Option<u64> {
    let compute = pod.spec.as_ref()?.containers.iter().find(|container| container.name == COMPUTE)?;
    compute.resources.as_ref()?.limits.as_ref()?.get("memory")?.0.parse::<Quantity>().ok()?.to_bytes()
}

fn needs(pod: &Pod) -> BTreeSet<String> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_over = matches!(phase, Some("Succeeded" | "Failed"));
    let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref()).filter(|_| !is_over);
    selector.into_iter().flat_map(|selector| selector.keys()).filter(|key| is_of_agent(key)).cloned().collect()
}

fn is_vmi(owner: &OwnerReference) -> bool {
    owner.controller == Some(true)
        && owner.kind == "VirtualMachineInstance"
        && owner.api_version.split_once('/').is_some_and(|(group, _)| group == "kubevirt.io")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const POD: &str = "0c6b6b0e-7c1f-4d57-9c5e-6f0c7d6a1b2c";
    pub(crate) use garboard_protocol::testing::INSTANCE as VMI;

    pub(crate) fn example() -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "virt-launcher-vm-abc", "namespace": "default", "uid": POD,
                "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": VMI},
                "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                    "name": "vm", "uid": VMI, "controller": true}],
            },
            "spec": {"nodeName": "node-1", "containers": [], "nodeSelector": {
                "kubernetes.io/arch": "amd64", "machine-type.node.kubevirt.io/q35": "true"}},
            "status": {"podIPs": [{"ip": "10.244.1.7"}, {"ip": "fd00::7"}],
                "conditions": [{"type": UNPAUSED, "status": "True"}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_launcher_pod_is_read() {
        let mut traced = example();
        traced.metadata.annotations = Some([(annotation::TRACE.to_owned(), "t".to_owned())].into());
        assert_eq!(launcher_pod(&traced, "node-1").unwrap().trace.as_deref(), Some("t"));
        let pod = launcher_pod(&example(), "node-1").unwrap();
        assert_eq!((pod.vmi.as_str(), pod.vmi_uid.as_str(), &pod.trace), ("vm", VMI, &None));
        assert_eq!(pod.addresses, ["10.244.1.7", "fd00::7"]);
        assert_eq!(pod.unpaused.as_deref(), Some("True"));
        assert_eq!(pod.needs.into_iter().collect::<Vec<_>>(), ["machine-type.node.kubevirt.io/q35"]);
        let mut over = example();
        over.status.as_mut().unwrap().phase = Some("Failed".into());
        assert!(launcher_pod(&over, "node-1").unwrap().needs.is_empty());
    }

    #[test]
    fn the_end_of_the_container_of_qemu_is_what_the_kubelet_reports() {
        let ended = |state: serde_json::Value| {
            let mut pod = example();
            let limit = serde_json::json!({"limits": {"memory": "300Mi"}});
            let container = serde_json::json!({"name": "compute", "resources": limit});
            pod.spec.as_mut().unwrap().containers.push(serde_json::from_value(container).unwrap());
            let status = serde_json::json!({"name": "compute", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state});
            pod.status.as_mut().unwrap().container_statuses = Some(vec![serde_json::from_value(status).unwrap()]);
            launcher_pod(&pod, "node-1").unwrap().compute_end
        };
        let killed = serde_json::json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
        assert_eq!(ended(killed), ComputeEnd::OutOfMemory { limit_bytes: Some(300 << 20) });
        let other = serde_json::json!({"terminated": {"exitCode": 137, "reason": "Error"}});
        assert_eq!(ended(other), ComputeEnd::Otherwise);
        assert_eq!(ended(serde_json::json!({"running": {}})), ComputeEnd::NotYet);
        assert_eq!(launcher_pod(&example(), "node-1").unwrap().compute_end, ComputeEnd::NotYet);
    }

    #[test]
    fn others_are_not() {
        assert_eq!(launcher_pod(&example(), "node-2"), None);
        let changes: [fn(&mut Pod); 7] = [
            |pod| pod.spec.as_mut().unwrap().host_network = Some(true),
            |pod| pod.metadata.labels = None,
            |pod| drop(pod.metadata.labels.as_mut().unwrap().insert("kubevirt.io".into(), "virt-handler".into())),
            |pod| drop(pod.metadata.labels.as_mut().unwrap().insert("kubevirt.io/created-by".into(), "x".into())),
            |pod| pod.metadata.owner_references.as_mut().unwrap()[0].controller = None,
            |pod| pod.metadata.owner_references.as_mut().unwrap()[0].kind = "VirtualMachine".into(),
            |pod| pod.metadata.owner_references.as_mut().unwrap()[0].api_version = "kubevirt.io.evil/v1".into(),
        ];
        for change in changes {
            let mut pod = example();
            change(&mut pod);
            assert_eq!(launcher_pod(&pod, "node-1"), None, "{pod:?}");
        }
    }
}
