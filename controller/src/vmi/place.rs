//! Where an instance is: what its status and its labels have of its node. Pure.

use std::collections::BTreeMap;

use garboard_api::metadata::label;
use garboard_api::v1::VirtualMachineInstanceStatus;
use garboard_api::{Phase, VirtualMachineInstance};
use k8s_openapi::api::core::v1::Pod;

use super::history::Place;
use super::pod_status::{COMPUTE, node};
use super::remains;
use super::situation::Case;

/// The fields of the place.
#[derive(Debug, PartialEq)]
pub(super) struct Placement {
    /// `status.nodeName`.
    pub node_name: Option<String>,
    /// `status.activePods`.
    pub active_pods: BTreeMap<String, String>,
    /// `status.qosClass`.
    pub qos_class: Option<String>,
    /// `status.launcherContainerImageVersion`: the image that QEMU is of, which stays until its end.
    pub image: Option<String>,
    /// The labels that the instance is to have beside its own.
    pub labels: BTreeMap<String, String>,
}

/// The node is written with the phase Scheduled: from then on its agent may write. What the status has already stays.
pub(super) fn of(case: &Case<'_>, phase: Phase) -> Placement {
    let status = case.status();
    let labels = kept_label(&case.world.vmi, &status);
    let before = Placement {
        labels,
        node_name: status.node_name,
        active_pods: status.active_pods,
        qos_class: status.qos_class,
        image: status.launcher_container_image_version,
    };
    match &case.world.pod {
        Some(pod) => of_pod(pod, phase, before),
        None => match case.asked.as_ref().filter(|_| !phase.is_final()) {
            Some(place) => asking(place, before),
            None => before,
        },
    }
}

fn of_pod(pod: &Pod, phase: Phase, before: Placement) -> Placement {
    let Some(node) = node(pod).filter(|_| phase >= Phase::Scheduled) else { return before };
    // What the agent has reported of a pod stays true, even where the watch has not delivered yet that the pod is gone.
    let uid = pod.metadata.uid.as_ref().filter(|uid| !remains::is_nowhere(&before.active_pods, uid));
    Placement {
        node_name: Some(node.to_owned()),
        active_pods: uid.map_or(before.active_pods.clone(), |uid| [(uid.clone(), node.to_owned())].into()),
        qos_class: pod.status.as_ref().and_then(|status| status.qos_class.clone()),
        image: image(pod).or(before.image),
        labels: with_label(before.labels, node),
    }
}

/// As the pod was stored; KubeVirt has no shorter version of it either.
fn image(pod: &Pod) -> Option<String> {
    let compute = pod.spec.as_ref()?.containers.iter().find(|each| each.name == COMPUTE)?;
    compute.image.clone()
}

/// Puts the question into the status, where a quick start has left it out.
fn asking(Place { pod_uid, node }: &Place, before: Placement) -> Placement {
    Placement {
        node_name: Some(node.clone()),
        active_pods: [(pod_uid.clone(), node.clone())].into(),
        labels: with_label(before.labels, node),
        ..before
    }
}

fn with_label(mut labels: BTreeMap<String, String>, node: &str) -> BTreeMap<String, String> {
    labels.insert(label::NODE_NAME.to_owned(), node.to_owned());
    labels
}

/// The node that was written stays: what is applied once goes with the next apply that leaves it out, and the node's agent
/// finds its machines by the label until their last report.
pub(super) fn kept_label(
    vmi: &VirtualMachineInstance,
    status: &VirtualMachineInstanceStatus,
) -> BTreeMap<String, String> {
    let is_labelled = vmi.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(label::NODE_NAME));
    let kept = status.node_name.clone().filter(|_| is_labelled);
    kept.into_iter().map(|node| (label::NODE_NAME.to_owned(), node)).collect()
}
