//! A start that is quick is told of once: what the launcher says through its pod, and until then nothing
//! (`docs/adr/0011-five-writes.md`). Pure.

use std::time::Duration;

use garboard_api::Phase;
use garboard_api::v1::{VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus};
use garboard_cluster::report::{INTERPRETED_BY_KVM, SOFTWARE_EMULATION, Seen};
use garboard_cluster::report::{claims, condition};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::events::EventType;

use super::decide::{Decision, QUICK, Step, World};
use super::status::{container, node};
use crate::time::elapsed;

/// What the launcher said first, as long as the instance is not the node agent's to write.
pub(super) fn by_report(world: &World, pod: &Pod, before: Phase, decision: &mut Decision) -> Option<Phase> {
    node(pod)?;
    let report = condition::reported(pod, world.vmi.metadata.uid.as_deref()?).filter(|_| before < Phase::Scheduled)?;
    let addresses: Vec<_> = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten()).collect();
    let addresses: Vec<_> = addresses.into_iter().map(|address| address.ip.clone()).collect();
    let mut vmi = world.vmi.clone();
    vmi.status = Some(decision.status.clone());
    let claims = claims::said(pod);
    let seen = Seen { report: &report, addresses: &addresses, claims: &claims, vmi: &vmi, now: world.now };
    decision.status = garboard_cluster::report::next_status(&seen)?;
    decision.is_reported = true;
    passed_through(world, pod, &mut decision.status);
    Some(Phase::of_status(&decision.status))
}

/// What people are told of a report that came through the pod; the agent tells of all others itself.
pub(super) fn happenings(decision: &Decision) -> Vec<(EventType, &'static str, String)> {
    if !decision.is_reported {
        return Vec::new();
    }
    let phase = Phase::of_status(&decision.status);
    let condition = |kind: &str| decision.status.conditions.iter().find(|each| each.r#type == kind);
    if phase == Phase::Running {
        let started = (EventType::Normal, "Started", "the guest was started".to_owned());
        let slow = condition(SOFTWARE_EMULATION).filter(|each| each.reason.as_deref() == Some(INTERPRETED_BY_KVM));
        let slow = slow.map(|each| (EventType::Warning, INTERPRETED_BY_KVM, each.message.clone().unwrap_or_default()));
        return [started].into_iter().chain(slow).collect();
    }
    let ended = condition("Ended");
    let kind = if phase == Phase::Succeeded { EventType::Normal } else { EventType::Warning };
    vec![(kind, "Stopped", ended.and_then(|each| each.message.clone()).unwrap_or_default())]
}

/// When the instance was in the phases that were not told, as its object and its pod show it.
fn passed_through(world: &World, pod: &Pod, status: &mut VirtualMachineInstanceStatus) {
    let sidecar = container(pod, "launcher").and_then(|each| each.state.as_ref()?.running.as_ref()?.started_at.clone());
    let (created, made) = (&world.vmi.metadata.creation_timestamp, &pod.metadata.creation_timestamp);
    let times = [(Phase::Pending, created.clone()), (Phase::Scheduling, made.clone()), (Phase::Scheduled, sidecar)];
    for (phase, at) in times {
        let transitions = &mut status.phase_transition_timestamps;
        let is_known = transitions.iter().any(|each| each.phase.as_deref() == Some(phase.word()));
        let Some(at) = at.filter(|_| !is_known) else { continue };
        let later =
            |each: &VirtualMachineInstancePhaseTransitionTimestamp| Phase::of_word(each.phase.as_deref()) > phase;
        let place = transitions.iter().position(later).unwrap_or(transitions.len());
        transitions.insert(
            place,
            VirtualMachineInstancePhaseTransitionTimestamp {
                phase: Some(phase.word().to_owned()),
                phase_transition_timestamp: Some(at),
            },
        );
    }
}

/// For how long a start is left without a word: while the pod is young, was made by this very leader, and nothing is wrong.
pub(super) fn quiet_for(world: &World, decision: &Decision) -> Option<Duration> {
    let makes_pod = decision.steps.iter().any(|step| matches!(step, Step::CreatePod(_)));
    let made = if makes_pod { Some(world.now) } else { world.history.made }?;
    let phase = Phase::of_status(&decision.status);
    let is_on_its_way =
        Phase::of(&world.vmi) == Phase::Pending && (Phase::Scheduling..=Phase::Scheduled).contains(&phase);
    let is_told = |status: &VirtualMachineInstanceStatus| {
        status.conditions.iter().any(|each| ["PodScheduled", "Synchronized"].contains(&each.r#type.as_str()))
    };
    let has_news = is_told(&decision.status) || world.vmi.status.as_ref().is_some_and(is_told);
    if !is_on_its_way || has_news || world.vmi.metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(QUICK.saturating_sub(elapsed(made, world.now))).filter(|rest| !rest.is_zero())
}
