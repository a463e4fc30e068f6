//! What a diagnosis of a machine is made from, and the ways to look. A value, so that what one person saw can be judged by
//! another, and by tests.

use garboard_api::conditions::{NodeConditionType, PodConditionType, VmConditionType, VmiConditionType};
use garboard_api::metadata::label;
use garboard_api::metadata::node_annotation::{CONTROLLERS, HEARTBEAT, SILENT_SECONDS};
use garboard_api::metadata::node_label::SCHEDULABLE;
use garboard_api::run_strategy::RunStrategy;
use garboard_api::v1::VirtualMachineInstanceSpec;
use garboard_api::{VirtualMachine, VirtualMachineInstance};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Node, PersistentVolumeClaim, Pod};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything that is known of a machine and what it depends on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Facts {
    /// When it was looked.
    pub(crate) now: Timestamp,
    /// The machine's namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// The machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vm: Option<VirtualMachine>,
    /// Its instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vmi: Option<VirtualMachineInstance>,
    /// Launcher pods of its name, the newest first.
    pub(crate) pods: Vec<Pod>,
    /// Events about the machine, the instance, their pods and claims.
    pub(crate) events: Vec<Event>,
    /// Records of its runs, for users who may see them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) runs: Vec<Value>,
    /// The claims it names, as far as they exist.
    pub(crate) claims: Vec<PersistentVolumeClaim>,
    /// Its DataVolumes, as far as they exist.
    pub(crate) data_volumes: Vec<Value>,
    /// The cluster's nodes, for users who may see them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<Vec<Node>>,
    /// Garboard's own parts, for users who may see them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parts: Option<Parts>,
    /// Objects of the kind KubeVirt.
    pub(crate) kubevirts: Vec<Value>,
    /// Names that are almost this one, if there is no such machine.
    pub(crate) near: Vec<String>,
    /// What could not be looked at, and why: a message each.
    pub(crate) unseen: Vec<String>,
}

/// Garboard's own parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Parts {
    /// The controllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<Deployment>,
    /// Their pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) controllers: Vec<Pod>,
    /// The node agents.
    pub(crate) agents: Vec<Pod>,
}

/// A condition of any object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    /// `True`, `False` or `Unknown`.
    pub(crate) status: String,
    /// Its reason, for programs.
    pub(crate) reason: String,
    /// Its message, for a person.
    pub(crate) message: String,
    /// Since when.
    pub(crate) since: Option<Timestamp>,
}

