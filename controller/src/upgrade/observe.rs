//! Which supervisors are outdated, out of the stores; and the node agents, asked of the API server while some are.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use garboard_api::VirtualMachineInstance;
use garboard_api::conditions::PodConditionType;
use garboard_api::metadata::{installation_annotation, label};
use garboard_api::v1::KubeVirt;
use garboard_cluster::report::condition::{UNPAUSED, condition};
use garboard_protocol::causes::ErrorChain;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::Api;
use kube::api::ListParams;

use super::PodKey;
use super::decide::{candidates, to_mark};
use super::names::{AGENTS_EVERY, LAUNCHERS_UPDATED, OUTDATED_LAUNCHER};
use super::world::{InstanceView, Launcher, Memory, Sidecar, Told, World};
use crate::kubevirt::NODES;
use crate::reconcilers::Leader;
use crate::stores::{Instances, Kept, Pods};
use crate::time::elapsed;

/// The sidecar of the supervisor, and the container of QEMU.
const SIDECAR: &str = "launcher";
const COMPUTE: &str = "compute";
/// By which the pods of the node agents are found.
const AGENT_SELECTOR: &str = "app.kubernetes.io/component=node";

/// Keeps the list of those that are outdated.
pub(super) struct Observer {
    leader: Arc<Leader>,
    /// By namespace and name of the pod.
    known: BTreeMap<PodKey, Launcher>,
    agents: Option<(Timestamp, BTreeSet<String>)>,
    /// Something was outdated in the last round, or the KubeVirt object says so.
    had_work: bool,
}

impl Observer {
    /// With everything that is outdated now, and what an earlier leader has begun.
    pub(super) fn new(leader: Arc<Leader>) -> Self {
        let pods = leader.pods.store().state();
        let mut observer = Self { leader, known: BTreeMap::new(), agents: None, had_work: true };
        for pod in pods {
            observer.take(&pod);
        }
        observer
    }

    /// Whether nothing is to be done until a pod changes.
    pub(super) fn is_idle(&self) -> bool {
        self.known.is_empty() && !self.had_work
    }

    /// Looks at pods that have changed.
    pub(super) fn look_at(&mut self, keys: &HashSet<PodKey>) {
        for key in keys {
            match self.leader.pods.named(&key.0, &key.1) {
                Some(pod) => self.take(&pod),
                None => drop(self.known.remove(key)),
            }
        }
    }

    fn take(&mut self, pod: &Kept<Pods>) {
        let wanted = &self.leader.context.launcher_image;
        // Nearly all pods, nearly always: they are not even read.
        let key = pod.key();
        let launcher = pod.read().ok().as_ref().and_then(launcher);
        let Some(launcher) = launcher else {
            self.known.remove(&key);
            return;
        };
        let is_current = launcher.image == *wanted;
        if !is_current || self.known.contains_key(&key) || self.is_marked(&launcher) {
            self.known.insert(key, launcher);
        }
    }

    fn is_marked(&self, launcher: &Launcher) -> bool {
        let instance = self.leader.instances.named(&launcher.namespace, &launcher.instance);
        instance.is_some_and(|instance| is_marked(&instance, launcher))
    }

    /// The world of this round; nothing if nothing is to be done.
    pub(super) async fn observe(&mut self, memory: &Memory, now: Timestamp) -> Option<World> {
        self.drop_finished(memory);
        let settings = self.leader.context.settings.borrow().clone();
        let told = settings.object.as_deref().and_then(told);
        self.had_work = !self.known.is_empty() || told.is_some();
        if !self.had_work {
            return None;
        }
        let mut world = World {
            wanted: self.leader.context.launcher_image.clone(),
            is_on: settings.object.as_deref().is_none_or(is_on),
            launchers: self.known.values().map(|each| (each.pod_uid.clone(), each.clone())).collect(),
            instances: BTreeMap::new(),
            agents: if self.known.is_empty() { BTreeSet::new() } else { self.agents(now).await },
            told,
            now,
        };
        world.instances = self.views(&world, memory);
        Some(world)
    }

    /// Those that are of the wanted image, and whose instances do not say otherwise any more.
    fn drop_finished(&mut self, memory: &Memory) {
        let wanted = self.leader.context.launcher_image.clone();
        let (known, leader) = (&mut self.known, &self.leader);
        known.retain(|_, launcher| {
            let instance = leader.instances.named(&launcher.namespace, &launcher.instance);
            let is_marked = instance.is_some_and(|instance| is_marked(&instance, launcher));
            launcher.image != wanted || is_marked || memory.underway.contains_key(&launcher.pod_uid)
        });
    }

    /// What instances say, of the few launchers that this round may be about.
    fn views(&self, world: &World, memory: &Memory) -> BTreeMap<String, InstanceView> {
        let replaced = world.launchers.values().filter(|each| each.image == world.wanted);
        let underway = memory.underway.keys().filter_map(|uid| world.launchers.get(uid));
        let all = replaced.chain(underway).chain(to_mark(world, memory)).chain(candidates(world, memory));
        let mut views = BTreeMap::new();
        for launcher in all {
            let instance = self.leader.instances.named(&launcher.namespace, &launcher.instance);
            let view = instance.and_then(|kept| read(&kept, launcher));
            views.extend(view.map(|view| (launcher.pod_uid.clone(), view)));
        }
        views
    }

