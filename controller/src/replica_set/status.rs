//! The status of a VirtualMachineInstanceReplicaSet. Pure.

use garboard_api::conditions::{self, NewCondition, Reason, ReplicaSetConditionType};
use garboard_api::v1::VirtualMachineInstanceReplicaSetStatus;
use garboard_api::{VirtualMachineInstanceReplicaSet, selector};
use jiff::Timestamp;

use super::decide::is_paused;
use super::member::Member;
use crate::events::NewEvent;

/// Of condition and event.
const PAUSED: &str = "spec.paused is true: instances are neither created nor deleted";

/// The status of a set with these active instances, as long as nothing fails.
pub(super) fn of(
    set: &VirtualMachineInstanceReplicaSet,
    active: &[&Member],
    now: Timestamp,
) -> VirtualMachineInstanceReplicaSetStatus {
    let mut status = set.status.clone().unwrap_or_default();
    let ready = active.iter().filter(|member| member.progress.is_ready).count();
    status.replicas = Some(number(active.len()));
    status.ready_replicas = Some(number(ready));
    status.label_selector = Some(selector::text(&set.spec.selector));
    conditions::remove(&mut status.conditions, ReplicaSetConditionType::ReplicaFailure);
    if is_paused(set) {
        let paused = NewCondition::new(ReplicaSetConditionType::ReplicaPaused, true, Reason::Paused, PAUSED);
        conditions::set(&mut status.conditions, &paused, now);
    } else {
        conditions::remove(&mut status.conditions, ReplicaSetConditionType::ReplicaPaused);
    }
    status
}

/// The same status where something could not be done.
pub(super) fn because(
    status: &VirtualMachineInstanceReplicaSetStatus,
    before: &VirtualMachineInstanceReplicaSetStatus,
    reason: Reason,
    message: &str,
    now: Timestamp,
) -> VirtualMachineInstanceReplicaSetStatus {
    let mut status = status.clone();
    let new = NewCondition::new(ReplicaSetConditionType::ReplicaFailure, true, reason, message);
    // It has failed since the first time.
    status.conditions.push(conditions::made(&new, &before.conditions, now));
    status
}

/// Whether a failure is in a status already: its event was written then.
pub(super) fn is_known(before: &VirtualMachineInstanceReplicaSetStatus, message: &str) -> bool {
    let known = conditions::find(&before.conditions, ReplicaSetConditionType::ReplicaFailure);
    known.is_some_and(|known| known.message.as_deref() == Some(message))
}

/// That the set was paused or goes on, if it changed.
pub(super) fn pause_changed(
    before: &VirtualMachineInstanceReplicaSetStatus,
    now: &VirtualMachineInstanceReplicaSetStatus,
) -> Option<NewEvent> {
    let is_paused = |status: &VirtualMachineInstanceReplicaSetStatus| {
        conditions::find(&status.conditions, ReplicaSetConditionType::ReplicaPaused).is_some()
    };
    match (is_paused(before), is_paused(now)) {
        (false, true) => Some(NewEvent::normal(Reason::SuccessfulPaused, PAUSED)),
        (true, false) => Some(NewEvent::normal(Reason::SuccessfulResumed, "instances are created and deleted again")),
        (false, false) | (true, true) => None,
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
