//! What a pool has to know of a machine: little, for a pool may have a thousand.

use garboard_api::conditions::{ConditionStatus, VmConditionType, VmiConditionType};
use garboard_api::metadata::{annotation, label};
use garboard_api::run_strategy::RunStrategy;
use garboard_api::selector::Labels;
use garboard_api::{Phase, PrintableStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::stores::{Cached, Instances, Machines, Unreadable};

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version that was seen.
    pub resource_version: Option<String>,
    /// Its labels.
    pub labels: Labels,
    /// Its owners.
    pub owners: Vec<OwnerReference>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub leaves: bool,
    /// Whether it is to be let go without its volumes.
    pub is_retired: bool,
    /// What it does, and what it is made of.
    pub state: State,
    /// Its instance.
    pub instance: Option<Instance>,
}

/// What a machine does, and what it is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Whether it is ready.
    pub is_ready: bool,
    /// Since when it is not, and reports what keeps it from that.
    pub not_ready_since: Option<Timestamp>,
    /// What `kubectl get vm` shows.
    pub shown: Option<PrintableStatus>,
    /// Failed starts in a row.
    pub failures: u32,
    /// When it runs.
    pub strategy: Option<RunStrategy>,
    /// Whether it is asked to stop or to start, and its controller has not done that yet.
    pub is_asked: bool,
    /// Whether its controller has seen that it is halted, and that it has no instance.
    pub is_down: bool,
    /// The labels that its instances get.
    pub template_labels: Labels,
    /// The node selector of its instances.
    pub node_selector: Labels,
    /// Whether the machine was written since all this was seen: nothing is deleted for what may not hold any more.
    pub is_stale: bool,
}

/// The instance of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its UID.
    pub uid: String,
    /// The name of the record of what it was made of.
    pub revision: Option<String>,
    /// Whether it runs and is ready.
    pub is_ready: bool,
    /// Whether it is being deleted.
    pub leaves: bool,
}

impl Member {
    /// Of what is stored; also of a machine that this release cannot read as a whole.
    ///
    /// # Errors
    /// [`Unreadable`]: not even its parts can be read that count.
    pub(super) fn of(stored: &Cached<Machines>, instance: Option<&Cached<Instances>>) -> Result<Self, Unreadable> {
        let Stored { mut metadata, spec, status } = stored.read_part()?;
        // It is not a part of the text.
        metadata.resource_version = kube::ResourceExt::resource_version(stored);
        let instance = instance.filter(|each| is_of(each, metadata.uid.as_deref()));
        let instance = instance.map(|each| each.read_part::<StoredInstance>()).transpose()?.map(StoredInstance::known);
        Ok(Self::new(metadata, state(spec, status), instance))
    }

    /// Of metadata, and what is known beside it.
    pub(super) fn new(metadata: ObjectMeta, state: State, instance: Option<Instance>) -> Self {
        let is_retired = metadata.annotations.is_some_and(|all| all.contains_key(annotation::LEAVES_POOL));
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version,
            labels: metadata.labels.unwrap_or_default(),
            owners: metadata.owner_references.unwrap_or_default(),
            created: metadata.creation_timestamp.map(|stamp| stamp.0),
            leaves: metadata.deletion_timestamp.is_some(),
            is_retired,
            state,
            instance,
        }
    }

    /// The UID of its controller.
    #[must_use]
    pub fn controller(&self) -> Option<&str> {
        self.owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
    }

    /// The name of the record of what it is made of.
    #[must_use]
    pub fn revision(&self) -> Option<&str> {
        self.labels.get(label::POOL_REVISION).map(String::as_str)
    }

    /// Whether it counts: one that goes has its number until it is gone.
    #[must_use]
    pub fn stays(&self) -> bool {
        !self.leaves && !self.is_retired
    }

    /// Whether it is as ready as it is to be, and stays so: one that is stopped is not to run.
    #[must_use]
    pub fn is_available(&self) -> bool {
        // Between two instances it shows `Stopped`, too.
        let is_made_again = matches!(self.state.strategy, Some(RunStrategy::Always | RunStrategy::Once));
        let is_as_it_should_be = match &self.instance {
            Some(instance) => instance.is_ready && !instance.leaves,
            None => self.state.shown == Some(PrintableStatus::Stopped) && !is_made_again,
        };
        is_as_it_should_be && !self.state.is_asked
    }
}

fn is_of(instance: &Cached<Instances>, machine: Option<&str>) -> bool {
    instance.controller().is_some_and(|owner| Some(owner.uid.as_str()) == machine)
}

