//! Which supervisors are outdated, out of the stores.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use garboard_api::VirtualMachineInstance;
use garboard_api::conditions::{self, Reason};
use garboard_api::metadata::{installation_annotation, label};
use garboard_api::v1::KubeVirt;
use garboard_cluster::report::condition::{UNPAUSED, condition};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};

use super::decide::{candidates, may_begin, to_mark};
use super::installed::Lookout;
use super::names::{LAUNCHERS_UPDATED, OUTDATED_LAUNCHER};
use super::world::{InstanceView, Launcher, Reported, RoundMemory, Sidecar, World};
use crate::pod::WRITTEN_IMAGE;
use crate::reconcilers::Leader;
use crate::stores::{Cached, Instances, ObjectKey, Pods};

/// The sidecar of the supervisor, and the container of QEMU.
const SIDECAR: &str = "launcher";
const COMPUTE: &str = "compute";

/// Keeps the list of those that are outdated.
pub(super) struct Observer {
    leader: Arc<Leader>,
    /// By namespace and name of the pod.
    known: BTreeMap<ObjectKey, Launcher>,
    /// What is stored where the wanted image was written, as new pods show it.
    stored_as: BTreeSet<String>,
    lookout: Lookout,
    /// Something was outdated in the last round, or the KubeVirt object has it.
    had_work: bool,
}

impl Observer {
    /// With everything that is outdated now, and what an earlier leader has begun.
    pub(super) fn new(leader: Arc<Leader>) -> Self {
        let pods = leader.pods.store().state();
        let (known, stored_as, lookout) = (BTreeMap::new(), BTreeSet::new(), Lookout::default());
        let mut observer = Self { leader, known, stored_as, lookout, had_work: true };
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
    pub(super) fn look_at(&mut self, keys: &HashSet<ObjectKey>) {
        for key in keys {
            match self.leader.pods.named(&key.namespace, &key.name) {
                Some(pod) => self.take(&pod),
                None => drop(self.known.remove(key)),
            }
        }
    }

    fn take(&mut self, pod: &Cached<Pods>) {
        // Nearly all pods, nearly always: they are not even read.
        let key = pod.key();
        let launcher = pod.read().ok().as_ref().and_then(launcher);
        let Some(launcher) = launcher else {
            self.known.remove(&key);
            return;
        };
        let wanted = &self.leader.context.launcher_image;
        if launcher.written_image.as_ref() == Some(wanted) {
            self.stored_as.insert(launcher.first_image.clone());
        }
        let is_current = launcher.image == *wanted || self.stored_as.contains(&launcher.image);
        if !is_current || self.known.contains_key(&key) || self.is_marked(&launcher) {
            self.known.insert(key, launcher);
        }
    }

    fn is_marked(&self, launcher: &Launcher) -> bool {
        let instance = self.leader.instances.named(&launcher.namespace, &launcher.instance);
        instance.is_some_and(|instance| is_marked(&instance, launcher))
    }

    /// The world of this round; nothing if nothing is to be done, or the API server does not answer what is installed.
    pub(super) async fn observe(&mut self, memory: &RoundMemory, now: Timestamp) -> Option<World> {
        let mut launchers = self.launchers(memory);
        self.drop_finished(&launchers, memory);
        launchers.retain(|_, each| self.known.contains_key(&key(each)));
        let settings = self.leader.context.settings.borrow().clone();
        let reported = settings.object.as_deref().and_then(reported);
        self.had_work = !self.known.is_empty() || reported.is_some();
        if !self.had_work {
            return None;
        }
        let mut world = World {
            wanted: self.leader.context.launcher_image.clone(),
            is_installed: true,
            is_on: settings.object.as_deref().is_none_or(is_on),
            launchers,
            instances: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            agents: BTreeSet::new(),
            reported,
            now,
        };
        if !world.launchers.is_empty() {
            let is_active = may_begin(&world, memory);
            let installed = self.lookout.look(&self.leader.context, is_active, now).await?;
            (world.is_installed, world.agents) = (installed.is_ours, installed.agents);
        }
        let (instances, unreadable) = self.views(&world, memory);
        (world.instances, world.unreadable) = (instances, unreadable);
        Some(world)
    }

    /// Those that may have to be looked after, by the UID of the pod. What the wanted image is stored as is the wanted image.
    fn launchers(&self, memory: &RoundMemory) -> BTreeMap<String, Launcher> {
        let wanted = &self.leader.context.launcher_image;
        let is_it = |image: &String| self.stored_as.contains(image) || memory.stored_as.contains(image);
        let mut launchers: BTreeMap<_, _> =
            self.known.values().map(|each| (each.pod_uid.clone(), each.clone())).collect();
        for launcher in launchers.values_mut() {
            for image in [&mut launcher.image, &mut launcher.first_image] {
                if is_it(image) {
                    image.clone_from(wanted);
                }
            }
        }
        launchers
    }

    /// Those that are of the wanted image, and whose instances do not report otherwise any more.
    fn drop_finished(&mut self, launchers: &BTreeMap<String, Launcher>, memory: &RoundMemory) {
        let wanted = &self.leader.context.launcher_image;
        let (known, leader) = (&mut self.known, &self.leader);
        known.retain(|_, launcher| {
            let instance = leader.instances.named(&launcher.namespace, &launcher.instance);
            let is_marked = instance.is_some_and(|instance| is_marked(&instance, launcher));
            let is_outdated = launchers.get(&launcher.pod_uid).is_some_and(|each| each.image != *wanted);
            is_outdated || is_marked || memory.underway.contains_key(&launcher.pod_uid)
        });
    }

    /// What instances report, of the few launchers that this round may be about, and which of them cannot be read.
    fn views(&self, world: &World, memory: &RoundMemory) -> (BTreeMap<String, InstanceView>, BTreeSet<String>) {
        let replaced = world.launchers.values().filter(|each| each.image == world.wanted);
        let underway = memory.underway.keys().filter_map(|uid| world.launchers.get(uid));
        let all = replaced.chain(underway).chain(to_mark(world, memory)).chain(candidates(world, memory));
        let (mut views, mut unreadable) = (BTreeMap::new(), BTreeSet::new());
        for launcher in all {
            let instance = self.leader.instances.named(&launcher.namespace, &launcher.instance);
            match instance.and_then(|kept| read(&kept, launcher)) {
                Some(view) => drop(views.insert(launcher.pod_uid.clone(), view)),
                None => drop(unreadable.insert(launcher.pod_uid.clone())),
            }
        }
        for launcher in unreadable.iter().filter_map(|uid| world.launchers.get(uid)) {
            if !memory.marked.contains(&launcher.pod_uid) {
                tracing::warn!(
                    namespace = launcher.namespace,
                    instance = launcher.instance,
                    "the instance of a pod cannot be read; its supervisor is replaced after all others, and only the pod's status shows whether it runs"
                );
            }
        }
        (views, unreadable)
    }
}

fn key(launcher: &Launcher) -> ObjectKey {
    ObjectKey::new(&launcher.namespace, &launcher.pod)
}

fn is_on(object: &KubeVirt) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    let value = annotations.and_then(|all| all.get(installation_annotation::LAUNCHER_UPDATE));
    value.is_none_or(|value| value != installation_annotation::DISABLED)
}

