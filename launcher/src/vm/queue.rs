//! Which requests are accepted. It decides and does nothing else: no lock, no await, no clock.
//!
//! The queue judges a request against where the machine *will be* once everything already queued is done,
//! so two `pause` in a row are one.

use std::collections::VecDeque;

use garboard_protocol::change::ChangeRequest;
use garboard_protocol::control::{PauseReason, StopMode};

use super::{State, Vcpus};

/// The answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It will be done.
    Queued,
    /// There is nothing to do.
    AlreadySo,
    /// It cannot be done.
    Denied(Denial),
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// QEMU does not run yet.
    NotStarted,
    /// The machine is being stopped.
    Stopping,
    /// The run is over.
    Ended,
    /// The guest cannot react: its vCPUs are stopped.
    Paused,
    /// The guest has neither an agent that answers nor ACPI.
    CannotBeAsked,
    /// QEMU's monitor is away, or too much waits for it.
    NotAnswering,
}

impl Denial {
    /// A message with what to do.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::NotStarted => "the machine is still being started; try again when it is Running",
            Self::Stopping => "the machine is being stopped",
            Self::Ended => "the run is over; start the machine again",
            Self::Paused => "the guest's vCPUs are stopped, so that it cannot react; unpause it first",
            Self::CannotBeAsked => "the guest has neither an agent that answers nor ACPI; reset it instead",
            Self::NotAnswering => "QEMU does not answer; try again when it does, or stop the machine by force",
        }
    }
}

/// Where the machine is, as coarse as requests need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// No guest yet.
    Starting,
    /// The guest executes.
    Running,
    /// The guest is held, and stays so until a user resumes it.
    Paused,
    /// An I/O error holds the guest; it is resumed when that may have passed.
    Waiting,
    /// A graceful stop runs.
    Stopping,
    /// QEMU got the command `quit`.
    Ending,
    /// QEMU is gone.
    Ended,
}

impl From<&State> for View {
    fn from(state: &State) -> Self {
        match state {
            State::Preparing | State::Launched => Self::Starting,
            State::Running { vcpus: Vcpus::Running } => Self::Running,
            State::Running { vcpus: Vcpus::Stopped(PauseReason::PausedByUser) } => Self::Paused,
            State::Running { vcpus: Vcpus::Stopped(PauseReason::PausedIOError) } => Self::Waiting,
            State::Stopping { .. } => Self::Stopping,
            State::Ending { .. } => Self::Ending,
            State::Ended(_) => Self::Ended,
        }
    }
}

/// Requests that were accepted and not yet done, oldest first.
#[derive(Debug, Default)]
pub struct RequestQueue {
    pending: VecDeque<ChangeRequest>,
}

impl RequestQueue {
    /// Judges a request; only [`Verdict::Queued`] puts it in.
    pub fn offer(&mut self, request: ChangeRequest, now: View) -> Verdict {
        let expected = self.pending.iter().fold(now, |view, pending| after(view, *pending));
        let verdict = judge(request, expected, &self.pending);
        if verdict == Verdict::Queued {
            self.pending.push_back(request);
        }
        verdict
    }

