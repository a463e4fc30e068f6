//! Keeping `live.json`: what QEMU holds now ([`LivePlan`]).
//!
//! ```text
//!  plan.json ─► begin ─┐            ┌─ a client's command: intent ─► QEMU ─► outcome ─┐
//!                      ├─► live.json┤                                                 ├─► QEMU is asked ─► live.json
//!  live.json ─► resume ┘            └─ an event of a device, a tray or a job ─────────┘
//! ```
//!
//! Every command that taints is taken for a change: the broker's table has judged each command, and a second list would
//! miss some. QEMU's own report decides; a difference is logged and taken over, and never ends a guest. Links of cards, which it does
//! not report, follow from the commands, and the machine's status from them ([`super::links`]).

mod observe;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use garboard_plan::live::{Change, Difference, LivePlan, Outcome};
use garboard_plan::{LaunchPlan, LinkState};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::paths;
use garboard_qmp::{CallError, Interest, Monitor, Notice, Subscription};
use garboard_storage::beneath::BeneathPath;
use garboard_storage::open::{Dir, Links, OpenError};
use tokio::sync::{Notify, watch};

use super::journal;
pub(super) use observe::block_nodes;

/// Longest document that is read, bytes; a machine with two hundred disks has 60 KiB.
const MAX_BYTES: u64 = 4 << 20;
/// The least time between two looks.
const PACE: Duration = Duration::from_secs(1);
/// The same where nothing but events asks for it: a guest may move its trays as often as it likes.
const EVENT_PACE: Duration = Duration::from_secs(10);
/// Signs that QEMU may hold something else now.
const EVENTS: Interest = Interest::Named(&[
    "DEVICE_DELETED",
    "DEVICE_TRAY_MOVED",
    "BLOCK_JOB_COMPLETED",
    "BLOCK_JOB_CANCELLED",
    "JOB_STATUS_CHANGE",
]);

/// The document. Clones share it.
#[derive(Clone)]
pub(crate) struct Live {
    document: Arc<Mutex<Document>>,
    /// A change was settled: QEMU is to be asked.
    settled: Arc<Notify>,
    links: Arc<watch::Sender<CardLinks>>,
}

/// Links of cards, by ID of the device.
pub(crate) type CardLinks = BTreeMap<String, LinkState>;

struct Document {
    directory: PathBuf,
    plan: LivePlan,
    /// What the file holds; nothing if that is not known.
    written: Option<LivePlan>,
    /// Whether a supervisor before this one wrote it, and QEMU has not been asked since.
    is_inherited: bool,
}

impl Live {
    /// For a machine that is about to be launched.
    pub(crate) fn begin(directory: &Path, plan: &LaunchPlan) -> Self {
        Self::with(directory, LivePlan::of(plan), false)
    }

    /// For a machine that runs: from the document of the supervisor before. One that wrote none leaves the plan, also of its cards alone.
    pub(crate) fn resume(directory: &Path, plan: &LaunchPlan) -> Self {
        let mut live = match read(directory) {
            Ok(Some(live)) => live,
            Ok(None) => LivePlan::of(plan),
            Err(error) => {
                tracing::warn!(%error, "live.json cannot be read; QEMU's devices are compared with the plan");
                LivePlan::of(plan)
            }
        };
        for change in std::mem::take(&mut live.pending) {
            tracing::warn!(%change, "the previous supervisor ended during this change");
            live.intend(change.clone());
            live.settle(&change, Outcome::Done);
        }
        for (device, card) in LivePlan::of(plan).held.cards {
            live.held.cards.entry(device).or_insert(card);
        }
        Self::with(directory, live, true)
    }

    fn with(directory: &Path, plan: LivePlan, is_inherited: bool) -> Self {
        let document = Document { directory: directory.to_owned(), plan, written: None, is_inherited };
        let live =
            Self { document: Arc::new(Mutex::new(document)), settled: Arc::new(Notify::new()), links: Arc::default() };
        live.change(|_| {});
        live
    }

    /// The links of the plan's cards now, and each change of them until the last clone of this is gone.
    pub(crate) fn links(&self) -> watch::Receiver<CardLinks> {
        self.links.subscribe()
    }

    /// Cards that are there and whose cable is out, by ID of the device.
    pub(crate) fn pulled(&self) -> Vec<String> {
        self.lock().plan.held.pulled()
    }