/// What the KubeVirt object reports of supervisors.
pub(super) fn reported(object: &KubeVirt) -> Option<Reported> {
    let status = object.status.as_ref()?;
    let condition = conditions::find(&status.conditions, LAUNCHERS_UPDATED)?;
    let outdated = status.outdated_virtual_machine_instance_workloads.unwrap_or(0);
    Some(Reported {
        outdated: usize::try_from(outdated).unwrap_or(0),
        reason: condition.reason.as_deref().and_then(Reason::from_name),
        message: condition.message.clone().unwrap_or_default(),
    })
}

fn read(kept: &Cached<Instances>, launcher: &Launcher) -> Option<InstanceView> {
    let vmi = kept.read().ok()?;
    (vmi.metadata.uid.as_deref() == Some(launcher.instance_uid.as_str())).then(|| view(&vmi))
}

/// Whether an instance has label and condition. The text alone, which any user may write into an instance, proves nothing; it spares
/// reading those that do not have it.
fn is_marked(instance: &Cached<Instances>, launcher: &Launcher) -> bool {
    instance.mentions(label::OUTDATED_LAUNCHER_IMAGE)
        && read(instance, launcher).is_some_and(|view| view.marked.is_some())
}

/// What an instance reports of its supervisor.
pub(super) fn view(vmi: &VirtualMachineInstance) -> InstanceView {
    let status = vmi.status.as_ref();
    let condition = status.and_then(|status| conditions::find(&status.conditions, OUTDATED_LAUNCHER));
    let labels = vmi.metadata.labels.as_ref();
    let is_labelled = labels.is_some_and(|labels| labels.contains_key(label::OUTDATED_LAUNCHER_IMAGE));
    InstanceView {
        marked: condition.filter(|_| is_labelled).map(|condition| condition.message.clone().unwrap_or_default()),
        condition: condition.cloned(),
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
        written_image: pod.metadata.annotations.as_ref().and_then(|all| all.get(WRITTEN_IMAGE)).cloned(),
        // The gate is written when the guest runs, and shows then whether it is paused.
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
