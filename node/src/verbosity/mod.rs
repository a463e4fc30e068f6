//! How much this agent and the supervisors of its node log, as the settings of the cluster say, while they run.
//!
//! ```text
//!   KubeVirt object ─► this agent's levels
//!          └─► the usual number of supervisors ─┬─► each supervisor: when it connects, and when its number changes
//!   label of an instance ───────────────────────┘
//! ```
//!
//! A supervisor begins with the usual levels, and connects before it prepares its machine. One of a version before denies the request,
//! and is not asked again on its connection.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use garboard_api::cluster::{LoggingPart, of_installation, verbosity, verbosity_of_instance};
use garboard_api::v1::{KubeVirt, VirtualMachineInstance};
use garboard_log::{Levels, Outcome, USUAL, targets};
use garboard_protocol::causes::ErrorChain;
use kube::Client;
use tokio::sync::watch;

use crate::ask::{self, AskError};
use crate::mirror::Mirror;
use crate::pods::LauncherPod;
use crate::supervisors::Connected;

/// Supervisors that are asked at once.
const AT_ONCE: usize = 16;
/// Pause before one that did not answer is asked again.
const PAUSE: Duration = Duration::from_secs(5);

/// Whose levels are set by the settings.
pub struct Own {
    /// The namespace of the installation.
    pub namespace: String,
    /// This node.
    pub node: String,
    /// What this program logs.
    pub levels: Levels,
    /// Where the usual number of supervisors is published; nothing until the settings are known.
    pub usual: watch::Sender<Option<u32>>,
}

impl Own {
    fn apply(&self, known: &BTreeMap<String, KubeVirt>) {
        let object = of_installation(known.values(), &self.namespace);
        let number = |part| verbosity(object, part, &self.node).unwrap_or(USUAL);
        let (own, usual) = (number(LoggingPart::NodeAgent), Some(number(LoggingPart::Launcher)));
        if self.levels.set(targets(own)) == Outcome::Set {
            tracing::info!(verbosity = own, "log levels changed");
        }
        self.usual.send_if_modified(|before| std::mem::replace(before, usual) != usual);
    }
}

/// Follows the settings for ever.
pub async fn follow(client: Client, own: Own) {
    garboard_cluster::settings::follow(client, &own.namespace, |known| own.apply(known)).await;
}

/// The supervisors of this node, and their instances.
pub struct Recipients {
    /// Launcher pods of this node.
    pub pods: Arc<Mirror<LauncherPod>>,
    /// Instances of this node, as much of each as can be read.
    pub vmis: Arc<Mirror<Arc<VirtualMachineInstance>>>,
    /// Supervisors that take requests.
    pub supervisors: Connected,
}

/// A number that was sent to a supervisor, and the connection of that supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    connection: u64,
    verbosity: u32,
}

/// Whether every supervisor has its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Complete,
    Incomplete,
}

/// Sends supervisors their numbers, for ever: when one connects, when a number changes, and again after five seconds where one did not
/// answer.
pub async fn send(recipients: Recipients, mut usual: watch::Receiver<Option<u32>>) {
    let (mut connected, mut instances) = (recipients.supervisors.changes(), recipients.vmis.changes());
    let mut before = HashMap::new();
    loop {
        connected.mark_unchanged();
        instances.mark_unchanged();
        let number = *usual.borrow_and_update();
        let round = match number {
            Some(usual) => recipients.round(&mut before, usual).await,
            None => Round::Complete,
        };
        let changed = tokio::select! {
            changed = usual.changed() => changed,
            changed = connected.changed() => changed,
            changed = instances.changed() => changed,
            () = tokio::time::sleep(PAUSE), if round == Round::Incomplete => continue,
        };
        if changed.is_err() {
            return;
        }
    }
}

impl Recipients {
    /// Sends their numbers to those that do not have them. `before` is what each has.
    async fn round(&self, before: &mut HashMap<String, Message>, usual: u32) -> Round {
        let connected = self.supervisors.all();
        before.retain(|pod, message| connected.get(pod) == Some(&message.connection));
        let due = due(connected, before, |pod| self.of_instance(pod).unwrap_or(usual));
        let asked = due.into_iter().map(|(pod, message)| async move {
            let outcome = ask::set_verbosity(&self.supervisors, &pod, message.verbosity).await;
            (pod, message, outcome)
        });
        let mut answers = futures::stream::iter(asked).buffer_unordered(AT_ONCE);
        let mut round = Round::Complete;
        while let Some((pod, message, outcome)) = answers.next().await {
            match outcome {
                Ok(()) | Err(AskError::Denied) => {
                    tracing::debug!(pod, verbosity = message.verbosity, ?outcome, "log levels sent to a supervisor");
                    before.insert(pod, message);
                }
                Err(error) => {
                    let error = ErrorChain(&error);
                    tracing::debug!(pod, %error, "a supervisor could not be sent its log levels; it is tried again");
                    round = Round::Incomplete;
                }
            }
        }
        round
    }

    /// The number of a pod's instance, if it has one of its own.
    fn of_instance(&self, pod: &str) -> Option<u32> {
        let vmi = self.vmis.get(&self.pods.get(pod)?.vmi_uid)?;
        verbosity_of_instance(vmi.metadata.labels.as_ref())
    }
}

/// The supervisors that do not have their number: it is another one than before, or they have connected since.
fn due(
    connected: HashMap<String, u64>,
    before: &HashMap<String, Message>,
    wanted: impl Fn(&str) -> u32,
) -> Vec<(String, Message)> {
    let messages = connected.into_iter().map(|(pod, connection)| {
        let verbosity = wanted(&pod);
        (pod, Message { connection, verbosity })
    });
    messages.filter(|(pod, message)| before.get(pod) != Some(message)).collect()
}

#[cfg(test)]
mod tests;