    /// A change is about to be sent.
    pub(crate) fn intend(&self, change: Change) {
        self.change(|plan| plan.intend(change));
    }

    /// Its outcome is known.
    pub(crate) fn settle(&self, change: &Change, outcome: Outcome) {
        self.change(|plan| plan.settle(change, outcome));
        self.settled.notify_one();
    }

    /// Asks QEMU now, and after everything that may have changed what it holds, until the connection ends.
    pub(crate) async fn follow(self, monitor: Monitor) {
        let mut events = monitor.subscribe(EVENTS);
        let mut trays = BTreeMap::new();
        loop {
            match self.look(&monitor, &mut trays).await {
                Ok(()) => {}
                Err(CallError::Disconnected { .. }) => return,
                Err(error) => tracing::warn!(error = %ErrorChain(&error), "query of QEMU's devices failed"),
            }
            tokio::time::sleep(PACE).await;
            if self.due(&mut events, &mut trays).await.is_break() {
                return;
            }
        }
    }

    /// Waits until QEMU is to be asked again; stops when its connection has ended. Trays that moved meanwhile are noted: no
    /// query reports them without asking storage.
    async fn due(&self, events: &mut Subscription, trays: &mut BTreeMap<String, bool>) -> ControlFlow<()> {
        let mut rest = std::pin::pin!(tokio::time::sleep(EVENT_PACE));
        let mut has_changed = false;
        loop {
            tokio::select! {
                () = self.settled.notified() => return ControlFlow::Continue(()),
                notice = events.next() => match notice {
                    Some(Notice::Event(event)) => {
                        has_changed = true;
                        trays.extend(observe::moved_tray(&event));
                    }
                    Some(Notice::Lagged(_)) => has_changed = true,
                    Some(Notice::Closed { .. }) | None => return ControlFlow::Break(()),
                },
                () = &mut rest, if has_changed => return ControlFlow::Continue(()),
            }
        }
    }

    /// Takes over what QEMU reports.
    async fn look(&self, monitor: &Monitor, trays: &mut BTreeMap<String, bool>) -> Result<(), CallError> {
        let drives = self.lock().plan.held.drives.clone();
        let mut held = observe::held(monitor, &drives).await?;
        for (id, is_open) in std::mem::take(trays) {
            held.drives.entry(id).and_modify(|drive| drive.is_open = is_open);
        }
        let was_inherited = std::mem::take(&mut self.lock().is_inherited);
        let difference = self.change(|plan| plan.observe(held));
        if difference.is_empty() {
            return Ok(());
        }
        let Difference { missing, added, changed } = difference;
        if was_inherited {
            tracing::warn!(?missing, ?added, ?changed, "QEMU's devices differ from the last live plan");
        } else {
            tracing::info!(?missing, ?added, ?changed, "QEMU's devices changed");
        }
        Ok(())
    }

    /// Changes the document and brings its file up to date. A full disk must not stop a machine that runs: the failure is
    /// logged, and the next change tries again.
    fn change<T>(&self, how: impl FnOnce(&mut LivePlan) -> T) -> T {
        let mut document = self.lock();
        let answer = how(&mut document.plan);
        let links = document.plan.held.links();
        self.links.send_if_modified(|known| {
            let is_changed = *known != links;
            *known = links;
            is_changed
        });
        if document.written.as_ref() != Some(&document.plan) {
            match write(&document.directory, &document.plan) {
                Ok(()) => document.written = Some(document.plan.clone()),
                Err(error) => tracing::error!(%error, "could not write live.json"),
            }
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, Document> {
        self.document.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an earlier supervisor wrote; nothing if it wrote none.
fn read(directory: &Path) -> std::io::Result<Option<LivePlan>> {
    let name = BeneathPath::parse(paths::LIVE).map_err(std::io::Error::other)?;
    let file = Dir::open(directory).and_then(|directory| directory.read_file(&name, Links::Refused, MAX_BYTES));
    match file {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(OpenError::Missing { .. }) => Ok(None),
        Err(error) => Err(std::io::Error::other(error)),
    }
}

fn write(directory: &Path, plan: &LivePlan) -> std::io::Result<()> {
    journal::replace(directory, paths::LIVE, &serde_json::to_vec_pretty(plan)?)
}
