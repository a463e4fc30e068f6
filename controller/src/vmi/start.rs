//! A start that is quick is written once: what the launcher reports through its pod, and until then nothing
//! (`docs/adr/0011-five-writes.md`). Pure.

use std::time::Duration;

use garboard_api::conditions::{self, VmiConditionType};
use garboard_api::v1::{VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus};
use garboard_api::{Phase, VirtualMachineInstance};
use garboard_cluster::report::{self, InstanceEvent, Seen, claims, condition};
use k8s_openapi::api::core::v1::Pod;

use super::decide::{Decision, World};
use super::pod_status::{LAUNCHER, container, node};
use super::situation::Case;
use crate::time::{QUICK, elapsed};

/// The status that follows from what the launcher reported first, as long as the instance is not the node agent's to write.
pub(super) fn reported(world: &World, pod: &Pod, before: Phase) -> Option<VirtualMachineInstanceStatus> {
    node(pod)?;
    let report = condition::reported(pod, world.vmi.metadata.uid.as_deref()?).filter(|_| before < Phase::Scheduled)?;
    let addresses: Vec<_> = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten()).collect();
    let addresses: Vec<_> = addresses.into_iter().map(|address| address.ip.clone()).collect();
    let mut vmi = world.vmi.clone();
    vmi.status.get_or_insert_default();
    let claims = claims::of(pod);
    let seen = Seen { report: &report, addresses: &addresses, claims: &claims, vmi: &vmi, now: world.now };
    let status = report::next_status(&seen)?;
    let phase_transition_timestamps = passed_through(world, pod, status.phase_transition_timestamps.clone());
    Some(VirtualMachineInstanceStatus { phase_transition_timestamps, ..status })
}

/// The events of a report that came through the pod; the agent writes those of all others itself.
pub(super) fn events(vmi: &VirtualMachineInstance, decision: &Decision) -> Vec<InstanceEvent> {
    if decision.is_reported { report::events(vmi, &decision.status) } else { Vec::new() }
}

/// When the instance was in the phases that were not written, as its object and its pod show it.
fn passed_through(
    world: &World,
    pod: &Pod,
    mut transitions: Vec<VirtualMachineInstancePhaseTransitionTimestamp>,
) -> Vec<VirtualMachineInstancePhaseTransitionTimestamp> {
    let sidecar = container(pod, LAUNCHER).and_then(|each| each.state.as_ref()?.running.as_ref()?.started_at.clone());
    let (created, made) = (&world.vmi.metadata.creation_timestamp, &pod.metadata.creation_timestamp);
    let times = [(Phase::Pending, created.clone()), (Phase::Scheduling, made.clone()), (Phase::Scheduled, sidecar)];
    for (phase, at) in times {
        let is_known = transitions.iter().any(|each| each.phase.as_deref() == Some(phase.name()));
        let Some(at) = at.filter(|_| !is_known) else { continue };
        let later =
            |each: &VirtualMachineInstancePhaseTransitionTimestamp| Phase::from_name(each.phase.as_deref()) > phase;
        let place = transitions.iter().position(later).unwrap_or(transitions.len());
        let entered = VirtualMachineInstancePhaseTransitionTimestamp {
            phase: Some(phase.name().to_owned()),
            phase_transition_timestamp: Some(at),
        };
        transitions.insert(place, entered);
    }
    transitions
}

/// For how long nothing is written of a start: while the pod is young, was made by this very leader, and nothing is wrong.
pub(super) fn quiet_for(case: &Case<'_>, phase: Phase, status: &VirtualMachineInstanceStatus) -> Option<Duration> {
    let world = case.world;
    let made = if case.makes_pod() { Some(world.now) } else { world.history.made }?;
    let is_on_its_way = case.before == Phase::Pending && (Phase::Scheduling..=Phase::Scheduled).contains(&phase);
    let has_news = has_a_failure(status) || world.vmi.status.as_ref().is_some_and(has_a_failure);
    if !is_on_its_way || has_news || case.leaves {
        return None;
    }
    Some(QUICK.saturating_sub(elapsed(made, world.now))).filter(|rest| !rest.is_zero())
}

fn has_a_failure(status: &VirtualMachineInstanceStatus) -> bool {
    let kinds = [VmiConditionType::PodScheduled, VmiConditionType::Synchronized];
    kinds.into_iter().any(|kind| conditions::find(&status.conditions, kind).is_some())
}
