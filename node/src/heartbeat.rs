//! The node's labels, and the heartbeat of its agent: one write for both, after a first heartbeat whose answer has the labels.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use garboard_api::metadata::node_annotation::{self, CONTROLLERS, HEARTBEAT};
use garboard_host::offer::NodeOffer;
use garboard_host::root::HostRoot;
use garboard_protocol::causes::ErrorChain;
use tokio::sync::watch;

use crate::cluster::{ApiServer, ClusterError, NodeMetadata};
use crate::connections::Connections;
use crate::device::resource::Health;
use crate::labels::{self, NodeState, RequestedLabels};
use crate::mirror::Mirror;
use crate::pods::LauncherPod;

/// Time between two heartbeats. Each is a write of an object that every controller of nodes watches: minutes, and not all at
/// once.
const PERIOD: Duration = Duration::from_secs(node_annotation::HEARTBEAT_SECONDS - 60);
/// What is added at most, by the node's name.
const SPREAD: Duration = Duration::from_secs(60);
/// Pause after a heartbeat that did not arrive, and after one whose labels another client undid: a webhook may do so each time.
const PAUSE: Duration = Duration::from_secs(2);
/// How long the kubelet may take to have the node's devices.
const SETTLING: Duration = Duration::from_secs(3);

// The limit after which an agent counts as silent has to be longer than the longest time between two heartbeats of a living one.
const _: () = {
    let longest = PERIOD.as_secs() + SPREAD.as_secs();
    assert!(longest <= node_annotation::HEARTBEAT_SECONDS, "a heartbeat comes later than is promised");
    let late = longest + PAUSE.as_secs() + SETTLING.as_secs();
    assert!(late < node_annotation::SILENT_SECONDS, "an agent that lives would count as silent");
};

/// What is looked at before each heartbeat.
pub struct Sources {
    /// What the node's QEMU offers.
    pub offer: Option<NodeOffer>,
    /// Whether the kubelet has the node's devices.
    pub registered: watch::Receiver<bool>,
    /// Whether `/dev/kvm` opens.
    pub kvm: watch::Receiver<Health>,
    /// Launcher pods of this node.
    pub pods: Arc<Mirror<LauncherPod>>,
    /// Connections to controllers.
    pub connections: Arc<Connections>,
}

impl Sources {
    /// Labels that machines of this node asked for; nothing as long as it is not known which there are.
    fn asked(&self) -> Option<BTreeSet<String>> {
        self.pods.is_known().then(|| self.pods.all().into_iter().flat_map(|pod| pod.needs).collect())
    }
}

/// Reads what was found out about the node's QEMU before the agent started; nothing if that failed, which is logged.
#[must_use]
pub fn read_offer(path: &Path) -> Option<NodeOffer> {
    let read = std::fs::read(path).and_then(|text| Ok(serde_json::from_slice(&text)?));
    read.inspect_err(|error| {
        let path = path.display();
        tracing::warn!(%path, %error, "capabilities of QEMU are unknown; labels of CPU models and machine types are left out");
    })
    .ok()
}

/// Sends heartbeats until the task is dropped, and soon when the kubelet takes the node's devices or KVM comes or goes.
pub async fn beat(api: ApiServer, node: String, mut sources: Sources) {
    // The kubelet takes a moment: one write instead of two.
    let _ = tokio::time::timeout(SETTLING, sources.registered.wait_for(|registered| *registered)).await;
    let mut known = Known::default();
    loop {
        let pause = match sign(&api, &node, &mut sources, &mut known).await {
            Ok(Settled::Yes) => period(&node),
            Ok(Settled::No) => PAUSE,
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "update of the node's labels failed; tried again");
                PAUSE
            }
        };
        let changed = tokio::select! {
            () = tokio::time::sleep(pause) => continue,
            // Once is enough: a kubelet that restarts changes no label.
            changed = sources.registered.changed(), if !known.registered => changed,
            changed = sources.kvm.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        // A device that comes or goes may do so more than once.
        tokio::time::sleep(SETTLING).await;
    }
}

