//! What the driver starts from: nothing yet, or what an earlier supervisor wrote down.

use std::path::Path;

use garboard_protocol::control::{Phase, Status};
use garboard_protocol::exit::EndHints;
use garboard_protocol::journal::Journal;

use super::prepare::Order;
use crate::vm::{Asked, DriverSeed, Life, Memory, OnReady, State, now_ms};

/// Grace period of a VMI that names none, seconds (KubeVirt's default).
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// The status before anything is known.
pub(crate) fn first_status(order: &Order, journal: &Journal) -> Status {
    let metadata = &order.vmi.metadata;
    let runs = journal.launched && journal.started && journal.ended.is_none();
    Status {
        generation: first_generation(journal),
        namespace: metadata.namespace.clone().unwrap_or_else(|| "default".to_owned()),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        phase: if runs { Phase::Running } else { Phase::Scheduled },
        phase_since_ms: if runs { journal.started_at_ms } else { now_ms() },
        paused: None,
        heard: false,
        stopping: false,
        software_emulation: false,
        machine: String::new(),
        memory_bytes: 0,
        overhead_bytes: 0,
        vcpus: 0,
        stored: None,
        disks: Vec::new(),
        interfaces: Vec::new(),
        guest: None,
        taints: journal.taints.clone(),
        supervisor_pid: std::process::id(),
        resets: journal.resets,
        ended: journal.ended.clone(),
    }
}

/// Above every generation of an earlier supervisor, of whose last ones the journal may not know: none makes a thousand
/// changes a second for long.
fn first_generation(journal: &Journal) -> u64 {
    u64::try_from(now_ms()).unwrap_or(0).max(journal.generation + 1)
}

/// The driver's seed.
pub(crate) fn from_journal(journal: &Journal, order: &Order, status: Status, shared: &Path) -> DriverSeed {
    let grace_seconds = order.vmi.spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS).max(0);
    let life = Life {
        state: state(journal),
        memory: Memory { hints: journal.hints, resets: journal.resets },
        grace_ms: grace_seconds.saturating_mul(1000),
    };
    let paused_start = order.vmi.spec.start_strategy.as_deref() == Some("Paused");
    let on_ready = if journal.started || paused_start { OnReady::Leave } else { OnReady::LetRun };
    DriverSeed { life, journal: journal.clone(), status, on_ready, shared: shared.to_owned() }
}

/// A stop that was under way goes on: the deadline in the journal is an instant, not a duration. One that had come to
/// its last step is not taken back to asking the guest.
fn state(journal: &Journal) -> State {
    match (&journal.ended, journal.stop_deadline_ms, journal.launched) {
        (Some(ended), ..) => State::Ended(Box::new(ended.clone())),
        (None, Some(kill_at_ms), _) if is_ending(journal.hints) => State::Ending { kill_at_ms },
        (None, Some(force_at_ms), _) => State::Stopping { force_at_ms, asked: Asked::NotYet },
        (None, None, true) => State::Launched,
        (None, None, false) => State::Preparing,
    }
}

/// Whether the guest is no longer asked.
fn is_ending(hints: EndHints) -> bool {
    let EndHints { force_requested, grace_exceeded, guest_panicked, watchdog, internal_error, .. } = hints;
    force_requested || grace_exceeded || guest_panicked || watchdog || internal_error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_goes_on_where_the_last_supervisor_left_it() {
        let asked = Journal { launched: true, stop_deadline_ms: Some(7), ..Journal::default() };
        assert_eq!(state(&asked), State::Stopping { force_at_ms: 7, asked: Asked::NotYet });
        let forced = Journal { hints: EndHints { force_requested: true, ..EndHints::default() }, ..asked.clone() };
        assert_eq!(state(&forced), State::Ending { kill_at_ms: 7 });
        let before_the_launch = Journal { launched: false, ..asked };
        assert_eq!(state(&before_the_launch), State::Stopping { force_at_ms: 7, asked: Asked::NotYet });
        assert_eq!(state(&Journal::default()), State::Preparing);
    }
}
