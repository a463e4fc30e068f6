//! `spec.accessCredentials` by the guest agent: SSH keys and passwords that the guest has as long as it runs.
//!
//! ```text
//!   Secret ──kubelet, shim──► files ──looked at──► Wanted ──agent──► the guest        the result ──► status, condition
//! ```
//!
//! The agent is asked again when the files have changed, when another agent answers, after a reboot, and now and then: a guest
//! whose user changed one of them gets back what the Secret has, as with KubeVirt. What fails is tried again, less and less often
//! (`tried`). A guest can refuse with another message each time, and each report becomes writes to the API server: one that differs in
//! nothing but the text of a refusal waits.

mod give;
mod tried;
mod wanted;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::{CredentialsStatus, ReportedPhase, Status};
use garboard_qmp::agent::Agent;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::give::{Why, give, not_tried};
use self::tried::{AGAIN_AFTER, Given, GuestSeen, Tried};
use self::wanted::{Sources, Wanted};
use super::driver::Input;
use super::prepare::Order;
use super::run::Context;

/// How often files are looked at. A kubelet brings a changed Secret within a minute or two.
const LOOK: Duration = Duration::from_secs(10);
/// KubeVirt's message of the condition.
const OFFLINE: &str = "Guest agent is offline";

/// Keeps the credentials of a machine's guest, if its specification has any for the agent, until QEMU is gone.
pub(super) fn start(context: &Context, agent: watch::Receiver<Option<Agent>>, status: watch::Receiver<Status>) {
    let sources = match Order::read(&context.layout.order()) {
        Ok(order) => Sources::of(&order.vmi, &order.volumes),
        Err(error) => {
            return tracing::error!(error = %ErrorChain(&error), "the access credentials cannot be looked for");
        }
    };
    if !sources.is_empty() {
        tokio::spawn(Keeper::new(sources, context.happened.clone()).run(agent, status));
    }
}

/// What a report is about, with a digest of everything that the guest is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// The files.
    Files,
    /// A guest whose agent is away.
    Away(u64),
    /// What the agent answered: a message has text of the guest.
    Answers(u64),
}

/// What was reported last.
#[derive(Debug)]
struct Reported {
    status: CredentialsStatus,
    about: About,
    at: Instant,
}

impl Reported {
    /// Whether another report is left out, or waits: nothing is other than before but the text of the guest, and whether there is any.
    fn holds(&self, now: &CredentialsStatus, about: About) -> bool {
        let fails_again = !self.status.synchronized && !now.synchronized;
        let is_of_same = match (self.about, about) {
            (About::Answers(before), About::Answers(now) | About::Away(now)) => before == now,
            (About::Answers(_), About::Files) | (About::Files | About::Away(_), _) => false,
        };
        self.status == *now || (fails_again && is_of_same && self.at.elapsed() < AGAIN_AFTER)
    }
}

struct Keeper {
    sources: Sources,
    happened: mpsc::Sender<Input>,
    hasher: RandomState,
    agents: u64,
    tried: Tried,
    reported: Option<Reported>,
}

impl Keeper {
    fn new(sources: Sources, happened: mpsc::Sender<Input>) -> Self {
        Self { sources, happened, hasher: RandomState::new(), agents: 0, tried: Tried::default(), reported: None }
    }

    async fn run(mut self, mut agent: watch::Receiver<Option<Agent>>, status: watch::Receiver<Status>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                changed = agent.changed() => match changed {
                    Ok(()) => self.agents += u64::from(agent.borrow_and_update().is_some()),
                    Err(_) => return,
                },
                _ = looks.tick() => {}
            }
            let (agent, status) = (agent.borrow().clone(), status.borrow().clone());
            self.look(agent, &status).await;
        }
    }

    /// Gives the guest what it does not have.
    async fn look(&mut self, agent: Option<Agent>, status: &Status) {
        // A guest that stands still does not answer, and one whose file systems are frozen refuses: it is asked later.
        if status.phase != ReportedPhase::Running || status.paused.is_some() || status.frozen {
            return;
        }
        let wanted = match self.sources.read().map_err(|error| ErrorChain(&error).to_string()) {
            Ok(wanted) => wanted,
            Err(message) => return self.report(Err(message), About::Files).await,
        };
        self.tried.keep_only(&wanted);
        let (digest, guest) = (self.hasher.hash_one(&wanted), GuestSeen { agents: self.agents, resets: status.resets });
        match agent {
            None if self.misses(&wanted, guest) => self.report(Err(OFFLINE.to_owned()), About::Away(digest)).await,
            None => {}
            Some(agent) => {
                self.give_due(&agent, &wanted, guest).await;
                self.report(self.tried.outcome(), About::Answers(digest)).await;
            }
        }
    }

    /// Whether the guest is known not to have everything.
    fn misses(&self, wanted: &Wanted, guest: GuestSeen) -> bool {
        let now = Instant::now();
        wanted.gifts().any(|gift| {
            let given = Given { digest: self.hasher.hash_one(gift), guest };
            self.tried.due(&gift.name(), given, now).is_missing()
        })
    }

    /// Gives what is due. After an agent that does not answer nothing more is tried.
    async fn give_due(&mut self, agent: &Agent, wanted: &Wanted, guest: GuestSeen) {
        let now = Instant::now();
        let mut is_silent = false;
        for gift in wanted.gifts() {
            let given = Given { digest: self.hasher.hash_one(gift), guest };
            if !self.tried.due(&gift.name(), given, now).is_now() {
                continue;
            }
            let outcome = if is_silent { Err(not_tried(gift)) } else { give(agent, gift).await };
            is_silent |= outcome.as_ref().is_err_and(|failure| failure.why == Why::Silent);
            self.tried.note(gift.name(), given, outcome);
        }
    }

    /// Reports an outcome that is not the last one.
    async fn report(&mut self, outcome: Result<(), String>, about: About) {
        let now = CredentialsStatus { synchronized: outcome.is_ok(), message: outcome.err().unwrap_or_default() };
        if self.reported.as_ref().is_some_and(|before| before.holds(&now, about)) {
            return;
        }
        if now.synchronized {
            tracing::info!("the guest agent has set the access credentials");
        } else {
            tracing::warn!(reason = now.message, "not all access credentials are in the guest");
        }
        self.reported = Some(Reported { status: now.clone(), about, at: Instant::now() });
        let _ = self.happened.send(Input::CredentialsTried(now)).await;
    }
}

#[cfg(test)]
mod tests;
