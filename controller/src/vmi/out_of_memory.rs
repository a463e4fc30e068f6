//! An end that only the kubelet can explain. On cgroup v2 the kernel kills every process of a container that is out of memory
//! at once, PID 1 included: the launcher knows that its machine was killed, the pod's status knows why. Pure.

use garboard_api::v1::VirtualMachineInstanceStatus;
use garboard_api::{Phase, Quantity, VirtualMachineInstance};
use garboard_cluster::report::{self, MACHINE_KILLED};
use garboard_protocol::exit::{CauseWord, ExitCause};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::events::EventType;

use super::decide::{Decision, World};
use super::readiness::set;

/// The container QEMU is in.
const COMPUTE: &str = "compute";
/// The event's reason, and the condition's.
const OUT_OF_MEMORY: &str = CauseWord::OutOfMemory.as_str();
/// The kubelet's reason for a container that the OOM killer ended.
const OOM_KILLED: &str = "OOMKilled";

/// Names the cause of an end that is not explained yet, if the pod knows it.
pub(super) fn explain(world: &World, phase: Phase, status: &mut VirtualMachineInstanceStatus) {
    let said =
        status.conditions.iter().find(|each| each.r#type == report::ENDED).and_then(|each| each.reason.as_deref());
    let is_open = matches!(said, None | Some(MACHINE_KILLED));
    let Some(pod) = world.pod.as_ref().filter(|pod| phase == Phase::Failed && is_open && is_oom_killed(pod)) else {
        return;
    };
    let cause = ExitCause::OutOfMemory { limit_bytes: limit_bytes(pod) };
    status.reason = Some(OUT_OF_MEMORY.to_owned());
    set(world.now, status, (report::ENDED, "True"), (OUT_OF_MEMORY, &report::message(&cause, &cause.sentence())));
}

/// The event for an end that was named here: the agent has told at most that the machine was killed.
pub(super) fn happening(
    vmi: &VirtualMachineInstance,
    decision: &Decision,
) -> Option<(EventType, &'static str, String)> {
    let ended = |status: &VirtualMachineInstanceStatus| {
        let ended = status.conditions.iter().find(|each| each.r#type == report::ENDED);
        ended.filter(|each| each.reason.as_deref() == Some(OUT_OF_MEMORY)).cloned()
    };
    let is_known = decision.is_reported || vmi.status.as_ref().and_then(ended).is_some();
    let told = ended(&decision.status).filter(|_| !is_known)?;
    Some((EventType::Warning, OUT_OF_MEMORY, told.message.unwrap_or_default()))
}

fn is_oom_killed(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ended =
        containers.filter(|each| each.name == COMPUTE).filter_map(|each| each.state.as_ref()?.terminated.as_ref());
    ended.into_iter().any(|end| end.reason.as_deref() == Some(OOM_KILLED))
}

fn limit_bytes(pod: &Pod) -> Option<u64> {
    let compute = pod.spec.as_ref()?.containers.iter().find(|each| each.name == COMPUTE)?;
    let limit = compute.resources.as_ref()?.limits.as_ref()?.get("memory")?;
    limit.0.parse::<Quantity>().ok()?.to_bytes()
}