fn state(spec: Spec, status: Status) -> State {
    let strategy = match (spec.run_strategy.as_deref(), spec.running) {
        (Some(name), _) => RunStrategy::parse(name),
        (None, Some(true)) => Some(RunStrategy::Always),
        (None, Some(false)) => Some(RunStrategy::Halted),
        (None, None) => None,
    };
    let shown = status.printable_status.as_deref().and_then(PrintableStatus::from_name);
    let is_halted = status.run_strategy.as_deref() == Some(RunStrategy::Halted.name());
    let ready = find(&status.conditions, VmConditionType::Ready.name());
    let failures = status.start_failure.and_then(|failure| failure.consecutive_fail_count).unwrap_or(0);
    let template = spec.template.unwrap_or_default();
    State {
        is_ready: ready.is_some_and(|each| each.status == ConditionStatus::True.name()),
        not_ready_since: not_ready_since(&status.conditions),
        shown,
        failures: u32::try_from(failures).unwrap_or(0),
        strategy,
        is_asked: !status.state_change_requests.is_empty(),
        is_down: is_halted && shown == Some(PrintableStatus::Stopped) && status.created != Some(true),
        template_labels: template.metadata.and_then(|metadata| metadata.labels).unwrap_or_default(),
        node_selector: template.spec.and_then(|spec| spec.node_selector).unwrap_or_default(),
        is_stale: false,
    }
}

/// `Ready` may be False for an hour while a volume is filled, and for a month while the machine is halted. What went wrong then has a
/// condition of its own, which counts.
fn not_ready_since(conditions: &[StoredCondition]) -> Option<Timestamp> {
    let since = |kind: &str, status: ConditionStatus| {
        let found = find(conditions, kind).filter(|each| each.status == status.name());
        found.and_then(|each| each.last_transition_time.as_ref()).map(|at| at.0)
    };
    let not_ready = since(VmConditionType::Ready.name(), ConditionStatus::False)?;
    let reported = [
        since(VmConditionType::Failure.name(), ConditionStatus::True),
        since(VmConditionType::DataVolumesReady.name(), ConditionStatus::False),
        since(VmiConditionType::Synchronized.name(), ConditionStatus::False),
        since(VmiConditionType::PodScheduled.name(), ConditionStatus::False),
    ];
    Some(reported.into_iter().flatten().fold(not_ready, Ord::max))
}

fn find<'a>(conditions: &'a [StoredCondition], kind: &str) -> Option<&'a StoredCondition> {
    conditions.iter().find(|each| each.r#type == kind)
}