/// Time from one heartbeat of a node to the next.
fn period(node: &str) -> Duration {
    let mixed = node.bytes().fold(7, |all: u64, byte| all.wrapping_mul(31).wrapping_add(byte.into()));
    PERIOD + Duration::from_secs(mixed % SPREAD.as_secs())
}

/// What is kept from one heartbeat to the next.
#[derive(Default)]
struct Known {
    /// What the node had after the last one.
    marks: Option<NodeMetadata>,
    /// The kubelet had the node's devices once.
    registered: bool,
}

/// Whether the node has the labels it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    Yes,
    No,
}

impl Settled {
    const fn of(settled: bool) -> Self {
        if settled { Self::Yes } else { Self::No }
    }
}

/// One write: the time, and what is to be different. What the node has is known from the answer to the last one. The first
/// one is the time alone: before its answer it is unknown what an earlier agent left, and whether users keep the labels
/// ([`labels::SKIP`]).
async fn sign(api: &ApiServer, node: &str, sources: &mut Sources, known: &mut Known) -> Result<Settled, ClusterError> {
    known.registered |= *sources.registered.borrow_and_update();
    let state = NodeState {
        offer: sources.offer.as_ref(),
        schedulable: known.registered,
        kvm: *sources.kvm.borrow_and_update() == Health::Healthy,
        ksm: HostRoot::real().read_trimmed("/sys/kernel/mm/ksm/run").as_deref() == Some("1"),
    };
    let wanted = labels::wanted(&state);
    let running = sources.asked();
    let asked = running.as_ref().map_or(RequestedLabels::Unknown, RequestedLabels::Labels);
    let differing = |marks: &NodeMetadata| labels::difference(&marks.labels, &marks.annotations, &wanted, asked);
    // As long as it is not known what machines asked for, labels that are not true stay: then there is another heartbeat soon.
    let settled = |marks: &NodeMetadata| match running {
        Some(_) => differing(marks).is_empty(),
        None => {
            labels::difference(&marks.labels, &marks.annotations, &wanted, RequestedLabels::Labels(&BTreeSet::new()))
                .is_empty()
        }
    };
    let changes = match &known.marks {
        Some(before) => differing(before),
        None => {
            let found = mark(api, node, &BTreeMap::new(), sources.connections.count()).await?;
            let marks = known.marks.insert(found);
            let changes = differing(marks);
            if changes.is_empty() {
                return Ok(Settled::of(settled(marks)));
            }
            changes
        }
    };
    if !changes.is_empty() {
        tracing::info!(changes = changes.len(), schedulable = state.schedulable, "the node's labels are updated");
    }
    let after = mark(api, node, &changes, sources.connections.count()).await?;
    Ok(Settled::of(settled(known.marks.insert(after))))
}

/// The one write.
async fn mark(
    api: &ApiServer,
    node: &str,
    labels: &BTreeMap<String, Option<String>>,
    connections: Option<usize>,
) -> Result<NodeMetadata, ClusterError> {
    match api.mark_node(node, labels, &heartbeat(connections)).await {
        // A policy of a version before lets the agent write no annotation but the first.
        Err(error) if connections.is_some() && error.is_final() => api.mark_node(node, labels, &heartbeat(None)).await,
        outcome => outcome,
    }
}

/// The annotations that show that the agent lives, and whether controllers reach it.
fn heartbeat(connections: Option<usize>) -> BTreeMap<String, String> {
    let now = format!("{:.0}", jiff::Timestamp::now());
    let connected = connections.map(|count| (CONTROLLERS.to_owned(), format!("{count} {now}")));
    connected.into_iter().chain([(HEARTBEAT.to_owned(), now)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_connections_has_the_time_of_the_heartbeat() {
        let annotations = heartbeat(Some(2));
        assert_eq!(annotations[CONTROLLERS], format!("2 {}", annotations[HEARTBEAT]));
        assert!(!heartbeat(None).contains_key(CONTROLLERS));
    }

    #[test]
    fn nodes_do_not_sign_all_at_once() {
        let periods: BTreeSet<_> = (0..100).map(|number| period(&format!("node-{number}"))).collect();
        assert!(periods.len() > 30, "{periods:?}");
        assert!(periods.iter().all(|period| (PERIOD..PERIOD + SPREAD).contains(period)));
    }
}