    /// Nodes whose agents are of the installed version, and ready. Without an answer that is none.
    async fn agents(&mut self, now: Timestamp) -> BTreeSet<String> {
        if let Some((at, known)) = &self.agents
            && elapsed(*at, now) < AGENTS_EVERY
        {
            return known.clone();
        }
        let context = &self.leader.context;
        let sets: Api<DaemonSet> = Api::namespaced(context.client.clone(), &context.namespace);
        let pods: Api<Pod> = Api::namespaced(context.client.clone(), &context.namespace);
        let selected = ListParams::default().labels(AGENT_SELECTOR);
        let found = match futures::join!(sets.get_opt(NODES), pods.list(&selected)) {
            (Ok(set), Ok(pods)) => set.map(|set| current_agents(&set, &pods.items)).unwrap_or_default(),
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(error = %ErrorChain(&error), "the node agents could not be looked at");
                BTreeSet::new()
            }
        };
        self.agents = Some((now, found.clone()));
        found
    }
}

fn is_on(object: &KubeVirt) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    let said = annotations.and_then(|all| all.get(installation_annotation::LAUNCHER_UPDATE));
    said.is_none_or(|said| said != installation_annotation::DISABLED)
}

/// What the KubeVirt object says of supervisors.
pub(super) fn told(object: &KubeVirt) -> Option<Told> {
    let status = object.status.as_ref()?;
    let condition = status.conditions.iter().find(|each| each.r#type == LAUNCHERS_UPDATED)?;
    let outdated = status.outdated_virtual_machine_instance_workloads.unwrap_or(0);
    Some(Told {
        outdated: usize::try_from(outdated).unwrap_or(0),
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
    })
}

fn read(kept: &Kept<Instances>, launcher: &Launcher) -> Option<InstanceView> {
    let vmi = kept.read().ok()?;
    (vmi.metadata.uid.as_deref() == Some(launcher.instance_uid.as_str())).then(|| view(&vmi))
}

/// Whether an instance has label and condition. The text alone, which anybody may write into an instance, says nothing; it spares
/// reading those that do not have it.
fn is_marked(instance: &Kept<Instances>, launcher: &Launcher) -> bool {
    instance.mentions(label::OUTDATED_LAUNCHER_IMAGE)
        && read(instance, launcher).is_some_and(|view| view.marked.is_some())
}

/// What an instance says of its supervisor.
pub(super) fn view(vmi: &VirtualMachineInstance) -> InstanceView {
    let status = vmi.status.as_ref();
    let condition = status.and_then(|status| status.conditions.iter().find(|each| each.r#type == OUTDATED_LAUNCHER));
    let labels = vmi.metadata.labels.as_ref();
    let is_labelled = labels.is_some_and(|labels| labels.contains_key(label::OUTDATED_LAUNCHER_IMAGE));
    InstanceView {
        marked: condition.filter(|_| is_labelled).map(|condition| condition.message.clone().unwrap_or_default()),
        supervisor: status.and_then(|status| status.supervisor.clone()),
    }
}

/// The supervisor of a pod that is on a node and not over.
pub(super) fn launcher(pod: &Pod) -> Option<Launcher> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let sidecar = status.init_container_statuses.iter().flatten().find(|each| each.name == SIDECAR);
    Some(Launcher {
        namespace: pod.metadata.namespace.clone()?,
        pod: pod.metadata.name.clone()?,
        pod_uid: pod.metadata.uid.clone()?,
        instance: owner.name.clone(),
        instance_uid: owner.uid.clone(),
        node: spec.node_name.clone().filter(|name| !name.is_empty())?,
        image: image(spec.init_containers.iter().flatten(), SIDECAR)?,
        first_image: image(spec.containers.iter(), COMPUTE)?,
        // The gate is written when the guest runs, and says then whether it is paused.
        guest_runs: condition(pod, UNPAUSED).is_some() && pod.metadata.deletion_timestamp.is_none(),
        restarts: sidecar.map_or(0, |sidecar| sidecar.restart_count),
        state: sidecar.map_or(Sidecar::Else, state),
    })
}

fn image<'a>(mut containers: impl Iterator<Item = &'a Container>, name: &str) -> Option<String> {
    containers.find(|each| each.name == name)?.image.clone()
}

fn state(sidecar: &ContainerStatus) -> Sidecar {
    let state = sidecar.state.as_ref();
    match state.and_then(|state| state.waiting.as_ref()) {
        Some(waiting) => Sidecar::Waits {
            reason: waiting.reason.clone().unwrap_or_default(),
            message: waiting.message.clone().unwrap_or_default(),
        },
        None if sidecar.ready && state.is_some_and(|state| state.running.is_some()) => Sidecar::Runs,
        None => Sidecar::Else,
    }
}

/// Nodes of the agents that are ready and have the image of the DaemonSet's template; where all have been rolled out, an image
/// that something else has rewritten is as good.
pub(super) fn current_agents(set: &DaemonSet, pods: &[Pod]) -> BTreeSet<String> {
    let first =
        |pod: Option<&k8s_openapi::api::core::v1::PodSpec>| pod.and_then(|spec| spec.containers.first()?.image.clone());
    let wanted = first(set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()));
    let is_whole = set.status.as_ref().is_some_and(|status| {
        status.observed_generation == set.metadata.generation
            && status.updated_number_scheduled == Some(status.desired_number_scheduled)
    });
    let is_ready = |pod: &Pod| condition(pod, PodConditionType::Ready.word()).is_some_and(|each| each.status == "True");
    let current = pods.iter().filter(|pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none());
    let current = current.filter(|pod| is_whole || first(pod.spec.as_ref()) == wanted);
    current.filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect()
}
