//! What is left on this node of launcher pods whose objects are gone.
//!
//! `kubectl delete pod --force` takes the object away before the kubelet has killed anything, and a kubelet that is away has
//! not even seen it. Another guest with the same disks must not start before the processes of the first one are gone, and
//! only the node can observe that. So the controller asks, and this answers (`docs/adr/0021-the-agent-is-asked.md`):
//!
//! ```text
//!  VMI of this node, not over, status.activePods = {POD: NODE}, and no object POD (watch, then list)
//!      └─► no process of POD, twice ─► status.activePods = {POD: ""}
//! ```
//!
//! A pod's UID never comes back, and a launcher whose pod has no object is refused by [`crate::launchers`]: what is gone
//! stays gone.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use garboard_api::Phase;
use garboard_api::v1::VirtualMachineInstance;
use garboard_protocol::causes::ErrorChain;
use serde_json::json;
use tokio::time::Instant;

use crate::cluster::{Cluster, ClusterError};
use crate::identity::PodUid;
use crate::mirror::Mirror;
use crate::pods::LauncherPod;

/// Time between two looks, at first and at most. A last report may be on its way between the first two.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long the watch may take to deliver an answer, before it is given again.
const DELIVERY: Duration = Duration::from_secs(10);

/// What is needed to answer.
pub struct Remains<C> {
    /// Where it is written.
    pub cluster: C,
    /// This node.
    pub node: String,
    /// Launcher pods of this node.
    pub pods: Arc<Mirror<LauncherPod>>,
    /// VMIs of this node, also what can be read of those that cannot be read as a whole: they, too, wait for an answer.
    pub vmis: Arc<Mirror<Arc<VirtualMachineInstance>>>,
    /// `/proc`, as this node's processes have it.
    pub processes: PathBuf,
}

/// A pod without an object, that a VMI runs in by its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pod: PodUid,
    namespace: String,
    vmi: String,
    vmi_uid: String,
}

/// What is known of the questions that are open.
#[derive(Default)]
struct Progress {
    /// Of these no process was seen the last time.
    quiet: BTreeSet<PodUid>,
    /// It is logged that there are processes of these.
    logged: BTreeSet<PodUid>,
    /// When these were answered.
    answered: HashMap<PodUid, Instant>,
    /// The API server did not take all of the last answers.
    refused: bool,
}

impl Progress {
    /// What is about to be answered is looked at soon, however long something was left of it; what could not be answered is
    /// not.
    fn next_pause(&self, last: Duration) -> Duration {
        let is_about_to_be_answered = !self.refused && self.quiet.iter().any(|pod| !self.answered.contains_key(pod));
        if is_about_to_be_answered { FIRST_PAUSE } else { LONGEST_PAUSE.min(last * 2) }
    }
}

/// Answers until the task is dropped.
pub async fn answer<C: Cluster>(remains: Remains<C>) {
    let (mut vmis, mut pods) = (remains.vmis.changes(), remains.pods.changes());
    let (mut progress, mut pause) = (Progress::default(), FIRST_PAUSE);
    loop {
        vmis.mark_unchanged();
        pods.mark_unchanged();
        let questions = remains.questions();
        let changed = if questions.is_empty() {
            (progress, pause) = (Progress::default(), FIRST_PAUSE);
            tokio::select! { changed = vmis.changed() => changed, changed = pods.changed() => changed }
        } else {
            if let Err(error) = remains.look(&questions, &mut progress).await {
                let error = format!("{error:#}");
                tracing::warn!(error, "check for processes of removed pods failed; tried again");
            }
            pause = progress.next_pause(pause);
            tokio::time::sleep(pause).await;
            Ok(())
        };
        // Closed: this agent ends.
        if changed.is_err() {
            return;
        }
    }
}

impl<C: Cluster> Remains<C> {
    /// What is asked now; nothing before the API server has listed the pods.
    fn questions(&self) -> Vec<Question> {
        if !self.pods.is_known() {
            return Vec::new();
        }
        let asked = self.vmis.all().into_iter().flat_map(|vmi| questions(&vmi, &self.node));
        asked.filter(|question| self.pods.get(question.pod.as_str()).is_none()).collect()
    }

