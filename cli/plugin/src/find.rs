//! A machine on the cluster: its objects, and the pod it runs in.

use garboard_api::metadata::label;
use garboard_api::{Phase, VirtualMachine, VirtualMachineInstance};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::exit::{NOT_FOUND, REFUSED, exit_error};
use crate::failure::Failure;
use crate::kubectl::{Kubectl, failed, typed};
use crate::look::{Look, Question};
use crate::subresource::{Resource, Subresource};

/// KubeVirt's label of launcher pods.
pub(crate) const LAUNCHER: &str = "kubevirt.io=virt-launcher";
/// The container people's commands go to.
pub(crate) const CONTAINER: &str = "launcher";
/// A name that is suggested differs by at most one character of so many.
const CHARACTERS_PER_MISTAKE: usize = 3;
/// Names that are suggested.
const SUGGESTIONS: usize = 3;

/// What the cluster has of a machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    /// The machine.
    pub(crate) vm: Option<VirtualMachine>,
    /// Its instance.
    pub(crate) vmi: Option<VirtualMachineInstance>,
    /// Launcher pods of its name.
    pub(crate) pods: Vec<Pod>,
}

/// Looks a machine up.
pub(crate) fn machine(cluster: &impl Look, name: &str) -> Result<Machine, Failure> {
    let (objects, pods) = std::thread::scope(|scope| {
        let pods = scope.spawn(|| pods(cluster, name));
        let objects = objects(cluster, name);
        let pods = pods.join().unwrap_or_else(|_| Err(Failure::Other("looking for pods failed".to_owned())));
        (objects, pods)
    });
    let (vm, vmi) = objects?;
    Ok(Machine { vm, vmi, pods: pods? })
}

/// The machine and its instance, as far as there are such.
pub(crate) fn objects(
    cluster: &impl Look,
    name: &str,
) -> Result<(Option<VirtualMachine>, Option<VirtualMachineInstance>), Failure> {
    let (mut vm, mut vmi) = (None, None);
    for object in cluster.look(Question::Machine(name))? {
        match object["kind"].as_str() {
            Some("VirtualMachine") => vm = read(object)?,
            Some("VirtualMachineInstance") => vmi = read(object)?,
            Some(_) | None => {}
        }
    }
    Ok((vm, vmi))
}

fn read<T: serde::de::DeserializeOwned>(object: Value) -> Result<Option<T>, Failure> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    serde_json::from_value(object)
        .map(Some)
        .map_err(|error| Failure::Other(format!("the {kind} is not what this version of garboard reads: {error}")))
}

/// Launcher pods of a name, the newest first.
fn pods(cluster: &impl Look, name: &str) -> Result<Vec<Pod>, Failure> {
    let mut pods: Vec<Pod> = typed(cluster.look(Question::LauncherPods)?);
    pods.retain(|pod| belongs_to(pod, name));
    pods.sort_by_key(|pod| std::cmp::Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0)));
    Ok(pods)
}

/// Whether a pod was made for an instance of this name. No label has it: `web` and `web.prod` have the same one of
/// `vm.kubevirt.io/name`, and a long name does not fit into any.
fn belongs_to(pod: &Pod, name: &str) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && owner.kind == "VirtualMachineInstance" && owner.name == name)
}

/// Where a machine's supervisor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// `NAMESPACE/NAME`, for messages.
    pub(crate) machine: String,
    /// The pod's namespace.
    pub(crate) namespace: String,
    /// The pod.
    pub(crate) pod: String,
}

/// The pod of a machine that runs, or what to do instead.
pub(crate) fn place(kubectl: &Kubectl, name: &str) -> anyhow::Result<Place> {
    let machine = machine(kubectl, name).map_err(failed)?;
    match choose(&machine, name) {
        Choice::Pod(place) => Ok(place),
        Choice::Refused(message) => Err(exit_error(REFUSED, message)),
        Choice::Unknown => Err(exit_error(NOT_FOUND, unknown(kubectl, name))),
    }
}

/// What `place` comes to. Pure.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    Pod(Place),
    Refused(String),
    Unknown,
}