/// The parts that count of a machine as it is stored.
#[derive(Deserialize)]
struct Stored {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    run_strategy: Option<String>,
    running: Option<bool>,
    template: Option<Template>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Template {
    metadata: Option<TemplateMetadata>,
    spec: Option<TemplateSpec>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TemplateMetadata {
    labels: Option<Labels>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TemplateSpec {
    node_selector: Option<Labels>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Vec<StoredCondition>,
    created: Option<bool>,
    printable_status: Option<String>,
    run_strategy: Option<String>,
    start_failure: Option<StartFailure>,
    state_change_requests: Vec<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StartFailure {
    consecutive_fail_count: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredCondition {
    r#type: String,
    status: String,
    last_transition_time: Option<Time>,
}

/// The parts that count of an instance as it is stored.
#[derive(Deserialize)]
struct StoredInstance {
    metadata: ObjectMeta,
    #[serde(default)]
    status: InstanceStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct InstanceStatus {
    phase: Option<String>,
    conditions: Vec<StoredCondition>,
}

impl StoredInstance {
    fn known(self) -> Instance {
        let Self { metadata, status } = self;
        let runs = Phase::from_name(status.phase.as_deref()) == Phase::Running;
        let ready = find(&status.conditions, VmiConditionType::Ready.name());
        Instance {
            uid: metadata.uid.unwrap_or_default(),
            revision: metadata.labels.and_then(|mut labels| labels.remove(label::POOL_REVISION)),
            is_ready: runs && ready.is_some_and(|ready| ready.status == ConditionStatus::True.name()),
            leaves: metadata.deletion_timestamp.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine(changes: Value) -> Cached<Machines> {
        let owners = json!([{"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "p", "uid": "pool",
            "controller": true}]);
        let mut written = json!({
            "metadata": {"name": "p-3", "namespace": "ns", "uid": "u", "resourceVersion": "7", "ownerReferences": owners,
                "labels": {"app": "x", "kubevirt.io/vm-pool-revision-name": "p-1"}, "creationTimestamp": "1970-01-01T00:00:05Z"},
            "spec": {"runStrategy": "Always", "template": {
                "metadata": {"creationTimestamp": null, "labels": {"tier": "front"}},
                "spec": {"domain": {"memory": {"guest": "1e1.5"}}, "nodeSelector": {"zone": "a"}},
            }},
            "status": {"printableStatus": "CrashLoopBackOff", "startFailure": {"consecutiveFailCount": 4},
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:00:09Z"}]},
        });
        written.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(written).unwrap()
    }

    fn instance(owner: &str, phase: &str, ready: &str) -> Cached<Instances> {
        let owners = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "p-3", "uid": owner, "controller": true}]);
        serde_json::from_value(json!({
            "metadata": {"name": "p-3", "namespace": "ns", "uid": "vmi", "resourceVersion": "8", "ownerReferences": owners,
                "labels": {"kubevirt.io/vm-pool-revision-name": "p-0"}},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_machine_that_cannot_be_read_as_a_whole_is_a_member_all_the_same() {
        let stored = machine(json!({}));
        assert!(stored.read().is_err());
        let member = Member::of(&stored, None).unwrap();
        assert_eq!((member.name.as_str(), member.uid.as_str(), member.controller()), ("p-3", "u", Some("pool")));
        assert_eq!((member.resource_version.as_deref(), member.revision()), (Some("7"), Some("p-1")));
        let seconds = |at: Option<Timestamp>| at.map(|at| at.as_second());
        assert_eq!((seconds(member.created), seconds(member.state.not_ready_since)), (Some(5), Some(9)));
        assert_eq!((member.state.failures, member.state.shown), (4, Some(PrintableStatus::CrashLoopBackOff)));
        let State { template_labels, node_selector, .. } = &member.state;
        assert_eq!((template_labels["tier"].as_str(), node_selector["zone"].as_str()), ("front", "a"));
        assert_eq!(
            (member.stays(), member.state.strategy, member.state.is_down),
            (true, Some(RunStrategy::Always), false)
        );
    }

    #[test]
    fn the_instance_of_its_name_is_its_own_if_it_controls_it() {
        let of = |instance| Member::of(&machine(json!({})), Some(&instance)).unwrap();
        let own = of(instance("u", "Running", "True"));
        assert!(own.is_available());
        let known = own.instance.unwrap();
        assert_eq!((known.uid.as_str(), known.revision.as_deref(), known.is_ready), ("vmi", Some("p-0"), true));
        assert_eq!(of(instance("another", "Running", "True")).instance, None);
        for (phase, ready) in [("Running", "False"), ("Scheduled", "True"), ("Failed", "False")] {
            assert!(!of(instance("u", phase, ready)).is_available(), "{phase} {ready}");
        }
    }

    #[test]
    fn a_machine_is_down_once_its_controller_has_seen_that_it_is_halted() {
        let halted =
            json!({"spec": {"running": false}, "status": {"printableStatus": "Stopped", "runStrategy": "Halted"}});
        let member = Member::of(&machine(halted.clone()), None).unwrap();
        assert!(member.state.is_down && member.is_available());
        assert_eq!(member.state.strategy, Some(RunStrategy::Halted));
        for (field, value) in
            [("runStrategy", json!("Always")), ("created", json!(true)), ("printableStatus", json!("Stopping"))]
        {
            let mut other = halted.clone();
            other["status"][field] = value;
            assert!(!Member::of(&machine(other), None).unwrap().state.is_down, "{field}");
        }
    }

    #[test]
    fn an_error_begins_with_the_condition_that_names_it_and_not_before() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let condition = |kind: &str, status: &str, second: i64| json!({"type": kind, "status": status, "lastTransitionTime": at(second)});
        let since = |others: &[Value]| {
            let mut all = vec![condition("Ready", "False", 10)];
            all.extend_from_slice(others);
            let changed = json!({"status": {"printableStatus": "DataVolumeError", "conditions": all}});
            Member::of(&machine(changed), None).unwrap().state.not_ready_since
        };
        assert_eq!(since(&[]), Some(at(10)));
        for (kind, status, second) in [
            ("Failure", "True", 3600),
            ("DataVolumesReady", "False", 3600),
            ("Synchronized", "False", 3600),
            ("PodScheduled", "False", 3600),
        ] {
            assert_eq!(since(&[condition(kind, status, second)]), Some(at(second)), "{kind}");
        }
        assert_eq!(since(&[condition("Failure", "True", 5)]), Some(at(10)), "before it was not ready");
        for (kind, status) in [("Failure", "False"), ("DataVolumesReady", "True"), ("Paused", "True")] {
            assert_eq!(since(&[condition(kind, status, 3600)]), Some(at(10)), "{kind} {status} is no error");
        }
        let ready =
            json!({"status": {"conditions": [condition("Ready", "True", 10), condition("Failure", "True", 20)]}});
        assert_eq!(Member::of(&machine(ready), None).unwrap().state.not_ready_since, None);
    }

    #[test]
    fn a_machine_that_is_asked_to_restart_is_not_available_although_its_guest_runs() {
        let of = |status: Value| {
            let own = instance("u", "Running", "True");
            Member::of(&machine(json!({ "status": status })), Some(&own)).unwrap()
        };
        let asked = of(json!({"stateChangeRequests": [{"action": "Stop", "uid": "vmi"}, {"action": "Start"}]}));
        assert!(asked.state.is_asked && !asked.is_available());
        assert!(of(json!({})).is_available());
    }

    #[test]
    fn a_machine_that_is_made_to_run_is_not_available_between_two_instances() {
        for (strategy, expected) in
            [("Always", false), ("Once", false), ("Manual", true), ("RerunOnFailure", true), ("Halted", true)]
        {
            let changes = json!({"spec": {"runStrategy": strategy}, "status": {"printableStatus": "Stopped"}});
            assert_eq!(Member::of(&machine(changes), None).unwrap().is_available(), expected, "{strategy}");
        }
    }
}
