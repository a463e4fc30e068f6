//! `spec.accessCredentials` by the guest agent: SSH keys and passwords that the guest has as long as it runs.
//!
//! ```text
//!   Secret ──kubelet, shim──► files ──looked at──► Wanted ──agent──► the guest        the result ──► status, condition
//! ```
//!
//! The agent is asked again when the files have changed, when another agent answers, after a reboot, and now and then: a guest
//! whose user changed one of them gets back what the Secret has, as with KubeVirt. What fails is tried again at the next look.

mod give;
mod wanted;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::{CredentialsStatus, Phase, Status};
use garboard_qmp::agent::Agent;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::give::give;
use self::wanted::Sources;
use super::driver::Input;
use super::prepare::Order;
use super::run::Context;

/// How often files are looked at, and what failed is tried again. A kubelet brings a changed Secret within a minute or two.
const LOOK: Duration = Duration::from_secs(10);
/// After this time the guest is given everything again; KubeVirt's.
const AGAIN_AFTER: Duration = Duration::from_secs(300);
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

/// What the guest was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    /// Of everything that it was given: the passwords themselves are not kept.
    digest: u64,
    /// The guest, as far as can be seen.
    guest: GuestSeen,
    /// When.
    at: Instant,
}

/// By what a guest that may have lost what it was given is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GuestSeen {
    /// The agents that have answered so far.
    agents: u64,
    /// How often it was reset.
    resets: u32,
}

/// Whether the guest is to be given everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// It has everything.
    Not,
    /// It had everything, and may have lost it.
    MayBeLost,
    /// It does not have it, or had it long ago.
    Wanted,
}

fn due(given: Option<&Given>, digest: u64, guest: GuestSeen, now: Instant) -> Due {
    match given {
        Some(given) if given.digest != digest || now.duration_since(given.at) >= AGAIN_AFTER => Due::Wanted,
        Some(given) if given.guest != guest => Due::MayBeLost,
        Some(_) => Due::Not,
        None => Due::Wanted,
    }
}

struct Keeper {
    sources: Sources,
    happened: mpsc::Sender<Input>,
    hasher: RandomState,
    agents: u64,
    given: Option<Given>,
    reported: Option<CredentialsStatus>,
}

impl Keeper {
    fn new(sources: Sources, happened: mpsc::Sender<Input>) -> Self {
        Self { sources, happened, hasher: RandomState::new(), agents: 0, given: None, reported: None }
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
        if status.phase != Phase::Running || status.paused.is_some() || status.frozen {
            return;
        }
        let wanted = match self.sources.read().map_err(|error| ErrorChain(&error).to_string()) {
            Ok(wanted) => wanted,
            Err(message) => return self.report(Err(message)).await,
        };
        let (digest, guest) = (self.hasher.hash_one(&wanted), GuestSeen { agents: self.agents, resets: status.resets });
        match (due(self.given.as_ref(), digest, guest, Instant::now()), agent) {
            (Due::Not, _) | (Due::MayBeLost, None) => {}
            (Due::Wanted, None) => self.report(Err(OFFLINE.to_owned())).await,
            (Due::Wanted | Due::MayBeLost, Some(agent)) => {
                let outcome = give(&agent, &wanted).await;
                self.given = outcome.is_ok().then(|| Given { digest, guest, at: Instant::now() });
                self.report(outcome).await;
            }
        }
    }

    /// Reports an outcome that is not the last one.
    async fn report(&mut self, outcome: Result<(), String>) {
        let now = CredentialsStatus { synchronized: outcome.is_ok(), message: outcome.err().unwrap_or_default() };
        if self.reported.as_ref() == Some(&now) {
            return;
        }
        if now.synchronized {
            tracing::info!("the guest agent has set the access credentials");
        } else {
            tracing::warn!(reason = now.message, "not all access credentials are in the guest");
        }
        self.reported = Some(now.clone());
        let _ = self.happened.send(Input::CredentialsTried(now)).await;
    }
}

#[cfg(test)]
mod tests;
