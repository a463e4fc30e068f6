//! A backup tool's steps around its copy of the guest's disks: Velero runs a command in the container of QEMU, which asks the socket
//! for probes.
//!
//! What a QEMU that a guest has taken over could ask here it can have without: the channel of the guest agent is its own. So it may
//! freeze and thaw its own guest, as often as the log of the supervisor bears.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use garboard_protocol::backup_hook::THAW_AFTER_SECONDS;
use garboard_protocol::change::ChangeRequest;
use garboard_protocol::control::{BackupStep, ControlReply, ReportedPhase, Status};

use super::control::{Asker, ControlSenders, denied, outcome};
use super::flood::{Flood, Line};

/// The most steps within ten seconds: each has a few lines in the log.
const MOST: u32 = 20;

/// The steps that the socket for probes was asked for.
#[derive(Debug)]
pub(super) struct Hooks(Mutex<Flood>);

impl Default for Hooks {
    fn default() -> Self {
        Self(Mutex::new(Flood::new(MOST)))
    }
}

impl Hooks {
    /// Whether another one is answered.
    pub(super) fn may_ask(&self) -> bool {
        let mut flood = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(flood.judge(Instant::now()), Line::Write { .. })
    }
}

/// Does a step; the answer comes when the guest has done it.
pub(super) async fn run(step: BackupStep, senders: &ControlSenders, asker: Asker) -> ControlReply {
    let has_agent = senders.agent.borrow().is_some();
    let decided = decide(step, has_agent, &senders.status.borrow());
    match decided {
        Step::Nothing(why) => {
            tracing::info!(?step, why, "nothing is done for a backup");
            ControlReply::AlreadySo
        }
        Step::Refused(why) => denied(why),
        Step::Ask(request) => outcome(senders, request, asker).await,
    }
}

/// What is done for a step.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The copy is as good as it can be without it.
    Nothing(&'static str),
    /// The guest cannot be asked, and has to be.
    Refused(&'static str),
    /// The guest is asked.
    Ask(ChangeRequest),
}

/// As with KubeVirt a guest without an agent, or whose vCPUs stand still, is copied as it is.
fn decide(step: BackupStep, has_agent: bool, status: &Status) -> Step {
    let runs = status.phase == ReportedPhase::Running && status.paused.is_none();
    let runs = runs && !status.stopping && status.ended.is_none();
    match (step, runs, has_agent) {
        (BackupStep::Freeze, true, true) => {
            Step::Ask(ChangeRequest::Freeze { thaw_after_seconds: Some(THAW_AFTER_SECONDS) })
        }
        (BackupStep::Thaw, true, true) => Step::Ask(ChangeRequest::Unfreeze),
        (BackupStep::Thaw, true, false) if status.frozen => {
            Step::Refused("file systems are frozen, and no guest agent is connected that could thaw them")
        }
        (BackupStep::Thaw, false, _) if status.frozen && status.paused.is_some() => {
            Step::Refused("file systems are frozen, and the vCPUs are stopped, so that the guest agent cannot answer")
        }
        (BackupStep::Freeze | BackupStep::Thaw, false, _) => Step::Nothing("no guest runs"),
        (BackupStep::Freeze | BackupStep::Thaw, true, false) => Step::Nothing("no guest agent is connected"),
    }
}

#[cfg(test)]
mod tests {
    use garboard_protocol::control::PauseReason;
    use garboard_protocol::testing::running;

    use super::*;

    #[test]
    fn a_guest_is_asked_only_where_it_can_answer() {
        let paused = Status { paused: Some(PauseReason::PausedByUser), ..running(1) };
        let stopping = Status { stopping: true, frozen: true, ..running(1) };
        let early = Status { phase: ReportedPhase::Scheduled, ..running(1) };
        let [frozen, paused_frozen] = [running(1), paused.clone()].map(|status| Status { frozen: true, ..status });
        let freeze = Step::Ask(ChangeRequest::Freeze { thaw_after_seconds: Some(300) });
        assert_eq!(decide(BackupStep::Freeze, true, &running(1)), freeze);
        assert_eq!(decide(BackupStep::Thaw, true, &frozen), Step::Ask(ChangeRequest::Unfreeze));
        // An agent may be asked although nothing is known to be frozen: a supervisor of before may have done it.
        assert_eq!(decide(BackupStep::Thaw, true, &running(1)), Step::Ask(ChangeRequest::Unfreeze));
        for step in [BackupStep::Freeze, BackupStep::Thaw] {
            assert_eq!(decide(step, false, &running(1)), Step::Nothing("no guest agent is connected"));
            for status in [&paused, &early, &stopping] {
                assert_eq!(decide(step, true, status), Step::Nothing("no guest runs"));
            }
        }
        for (has_agent, status) in [(false, &frozen), (true, &paused_frozen)] {
            assert!(matches!(decide(BackupStep::Thaw, has_agent, status), Step::Refused(_)));
        }
    }

    #[test]
    fn a_flood_of_steps_is_refused() {
        let hooks = Hooks::default();
        assert_eq!((0..1000).filter(|_| hooks.may_ask()).count(), 20);
    }
}
