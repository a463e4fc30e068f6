//! Frozen file systems: for how long, and when they are thawed unasked.
//!
//! Programs of the guest hang as soon as they write to a file system that is frozen, so it is never forgotten: the journal has the
//! deadline before the guest agent is asked, and a thaw is tried again until the agent has answered it. A guest that is stopped or
//! rebooted is thawed first, because it could not shut down; one that was reset has thawed file systems.

use super::{Effect, Life, Now, State, Vcpus};
use crate::vm::Freeze;

/// How long until a thaw that failed is tried again.
const THAW_AGAIN_MS: i64 = 10_000;

/// Where they are frozen already, the deadline is the new one.
pub(super) fn freeze(life: &mut Life, state: State, thaw_after_seconds: Option<u64>, now: Now) -> (State, Vec<Effect>) {
    let State::Running { vcpus: Vcpus::Running } = state else { return (state, Vec::new()) };
    let after_ms = thaw_after_seconds.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000));
    let thaw_at_ms = after_ms.map(|after_ms| now.boot_ms.saturating_add(after_ms));
    life.memory.freeze = Some(Freeze { thaw_at_ms, is_asked: true });
    (state, vec![Effect::Freeze])
}

/// Thaws them, in a guest that can answer.
pub(super) fn thaw(state: State) -> (State, Vec<Effect>) {
    let runs = state == State::Running { vcpus: Vcpus::Running };
    (state, if runs { vec![Effect::Thaw] } else { Vec::new() })
}

/// What a guest needs before it is asked to shut down.
pub(super) fn before_shutdown(life: &Life) -> Option<Effect> {
    (life.memory.frozen || life.memory.freeze.is_some()).then_some(Effect::Thaw)
}

/// They are frozen. A stop that began meanwhile has them thawed.
pub(super) fn froze(life: &mut Life, state: &State) -> Vec<Effect> {
    life.memory.frozen = true;
    if let Some(freeze) = &mut life.memory.freeze {
        freeze.is_asked = false;
    }
    match state {
        State::Stopping { .. } => vec![Effect::Thaw],
        State::Preparing | State::Launched | State::Running { .. } | State::Ending { .. } | State::Ended(_) => {
            Vec::new()
        }
    }
}

/// They are not frozen, or nobody knows: then they are thawed at once.
pub(super) fn did_not_freeze(life: &mut Life, may_have_frozen: bool, now: Now) {
    // Of file systems that were frozen before, the deadline holds.
    let at_once = may_have_frozen.then_some(Freeze { thaw_at_ms: Some(now.boot_ms), is_asked: false });
    let kept = life.memory.freeze.filter(|_| life.memory.frozen).map(|freeze| Freeze { is_asked: false, ..freeze });
    life.memory.freeze = kept.or(at_once);
}

/// They are thawed, or the guest has started again. What is asked of the agent comes after it, and has its deadline.
pub(super) fn thawed(life: &mut Life) {
    life.memory.freeze = life.memory.freeze.filter(|freeze| freeze.is_asked);
    life.memory.frozen = false;
}

/// Thaws them when their time is over; as long as the agent does not answer that it did, again and again.
pub(super) fn time_passed(life: &mut Life, vcpus: Vcpus, now: Now) -> Option<Effect> {
    let freeze = life.memory.freeze.as_mut()?;
    freeze.thaw_at_ms.filter(|&at_ms| at_ms <= now.boot_ms)?;
    freeze.thaw_at_ms = Some(now.boot_ms.saturating_add(THAW_AGAIN_MS));
    (vcpus == Vcpus::Running).then_some(Effect::Thaw)
}

#[cfg(test)]
mod tests;
