//! From reports to the API server: for each VMI a task of its own that keeps only the newest report, so that there is one
//! write at a time and a slow API server gets one write where there were many changes.
//!
//! ```text
//!  report ─► newest report ─┐
//!  pod (mirror) ────────────┼─► readiness gate? ─► status? (next_status) ─► event?
//!  VMI (mirror, answers) ───┘        └ failed: again later, with what is newest then
//! ```
//!
//! A VMI that the controller has not placed yet is not this node's to write. Then the first report is put on the pod,
//! together with the readiness gate, and the controller writes the VMI from there, and the event: one write of each instead
//! of two.
//!
//! A task ends when the run's end is written, or when the VMI is gone. Beside it the record of a run that is over is written, once.

mod keep;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use garboard_api::Phase;
use garboard_api::conditions::ConditionStatus;
use garboard_api::v1::VirtualMachineInstance;
use garboard_cluster::report::condition::PodUpdate;
use garboard_cluster::report::{self, condition};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::Status;
use garboard_protocol::record::RunRecord;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::Instrument;

use crate::budget::{NodePace, Pace};
use crate::cluster::{Cluster, ClusterError};

use crate::mirror::Mirror;
use crate::pods::LauncherPod;
use crate::server::Reports;
use crate::{start_spans, status};

/// Pause after a failure, and the longest it grows to.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long the mirror may be without a VMI that is to be written before the API server is asked for it. Of many machines
/// that start at once the controller places the last some seconds after its guest runs, and the watch reports it.
const MIRROR_PATIENCE: Duration = Duration::from_secs(15);
const LONGEST_MIRROR_PATIENCE: Duration = Duration::from_secs(60);
/// How long it is known of a pod that is gone that its record was taken. A launcher may go on for a while, and one that a guest has taken
/// over may send records as fast as it can: each would be a task, and would take its time from the writes of others.
const RECORD_REMEMBERED: Duration = Duration::from_secs(600);

/// What every task needs to write.
pub struct WriterContext<C> {
    /// Where it is written.
    pub cluster: C,
    /// This node.
    pub node: String,
    /// Launcher pods of this node.
    pub pods: Arc<Mirror<LauncherPod>>,
    /// VMIs of this node.
    pub vmis: Arc<Mirror<Arc<VirtualMachineInstance>>>,
    /// When there may be a write.
    pub pace: Arc<Mutex<NodePace>>,
}

/// Takes reports and has them written.
pub struct Writer<C> {
    setting: Arc<WriterContext<C>>,
    tasks: Mutex<HashMap<String, Reporting>>,
    /// Pods whose record was taken, and when it was sent last: each has one.
    kept: Mutex<HashMap<String, Instant>>,
}

/// A pod that reports.
struct Reporting {
    /// Its newest report, for its task.
    newest: watch::Sender<Status>,
    /// Spans of a start were sent. There is one: a launcher that a guest has taken over may report as many as it likes.
    has_started: bool,
}

impl<C: Cluster> Writer<C> {
    /// Nothing has been reported yet.
    #[must_use]
    pub fn new(setting: WriterContext<C>) -> Self {
        Self { setting: Arc::new(setting), tasks: Mutex::default(), kept: Mutex::default() }
    }
}

impl<C: Cluster> Reports for Writer<C> {
    fn note(&self, pod: &LauncherPod, status: Status) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|_, task| !task.newest.is_closed());
        // By pod, not by VMI: while a machine migrates two pods of one VMI report, each of itself.
        if let Some(Reporting { newest, has_started }) = tasks.get_mut(pod.uid.as_str()) {
            newest.send_if_modified(|newest| {
                let newer = status.generation > newest.generation;
                if newer {
                    *has_started = *has_started || start_spans::record(pod, newest, &status);
                    *newest = status;
                }
                newer
            });
            return;
        }
        let (newest, reports) = watch::channel(status);
        tasks.insert(pod.uid.as_str().to_owned(), Reporting { newest, has_started: false });
        let (setting, pace) = (Arc::clone(&self.setting), Pace::of_writes(now()));
        let pod = pod.clone();
        let task = Task { setting, pod, reports, latest: None, gate: None, reported: None, pace, rest: Duration::ZERO };
        let span = task.pod.span();
        tokio::spawn(task.run().instrument(span));
    }

    fn keep(&self, pod: &LauncherPod, record: RunRecord) {
        let now = now();
        let is_recent = |sent: Instant| now.saturating_duration_since(sent) < RECORD_REMEMBERED;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|uid, sent| is_recent(*sent) || self.setting.pods.get(uid).is_some());
        if kept.insert(pod.uid.as_str().to_owned(), now).is_none() {
            tokio::spawn(keep::keep(Arc::clone(&self.setting), pod.clone(), record).instrument(pod.span()));
        }
    }
}

/// What is left to write for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    /// Nothing, until its report or the VMI changes.
    Written,
    /// Its report; the VMI has not been placed on this node yet.
    NotYet,
    /// Nothing, for good: the task ends.
    Over,
}