fn choose(machine: &Machine, name: &str) -> Choice {
    let Some(vmi) = &machine.vmi else {
        return match &machine.vm {
            Some(vm) => Choice::Refused(halted(vm, name)),
            None => Choice::Unknown,
        };
    };
    let phase = vmi.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_else(|| "Pending".to_owned());
    let uid = vmi.metadata.uid.clone().unwrap_or_default();
    let ours = machine.pods.iter().find(|pod| {
        let labels = pod.metadata.labels.iter().flatten();
        labels.into_iter().any(|(key, value)| key == label::CREATED_BY && *value == uid)
    });
    let Some(pod) = ours else {
        let text = format!("{name} has no pod (phase {phase}); `kubectl garboard why {name}` shows what it waits for");
        return Choice::Refused(text);
    };
    if !has_launcher(pod) {
        let text = format!("the pod of {name} has no container `{CONTAINER}`: it was not made by Garboard");
        return Choice::Refused(text);
    }
    if !launcher_runs(pod) {
        let over = matches!(phase.as_str(), "Succeeded" | "Failed");
        let state = if over { "its run is over" } else { "its launcher does not run yet" };
        return Choice::Refused(format!("{name}: {state} (phase {phase}); `kubectl garboard why {name}` shows why"));
    }
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    Choice::Pod(Place {
        machine: format!("{namespace}/{name}"),
        namespace,
        pod: pod.metadata.name.clone().unwrap_or_default(),
    })
}

/// An instance whose guest runs, or whose launcher has a record.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
}

impl Running {
    /// `NAMESPACE/NAME`, for messages.
    pub(crate) fn machine(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// A subresource of its instance.
    pub(crate) fn subresource(&self, verb: &'static str) -> Subresource {
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        Subresource { resource: Resource::Instance, namespace, name, verb }
    }
}

/// The guest of a machine, or what to do instead. Its pod is not looked at.
pub(crate) fn running(kubectl: &Kubectl, name: &str) -> anyhow::Result<Running> {
    let (vm, vmi) = objects(kubectl, name).map_err(failed)?;
    let Some(vmi) = vmi else {
        return Err(match vm {
            Some(vm) => exit_error(REFUSED, halted(&vm, name)),
            None => exit_error(NOT_FOUND, unknown(kubectl, name)),
        });
    };
    match not_running(&vmi) {
        Some(state) => Err(exit_error(REFUSED, format!("{name}: {state}; `kubectl garboard why {name}` shows why"))),
        None => Ok(Running { namespace: vmi.metadata.namespace.unwrap_or_default(), name: name.to_owned() }),
    }
}

/// An instance whose launcher may have a record: its run is not over. Pure.
pub(crate) fn with_record(vmi: &VirtualMachineInstance) -> Option<Running> {
    let (namespace, name) = (vmi.metadata.namespace.clone(), vmi.metadata.name.clone());
    let found = Running { namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() };
    (!Phase::of(vmi).is_final()).then_some(found)
}

/// The instance of a machine whose record is read, or what to do instead. Its pod is not looked at.
pub(crate) fn recorded(kubectl: &Kubectl, name: &str) -> anyhow::Result<Running> {
    let state = match objects(kubectl, name).map_err(failed)? {
        (_, Some(vmi)) => match with_record(&vmi) {
            Some(found) => return Ok(found),
            None => format!("its run is over (phase {})", Phase::of(&vmi).name()),
        },
        (Some(_), None) => "it does not run".to_owned(),
        (None, None) => return Err(exit_error(NOT_FOUND, unknown(kubectl, name))),
    };
    let text = format!("{name}: {state}; `kubectl garboard logs {name} --last` has the record of its last run");
    Err(exit_error(REFUSED, text))
}

/// Why an instance has no guest that runs; nothing if it has. Pure.
fn not_running(vmi: &VirtualMachineInstance) -> Option<String> {
    let phase = Phase::of(vmi);
    let state = match phase {
        Phase::Running => return None,
        Phase::Succeeded | Phase::Failed => "its run is over",
        Phase::Pending | Phase::Scheduling | Phase::Scheduled | Phase::Unknown => "its guest does not run yet",
    };
    Some(format!("{state} (phase {})", phase.name()))
}

fn halted(vm: &VirtualMachine, name: &str) -> String {
    let state = vm.status.as_ref().and_then(|status| status.printable_status.clone());
    let state = state.unwrap_or_else(|| "no state yet".to_owned());
    format!("{name} does not run ({state}); `kubectl garboard why {name}` shows why, and how to start it")
}

fn has_launcher(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    containers.into_iter().any(|container| container.name == CONTAINER)
}

fn launcher_runs(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| {
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
    });
    let mut ours = statuses.filter(|status| status.name == CONTAINER);
    ours.any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
}

