//! The status of a VirtualMachinePool. Pure.

use garboard_api::conditions::{self, NewCondition, PoolConditionType, Reason};
use garboard_api::v1::VirtualMachinePoolStatus;
use garboard_api::{VirtualMachinePool, selector};
use jiff::Timestamp;

use super::decide::is_paused;
use super::member::Member;
use crate::events::NewEvent;

/// Of condition and event.
const PAUSED: &str = "spec.paused is true: machines are neither created nor deleted nor changed";

/// The status of a pool with these machines, as long as nothing fails.
pub(super) fn of(pool: &VirtualMachinePool, staying: &[&Member], now: Timestamp) -> VirtualMachinePoolStatus {
    let mut status = pool.status.clone().unwrap_or_default();
    status.replicas = Some(number(staying.len()));
    status.ready_replicas = Some(number(staying.iter().filter(|member| member.state.is_ready).count()));
    status.label_selector = Some(selector::text(&pool.spec.selector));
    conditions::remove(&mut status.conditions, PoolConditionType::ReplicaFailure);
    if is_paused(pool) {
        let paused = NewCondition::new(PoolConditionType::ReplicaPaused, true, Reason::SuccessfulPaused, PAUSED);
        conditions::set(&mut status.conditions, &paused, now);
    } else {
        conditions::remove(&mut status.conditions, PoolConditionType::ReplicaPaused);
    }
    status
}

/// The same status where something could not be done.
pub(super) fn because(
    status: &VirtualMachinePoolStatus,
    before: &VirtualMachinePoolStatus,
    reason: Reason,
    message: &str,
    now: Timestamp,
) -> VirtualMachinePoolStatus {
    let mut status = status.clone();
    let new = NewCondition::new(PoolConditionType::ReplicaFailure, true, reason, message);
    // It has failed since the first time.
    status.conditions.push(conditions::made(&new, &before.conditions, now));
    status
}

/// Whether a failure is in a status already: its event was written then.
pub(super) fn is_known(before: &VirtualMachinePoolStatus, message: &str) -> bool {
    let known = conditions::find(&before.conditions, PoolConditionType::ReplicaFailure);
    known.is_some_and(|known| known.message.as_deref() == Some(message))
}

/// That the pool was paused or goes on, if it changed.
pub(super) fn pause_changed(before: &VirtualMachinePoolStatus, now: &VirtualMachinePoolStatus) -> Option<NewEvent> {
    let is_paused = |status: &VirtualMachinePoolStatus| {
        conditions::find(&status.conditions, PoolConditionType::ReplicaPaused).is_some()
    };
    match (is_paused(before), is_paused(now)) {
        (false, true) => Some(NewEvent::normal(Reason::SuccessfulPaused, PAUSED)),
        (true, false) => {
            Some(NewEvent::normal(Reason::SuccessfulResume, "machines are created, deleted and changed again"))
        }
        (false, false) | (true, true) => None,
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