    /// Takes the next request to be done.
    pub fn take(&mut self) -> Option<ChangeRequest> {
        self.pending.pop_front()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

fn judge(request: ChangeRequest, expected: View, pending: &VecDeque<ChangeRequest>) -> Verdict {
    let stop_waits = pending.iter().any(|each| matches!(each, ChangeRequest::Stop(_)));
    match (request, expected) {
        (ChangeRequest::Stop(_), View::Ended) => Verdict::AlreadySo,
        (ChangeRequest::Stop(StopMode::Graceful { .. }), View::Ending) => Verdict::AlreadySo,
        // One that was begun is asked again: the guest may have missed it.
        (ChangeRequest::Stop(StopMode::Graceful { within_seconds: None }), View::Stopping) if stop_waits => {
            Verdict::AlreadySo
        }
        (ChangeRequest::Stop(_), _) => Verdict::Queued,
        (_, View::Ended) => Verdict::Denied(Denial::Ended),
        (_, View::Stopping | View::Ending) => Verdict::Denied(Denial::Stopping),
        // It counts once a stop comes.
        (ChangeRequest::Prolong { .. }, View::Starting | View::Running | View::Paused | View::Waiting) => {
            Verdict::Queued
        }
        (_, View::Starting) => Verdict::Denied(Denial::NotStarted),
        (ChangeRequest::Pause, View::Paused) | (ChangeRequest::Unpause, View::Running) => Verdict::AlreadySo,
        (
            ChangeRequest::SoftReboot | ChangeRequest::Freeze { .. } | ChangeRequest::Unfreeze,
            View::Paused | View::Waiting,
        ) => Verdict::Denied(Denial::Paused),
        (ChangeRequest::Reset | ChangeRequest::SoftReboot, _) if pending.contains(&request) => Verdict::AlreadySo,
        // Whether something is left to do, only the guest agent knows.
        (ChangeRequest::SoftReboot | ChangeRequest::Freeze { .. } | ChangeRequest::Unfreeze, View::Running)
        | (
            ChangeRequest::Pause | ChangeRequest::Unpause | ChangeRequest::Reset,
            View::Running | View::Paused | View::Waiting,
        ) => Verdict::Queued,
    }
}

/// Where the machine will be after a request that was accepted there.
fn after(view: View, request: ChangeRequest) -> View {
    match (request, view) {
        (_, View::Ended) => View::Ended,
        (ChangeRequest::Stop(StopMode::Force), _) => View::Ending,
        (ChangeRequest::Stop(StopMode::Graceful { .. }), View::Ending) => View::Ending,
        (ChangeRequest::Stop(StopMode::Graceful { .. }), _) => View::Stopping,
        (ChangeRequest::Pause, _) => View::Paused,
        (ChangeRequest::Unpause, _) => View::Running,
        (
            ChangeRequest::Prolong { .. }
            | ChangeRequest::Reset
            | ChangeRequest::SoftReboot
            | ChangeRequest::Freeze { .. }
            | ChangeRequest::Unfreeze,
            view,
        ) => view,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::vm::each::each;
    use proptest::prelude::*;

    const GRACEFUL: ChangeRequest = ChangeRequest::Stop(StopMode::Graceful { within_seconds: None });
    const FORCE: ChangeRequest = ChangeRequest::Stop(StopMode::Force);

    #[test]
    fn two_pauses_are_one() {
        let mut queue = RequestQueue::default();
        assert_eq!(queue.offer(ChangeRequest::Pause, View::Running), Verdict::Queued);
        assert_eq!(queue.offer(ChangeRequest::Pause, View::Running), Verdict::AlreadySo);
        assert_eq!(queue.offer(ChangeRequest::Unpause, View::Running), Verdict::Queued);
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn nothing_but_a_harder_stop_follows_a_stop() {
        let mut queue = RequestQueue::default();
        assert_eq!(queue.offer(GRACEFUL, View::Running), Verdict::Queued);
        assert_eq!(queue.offer(GRACEFUL, View::Running), Verdict::AlreadySo);
        assert_eq!(queue.offer(ChangeRequest::Pause, View::Running), Verdict::Denied(Denial::Stopping));
        assert_eq!(queue.offer(FORCE, View::Running), Verdict::Queued);
    }

    #[test]
    fn a_guest_that_did_not_react_is_asked_again() {
        let mut queue = RequestQueue::default();
        assert_eq!(queue.offer(GRACEFUL, View::Stopping), Verdict::Queued);
        assert_eq!(queue.offer(GRACEFUL, View::Stopping), Verdict::AlreadySo);
    }

    #[test]
    fn a_user_may_pause_what_an_io_error_holds() {
        let mut queue = RequestQueue::default();
        assert_eq!(queue.offer(ChangeRequest::Pause, View::Waiting), Verdict::Queued);
        assert_eq!(queue.offer(ChangeRequest::Pause, View::Waiting), Verdict::AlreadySo);
    }

    #[test]
    fn a_guest_that_is_paused_cannot_react() {
        let mut queue = RequestQueue::default();
        for held in [View::Paused, View::Waiting] {
            for request in
                [ChangeRequest::SoftReboot, ChangeRequest::Freeze { thaw_after_seconds: None }, ChangeRequest::Unfreeze]
            {
                assert_eq!(queue.offer(request, held), Verdict::Denied(Denial::Paused));
            }
        }
        assert_eq!(queue.offer(ChangeRequest::Pause, View::Running), Verdict::Queued);
        assert_eq!(queue.offer(ChangeRequest::SoftReboot, View::Running), Verdict::Denied(Denial::Paused));
        assert_eq!(queue.offer(ChangeRequest::Unpause, View::Running), Verdict::Queued);
        for verdict in [Verdict::Queued, Verdict::AlreadySo] {
            assert_eq!(queue.offer(ChangeRequest::SoftReboot, View::Running), verdict);
        }
    }

    #[test]
    fn an_ended_machine_is_already_stopped_and_cannot_be_paused() {
        let mut queue = RequestQueue::default();
        assert_eq!(queue.offer(FORCE, View::Ended), Verdict::AlreadySo);
        assert_eq!(queue.offer(ChangeRequest::Reset, View::Ended), Verdict::Denied(Denial::Ended));
    }

    each! {
        /// Requests of each kind.
        pub(crate) all_requests: ChangeRequest,
        ChangeRequest::Pause => [ChangeRequest::Pause],
        ChangeRequest::Unpause => [ChangeRequest::Unpause],
        ChangeRequest::Reset => [ChangeRequest::Reset],
        ChangeRequest::SoftReboot => [ChangeRequest::SoftReboot],
        ChangeRequest::Freeze { .. } =>
            [None, Some(0), Some(300)].map(|thaw_after_seconds| ChangeRequest::Freeze { thaw_after_seconds }),
        ChangeRequest::Unfreeze => [ChangeRequest::Unfreeze],
        ChangeRequest::Prolong { .. } => [0, 300].map(|grace_seconds| ChangeRequest::Prolong { grace_seconds }),
        ChangeRequest::Stop(StopMode::Force) => [FORCE],
        ChangeRequest::Stop(StopMode::Graceful { within_seconds: None }) => [GRACEFUL],
        ChangeRequest::Stop(StopMode::Graceful { within_seconds: Some(_) }) => [0, 7, 99].map(within),
    }

    each! {
        all_views: View,
        View::Starting => [View::Starting],
        View::Running => [View::Running],
        View::Paused => [View::Paused],
        View::Waiting => [View::Waiting],
        View::Stopping => [View::Stopping],
        View::Ending => [View::Ending],
        View::Ended => [View::Ended],
    }

    fn within(seconds: u64) -> ChangeRequest {
        ChangeRequest::Stop(StopMode::Graceful { within_seconds: Some(seconds) })
    }

    fn requests() -> impl Strategy<Value = ChangeRequest> {
        prop_oneof![6 => prop::sample::select(all_requests()), 1 => (0_u64..100).prop_map(within)]
    }

    fn views() -> impl Strategy<Value = View> {
        prop::sample::select(all_views())
    }

    /// An even smaller machine: only whether it runs, is held, or is leaving.
    fn model(view: View, request: ChangeRequest) -> bool {
        let leaving = matches!(view, View::Stopping | View::Ending | View::Ended);
        let is_held = matches!(view, View::Paused | View::Waiting);
        let is_for_the_guest =
            matches!(request, ChangeRequest::SoftReboot | ChangeRequest::Freeze { .. } | ChangeRequest::Unfreeze);
        let is_for_later = matches!(request, ChangeRequest::Prolong { .. });
        matches!(request, ChangeRequest::Stop(_))
            || !leaving && (is_for_later || view != View::Starting && !(is_for_the_guest && is_held))
    }

    proptest! {
        #[test]
        fn what_is_queued_would_change_something(view in views(), sequence in prop::collection::vec(requests(), 0..40)) {
            let mut queue = RequestQueue::default();
            let mut expected = view;
            for request in sequence {
                let verdict = queue.offer(request, view);
                let before = expected;
                if verdict == Verdict::Queued {
                    prop_assert!(model(before, request), "{before:?} {request:?}");
                    expected = after(before, request);
                }
                if let Verdict::Denied(_) = verdict {
                    prop_assert!(!model(before, request), "{before:?} {request:?}");
                }
                if request == FORCE {
                    prop_assert!(matches!(expected, View::Ending | View::Ended));
                }
            }
            let mut replayed = view;
            while let Some(request) = queue.take() {
                replayed = after(replayed, request);
            }
            prop_assert_eq!(replayed, expected);
        }
    }
}