/// There is no such machine; perhaps one of a similar name, or one in another namespace, was meant.
pub(crate) fn unknown(kubectl: &Kubectl, name: &str) -> String {
    let listed = |arguments: &[&str]| -> Vec<(String, String)> {
        let objects = kubectl.get(arguments).unwrap_or_default();
        let text = |object: &Value, key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        objects.iter().map(|object| (text(object, "namespace"), text(object, "name"))).collect()
    };
    let kinds = "virtualmachines.kubevirt.io,virtualmachineinstances.kubevirt.io";
    let here = listed(&[kinds]);
    // A user who may not list all namespaces gets no hint.
    let elsewhere = if here.iter().any(|(_, other)| other == name) { Vec::new() } else { listed(&[kinds, "-A"]) };
    not_found(name, &here, &elsewhere)
}

/// The message. Pure.
fn not_found(name: &str, here: &[(String, String)], elsewhere: &[(String, String)]) -> String {
    let near = nearest(name, here.iter().map(|(_, other)| other.as_str()));
    if !near.is_empty() {
        return format!("there is no machine `{name}` in this namespace; did you mean {}?", near.join(" or "));
    }
    let same: Vec<&str> =
        elsewhere.iter().filter(|(_, other)| other == name).map(|(namespace, _)| namespace.as_str()).collect();
    match same.first() {
        Some(namespace) => {
            format!("there is no machine `{name}` in this namespace, but in {namespace}: add -n {namespace}")
        }
        None => {
            format!("there is no machine `{name}` in this namespace; `kubectl get vm,vmi -A` lists those you may see")
        }
    }
}

/// Names that are almost the one that was written, the nearest first. Of `NAMESPACE/NAME` in the same namespace the name counts.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut near: Vec<(usize, &str)> = known.filter_map(|other| Some((mistakes(name, other)?, other))).collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(SUGGESTIONS).map(|(_, name)| name.to_owned()).collect()
}

