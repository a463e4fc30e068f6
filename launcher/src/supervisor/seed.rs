//! What the driver starts from: nothing yet, or what an earlier supervisor wrote down.

use std::path::Path;

use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_plan::{LaunchPlan, Lifecycle};
use garboard_protocol::control::{PauseReason, ReportedPhase, Status, SupervisorInfo};
use garboard_protocol::exit::EndHints;
use garboard_protocol::journal::{Journal, JournaledFreeze, JournaledSoftReboot, SoftRebootStep};
use garboard_protocol::paths::Layout;

use super::driver::DriverSeed;
use super::prepare::{Order, OrderError, read_plan};
use crate::clock::{self, boot_id, now_ms};
use crate::vm::{Freeze, Life, Memory, OnReady, PowerDownRequest, RebootStep, SoftReboot, State};

/// Whose machine it is: from the plan of one that was launched, whatever build made that, or from the order of one that was
/// not. How it starts and stops is in a plan alone; one that is yet to be made comes as [`Input::Planned`](super::driver::Input).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineMetadata {
    namespace: String,
    name: String,
    uid: String,
    lifecycle: Option<Lifecycle>,
}

impl MachineMetadata {
    /// Reads what there is.
    pub(crate) fn read(layout: &Layout, journal: &Journal) -> Result<Self, OrderError> {
        let planned = journal.launched.then(|| read_plan(&layout.supervisor()).ok()).flatten();
        match planned {
            Some(plan) => Ok(Self::of_plan(&plan)),
            None => Ok(Self::of_order(&Order::read(&layout.order())?)),
        }
    }

    /// The span of its machine.
    pub(crate) fn span(&self) -> tracing::Span {
        tracing::info_span!("vm", namespace = self.namespace, vmi = self.name, vmi_uid = self.uid)
    }

    fn of_plan(plan: &LaunchPlan) -> Self {
        Self {
            namespace: plan.identity.namespace.clone(),
            name: plan.identity.name.clone(),
            uid: plan.identity.uid.clone().unwrap_or_default(),
            lifecycle: Some(plan.lifecycle.clone()),
        }
    }

    fn of_order(order: &Order) -> Self {
        let metadata = &order.vmi.metadata;
        Self {
            namespace: metadata.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            lifecycle: None,
        }
    }
}

/// The status before anything is known.
pub(crate) fn first_status(whose: &MachineMetadata, journal: &Journal, version: &str) -> Status {
    let runs = journal.launched && journal.started && journal.ended.is_none();
    Status {
        generation: first_generation(journal, now_ms()),
        namespace: whose.namespace.clone(),
        name: whose.name.clone(),
        uid: whose.uid.clone(),
        phase: if runs { ReportedPhase::Running } else { ReportedPhase::Scheduled },
        phase_since_ms: if runs { journal.started_at_ms } else { now_ms() },
        paused: None,
        pause_message: None,
        observed: false,
        stopping: false,
        frozen: journal.freeze.is_some(),
        soft_rebooting: journal.soft_reboot.is_some(),
        unresponsive: false,
        ended_helper: None,
        software_emulation: false,
        interpreted_by_kvm: false,
        machine: String::new(),
        memory_bytes: 0,
        overhead_bytes: 0,
        vcpus: 0,
        stored: None,
        disks: Vec::new(),
        interfaces: Vec::new(),
        guest: None,
        access_credentials: None,
        taints: journal.taints.clone(),
        run: journal.run.clone(),
        supervisor_pid: std::process::id(),
        supervisor: Some(SupervisorInfo { version: version.to_owned(), started_at_ms: now_ms(), executed_at_ms: None }),
        resets: journal.resets,
        ended: journal.ended.clone(),
    }
}

/// Above every generation of an earlier supervisor. One that reserved none in its journal counted from the time of day,
/// in milliseconds, and so does the first one.
fn first_generation(journal: &Journal, wall_ms: i64) -> u64 {
    match journal.generation {
        0 => u64::try_from(wall_ms).unwrap_or(0),
        reserved => reserved.saturating_add(1),
    }
}

