//! The metrics of this node: what its machines and this agent do, collected when a controller asks, once for each scrape.
//!
//! ```text
//!   launcher pods of the mirror ─┬─► ask: its supervisor (QEMU, guest agent)      at once, within a time
//!                                └─► processes: /proc of its QEMU (kernel)
//!                                      └─► names ─► samples (pure) ─► text ─► the controller's connection
//! ```
//!
//! Nothing listens here (`docs/adr/0045-metrics-come-up-the-tunnel.md`). A machine that does not answer is there with what the kernel
//! says of it, and is counted.

mod names;
mod processes;
mod samples;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use garboard_api::v1::VirtualMachineInstance;
use garboard_cluster::requests::Requests;
use garboard_log::otlp;
use garboard_metrics::catalogue::node as catalogue;
use garboard_metrics::{Exposition, Labels, as_float};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::statistics::Statistics;
use garboard_tunnel::LONGEST_METRICS;
use garboard_tunnel::agent::{Opened, Refusal, Supervisors};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tracing::Span;

use crate::ask;
use crate::identity::{KubeletRoot, PodUid};
use crate::mirror::Mirror;
use crate::pods::LauncherPod;
use crate::supervisors::Connected;

use names::Names;
use processes::Process;
use samples::{Machine, Within};

/// How long all supervisors together may take. Each has two seconds ([`ask`]).
const WITHIN: Duration = Duration::from_secs(4);
/// Supervisors that are asked at once.
const AT_ONCE: usize = 64;
/// How old an answer may be that is given again, to another replica or another Prometheus that scrapes just then.
const FRESH: Duration = Duration::from_secs(1);
/// The most bytes of all samples; names and help texts come to them.
const MOST: usize = LONGEST_METRICS - (64 << 10);
/// The most bytes of one machine: some hundred disks. Where machines together have more than [`MOST`], the share of each is the most.
const MOST_OF_A_MACHINE: usize = 1 << 20;

/// Where metrics are collected.
pub struct Sources {
    /// This node.
    pub node: String,
    /// The version of this program.
    pub version: &'static str,
    /// Launcher pods of this node.
    pub pods: Arc<Mirror<LauncherPod>>,
    /// VMIs of this node, for their labels.
    pub vmis: Arc<Mirror<Arc<VirtualMachineInstance>>>,
    /// `/proc`, as this node's processes have it.
    pub processes: PathBuf,
    /// What this program asks the API server.
    pub requests: Requests,
}

/// What controllers ask of this agent: connections to supervisors, and metrics.
pub struct Served {
    supervisors: Connected,
    sources: Sources,
    /// One scrape at a time.
    last: Mutex<Last>,
}

/// What is kept of earlier scrapes.
#[derive(Default)]
struct Last {
    /// The last text.
    text: Option<(Instant, String)>,
    /// What machines were named.
    names: Names,
}

impl Served {
    /// Of these.
    #[must_use]
    pub fn new(supervisors: Connected, sources: Sources) -> Self {
        Self { supervisors, sources, last: Mutex::default() }
    }

    async fn collect(&self, names: &mut Names) -> String {
        let began = Instant::now();
        let mut pods = self.sources.pods.all();
        pods.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        let launchers: HashSet<PodUid> = pods.iter().map(|pod| pod.uid.clone()).collect();
        names.keep(&launchers);
        let (mut processes, mut answers) = tokio::join!(self.processes(launchers), self.answers(&pods, began + WITHIN));
        let machines = pods.into_iter().map(|pod| Machine {
            process: processes.remove(&pod.uid),
            statistics: answers.remove(&pod.uid),
            vmi: self.sources.vmis.get(&pod.vmi_uid),
            pod,
        });
        // One without QEMU has nothing to say: it starts, or has ended.
        let mut running: Vec<Machine> = machines.filter(|machine| machine.process.is_some()).collect();
        let unnamed = running.iter_mut().map(|machine| names.bound(machine, began.into_std())).sum();
        self.exposed(running, unnamed, began).text()
    }