impl Facts {
    /// The instance's phase; `Pending` for one without a status.
    pub(crate) fn phase(&self) -> Option<&str> {
        let vmi = self.vmi.as_ref()?;
        Some(vmi.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending"))
    }

    /// When the instance entered its phase.
    pub(crate) fn phase_since(&self) -> Option<Timestamp> {
        let phase = self.phase()?;
        let transitions = &self.vmi.as_ref()?.status.as_ref()?.phase_transition_timestamps;
        let entered = transitions.iter().find(|each| each.phase.as_deref() == Some(phase))?;
        Some(entered.phase_transition_timestamp.as_ref()?.0)
    }

    /// What is specified: of the instance, or else in the machine's template.
    pub(crate) fn spec(&self) -> Option<&VirtualMachineInstanceSpec> {
        let of_vmi = self.vmi.as_ref().map(|vmi| &vmi.spec);
        of_vmi.or_else(|| self.vm.as_ref()?.spec.template.spec.as_ref())
    }

    /// When the machine is to run.
    pub(crate) fn strategy(&self) -> Option<RunStrategy> {
        self.vm.as_ref().and_then(RunStrategy::of)
    }

    /// A condition of the machine.
    pub(crate) fn of_vm(&self, kind: VmConditionType) -> Option<Condition> {
        let conditions = &self.vm.as_ref()?.status.as_ref()?.conditions;
        let found = conditions.iter().find(|each| each.r#type == kind.name())?;
        Some(Condition {
            status: found.status.clone(),
            reason: found.reason.clone().unwrap_or_default(),
            message: found.message.clone().unwrap_or_default(),
            since: found.last_transition_time.as_ref().map(|time| time.0),
        })
    }

    /// A condition of the instance.
    pub(crate) fn of_vmi(&self, kind: VmiConditionType) -> Option<Condition> {
        let conditions = &self.vmi.as_ref()?.status.as_ref()?.conditions;
        let found = conditions.iter().find(|each| each.r#type == kind.name())?;
        Some(Condition {
            status: found.status.clone(),
            reason: found.reason.clone().unwrap_or_default(),
            message: found.message.clone().unwrap_or_default(),
            since: found.last_transition_time.as_ref().map(|time| time.0),
        })
    }

    /// The pod of the present instance; without an instance, the last one of its name.
    pub(crate) fn pod(&self) -> Option<&Pod> {
        let Some(vmi) = &self.vmi else { return self.pods.first() };
        let uid = vmi.metadata.uid.as_ref()?;
        let created_by = |pod: &&Pod| {
            pod.metadata.labels.iter().flatten().any(|(key, value)| key == label::CREATED_BY && value == uid)
        };
        self.pods.iter().find(created_by)
    }

    /// The node that the pod, or else the instance, names.
    pub(crate) fn node_name(&self) -> Option<&str> {
        let of_pod = self.pod().and_then(|pod| pod.spec.as_ref()?.node_name.as_deref());
        let of_vmi = self.vmi.as_ref().and_then(|vmi| vmi.status.as_ref()?.node_name.as_deref());
        of_pod.or(of_vmi).filter(|name| !name.is_empty())
    }

    /// That node, if it may be seen and is there.
    pub(crate) fn node(&self) -> Option<&Node> {
        self.node_named(self.node_name()?)
    }

    fn node_named(&self, name: &str) -> Option<&Node> {
        self.nodes.as_ref()?.iter().find(|node| node.metadata.name.as_deref() == Some(name))
    }

    /// What the agent of a node reports in an annotation of it.
    fn reported(&self, node: &str, annotation: &str) -> Option<&str> {
        self.node_named(node)?.metadata.annotations.as_ref()?.get(annotation).map(String::as_str)
    }

    /// Events about an object, the newest first.
    pub(crate) fn events_of(&self, kind: &str) -> Vec<&Event> {
        let mut events: Vec<&Event> =
            self.events.iter().filter(|event| event.involved_object.kind.as_deref() == Some(kind)).collect();
        events.sort_by_key(|event| std::cmp::Reverse(when(event)));
        events
    }

    /// The record of the last run that is over.
    pub(crate) fn last_run(&self) -> Option<&Value> {
        // Times of one form: their order is that of their texts.
        self.runs.iter().max_by_key(|run| run["spec"]["endedAt"].as_str().unwrap_or_default())
    }

    /// Whether the controllers are known not to work.
    pub(crate) fn is_without_controller(&self) -> bool {
        let Some(parts) = &self.parts else { return false };
        let available = parts.controller.as_ref().and_then(|each| each.status.as_ref()?.available_replicas);
        parts.controller.is_some() && available.unwrap_or(0) == 0
    }

    /// The agent of a node.
    pub(crate) fn agent(&self, node: &str) -> Option<&Pod> {
        let agents = &self.parts.as_ref()?.agents;
        agents.iter().find(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node))
    }

    /// Whether a node's agent is known not to work: its pod is not ready, or it gives no sign of life.
    pub(crate) fn is_without_agent(&self, node: &str) -> bool {
        let is_down = self.parts.is_some() && !self.agent(node).is_some_and(ready_of);
        is_down || self.silent_since(node).is_some()
    }

    /// When a node's agent gave its last sign of life, if a living one would have given another since.
    pub(crate) fn silent_since(&self, node: &str) -> Option<Timestamp> {
        let last = self.reported(node, HEARTBEAT)?.parse::<Timestamp>().ok()?;
        let seconds = u64::try_from(self.now.duration_since(last).as_secs()).unwrap_or(0);
        (seconds >= SILENT_SECONDS).then_some(last)
    }

    /// [`connected_controllers`] of the agent of a node.
    pub(crate) fn controllers_of(&self, node: &str) -> Option<(usize, Timestamp)> {
        connected_controllers(self.node_named(node)?)
    }

    /// Nodes that take machines; nothing if nodes may not be seen.
    pub(crate) fn schedulable_nodes(&self) -> Option<usize> {
        self.nodes_with(SCHEDULABLE)
    }

    /// Nodes that take machines and whose agent has set a label to `true`; nothing if nodes may not be seen.
    pub(crate) fn nodes_with(&self, label: &str) -> Option<usize> {
        let has = |node: &Node, label: &str| {
            node.metadata.labels.as_ref().and_then(|labels| labels.get(label)).is_some_and(|value| value == "true")
        };
        Some(self.nodes.as_ref()?.iter().filter(|node| has(node, SCHEDULABLE) && has(node, label)).count())
    }
}

/// To how many controllers a node's agent was connected at its last sign of life, and when that was. Nothing of an agent of a version
/// that does not report it, also where one that did was there before.
pub(crate) fn connected_controllers(node: &Node) -> Option<(usize, Timestamp)> {
    let annotations = node.metadata.annotations.as_ref()?;
    let (count, at) = annotations.get(CONTROLLERS)?.split_once(' ')?;
    let is_of_this_one = annotations.get(HEARTBEAT).is_some_and(|heartbeat| heartbeat == at);
    let at = at.parse::<Timestamp>().ok().filter(|_| is_of_this_one)?;
    Some((count.parse().ok()?, at))
}

/// When an event happened last.
pub(crate) fn when(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let made = event.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    series.or(last).or(event.event_time.as_ref().map(|time| time.0)).or(made)
}

/// A condition of a pod.
pub(crate) fn of_pod(pod: &Pod, kind: PodConditionType) -> Option<Condition> {
    let found = pod.status.as_ref()?.conditions.as_ref()?.iter().find(|each| each.type_ == kind.name())?;
    Some(Condition {
        status: found.status.clone(),
        reason: found.reason.clone().unwrap_or_default(),
        message: found.message.clone().unwrap_or_default(),
        since: found.last_transition_time.as_ref().map(|time| time.0),
    })
}

/// A condition of a node.
pub(crate) fn of_node(node: &Node, kind: NodeConditionType) -> Option<Condition> {
    let found = node.status.as_ref()?.conditions.as_ref()?.iter().find(|each| each.type_ == kind.name())?;
    Some(Condition {
        status: found.status.clone(),
        reason: found.reason.clone().unwrap_or_default(),
        message: found.message.clone().unwrap_or_default(),
        since: found.last_transition_time.as_ref().map(|time| time.0),
    })
}

/// Whether a pod is ready.
pub(crate) fn ready_of(pod: &Pod) -> bool {
    of_pod(pod, PodConditionType::Ready).is_some_and(|ready| ready.status == "True")
}

/// What the kubelet reports of a pod's containers, the sidecar first.
pub(crate) fn containers(pod: &Pod) -> Vec<&ContainerStatus> {
    let status = pod.status.as_ref();
    let first = status.and_then(|status| status.init_container_statuses.as_ref());
    let then = status.and_then(|status| status.container_statuses.as_ref());
    first.into_iter().flatten().chain(then.into_iter().flatten()).collect()
}

/// How long ago, for a person.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