/// The driver's seed.
pub(crate) fn from_journal(journal: &Journal, whose: &MachineMetadata, status: Status, shared: &Path) -> DriverSeed {
    // Every field: one from which the next supervisor does not go on is an error here.
    let Journal {
        version: _,
        // `first_status` has these.
        generation: _,
        started_at_ms: _,
        taints: _,
        run: _,
        // `Numbers` has these.
        requests: _,
        // `state` has these.
        launched: _,
        ended: _,
        hints,
        resets,
        started,
        paused,
        deadline,
        stop_deadline_ms,
        prolonged_ms,
        soft_reboot,
        freeze,
    } = journal;
    let boot_id = boot_id();
    let memory = Memory {
        hints: *hints,
        resets: *resets,
        has_run: *started,
        paused_by_user: *paused == Some(PauseReason::PausedByUser),
        soft_reboot: soft_reboot.as_ref().and_then(|reboot| soft_reboot_of(reboot, &boot_id)),
        freeze: freeze.as_ref().map(freeze_of),
        prolonged_ms: *prolonged_ms,
        // Until its agent reports it.
        frozen: freeze.is_some(),
        ..Memory::default()
    };
    let now = clock::now();
    let mut life = Life::unplanned(State::Preparing, memory);
    if let Some(lifecycle) = &whose.lifecycle {
        life.follow(lifecycle);
    }
    let deadline_ms = now.on_boot_clock(deadline.as_ref(), *stop_deadline_ms, &boot_id, life.grace_ms);
    life.state = state(journal, deadline_ms);
    DriverSeed { life, journal: journal.clone(), status, on_ready: OnReady::Leave, shared: shared.to_owned() }
}

/// No guest of another boot of the host is there any more.
fn soft_reboot_of(reboot: &JournaledSoftReboot, boot_id: &str) -> Option<SoftReboot> {
    let step = match reboot.step {
        SoftRebootStep::Agent => RebootStep::Agent,
        SoftRebootStep::PowerButton => RebootStep::PowerButton,
        SoftRebootStep::Reset => RebootStep::Reset,
    };
    (reboot.deadline.boot_id == boot_id).then_some(SoftReboot { step, until_ms: reboot.deadline.at_ms })
}

/// No deadline of another boot of the host is met: no guest of it is there any more.
fn freeze_of(freeze: &JournaledFreeze) -> Freeze {
    Freeze { thaw_at_ms: freeze.thaw_at.as_ref().map(|deadline| deadline.at_ms), is_asked: false }
}

/// A stop that was under way goes on: its deadline is an instant, not a duration. One that had come to its last step is
/// not taken back to asking the guest.
fn state(journal: &Journal, deadline_ms: Option<i64>) -> State {
    match (&journal.ended, deadline_ms, journal.launched) {
        (Some(ended), ..) => State::Ended(Box::new(ended.clone())),
        (None, Some(kill_at_ms), _) if is_ending(journal.hints) => State::Ending { kill_at_ms },
        (None, Some(force_at_ms), _) => State::Stopping { force_at_ms, asked: PowerDownRequest::NotYet },
        (None, None, true) => State::Launched,
        (None, None, false) => State::Preparing,
    }
}

/// Whether the guest is no longer asked.
fn is_ending(hints: EndHints) -> bool {
    // Every hint: whether a new one belongs to them has to be decided here.
    let EndHints {
        // After a stop that was asked for, the guest is asked on.
        stop_requested: _,
        force_requested,
        grace_exceeded,
        without_acpi,
        // These two name the reason; `leaving` comes with them.
        guest_shutdown: _,
        guest_reboot: _,
        guest_panicked,
        watchdog,
        internal_error,
        leaving,
    } = hints;
    force_requested || grace_exceeded || without_acpi || guest_panicked || watchdog || internal_error || leaving
}

