//! An end that only the kubelet can explain. On cgroup v2 the kernel kills every process of a container that is out of memory
//! at once, PID 1 included: the launcher sees that its machine was killed, the pod's status has why. Pure.

use garboard_api::conditions::{self, ConditionStatus, NewCondition, VmiConditionType};
use garboard_api::v1::VirtualMachineInstanceStatus;
use garboard_api::{Phase, Quantity, VirtualMachineInstance};
use garboard_cluster::report::{self, MACHINE_KILLED};
use garboard_protocol::exit::{EndReason, ExitCause};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::events::EventType;

use super::decide::Decision;
use super::pod_status::COMPUTE;
use super::situation::Case;
use crate::events::{EventReason, NewEvent};

/// The kubelet's reason for a container that the OOM killer ended.
const OOM_KILLED: &str = "OOMKilled";

/// An end that the kernel made because a limit was exceeded.
pub(super) struct OomKilled(ExitCause);

impl OomKilled {
    /// The reason of the status, and of condition and event.
    pub(super) fn reason(&self) -> EndReason {
        self.0.reason()
    }

    /// How the run ended.
    pub(super) fn condition(&self) -> NewCondition<'static, VmiConditionType> {
        NewCondition {
            kind: VmiConditionType::Ended,
            status: ConditionStatus::True,
            reason: self.reason().as_str().into(),
            message: report::message(&self.0, &self.0.message()).into(),
        }
    }
}

/// The cause of an end that is not explained yet, if the pod has it.
pub(super) fn killed(case: &Case<'_>, phase: Phase, status: &VirtualMachineInstanceStatus) -> Option<OomKilled> {
    let known = conditions::find(&status.conditions, VmiConditionType::Ended).and_then(|each| each.reason.as_deref());
    let is_open = matches!(known, None | Some(MACHINE_KILLED));
    let pod = case.world.pod.as_ref().filter(|pod| phase == Phase::Failed && is_open && is_oom_killed(pod))?;
    Some(OomKilled(ExitCause::OutOfMemory { limit_bytes: limit_bytes(pod) }))
}

/// The event for an end that was named here: the agent has reported at most that the machine was killed.
pub(super) fn event(vmi: &VirtualMachineInstance, decision: &Decision) -> Option<NewEvent> {
    let reason = EndReason::OutOfMemory;
    let ended = |status: &VirtualMachineInstanceStatus| {
        let ended = conditions::find(&status.conditions, VmiConditionType::Ended);
        ended.filter(|each| each.reason.as_deref() == Some(reason.as_str())).cloned()
    };
    let is_known = decision.is_reported || vmi.status.as_ref().and_then(ended).is_some();
    let condition = ended(&decision.status).filter(|_| !is_known)?;
    let note = condition.message.unwrap_or_default();
    Some(NewEvent { kind: EventType::Warning, reason: EventReason::Ended(reason), note })
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
