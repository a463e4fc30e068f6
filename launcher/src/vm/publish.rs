//! The machine's state as all others see it. One total function; nothing else writes these fields.

use garboard_protocol::control::{PauseReason, ReportedPhase, Status};

use super::{Life, State, Vcpus};

/// Brings the derived fields of a status up to date.
pub(crate) fn refresh(status: &mut Status, life: &Life, taints: &[String], now_ms: i64) {
    let phase = phase(&life.state, status.phase);
    if status.phase != phase {
        status.phase = phase;
        status.phase_since_ms = now_ms;
    }
    // As an earlier supervisor wrote down, until QEMU's monitor has answered.
    let before = life.memory.paused_by_user && matches!(life.state, State::Launched);
    status.paused = paused(&life.state).or(before.then_some(PauseReason::PausedByUser));
    let waits = status.paused == Some(PauseReason::PausedIOError);
    status.pause_message = life.memory.io.message().filter(|_| waits);
    status.observed = !matches!(life.state, State::Launched);
    status.stopping = matches!(life.state, State::Stopping { .. } | State::Ending { .. });
    status.frozen = life.memory.frozen;
    status.soft_rebooting = life.memory.soft_reboot.is_some();
    status.unresponsive = life.memory.is_silent && !matches!(life.state, State::Ended(_));
    status.resets = life.memory.resets;
    if status.taints != taints {
        status.taints = taints.to_vec();
    }
    if let State::Ended(ended) = &life.state {
        status.ended = Some((**ended).clone());
    }
}

fn phase(state: &State, before: ReportedPhase) -> ReportedPhase {
    match state {
        State::Preparing => ReportedPhase::Scheduled,
        // Until its monitor has answered: what an earlier supervisor saw of it still holds.
        State::Launched => before,
        // A stop does not end the phase Running: the guest is still working on it.
        State::Running { .. } | State::Stopping { .. } | State::Ending { .. } => ReportedPhase::Running,
        State::Ended(ended) if ended.cause.is_success() => ReportedPhase::Succeeded,
        State::Ended(_) => ReportedPhase::Failed,
    }
}

/// Why vCPUs are stopped, if they are.
pub(crate) fn paused(state: &State) -> Option<PauseReason> {
    match state {
        State::Running { vcpus: Vcpus::Stopped(reason) } => Some(*reason),
        State::Running { vcpus: Vcpus::Running }
        | State::Preparing
        | State::Launched
        | State::Stopping { .. }
        | State::Ending { .. }
        | State::Ended(_) => None,
    }
}

/// Whether two statuses differ in anything but their generation.
pub(crate) fn differs(left: &Status, right: &Status) -> bool {
    let mut same = right.clone();
    same.generation = left.generation;
    *left != same
}