    /// Looks once, and answers what can be answered.
    async fn look(&self, questions: &[Question], progress: &mut Progress) -> anyhow::Result<()> {
        let pods: BTreeSet<_> = questions.iter().map(|question| question.pod.clone()).collect();
        let (root, wanted) = (self.processes.clone(), pods.clone());
        let left = tokio::task::spawn_blocking(move || left(&root, &wanted)).await??;
        let before = std::mem::replace(&mut progress.quiet, &pods - &left);
        progress.answered.retain(|pod, at| pods.contains(pod) && at.elapsed() < DELIVERY);
        for question in questions.iter().filter(|question| left.contains(&question.pod)) {
            if progress.logged.insert(question.pod.clone()) {
                let Question { pod, namespace, vmi, .. } = question;
                tracing::warn!(%pod, namespace, vmi, "the pod was removed, and processes of it still run");
            }
        }
        let is_due = |pod: &PodUid| !left.contains(pod) && before.contains(pod) && !progress.answered.contains_key(pod);
        let due: Vec<_> = questions.iter().filter(|question| is_due(&question.pod)).collect();
        progress.refused &= !due.is_empty();
        if due.is_empty() {
            return Ok(());
        }
        // A watch that lags may not have delivered the pod yet.
        progress.refused = true;
        let listed = self.cluster.pods_of(&self.node).await?;
        progress.refused = false;
        for question in due.into_iter().filter(|question| listed.iter().all(|pod| pod.uid != question.pod)) {
            // One that is not taken keeps no other back.
            match self.write_answer(question).await {
                Ok(()) => drop(progress.answered.insert(question.pod.clone(), Instant::now())),
                Err(_) => progress.refused = true,
            }
        }
        Ok(())
    }

    async fn write_answer(&self, question: &Question) -> Result<(), ClusterError> {
        let Question { pod, namespace, vmi, vmi_uid } = question;
        // The UID keeps it off a namesake.
        let answer = json!({"metadata": {"uid": vmi_uid}, "status": {"activePods": {pod.as_str(): ""}}});
        match self.cluster.mark_vmi(namespace, vmi, answer).await {
            Ok(()) => tracing::info!(%pod, namespace, vmi, "no process of the removed pod is left"),
            // The controller does not ask any more.
            Err(ClusterError::Gone | ClusterError::Conflict) => {}
            Err(error) => {
                tracing::warn!(%pod, namespace, vmi, error = %ErrorChain(&error), "the status of the instance was not written");
                return Err(error);
            }
        }
        Ok(())
    }
}

/// The pods that a VMI runs in on a node, by its status.
pub(crate) fn questions(vmi: &VirtualMachineInstance, node: &str) -> Vec<Question> {
    let (Some(status), metadata) = (&vmi.status, &vmi.metadata) else { return Vec::new() };
    let (Some(namespace), Some(name), Some(uid)) = (&metadata.namespace, &metadata.name, &metadata.uid) else {
        return Vec::new();
    };
    if Phase::of(vmi).is_final() || status.node_name.as_deref() != Some(node) {
        return Vec::new();
    }
    let here = status.active_pods.iter().filter(|(_, place)| *place == node);
    let question = |pod| Question { pod, namespace: namespace.clone(), vmi: name.clone(), vmi_uid: uid.clone() };
    here.filter_map(|(pod, _)| PodUid::parse(pod)).map(question).collect()
}

/// Those of the pods that have a process, by the control groups of every process there is. A process that merely claims it, by
/// the name of a group of its own, counts too: that only delays the answer.
///
/// # Errors
/// The kernel's error about a process that is there.
fn left(root: &Path, pods: &BTreeSet<PodUid>) -> io::Result<BTreeSet<PodUid>> {
    // The second is how systemd's units are named.
    let names: Vec<_> = pods.iter().map(|pod| (pod, pod.as_str().to_owned(), pod.as_str().replace('-', "_"))).collect();
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(root)? {
        let directory = entry?.path();
        let is_process =
            directory.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
        if !is_process {
            continue;
        }
        let Some(groups) = unless_gone(std::fs::read_to_string(directory.join("cgroup")))? else { continue };
        let of: Vec<_> =
            names.iter().filter(|(_, dashed, unit)| groups.contains(dashed) || groups.contains(unit)).collect();
        if of.is_empty()
            || unless_gone(std::fs::read_to_string(directory.join("status")))?.is_none_or(|one| is_over(&one))
        {
            continue;
        }
        found.extend(of.into_iter().map(|(pod, ..)| (*pod).clone()));
    }
    Ok(found)
}

/// Nothing for a process that has ended meanwhile.
fn unless_gone(read: io::Result<String>) -> io::Result<Option<String>> {
    match read {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether all of a process has ended, and only its parent has not asked for it (proc_pid_status(5)): then it has no files
/// any more. One whose first thread has ended looks the same and has others.
fn is_over(status: &str) -> bool {
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let is_zombie = value("State:").is_some_and(|state| state.starts_with(['Z', 'X']));
    is_zombie && value("Threads:").is_none_or(|threads| matches!(threads, "0" | "1"))
}

#[cfg(test)]
mod tests;
