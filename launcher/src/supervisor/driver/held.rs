//! Requests that reach a supervisor before it has the state of a machine that an earlier one launched. That takes
//! milliseconds, as PID 1 connects and QEMU's monitor answers; so they are held for a while instead of refused.

use std::time::Duration;

use garboard_protocol::change::ChangeRequest;
use tokio::time::Instant;

use super::Offer;
use crate::vm::State;

/// How long a restarted supervisor holds requests; after that it refuses them.
pub(crate) const REQUEST_PATIENCE: Duration = Duration::from_secs(2);
/// Requests that are held at most; one more is refused at once.
const MOST: usize = 16;

/// The requests that are held.
#[derive(Default)]
pub(super) struct Held {
    until: Option<Instant>,
    offers: Vec<Offer>,
}

impl Held {
    /// For a supervisor that starts in this state.
    pub(super) fn new(state: &State) -> Self {
        let is_unobserved = matches!(state, State::Launched);
        Self { until: is_unobserved.then(|| Instant::now() + REQUEST_PATIENCE), offers: Vec::new() }
    }

    /// Holds a request, or gives it back to be answered now. A stop needs nothing of the machine but its process.
    pub(super) fn hold(&mut self, offer: Offer, state: &State) -> Option<Offer> {
        let is_stop = matches!(offer.request, ChangeRequest::Stop(_));
        if is_stop || self.is_over(state) || self.offers.len() >= MOST {
            return Some(offer);
        }
        self.offers.push(offer);
        None
    }

    /// When the requests that are held have to be answered.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.until.filter(|_| !self.offers.is_empty())
    }

    /// The requests that can be answered now, oldest first: all of them, or none.
    pub(super) fn due(&mut self, state: &State) -> Vec<Offer> {
        if !self.is_over(state) {
            return Vec::new();
        }
        self.until = None;
        std::mem::take(&mut self.offers)
    }

    fn is_over(&self, state: &State) -> bool {
        !matches!(state, State::Launched) || self.until.is_none_or(|until| until <= Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use garboard_protocol::control::{PauseReason, StopMode};
    use garboard_protocol::journal::Journal;
    use garboard_qmp::testing::{Behaviour, FakeMonitor};
    use garboard_qmp::{ConnectOptions, Monitor};
    use tokio::sync::{mpsc, oneshot, watch};
    use tokio::time::timeout;

    use super::super::{Client, Driver, DriverSeed, Input, Inputs};
    use super::*;
    use crate::supervisor::trace::Cause;
    use crate::vm::{Denial, Life, Memory, OnReady, RunState, Verdict};

    /// Well below the patience. Time passes only while nothing else is left to do, however busy the machine.
    const SOON: Duration = Duration::from_millis(500);

    /// A supervisor that found the journal of a guest that a user had paused.
    struct Anew {
        _room: tempfile::TempDir,
        happened: mpsc::Sender<Input>,
        requests: mpsc::Sender<Offer>,
        status: watch::Receiver<garboard_protocol::control::Status>,
        _to_init: mpsc::Receiver<garboard_protocol::launch::ToInit>,
    }

    impl Anew {
        fn start() -> Self {
            let room = tempfile::tempdir().unwrap();
            let journal = Journal {
                launched: true,
                started: true,
                paused: Some(PauseReason::PausedByUser),
                ..Journal::default()
            };
            let memory = Memory { has_run: true, paused_by_user: true, ..Memory::default() };
            let life = Life::unplanned(State::Launched, memory);
            let status = garboard_protocol::testing::running(1);
            let (publish, published) = watch::channel(status.clone());
            let (happened, inbox) = mpsc::channel(4);
            let (requests, request_inbox) = mpsc::channel(4);
            let (to_init, init_outbox) = mpsc::channel(4);
            let seed = DriverSeed { life, journal, status, on_ready: OnReady::Leave, shared: room.path().to_owned() };
            let inputs = Inputs { happened: inbox, requests: request_inbox };
            tokio::spawn(Driver::new(seed, to_init, publish).run(inputs));
            Self { _room: room, happened, requests, status: published, _to_init: init_outbox }
        }

        async fn ask(&self, request: ChangeRequest) -> oneshot::Receiver<Verdict> {
            let (reply, verdict) = oneshot::channel();
            self.requests
                .send(Offer { request, client: Client::Once { reply, done: None }, cause: Cause::supervisor() })
                .await
                .ok()
                .unwrap();
            verdict
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_until_the_machine_was_observed_and_is_done_then() {
        let mut anew = Anew::start();
        let mut verdict = anew.ask(ChangeRequest::Unpause).await;
        assert!(timeout(SOON, &mut verdict).await.is_err(), "neither refused nor done");
        let paused = anew.status.wait_for(|status| status.paused == Some(PauseReason::PausedByUser));
        assert!(timeout(SOON, paused).await.is_ok(), "what the last supervisor wrote down is reported meanwhile");
        let (fake, stream) = FakeMonitor::pair().unwrap();
        fake.script("cont", Behaviour::Silence);
        let (monitor, _) = Monitor::connect(stream, ConnectOptions::named("vm")).await.unwrap();
        anew.happened.send(Input::MonitorUp { monitor, run_state: RunState::Paused }).await.ok().unwrap();
        assert_eq!(timeout(SOON, verdict).await.unwrap(), Ok(Verdict::Queued));
        fake.until_received("cont", 1).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_refused_after_a_while_and_a_stop_never_waits() {
        let anew = Anew::start();
        let paused = anew.ask(ChangeRequest::Pause).await;
        let refusal = timeout(REQUEST_PATIENCE + SOON, paused).await.unwrap();
        assert_eq!(refusal, Ok(Verdict::Denied(Denial::NotStarted)));
        let again = anew.ask(ChangeRequest::Pause).await;
        assert!(timeout(SOON, again).await.is_ok(), "once is enough");
        let anew = Anew::start();
        let held = anew.ask(ChangeRequest::Pause).await;
        let stopped = anew.ask(ChangeRequest::Stop(StopMode::Graceful { within_seconds: None })).await;
        assert_eq!(timeout(SOON, stopped).await.unwrap(), Ok(Verdict::Queued));
        assert_eq!(timeout(SOON, held).await.unwrap(), Ok(Verdict::Denied(Denial::Stopping)));
    }
}