#[cfg(test)]
mod tests {
    use garboard_protocol::journal::Deadline;

    use super::*;

    #[test]
    fn a_stop_goes_on_where_the_last_supervisor_left_it() {
        let asked = Journal { launched: true, ..Journal::default() };
        assert_eq!(state(&asked, Some(7)), State::Stopping { force_at_ms: 7, asked: PowerDownRequest::NotYet });
        let forced = Journal { hints: EndHints { force_requested: true, ..EndHints::default() }, ..asked.clone() };
        assert_eq!(state(&forced, Some(7)), State::Ending { kill_at_ms: 7 });
        let left = Journal { hints: EndHints { leaving: true, ..EndHints::default() }, ..asked.clone() };
        assert_eq!(state(&left, Some(7)), State::Ending { kill_at_ms: 7 });
        let before_the_launch = Journal { launched: false, ..asked };
        assert_eq!(
            state(&before_the_launch, Some(7)),
            State::Stopping { force_at_ms: 7, asked: PowerDownRequest::NotYet }
        );
        assert_eq!(state(&Journal::default(), None), State::Preparing);
    }

    #[test]
    fn a_machine_that_was_launched_needs_its_plan_and_nothing_else() {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        for directory in [layout.supervisor(), layout.order()] {
            std::fs::create_dir(directory).unwrap();
        }
        let launched = Journal { launched: true, ..Journal::default() };
        assert!(MachineMetadata::read(&layout, &launched).is_err());
        let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/paused/plan.json");
        std::fs::copy(plan, layout.supervisor().join(garboard_protocol::paths::PLAN)).unwrap();
        let whose = MachineMetadata::read(&layout, &launched).unwrap();
        assert_eq!((whose.namespace.as_str(), whose.name.as_str()), ("golden", "paused"));
        let seed = from_journal(&launched, &whose, first_status(&whose, &launched, "1"), room.path());
        assert_eq!((seed.life.grace_ms, seed.life.has_acpi), (0, false), "as the plan says");
        assert_eq!(first_status(&whose, &launched, "1").name, "paused");
        assert!(MachineMetadata::read(&layout, &Journal::default()).is_err(), "what is to be prepared needs its order");
    }

    #[test]
    fn a_soft_reboot_goes_on_in_the_same_boot_of_the_host() {
        let steps = [
            (SoftRebootStep::Agent, RebootStep::Agent),
            (SoftRebootStep::PowerButton, RebootStep::PowerButton),
            (SoftRebootStep::Reset, RebootStep::Reset),
        ];
        for (written, step) in steps {
            let deadline = Deadline { boot_id: "b".to_owned(), at_ms: 7 };
            let reboot = JournaledSoftReboot { step: written, deadline };
            assert_eq!(soft_reboot_of(&reboot, "b"), Some(SoftReboot { step, until_ms: 7 }));
            assert_eq!(soft_reboot_of(&reboot, "another boot"), None);
        }
    }

    #[test]
    fn a_freeze_keeps_its_deadline() {
        let deadline = Deadline { boot_id: "b".to_owned(), at_ms: 7 };
        let frozen = JournaledFreeze { thaw_at: Some(deadline) };
        assert_eq!(freeze_of(&frozen), Freeze { thaw_at_ms: Some(7), is_asked: false });
        assert_eq!(freeze_of(&JournaledFreeze::default()).thaw_at_ms, None);
    }

    #[test]
    fn generations_go_on_from_the_journal_whatever_the_clock_shows() {
        let before = Journal { generation: 1_700_000_000_500, ..Journal::default() };
        for wall_ms in [0, 1_600_000_000_000, 1_900_000_000_000] {
            assert_eq!(first_generation(&before, wall_ms), 1_700_000_000_501);
        }
        assert_eq!(first_generation(&Journal::default(), 9), 9);
    }
}
