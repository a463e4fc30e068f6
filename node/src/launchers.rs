//! Which launcher pod is calling: by the mirror, and where that does not have it, by a list.
//!
//! A watch that broke may be open again half a minute later than the kubelet's own, and a refusal ends a machine: no caller is
//! refused by the mirror alone. One list is for all callers that wait, and there is at most one in two seconds, however many ask.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use garboard_protocol::causes::ErrorChain;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::cluster::ClusterError;
use crate::identity::PodUid;
use crate::mirror::Mirror;
use crate::pods::LauncherPod;

/// How long the agent waits for a pod that is unknown: the kubelet may see a pod a little earlier than the agent.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same, as long as the API server has not answered since the agent started.
const PATIENCE_AT_START: Duration = Duration::from_secs(20);
/// The least time from one list to the next.
const PERIOD: Duration = Duration::from_secs(2);

/// The launcher pods of this node, as the API server has them now.
type Listing = BoxFuture<'static, Result<Vec<LauncherPod>, ClusterError>>;

/// What is known of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The pod is a launcher pod of this node.
    Launcher(Box<LauncherPod>),
    /// The pod is no launcher pod, or is not there any more.
    Nowhere,
    /// The pod is unknown for now.
    Unknown,
}

/// Launcher pods of this node.
pub struct Launchers {
    mirror: Arc<Mirror<LauncherPod>>,
    list: Box<dyn Fn() -> Listing + Send + Sync>,
    last: Mutex<Last>,
}

/// The last list.
#[derive(Default)]
struct Last {
    /// When the list was requested.
    began: Option<Instant>,
    /// The mirror's revision at that time.
    revision: u64,
    /// The answer, if there was one.
    pods: Option<Vec<LauncherPod>>,
}

impl Launchers {
    /// The pods of a mirror; `list` is asked for pods that the mirror does not have.
    #[must_use]
    pub fn new<F>(mirror: Arc<Mirror<LauncherPod>>, list: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Vec<LauncherPod>, ClusterError>> + Send + 'static,
    {
        let list = Box::new(move || -> Listing { Box::pin(list()) });
        Self { mirror, list, last: Mutex::default() }
    }

    /// The pod of a caller: one that is not known yet is waited for a little.
    pub async fn caller(&self, uid: &PodUid) -> Found {
        match self.awaited(uid).await {
            Some(pod) => Found::Launcher(Box::new(pod)),
            None => self.listed(uid).await,
        }
    }

    /// Whether the pod was a launcher pod of this node when it was last seen.
    #[must_use]
    pub fn has(&self, uid: &PodUid) -> bool {
        self.mirror.get(uid.as_str()).is_some()
    }

    /// A pod as it is now.
    pub async fn find(&self, uid: &PodUid) -> Found {
        match self.mirror.get(uid.as_str()) {
            Some(pod) => Found::Launcher(Box::new(pod)),
            None => self.listed(uid).await,
        }
    }

    async fn awaited(&self, uid: &PodUid) -> Option<LauncherPod> {
        let mut changes = self.mirror.changes_of(uid.as_str());
        let patience = if self.mirror.is_known() { PATIENCE } else { PATIENCE_AT_START };
        let found = async {
            loop {
                changes.mark_unchanged();
                if let Some(pod) = self.mirror.get(uid.as_str()) {
                    return Some(pod);
                }
                changes.changed().await.ok()?;
            }
        };
        tokio::time::timeout(patience, found).await.ok().flatten()
    }

    /// Asks the API server, or waits for the answer to a later request of another task.
    async fn listed(&self, uid: &PodUid) -> Found {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        // A list that began before may be older than the pod.
        if last.began.is_none_or(|began| began < asked) {
            if let Some(began) = last.began {
                tokio::time::sleep_until(began + PERIOD).await;
            }
            // Before the answer: a task that is dropped while it waits leaves no list behind, rather than an old one.
            *last = Last { began: Some(Instant::now()), revision: self.mirror.revision(), pods: None };
            match (self.list)().await {
                Ok(pods) => last.pods = Some(pods),
                Err(error) => tracing::warn!(error = %ErrorChain(&error), "list of launcher pods failed; tried again"),
            }
        }
        let (revision, pods) = (last.revision, last.pods.as_ref());
        let listed = pods.map(|pods| pods.iter().find(|pod| pod.uid == *uid));
        // Other tasks, the writer of reports among them, look into the mirror.
        if let Some(Some(pod)) = listed {
            self.mirror.insert_listed(uid.as_str(), pod.clone(), revision);
        }
        match (self.mirror.get(uid.as_str()), listed) {
            (Some(pod), _) => Found::Launcher(Box::new(pod)),
            (None, Some(None)) => Found::Nowhere,
            // Nothing was answered, or the watch reported something meanwhile and has not come to this pod.
            (None, None | Some(Some(_))) => Found::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::runtime::watcher::Event;

    use super::*;
    use crate::pods::launcher_pod;
    use crate::pods::tests::{POD, example};

    fn pod() -> LauncherPod {
        launcher_pod(&example(), "node-1").unwrap()
    }

    /// A mirror whose API server has answered that there is nothing.
    fn empty() -> Arc<Mirror<LauncherPod>> {
        let mirror = Mirror::default();
        for event in [Event::Init, Event::InitDone] {
            mirror.apply(event, |()| (String::new(), None));
        }
        Arc::new(mirror)
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_the_watch_has_not_reported_is_found_by_a_list() {
        let mirror = empty();
        let launchers = Launchers::new(Arc::clone(&mirror), || async { Ok(vec![pod()]) });
        assert_eq!(launchers.caller(&pod().uid).await, Found::Launcher(Box::new(pod())));
        assert_eq!(mirror.get(POD), Some(pod()), "the writer of its status has it too");
        let other = PodUid::parse("ffffffff-7c1f-4d57-9c5e-6f0c7d6a1b2c").unwrap();
        assert_eq!(launchers.caller(&other).await, Found::Nowhere);
    }

    #[tokio::test(start_paused = true)]
    async fn as_long_as_the_api_server_is_away_a_pod_is_unknown() {
        let launchers = Launchers::new(empty(), || async { Err(ClusterError::Slow) });
        assert_eq!(launchers.caller(&pod().uid).await, Found::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_the_watch_overtook_is_not_believed() {
        let mirror = empty();
        let watched = Arc::clone(&mirror);
        let launchers = Launchers::new(Arc::clone(&mirror), move || {
            watched.apply(Event::Delete(()), |()| (POD.to_owned(), None));
            async { Ok(vec![pod()]) }
        });
        assert_eq!(launchers.find(&pod().uid).await, Found::Unknown);
        assert_eq!(mirror.get(POD), None);
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_ask_there_is_one_list_in_two_seconds() {
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lists);
        let launchers = Launchers::new(empty(), move || {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok(Vec::new()) }
        });
        let (began, uid) = (Instant::now(), pod().uid);
        for turn in 1..=5 {
            let found = futures::future::join_all((0..100).map(|_| launchers.find(&uid))).await;
            assert!(found.iter().all(|found| *found == Found::Nowhere), "{found:?}");
            assert_eq!(lists.load(Ordering::Relaxed), turn);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(began.elapsed() >= PERIOD * 4, "{:?}", began.elapsed());
    }
}