    /// The text of these machines, of which so many names were left out.
    fn exposed(&self, machines: Vec<Machine>, unnamed: usize, began: Instant) -> Exposition {
        let node = &self.sources.node;
        let most = most_of_each(&machines, node);
        let running = u64::try_from(machines.len()).unwrap_or(u64::MAX);
        let (mut all, mut unanswered, mut left_out) = (Exposition::default(), 0, 0);
        for machine in machines {
            unanswered += u64::from(machine.statistics.is_none());
            let Within { samples, is_all } = samples::within(machine, node, most);
            left_out += u64::from(!is_all);
            all.append(samples);
        }
        let labels = Labels::of(&[("node", node.as_str())]);
        all.add(&catalogue::INFO, &Labels::of(&[("kubeversion", self.sources.version)]), 1.0);
        all.add(&catalogue::NODE_MACHINES, &labels, as_float(running));
        all.add(&catalogue::NODE_UNANSWERED, &labels, as_float(unanswered));
        all.add(&catalogue::NODE_LEFT_OUT, &labels, as_float(left_out));
        all.add(&catalogue::NODE_NAMES_LEFT_OUT, &labels, as_float(u64::try_from(unnamed).unwrap_or(u64::MAX)));
        for (asked, count) in self.sources.requests.counted() {
            all.add(&catalogue::REST_CLIENT_REQUESTS, &Labels::of(&asked.labels()), as_float(count));
        }
        all.add(&catalogue::NODE_SCRAPE_SECONDS, &labels, began.elapsed().as_secs_f64());
        all
    }

    /// The QEMU of each of these pods, as the kernel has it.
    async fn processes(&self, launchers: HashSet<PodUid>) -> HashMap<PodUid, Process> {
        let root = self.sources.processes.clone();
        let read = tokio::task::spawn_blocking(move || {
            let own = std::fs::read_to_string(root.join("self/cgroup"))?;
            let kubelet = KubeletRoot::of(&own).map_err(std::io::Error::other)?;
            processes::of_pods(&root, &kubelet, &launchers)
        });
        match read.await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                tracing::warn!(error = %ErrorChain(&error), "processes could not be read; metrics lack them");
                HashMap::new()
            }
            // It panicked, which the panic itself has logged.
            Err(_) => HashMap::new(),
        }
    }

    /// What the supervisors of pods answer before the end.
    async fn answers(&self, pods: &[LauncherPod], end: Instant) -> HashMap<PodUid, Statistics> {
        let uids: Vec<PodUid> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let asked = uids.into_iter().map(|uid| async move {
            let answer = ask::statistics(&self.supervisors, uid.as_str()).await;
            answer
                .inspect_err(|error| tracing::debug!(pod = %uid, error = %ErrorChain(error), "no statistics"))
                .ok()
                .map(|statistics| (uid, statistics))
        });
        let mut answers = futures::stream::iter(asked).buffer_unordered(AT_ONCE);
        let mut found = HashMap::new();
        while let Ok(Some(answer)) = timeout_at(end, answers.next()).await {
            found.extend(answer);
        }
        found
    }
}

/// The most bytes of each machine. Where there is not room for all, each has the same share: those of one namespace cannot take the
/// room of another's.
fn most_of_each(machines: &[Machine], node: &str) -> usize {
    let bytes = machines.iter().map(|machine| samples::of(machine, node).bytes().min(MOST_OF_A_MACHINE));
    let is_room = bytes.sum::<usize>() <= MOST;
    if is_room { MOST_OF_A_MACHINE } else { (MOST / machines.len().max(1)).min(MOST_OF_A_MACHINE) }
}

impl Supervisors for Served {
    async fn open(&self, pod_uid: &str) -> Result<Opened, Refusal> {
        self.supervisors.open(pod_uid).await
    }

    fn follow(&self, span: &Span, trace: &str) {
        otlp::follow_header(span, trace);
    }

    async fn metrics(&self) -> Option<String> {
        let mut last = self.last.lock().await;
        if let Some((at, text)) = last.text.as_ref()
            && at.elapsed() < FRESH
        {
            return Some(text.clone());
        }
        let text = self.collect(&mut last.names).await;
        last.text = Some((Instant::now(), text.clone()));
        Some(text)
    }
}

#[cfg(test)]
mod tests;
