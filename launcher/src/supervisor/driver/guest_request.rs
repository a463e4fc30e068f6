//! What the driver asks of the guest: by its agent, or by the power button. Beside the driver, because a guest may be slow; the
//! outcome becomes an event.

use std::sync::Arc;

use garboard_protocol::causes::ErrorChain;
use garboard_qmp::agent::{Agent, GuestAgentError, ShutdownMode};
use garboard_qmp::{Monitor, qmp};
use tokio::sync::{Mutex, mpsc};
use tracing::Instrument;

use super::input::Outcome;
use crate::supervisor::trace::Cause;
use crate::vm::Event;

/// The guest, and its cause to be asked.
pub(super) struct GuestRequest {
    /// The agent, while it answers.
    pub(super) agent: Option<Agent>,
    /// Held while file systems are frozen or thawed: one after the other.
    pub(super) turn: Arc<Mutex<()>>,
    /// Where the outcome goes.
    pub(super) report: mpsc::Sender<Event>,
    /// What is asked belongs to it.
    pub(super) cause: Cause,
}

impl GuestRequest {
    /// Powers it down: by its agent if there is one, by the power button if it has one and there is no agent or that declines.
    pub(super) fn power_down(self, button: Option<Monitor>) {
        let span = self.cause.span();
        let asking = async move {
            if let Some(agent) = self.agent {
                match agent.shut_down(ShutdownMode::PowerDown).await {
                    Ok(_) => return tracing::info!("the guest agent was asked to power down"),
                    Err(error) => {
                        tracing::info!(error = %ErrorChain(&error), "the guest agent did not power down");
                    }
                }
            }
            let Some(button) = button else {
                return tracing::info!("the guest has no power button that can be pressed");
            };
            match button.send(self.cause.command(&qmp::system_powerdown {})).await {
                Ok(_) => tracing::info!("the power button was pressed"),
                Err(error) => tracing::warn!(error = %ErrorChain(&error), "the power button could not be pressed"),
            }
        };
        tokio::spawn(asking.instrument(span));
    }

    /// Reboots it; without an agent, or if that refuses, the state machine has another way.
    pub(super) fn reboot(self) {
        let span = self.cause.span();
        let asking = async move {
            if let Some(agent) = self.agent {
                match agent.shut_down(ShutdownMode::Reboot).await {
                    Ok(_) => return tracing::info!("the guest agent was asked to reboot the guest"),
                    Err(error) => {
                        tracing::info!(error = %ErrorChain(&error), "the guest agent did not reboot the guest");
                    }
                }
            }
            let _ = self.report.send(Event::AgentDidNotReboot).await;
        };
        tokio::spawn(asking.instrument(span));
    }

    /// Freezes its file systems, if they are not frozen.
    pub(super) fn freeze(self, done: Option<Outcome>) {
        let span = self.cause.span();
        let asking = async move {
            let turn = Arc::clone(&self.turn);
            let _turn = turn.lock().await;
            let outcome = match &self.agent {
                Some(agent) => become_frozen(agent).await.map_err(Failure::Agent),
                None => Err(Failure::NoAgent),
            };
            let event = match &outcome {
                Ok(()) => Event::Froze,
                Err(Failure::Agent(error)) => Event::DidNotFreeze { may_have_frozen: error.may_have_taken_effect() },
                Err(Failure::NoAgent) => Event::DidNotFreeze { may_have_frozen: false },
            };
            self.conclude("freeze", event, outcome, done).await;
        };
        tokio::spawn(asking.instrument(span));
    }

    /// Thaws its file systems, if they are frozen.
    pub(super) fn thaw(self, done: Option<Outcome>) {
        let span = self.cause.span();
        let asking = async move {
            let turn = Arc::clone(&self.turn);
            let _turn = turn.lock().await;
            let outcome = match &self.agent {
                Some(agent) => become_thawed(agent).await.map_err(Failure::Agent),
                None => Err(Failure::NoAgent),
            };
            let event = if outcome.is_ok() { Event::Thawed } else { Event::DidNotThaw };
            self.conclude("thaw", event, outcome, done).await;
        };
        tokio::spawn(asking.instrument(span));
    }

    /// The state comes first: a client that gets the outcome finds it there.
    async fn conclude(self, what: &str, event: Event, outcome: Result<(), Failure>, done: Option<Outcome>) {
        match &outcome {
            Ok(()) => tracing::info!(command = what, "the guest agent carried out the command"),
            Err(error) => {
                tracing::warn!(command = what, error = %ErrorChain(error), "the guest agent did not carry out the command")
            }
        }
        let _ = self.report.send(event).await;
        if let Some(done) = done {
            let _ = done.send(outcome.map_err(|error| ErrorChain(&error).to_string()));
        }
    }
}

/// Why the guest agent did not do something.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the QEMU guest agent is not connected")]
    NoAgent,
    #[error(transparent)]
    Agent(GuestAgentError),
}

async fn become_frozen(agent: &Agent) -> Result<(), GuestAgentError> {
    if agent.is_frozen().await? {
        return Ok(());
    }
    let count = agent.freeze().await?;
    tracing::info!(count, "file systems are frozen");
    Ok(())
}