/// How many characters of one name are other ones, more or fewer in the other, or in another order; nothing if these are too many.
fn mistakes(one: &str, other: &str) -> Option<usize> {
    let (one, other) = match (one.rsplit_once('/'), other.rsplit_once('/')) {
        (Some((here, one)), Some((there, other))) if here == there => (one, other),
        _ => (one, other),
    };
    let count = strsim::osa_distance(one, other);
    let longer = one.chars().count().max(other.chars().count());
    (count <= longer / CHARACTERS_PER_MISTAKE).then_some(count)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(vm: bool, phase: Option<&str>, pod: Option<Value>) -> Machine {
        let vm = vm.then(|| json!({"metadata": {"name": "a"}, "spec": {}, "status": {"printableStatus": "Stopped"}}));
        let vmi = phase.map(|phase| json!({"metadata": {"name": "a", "uid": "u"}, "status": {"phase": phase}}));
        Machine {
            vm: vm.map(|vm| serde_json::from_value(vm).unwrap()),
            vmi: vmi.map(|vmi| serde_json::from_value(vmi).unwrap()),
            pods: pod.map(|pod| serde_json::from_value(pod).unwrap()).into_iter().collect(),
        }
    }

    fn pod(uid: &str, container: &str, state: &str) -> Value {
        json!({
            "metadata": {"name": "virt-launcher-a-u", "namespace": "n", "labels": {"kubevirt.io/created-by": uid}},
            "spec": {"containers": [{"name": "compute"}], "initContainers": [{"name": container}]},
            "status": {"initContainerStatuses": [{
                "name": container, "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {state: {}},
            }]},
        })
    }

    #[test]
    fn the_pod_is_chosen_or_a_sentence_says_what_to_do() {
        let waiting = json!({"waiting": {}});
        let state = waiting.as_object().unwrap().keys().next().unwrap();
        let table = [
            (machine(false, None, None), "Unknown"),
            (machine(true, None, None), "a does not run (Stopped)"),
            (machine(true, Some("Pending"), None), "a has no pod (phase Pending)"),
            // A pod of an earlier instance is not this one's.
            (machine(true, Some("Running"), Some(pod("other", "launcher", "running"))), "a has no pod (phase Running)"),
            (
                machine(true, Some("Scheduling"), Some(pod("u", "launcher", state))),
                "does not run yet (phase Scheduling)",
            ),
            (machine(true, Some("Running"), Some(pod("u", "virt-launcher", "running"))), "not made by Garboard"),
            (machine(false, Some("Running"), Some(pod("u", "launcher", "running"))), "virt-launcher-a-u"),
        ];
        for (machine, expected) in table {
            let choice = format!("{:?}", choose(&machine, "a"));
            assert!(choice.contains(expected), "{choice}: {expected}");
        }
    }

    #[test]
    fn a_guest_runs_or_a_sentence_says_how_far_it_is() {
        let table = [
            ("Running", None),
            ("Scheduled", Some("its guest does not run yet (phase Scheduled)")),
            ("Pending", Some("its guest does not run yet (phase Pending)")),
            ("Succeeded", Some("its run is over (phase Succeeded)")),
            ("Failed", Some("its run is over (phase Failed)")),
        ];
        for (phase, expected) in table {
            let vmi = machine(false, Some(phase), None).vmi.unwrap();
            assert_eq!(not_running(&vmi).as_deref(), expected, "{phase}");
        }
    }

    #[test]
    fn a_record_is_there_until_the_run_is_over() {
        for phase in Phase::ALL {
            let vmi = machine(false, Some(phase.name()), None).vmi.unwrap();
            let found = with_record(&vmi).map(|running| running.name);
            assert_eq!(found.as_deref(), (!phase.is_final()).then_some("a"), "{phase:?}");
        }
    }

    /// With a kubectl that knows these objects and nothing else.
    #[cfg(unix)]
    #[test]
    fn who_asks_for_the_record_of_a_run_that_is_over_learns_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let of = |objects: &Value| {
            let listed = directory.path().join("objects");
            std::fs::write(&listed, json!({ "items": objects }).to_string()).unwrap();
            let script = format!("case $* in *virtualmachines.kubevirt.io/a*) cat '{}' ;; esac", listed.display());
            let found = recorded(&Kubectl::played(directory.path(), &script), "a");
            found.map(|running| running.name).map_err(|error| error.to_string())
        };
        let vm = json!({"kind": "VirtualMachine", "metadata": {"name": "a"}, "spec": {}});
        let vmi = |phase: &str| json!({"kind": "VirtualMachineInstance", "metadata": {"name": "a"}, "status": {"phase": phase}});
        let way = "`kubectl garboard logs a --last` has the record of its last run";
        assert_eq!(of(&json!([vm, vmi("Scheduled")])), Ok("a".to_owned()));
        assert_eq!(of(&json!([vm, vmi("Failed")])), Err(format!("a: its run is over (phase Failed); {way}")));
        assert_eq!(of(&json!([vm])), Err(format!("a: it does not run; {way}")));
        assert!(of(&json!([])).unwrap_err().starts_with("there is no machine `a`"));
    }

    #[test]
    fn a_pod_is_its_owners_whatever_its_labels_say() {
        let owned_by = |kind: &str, name: &str, controller: bool| -> Pod {
            let owner = json!({
                "apiVersion": "kubevirt.io/v1", "kind": kind, "name": name, "uid": "u", "controller": controller,
            });
            let labels = json!({"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "web"});
            serde_json::from_value(json!({"metadata": {"labels": labels, "ownerReferences": [owner]}})).unwrap()
        };
        let long = "a".repeat(100);
        let table = [
            (owned_by("VirtualMachineInstance", "web", true), "web", true),
            (owned_by("VirtualMachineInstance", "web.prod", true), "web", false),
            (owned_by("VirtualMachineInstance", "web.prod", true), "web.prod", true),
            (owned_by("VirtualMachineInstance", &long, true), long.as_str(), true),
            (owned_by("VirtualMachineInstance", "web", false), "web", false),
            (owned_by("ReplicaSet", "web", true), "web", false),
            (Pod::default(), "web", false),
        ];
        for (pod, name, expected) in table {
            assert_eq!(belongs_to(&pod, name), expected, "{name}: {pod:?}");
        }
    }

    #[test]
    fn near_names_are_suggested() {
        let names = |all: &[&str]| all.iter().map(|name| ("n".to_owned(), (*name).to_owned())).collect::<Vec<_>>();
        let text = not_found("helo", &names(&["hello", "web", "hello"]), &[]);
        assert!(text.contains("did you mean hello?"), "{text}");
        let far = not_found("nothere", &names(&["nosecret"]), &[]);
        assert!(!far.contains("did you mean"), "{far}");
        assert_eq!(nearest("default/nothere", ["default/nosecret", "default/nohere"].into_iter()), ["default/nohere"]);
        assert_eq!(nearest("a/web", ["b/web", "b/db"].into_iter()), ["b/web"]);
        let text = not_found("db", &names(&["web"]), &names(&["db"]));
        assert!(text.ends_with("add -n n"), "{text}");
        assert!(not_found("db", &[], &[]).contains("kubectl get vm,vmi -A"));
    }
}