/// The VMI, as far as it is known.
enum Found {
    Vmi(Arc<VirtualMachineInstance>),
    NotYet,
    Gone,
}

struct Task<C> {
    setting: Arc<WriterContext<C>>,
    pod: LauncherPod,
    reports: watch::Receiver<Status>,
    /// What the API server answered last, which the mirror may not have yet.
    latest: Option<Arc<VirtualMachineInstance>>,
    /// What was written to the readiness gate last.
    gate: Option<bool>,
    /// The report that was put on the pod last.
    reported: Option<Box<Status>>,
    /// How often there may be something to write, and when that may be again.
    pace: Pace,
    rest: Duration,
}

impl<C: Cluster> Task<C> {
    async fn run(mut self) {
        let (mut pause, mut patience) = (FIRST_PAUSE, MIRROR_PATIENCE);
        let (mut pods, mut vmis) =
            (self.setting.pods.changes_of(self.pod.uid.as_str()), self.setting.vmis.changes_of(&self.pod.vmi_uid));
        loop {
            pods.mark_unchanged();
            vmis.mark_unchanged();
            let settled = self.settle().await;
            match settled {
                Ok(Settled::Over) => return,
                Ok(Settled::Written | Settled::NotYet) => {
                    pause = FIRST_PAUSE;
                    tokio::time::sleep(std::mem::take(&mut self.rest)).await;
                    // A VMI that is not in the mirror is asked for, in case its label is not what was expected.
                    let impatient = async {
                        if settled.is_ok_and(|settled| settled == Settled::NotYet) {
                            tokio::time::sleep(patience).await;
                        } else {
                            std::future::pending::<()>().await;
                        }
                    };
                    tokio::select! {
                        // Closed: this agent ends.
                        changed = self.reports.changed() => if changed.is_err() { return },
                        _ = pods.changed() => {}
                        _ = vmis.changed() => {}
                        () = impatient => {
                            // A pod that only claims to have a VMI is not asked for all the time.
                            patience = LONGEST_MIRROR_PATIENCE.min(patience * 2);
                            self.latest = self.ask().await;
                        }
                    }
                }
                Err(ClusterError::Gone) => return,
                Err(error) => {
                    if !matches!(error, ClusterError::Conflict) {
                        let (vmi, namespace) = (&self.pod.vmi, &self.pod.namespace);
                        tracing::warn!(vmi, namespace, error = %ErrorChain(&error), ?pause, "write of the status failed; tried again");
                    }
                    // What was read after a conflict is new, so that the next attempt need not wait.
                    let at_once = matches!(error, ClusterError::Conflict) && pause == FIRST_PAUSE;
                    if !at_once {
                        tokio::time::sleep(pause).await;
                    }
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
            }
        }
    }

    /// How long it is until this task may write, if it has anything to write now. What it has may be newer by then.
    fn place(&mut self) -> Duration {
        let report = self.reports.borrow().clone();
        let found = self.find();
        let change = if let Found::Vmi(vmi) = &found { self.change(vmi, &report) } else { None };
        if change.is_none() && self.news_for_pod(&report, &found).is_empty() {
            return Duration::ZERO;
        }
        self.setting.pace.lock().unwrap_or_else(PoisonError::into_inner).place(now())
    }

    /// Writes what is to be written.
    async fn settle(&mut self) -> Result<Settled, ClusterError> {
        let wait = self.place();
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let report = self.reports.borrow_and_update().clone();
        let mirrored = self.setting.pods.get(self.pod.uid.as_str());
        let pod_is_there = mirrored.is_some() || !self.setting.pods.is_known();
        if let Some(pod) = mirrored {
            self.pod = pod;
        }
        let found = self.find();
        let news = if pod_is_there { self.news_for_pod(&report, &found) } else { PodUpdate::default() };
        let change = if let Found::Vmi(vmi) = &found { self.change(vmi, &report) } else { None };
        if !news.is_empty() || change.is_some() {
            self.rest = self.pace.count(now());
        }
        let (setting, pod) = (Arc::clone(&self.setting), self.pod.clone());
        let (pod_written, written) = tokio::join!(mark_pod(&setting.cluster, &pod, &news), async {
            let Some(change) = change else { return Ok(None) };
            setting.cluster.patch_vmi(&pod.namespace, &pod.vmi, change).await.map(Some)
        });
        if pod_written.is_ok() {
            self.gate = news.unpaused.or(self.gate);
            self.reported = news.report.or(self.reported.take());
        }
        match (written, found) {
            (Ok(Some(written)), Found::Vmi(before)) => {
                let written = Arc::new(written);
                self.latest = Some(Arc::clone(&written));
                tracing::debug!(generation = report.generation, "the instance has the status of the report");
                self.log_transition(&before, &written).await;
                pod_written?;
                Ok(if Phase::of(&written).is_final() { Settled::Over } else { Settled::Written })
            }
            (Ok(_), Found::Vmi(vmi)) => {
                pod_written?;
                let over = Phase::of(&vmi).is_final() || (report.ended.is_some() && !pod_is_there);
                Ok(if over { Settled::Over } else { Settled::Written })
            }
            (Ok(_), Found::NotYet) if pod_is_there => pod_written.map(|()| Settled::NotYet),
            (Ok(_), Found::NotYet | Found::Gone) => Ok(Settled::Over),
            (Err(ClusterError::Conflict), _) => {
                self.latest = self.ask().await;
                Err(ClusterError::Conflict)
            }
            (Err(error), _) => Err(error),
        }
    }

    /// What the pod does not have yet.
    fn news_for_pod(&self, report: &Status, found: &Found) -> PodUpdate {
        let is_written = match &self.reported {
            Some(reported) => is_same(reported, report),
            // Of an earlier agent of this node.
            None => self.pod.is_reported && report.ended.is_none(),
        };
        let is_due = matches!(found, Found::NotYet) && condition::is_milestone(report) && !is_written;
        PodUpdate { unpaused: self.gate_to_write(report), report: is_due.then(|| Box::new(report.clone())) }
    }

    /// What the readiness gate does not have yet.
    fn gate_to_write(&self, report: &Status) -> Option<bool> {
        let unpaused = report::unpaused(report)?;
        let status = ConditionStatus::from(unpaused).name();
        let is_written = match self.gate {
            Some(written) => written == unpaused,
            None => self.pod.unpaused.as_deref() == Some(status),
        };
        (!is_written).then_some(unpaused)
    }

    /// What the VMI does not have yet.
    fn change(&self, vmi: &VirtualMachineInstance, report: &Status) -> Option<Value> {
        patch(vmi, &status::next_status(report, &self.pod, vmi, &self.setting.node, Timestamp::now())?)
    }

    async fn log_transition(&self, before: &VirtualMachineInstance, written: &VirtualMachineInstance) {
        for event in written.status.iter().flat_map(|status| report::events(before.status.as_ref(), status)) {
            let (vmi, namespace) = (&self.pod.vmi, &self.pod.namespace);
            tracing::info!(vmi, namespace, reason = event.reason.name(), note = event.note, "event recorded");
            if let Err(error) = self.setting.cluster.emit_event(&self.pod, &event).await {
                tracing::warn!(vmi, namespace, error = %ErrorChain(&error), "the event could not be written");
            }
        }
    }

    /// The newest VMI known here: what was answered last, or what the mirror has.
    fn find(&self) -> Found {
        let mirrored = self.setting.vmis.get(&self.pod.vmi_uid);
        let newest = [self.latest.clone(), mirrored].into_iter().flatten().max_by_key(|vmi| version(vmi));
        match newest {
            Some(vmi) if vmi.metadata.uid.as_deref() != Some(&self.pod.vmi_uid) => Found::Gone,
            Some(vmi) if status::is_ours(&self.pod, &vmi, &self.setting.node) => Found::Vmi(vmi),
            Some(_) | None => Found::NotYet,
        }
    }

    async fn ask(&self) -> Option<Arc<VirtualMachineInstance>> {
        match self.setting.cluster.vmi(&self.pod.namespace, &self.pod.vmi).await {
            Ok(vmi) => Some(Arc::new(vmi)),
            Err(error) => {
                let (vmi, namespace) = (&self.pod.vmi, &self.pod.namespace);
                tracing::debug!(vmi, namespace, error = %ErrorChain(&error), "the VirtualMachineInstance cannot be parsed");
                None
            }
        }
    }
}

/// Now, by the clock that tests can hold.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Writes the pod's conditions, if there is something new.
async fn mark_pod<C: Cluster>(cluster: &C, pod: &LauncherPod, news: &PodUpdate) -> Result<(), ClusterError> {
    if news.is_empty() {
        return Ok(());
    }
    match cluster.mark_pod(pod, news).await {
        // A pod that is gone has no conditions; the VMI is written all the same.
        Ok(()) | Err(ClusterError::Gone | ClusterError::Conflict) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether two reports have the same state of the run.
fn is_same(one: &Status, other: &Status) -> bool {
    (one.phase, one.paused, &one.ended) == (other.phase, other.paused, &other.ended)
}

/// Versions of one object grow (Kubernetes 1.35 documents it for every resource it stores).
fn version(vmi: &VirtualMachineInstance) -> u64 {
    vmi.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// The patch for a new status. It holds only for the very object it was decided from: the list of conditions is the
/// controller's too, and a merge patch replaces it.
fn patch(vmi: &VirtualMachineInstance, next: &garboard_api::v1::VirtualMachineInstanceStatus) -> Option<Value> {
    let old = serde_json::to_value(vmi.status.as_ref()).ok()?;
    let changes = garboard_api::merge::patch(&old, &serde_json::to_value(next).ok()?)?;
    let metadata = json!({"uid": vmi.metadata.uid, "resourceVersion": vmi.metadata.resource_version});
    Some(json!({"metadata": metadata, "status": changes}))
}

#[cfg(test)]
mod tests;