/// An agent runs scripts of the guest for each thaw, so it is asked only where something is frozen.
async fn become_thawed(agent: &Agent) -> Result<(), GuestAgentError> {
    if !agent.is_frozen().await? {
        return Ok(());
    }
    let count = agent.thaw().await?;
    tracing::info!(count, "file systems are thawed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use garboard_qmp::agent::AgentOptions;
    use garboard_qmp::testing::{AgentBehaviour, FakeAgent};
    use serde_json::json;
    use tokio::sync::oneshot;

    use super::*;

    async fn channel() -> (FakeAgent, Agent) {
        let (fake, stream) = FakeAgent::pair(b"").unwrap();
        let limit = Duration::from_secs(60);
        let agent = Agent::connect(stream, AgentOptions { limit, ..AgentOptions::default() }).await.unwrap();
        (fake, agent)
    }

    fn request(agent: Option<Agent>, report: mpsc::Sender<Event>) -> GuestRequest {
        GuestRequest { agent, turn: Arc::default(), report, cause: Cause::supervisor() }
    }

    /// The event for the state, and the answer for the client.
    async fn outcome(
        agent: Option<Agent>,
        ask: impl FnOnce(GuestRequest, Option<Outcome>),
    ) -> (Event, Result<(), String>) {
        let (report, mut events) = mpsc::channel(1);
        let (done, answer) = oneshot::channel();
        ask(request(agent, report), Some(done));
        (events.recv().await.unwrap(), answer.await.unwrap())
    }

    fn asked(fake: &FakeAgent, command: &str) -> usize {
        fake.received().iter().filter(|each| *each == command).count()
    }

    #[tokio::test]
    async fn what_is_frozen_is_not_frozen_again_and_what_is_thawed_not_thawed() {
        let (fake, agent) = channel().await;
        fake.on("guest-fsfreeze-status", AgentBehaviour::Reply(json!("thawed")));
        fake.on("guest-fsfreeze-freeze", AgentBehaviour::Reply(json!(2)));
        fake.on("guest-fsfreeze-thaw", AgentBehaviour::Reply(json!(2)));
        let thaw = outcome(Some(agent.clone()), GuestRequest::thaw).await;
        assert_eq!((thaw, asked(&fake, "guest-fsfreeze-thaw")), ((Event::Thawed, Ok(())), 0));
        let freeze = outcome(Some(agent.clone()), GuestRequest::freeze).await;
        assert_eq!((freeze, asked(&fake, "guest-fsfreeze-freeze")), ((Event::Froze, Ok(())), 1));
        fake.on("guest-fsfreeze-status", AgentBehaviour::Reply(json!("frozen")));
        let freeze = outcome(Some(agent.clone()), GuestRequest::freeze).await;
        assert_eq!((freeze, asked(&fake, "guest-fsfreeze-freeze")), ((Event::Froze, Ok(())), 1));
        let thaw = outcome(Some(agent), GuestRequest::thaw).await;
        assert_eq!((thaw, asked(&fake, "guest-fsfreeze-thaw")), ((Event::Thawed, Ok(())), 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_freeze_that_fails_is_explained_and_doubted_only_without_an_answer() {
        let (event, answer) = outcome(None, GuestRequest::freeze).await;
        assert_eq!(event, Event::DidNotFreeze { may_have_frozen: false });
        assert_eq!(answer, Err("the QEMU guest agent is not connected".to_owned()));
        let (fake, agent) = channel().await;
        fake.on("guest-fsfreeze-status", AgentBehaviour::Reply(json!("thawed")));
        fake.on("guest-fsfreeze-freeze", AgentBehaviour::Refuse("GenericError", "a hook script failed"));
        let (event, answer) = outcome(Some(agent.clone()), GuestRequest::freeze).await;
        assert_eq!(event, Event::DidNotFreeze { may_have_frozen: false });
        assert!(answer.unwrap_err().contains("a hook script failed"));
        fake.on("guest-fsfreeze-freeze", AgentBehaviour::Silence);
        let (event, answer) = outcome(Some(agent.clone()), GuestRequest::freeze).await;
        assert_eq!(event, Event::DidNotFreeze { may_have_frozen: true });
        assert!(answer.unwrap_err().contains("did not answer"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reboot_that_the_agent_declines_is_reported() {
        let (fake, agent) = channel().await;
        fake.on("guest-shutdown", AgentBehaviour::Refuse("GenericError", "no"));
        for agent in [None, Some(agent)] {
            let (report, mut events) = mpsc::channel(1);
            request(agent, report).reboot();
            assert_eq!(events.recv().await, Some(Event::AgentDidNotReboot));
        }
        let (fake, agent) = channel().await;
        fake.on("guest-shutdown", AgentBehaviour::Silence);
        let (report, mut events) = mpsc::channel(1);
        request(Some(agent), report).reboot();
        assert_eq!(events.recv().await, None, "silence is what a working agent answers");
    }
}
