//! What is counted of the machine, for the node agent's metrics: asked once for each scrape, of QEMU and of the guest agent side by side.
//! Each of them has [`WITHIN`]; what is not there in time is left out. Nothing is asked while nobody scrapes.

mod names;
mod observe;

use std::sync::Arc;
use std::time::Duration;

use garboard_agent::tap_binding::tapped;
use garboard_plan::LaunchPlan;
use garboard_protocol::control::{ControlReply, Status};
use garboard_protocol::statistics::{
    FileSystemStatistics, LONGEST_NAME, MOST_FILE_SYSTEMS, MOST_OF_A_KIND, Statistics, TappedInterface,
};
use garboard_qmp::Monitor;
use garboard_qmp::agent::{Agent, Filesystem, GuestText};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout, timeout_at};

use names::Names;

/// How long QEMU may take for all its answers, and the guest agent for its one.
const WITHIN: Duration = Duration::from_millis(1500);
/// How old an answer may be that is given again: several who scrape at once cost the guest no more than one.
const FRESH: Duration = Duration::from_secs(1);

/// Whom to ask.
#[derive(Clone)]
pub(crate) struct Counters {
    monitor: watch::Receiver<Option<Monitor>>,
    plan: watch::Receiver<Option<Arc<LaunchPlan>>>,
    agent: watch::Receiver<Option<Agent>>,
    status: watch::Receiver<Status>,
    /// One question at a time.
    last: Arc<Mutex<Last>>,
}

/// What is kept of earlier answers.
#[derive(Default)]
struct Last {
    /// The last one.
    answer: Option<(Instant, Statistics)>,
    /// What file systems were called.
    names: Names,
}

/// The ends of what is known of a machine.
pub(super) struct Sources {
    /// QEMU's monitor, once it is connected.
    pub(super) monitor: watch::Receiver<Option<Monitor>>,
    /// The plan, once there is one.
    pub(super) plan: watch::Receiver<Option<Arc<LaunchPlan>>>,
    /// The guest agent, while it answers.
    pub(super) agent: watch::Receiver<Option<Agent>>,
    /// The machine's status.
    pub(super) status: watch::Receiver<Status>,
}

impl Counters {
    /// Of these.
    pub(super) fn new(sources: Sources) -> Self {
        let Sources { monitor, plan, agent, status } = sources;
        Self { monitor, plan, agent, status, last: Arc::default() }
    }

    /// The answer to a client.
    pub(super) async fn reply(&self) -> ControlReply {
        let mut last = self.last.lock().await;
        if let Some((at, known)) = last.answer.as_ref()
            && at.elapsed() < FRESH
        {
            return ControlReply::Statistics(Box::new(known.clone()));
        }
        let mut counted = self.count().await;
        let now = Instant::now();
        counted.file_systems = last.names.few(counted.file_systems, now.into_std());
        last.answer = Some((now, counted.clone()));
        ControlReply::Statistics(Box::new(counted))
    }

    async fn count(&self) -> Statistics {
        let (paused, memory_bytes) = {
            let status = self.status.borrow();
            (status.paused.is_some(), status.memory_bytes)
        };
        let monitor = self.monitor.borrow().clone();
        let plan = self.plan.borrow().clone();
        // An agent whose vCPUs are stopped does not answer.
        let agent = if paused { None } else { self.agent.borrow().clone() };
        let (held, file_systems) = tokio::join!(of_qemu(monitor, plan.as_deref()), file_systems(agent));
        let interfaces = plan.as_deref().map(interfaces).unwrap_or_default();
        let observe::Held { balloon, disks } = held;
        Statistics { paused, memory_bytes, balloon, disks, interfaces, file_systems, unread: 0 }
    }
}

async fn of_qemu(monitor: Option<Monitor>, plan: Option<&LaunchPlan>) -> observe::Held {
    // One that leaves might hang for ever where a command reaches it then.
    let stays = monitor.filter(|monitor| monitor.shutdown_reason().is_none());
    let (Some(monitor), Some(plan)) = (stays, plan) else { return observe::Held::default() };
    let (mut held, end) = (observe::Held::default(), Instant::now() + WITHIN);
    // One after the other: QEMU answers them so anyway. What was answered before the end counts.
    let asking = async {
        held.disks = observe::disks(&monitor, plan).await;
        held.balloon = observe::balloon(&monitor).await;
    };
    let _ = timeout_at(end, asking).await;
    held
}

/// The interfaces whose traffic a tap of the pod carries.
fn interfaces(plan: &LaunchPlan) -> Vec<TappedInterface> {
    let with_taps = plan.interfaces.iter().filter_map(|interface| {
        let tap = tapped(&interface.binding)?.tap;
        Some(TappedInterface { name: interface.name.clone(), tap })
    });
    with_taps.take(MOST_OF_A_KIND).collect()
}

async fn file_systems(agent: Option<Agent>) -> Vec<FileSystemStatistics> {
    let Some(agent) = agent else { return Vec::new() };
    match timeout(WITHIN, agent.filesystems()).await {
        Ok(Ok(found)) => found.into_items().into_iter().filter_map(file_system).take(MOST_FILE_SYSTEMS).collect(),
        // It has no such command, file systems are frozen, or the guest is busy.
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Nothing of one that has no size, as a CD-ROM drive without a medium.
fn file_system(found: Filesystem) -> Option<FileSystemStatistics> {
    Some(FileSystemStatistics {
        name: name(&found.name),
        mountpoint: name(&found.mountpoint),
        kind: name(&found.kind),
        total_bytes: found.total_bytes?,
        used_bytes: found.used_bytes?,
    })
}

/// Cut after it was escaped: a character may have become ten.
fn name(text: &GuestText) -> String {
    text.as_str().chars().take(LONGEST_NAME).collect()
}

#[cfg(test)]
mod tests;
