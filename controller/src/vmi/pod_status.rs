//! What the status of a launcher pod shows. Pure.

use garboard_api::conditions::{PodConditionType, Reason};
use garboard_api::v1::non_empty;
use garboard_cluster::report::condition;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

/// The container PID 1 and QEMU are in.
pub(super) const COMPUTE: &str = "compute";
/// The container the supervisor is in.
pub(super) const LAUNCHER: &str = "launcher";

/// Whether a pod's containers have ended for good.
pub(super) fn is_over(pod: &Pod) -> bool {
    matches!(phase(pod), Some("Succeeded" | "Failed"))
}

/// Whether all of them ended well.
pub(super) fn has_succeeded(pod: &Pod) -> bool {
    phase(pod) == Some("Succeeded")
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// When the last of its containers ended.
pub(super) fn ended_at(pod: &Pod) -> Option<jiff::Timestamp> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ends = statuses.filter_map(|each| each.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    ends.map(|time| time.0).max()
}

/// What PID 1 wrote to its termination log.
pub(super) fn termination_message(pod: &Pod) -> Option<String> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let compute = statuses.into_iter().find(|each| each.name == COMPUTE)?;
    let message = compute.state.as_ref()?.terminated.as_ref()?.message.clone()?;
    Some(message.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The node a pod is on.
pub(super) fn node(pod: &Pod) -> Option<&str> {
    non_empty(&pod.spec.as_ref()?.node_name)
}

/// Whether the supervisor runs.
pub(super) fn sidecar_runs(pod: &Pod) -> bool {
    let state = container(pod, LAUNCHER).and_then(|each| each.state.as_ref());
    state.is_some_and(|state| state.running.is_some())
}

/// A container that runs beside the others from the start.
pub(super) fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    pod.status.as_ref()?.init_container_statuses.as_ref()?.iter().find(|each| each.name == name)
}

/// A condition of the pod.
pub(super) fn condition(pod: &Pod, kind: PodConditionType) -> Option<&PodCondition> {
    condition::condition(pod, kind.name())
}

/// Why an image could not be pulled, in the kubelet's message.
pub(super) struct PullError {
    /// Its reason.
    pub reason: Reason,
    /// Its message.
    pub message: String,
}

/// An image that a kubelet cannot pull.
pub(super) fn pull_error(pod: &Pod) -> Option<PullError> {
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Pending"))?;
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let mut waiting = containers.filter_map(|each| each.state.as_ref()?.waiting.as_ref());
    waiting.find_map(|each| {
        let reason = Reason::from_name(each.reason.as_deref()?)?;
        let is_of_pull = matches!(reason, Reason::ErrImagePull | Reason::ImagePullBackOff | Reason::ErrImageNeverPull);
        is_of_pull.then(|| PullError { reason, message: each.message.clone().unwrap_or_default() })
    })
}
