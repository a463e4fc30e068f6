//! `kubectl garboard explain`: what is executed for a machine of the cluster. Of one that runs it is its own plan, which its launcher keeps; any
//! other is planned here, by the launcher's own planner.

use std::path::Path;

use garboard_api::defaults::{Identity, default_vmi, vmi_of};
use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_api::{ClusterConfig, VirtualMachine, VirtualMachineInstance};
use garboard_machine::facts::HostFacts;
use garboard_plan::{AcceleratorChoice, LaunchPlan, PlanOptions, StoredMachine, plan};
use garboard_protocol::part::RecordPart;
use garboard_protocol::paths;
use garboard_protocol::text::DecoderError;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::args::ExplainArgs;
use crate::difference;
use crate::exit::{self, BAD_INPUT, NOT_FOUND, REFUSED, exit_error};
use crate::failure::Failure;
use crate::find::{self, Running};
use crate::kubectl::{Kubectl, failed};
use crate::operate::CONTROLLER;
use crate::operate::emulation::{EmulationSetting, kubevirts};
use crate::options::{Output, PlanFormat};
use crate::output::note;
use crate::record;
use crate::subresource::GROUP;

/// Everything a plan is made of.
struct Input {
    vmi: VirtualMachineInstance,
    facts: HostFacts,
    options: PlanOptions,
    stored: Option<StoredMachine>,
}

/// A plan, and what it is for.
struct Explained {
    plan: LaunchPlan,
    /// Which node it is planned for, for a message.
    host: String,
    /// Whether it is the one that runs.
    is_executed: bool,
}

/// `kubectl garboard explain MACHINE | -f FILE`, and what compares two plans.
pub(crate) fn run(kubectl: &Kubectl, args: &ExplainArgs) -> anyhow::Result<u8> {
    if let Some([before, after]) = args.diff.as_deref() {
        let (before, after) = (plan_of(kubectl, before)?, plan_of(kubectl, after)?);
        return difference::show(&before, &after, args.output);
    }
    if let Some(name) = &args.against_running {
        let (before, after) = now_and_next(kubectl, name, args.file.as_deref())?;
        return difference::show(&before, &after, args.output);
    }
    let Explained { plan, host, is_executed } = match (&args.file, &args.machine) {
        (Some(file), _) => {
            let host = "a plain node: nothing runs yet whose node could be asked".to_owned();
            Explained { plan: planned(&of_file(kubectl, file)?)?, host, is_executed: false }
        }
        (None, Some(name)) => of_machine(kubectl, name)?,
        (None, None) => return Err(exit_error(BAD_INPUT, "name a machine, or a manifest with -f")),
    };
    if !is_executed && (args.shell || args.format.is_some() || args.output != Output::Text) {
        note!("garboard: planned for {host}");
    }
    if let Some(PlanFormat::DomainXml) = args.format {
        let sockets = format!("{}/{}", garboard_protocol::pod::RUN_DIRECTORY, paths::SUPERVISOR_DIRECTORY);
        crate::plan_text::show_domain(&plan, &sockets)?;
        return Ok(exit::OK);
    }
    crate::plan_text::show(&plan, &host, args.shell, args.output)?;
    Ok(exit::OK)
}

/// Of a plan, or of a manifest.
fn plan_of(kubectl: &Kubectl, file: &Path) -> anyhow::Result<LaunchPlan> {
    match difference::plan_in(file)? {
        Some(plan) => Ok(plan),
        None => planned(&of_file(kubectl, file)?),
    }
}

/// The plan of a machine that runs, and that of its next start on the same node: by a manifest, or else by its own object. Without what runs
/// there is nothing to compare with.
fn now_and_next(kubectl: &Kubectl, name: &str, file: Option<&Path>) -> anyhow::Result<(LaunchPlan, LaunchPlan)> {
    let (vm, vmi) = find::objects(kubectl, name).map_err(failed)?;
    let Some(vmi) = vmi else {
        return Err(match vm {
            Some(_) => exit_error(REFUSED, nothing_runs(name)),
            None => exit_error(NOT_FOUND, find::unknown(kubectl, name)),
        });
    };
    let running = find::with_record(&vmi).ok_or_else(|| exit_error(REFUSED, nothing_runs(name)))?;
    let before: LaunchPlan = recorded(kubectl, &running, RecordPart::Plan).map_err(failed)?;
    let facts = recorded(kubectl, &running, RecordPart::Facts).map_err(failed)?;
    let options: PlanOptions = recorded(kubectl, &running, RecordPart::Options).map_err(failed)?;
    let mut next = match (file, &vm) {
        (Some(file), _) => vmi_in(kubectl, file)?,
        // Its spec may have been edited since the instance was made.
        (None, Some(vm)) => instance_of(kubectl, vm).map_err(failed)?,
        (None, None) => vmi,
    };
    same_identity(&mut next, &before);
    let vmi = offline(next, options.accelerator).vmi;
    let stored = Some(before.stored.clone());
    let after = planned(&Input { vmi, facts, options, stored })?;
    Ok((before, after))
}

fn nothing_runs(name: &str) -> String {
    format!("{name} does not run, so that there is nothing to compare with; `explain {name}` plans its start")
}

/// The next instance is one of the same machine: what the controller derives from name and UID stays, where the manifest has no
/// UUID of its own.
fn same_identity(next: &mut VirtualMachineInstance, running: &LaunchPlan) {
    let identity = running.identity.clone();
    next.metadata.name = Some(identity.name);
    next.metadata.namespace = Some(identity.namespace);
    next.metadata.uid = identity.uid;
    let firmware = next.spec.domain.firmware.get_or_insert_default();
    firmware.uuid = firmware.uuid.take().or(identity.firmware_uuid);
}

fn planned(input: &Input) -> anyhow::Result<LaunchPlan> {
    plan(&input.vmi, &input.facts, &input.options, input.stored.as_ref())
        .map_err(|error| exit_error(BAD_INPUT, error.to_string()))
}

/// Of a machine that runs what was executed; where that cannot be had, and of any other machine, a plan for a plain node that says so.
fn of_machine(kubectl: &Kubectl, name: &str) -> anyhow::Result<Explained> {
    let (vm, vmi) = find::objects(kubectl, name).map_err(failed)?;
    let why = match vmi.as_ref().and_then(|vmi| Some((vmi, find::with_record(vmi)?))) {
        Some((vmi, running)) => match recorded(kubectl, &running, RecordPart::Plan) {
            Ok(plan) => return Ok(Explained { plan, host: node_of(vmi), is_executed: true }),
            Err(failure) => format!("because the plan that runs on {} is not available: {failure}", node_of(vmi)),
        },
        None => format!("because {name} does not run: QEMU, memory, processors and paths of a real one may differ"),
    };
    let next = match (vmi, &vm) {
        (Some(vmi), _) => vmi,
        (None, Some(vm)) => instance_of(kubectl, vm).map_err(failed)?,
        (None, None) => return Err(exit_error(NOT_FOUND, find::unknown(kubectl, name))),
    };
    let plan = planned(&offline(next, accelerator(kubectl)))?;
    Ok(Explained { plan, host: format!("a plain node, {why}"), is_executed: false })
}

fn node_of(vmi: &VirtualMachineInstance) -> String {
    let name = vmi.status.as_ref().and_then(|status| status.node_name.as_deref()).filter(|name| !name.is_empty());
    name.map_or_else(|| "its node".to_owned(), |name| format!("node {name}"))
}

/// A document of the record of a machine.
fn recorded<T: DeserializeOwned>(kubectl: &Kubectl, machine: &Running, part: RecordPart) -> Result<T, Failure> {
    let bytes = record::read(kubectl, machine, part)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Failure::Other(format!("{} of the launcher is of another release: {}", part.file(), DecoderError::from(error)))
    })
}

/// The instance that a machine would have. The cluster writes out what its instancetype and preference stand for.
fn instance_of(kubectl: &Kubectl, vm: &VirtualMachine) -> Result<VirtualMachineInstance, Failure> {
    if vm.spec.instancetype.is_none() && vm.spec.preference.is_none() {
        return Ok(vmi_of(vm));
    }
    let namespace = vm.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let path = format!("{}{GROUP}/namespaces/{namespace}/expand-vm-spec", kubectl.server_path());
    let unread = |error: serde_json::Error| Failure::Other(format!("the expanded machine cannot be read: {error}"));
    let body = serde_json::to_vec(vm).map_err(unread)?;
    let answer = kubectl.feed(&["replace", "--raw", &path, "-f", "-"], &body)?;
    let whole: VirtualMachine = serde_json::from_slice(&answer).map_err(unread)?;
    Ok(vmi_of(&whole))
}

/// For a node without known facts: a plain one, with the QEMU of the launcher's image.
fn offline(mut vmi: VirtualMachineInstance, accelerator: AcceleratorChoice) -> Input {
    let firmware_uuid = vmi.metadata.uid.as_deref().and_then(|uid| uid.parse().ok()).unwrap_or_default();
    default_vmi(&mut vmi, &ClusterConfig::offline(), &Identity { firmware_uuid });
    let mut facts = HostFacts::launcher_image();
    facts.network.tap = true;
    let options = PlanOptions { accelerator, ..PlanOptions::default() };
    Input { vmi, facts, options, stored: None }
}

/// The cluster's accelerator for guests that name none; without the right to read it, KVM.
fn accelerator(kubectl: &Kubectl) -> AcceleratorChoice {
    let controllers = kubectl.within_garboard().get(&["deployment", CONTROLLER]).unwrap_or_default();
    let objects = kubevirts(kubectl).unwrap_or_default();
    let is_emulated = EmulationSetting::of(&controllers, &objects).allowed;
    if is_emulated { AcceleratorChoice::Tcg } else { AcceleratorChoice::Kvm }
}

/// The machine of a manifest, for a node that is not known.
fn of_file(kubectl: &Kubectl, file: &Path) -> anyhow::Result<Input> {
    Ok(offline(vmi_in(kubectl, file)?, accelerator(kubectl)))
}

/// The object as the API server would take it: with its defaults, and refused where it refuses.
fn vmi_in(kubectl: &Kubectl, file: &Path) -> anyhow::Result<VirtualMachineInstance> {
    let path = file.to_string_lossy();
    let bytes = if path == "-" {
        let input = std::io::read_to_string(std::io::stdin())?;
        kubectl.feed(&["create", "--dry-run=server", "-o", "json", "-f", "-"], input.as_bytes())
    } else {
        kubectl.run(&["create", "--dry-run=server", "-o", "json", "-f", &path])
    };
    let bytes = bytes.or_else(|failure| taken_already(kubectl, &path, failure)).map_err(failed)?;
    let machines: Vec<Value> = documents(&bytes)?.into_iter().filter(is_machine).collect();
    let [object] = machines.as_slice() else {
        let text = format!("{path}: {} machines in it; explain takes a manifest with one", machines.len());
        return Err(exit_error(BAD_INPUT, text));
    };
    if object["kind"] == "VirtualMachine" {
        let vm = serde_json::from_value::<VirtualMachine>(object.clone())?;
        return instance_of(kubectl, &vm).map_err(failed);
    }
    Ok(serde_json::from_value(object.clone())?)
}

/// A manifest of something that exists is applied, dry, instead.
fn taken_already(kubectl: &Kubectl, path: &str, failure: Failure) -> Result<Vec<u8>, Failure> {
    if path == "-" || !failure.to_string().contains("already exists") {
        return Err(failure);
    }
    kubectl.run(&["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-o", "json", "-f", path])
}

/// kubectl prints one object after the other, or a list.
fn documents(bytes: &[u8]) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for value in serde_json::Deserializer::from_slice(bytes).into_iter::<Value>() {
        let mut value = value?;
        match value.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => all.extend(items),
            Some(_) | None => all.push(value),
        }
    }
    Ok(all)
}

fn is_machine(object: &Value) -> bool {
    matches!(object["kind"].as_str(), Some("VirtualMachine" | "VirtualMachineInstance"))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use garboard_plan::differences;
    use serde_json::json;

    use super::*;
    use crate::exit::code_of;

    const UID: &str = "3e0a6d1c-8f0b-4c7e-9a43-5d1f6a2b7c90";
    const FORBIDDEN: &str = "Error from server (Forbidden): virtualmachineinstances.subresources.garboard.dev \"hello\" is forbidden: User \"bob\" cannot get resource \"virtualmachineinstances/plan\"";

    fn instance(memory: &str, phase: &str) -> Value {
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "hello", "namespace": "tenant", "uid": UID},
            "spec": {"domain": {"devices": {}, "memory": {"guest": memory}}},
            "status": {"phase": phase, "nodeName": "node-1"}})
    }

    fn machine(memory: &str) -> Value {
        let template = json!({"spec": {"domain": {"devices": {}, "memory": {"guest": memory}}}});
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "hello", "namespace": "tenant"}, "spec": {"runStrategy": "Always", "template": template}})
    }

    /// What its launcher has planned, and from what.
    fn launched(memory: &str) -> (LaunchPlan, Input) {
        let vm: VirtualMachine = serde_json::from_value(machine(memory)).unwrap();
        let mut vmi = vmi_of(&vm);
        vmi.metadata.uid = Some(UID.to_owned());
        let mut input = offline(vmi, AcceleratorChoice::Tcg);
        // No plain node has it.
        input.facts.qemu.binary = "/opt/of-node-1/qemu-system-x86_64".to_owned();
        (planned(&input).unwrap(), input)
    }

    /// A cluster as its client shows it: these objects, the record of the machine or a refusal of it, and nothing else. What it is asked is
    /// written down.
    struct Cluster {
        directory: tempfile::TempDir,
        kubectl: Kubectl,
    }

    impl Cluster {
        fn with(objects: &[Value], refusal: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let (plan, input) = launched("64Mi");
            let file = |name: &str, content: &Value| {
                let path = directory.path().join(name);
                std::fs::write(&path, content.to_string()).unwrap();
                path.display().to_string()
            };
            let listed = file("objects", &json!({ "items": objects }));
            let plan = file("plan", &serde_json::to_value(plan).unwrap());
            let facts = file("facts", &serde_json::to_value(input.facts).unwrap());
            let options = file("options", &serde_json::to_value(input.options).unwrap());
            let asked = directory.path().join("asked").display().to_string();
            let record = if refusal.is_empty() { "cat".to_owned() } else { format!("echo '{refusal}' >&2; exit 1; :") };
            let script = format!(
                "echo \"$*\" >>'{asked}'\ncase $* in\n*/plan/facts) {record} '{facts}' ;;\n*/plan/options) {record} '{options}' ;;\n\
                 */plan) {record} '{plan}' ;;\n*virtualmachines.kubevirt.io/hello*) cat '{listed}' ;;\nesac"
            );
            let kubectl = Kubectl::played(directory.path(), &script);
            Self { directory, kubectl }
        }

        fn asked(&self) -> String {
            std::fs::read_to_string(self.directory.path().join("asked")).unwrap()
        }
    }

    #[test]
    fn of_a_machine_that_runs_it_is_what_its_launcher_has_executed() {
        let cluster = Cluster::with(&[machine("1Gi"), instance("64Mi", "Running")], "");
        let Explained { plan, host, is_executed } = of_machine(&cluster.kubectl, "hello").unwrap();
        assert_eq!((plan, host.as_str(), is_executed), (launched("64Mi").0, "node node-1", true));
        let asked = cluster.asked();
        assert!(!asked.contains("exec") && !asked.contains("pods"), "{asked}");
    }

    #[test]
    fn without_the_right_it_says_that_it_plans_for_a_plain_node_and_what_is_missing() {
        let cluster = Cluster::with(&[instance("64Mi", "Running")], FORBIDDEN);
        let Explained { plan, host, is_executed } = of_machine(&cluster.kubectl, "hello").unwrap();
        assert!(!is_executed && !plan.argv[0].starts_with("/opt/of-node-1"), "{plan:?}");
        assert!(host.starts_with("a plain node, because the plan that runs on node node-1 is not available: you may"));
        assert!(host.contains("virtualmachineinstances/plan"), "{host}");
        assert!(!cluster.asked().contains("exec"), "{}", cluster.asked());
        let halted = Cluster::with(&[machine("64Mi")], "");
        let Explained { host, .. } = of_machine(&halted.kubectl, "hello").unwrap();
        assert!(host.starts_with("a plain node, because hello does not run"), "{host}");
    }

    #[test]
    fn the_next_start_is_compared_with_what_runs_on_the_same_node() {
        let same = Cluster::with(&[machine("64Mi"), instance("64Mi", "Running")], "");
        let (before, after) = now_and_next(&same.kubectl, "hello", None).unwrap();
        assert_eq!(
            (before.argv[0].as_str(), differences(&before, &after)),
            ("/opt/of-node-1/qemu-system-x86_64", vec![])
        );
        assert_eq!((&after.identity, &after.argv[0]), (&before.identity, &before.argv[0]));
        let edited = Cluster::with(&[machine("128Mi"), instance("64Mi", "Running")], "");
        let (before, after) = now_and_next(&edited.kubectl, "hello", None).unwrap();
        assert!(!differences(&before, &after).is_empty());
    }

    #[test]
    fn nothing_is_compared_with_a_plain_node() {
        let refused = Cluster::with(&[instance("64Mi", "Running")], FORBIDDEN);
        let error = now_and_next(&refused.kubectl, "hello", None).unwrap_err();
        assert!(code_of(&error) == REFUSED && error.to_string().contains("virtualmachineinstances/plan"), "{error}");
        for objects in [vec![machine("64Mi")], vec![instance("64Mi", "Succeeded")]] {
            let halted = Cluster::with(&objects, "");
            let error = now_and_next(&halted.kubectl, "hello", None).unwrap_err();
            assert!(code_of(&error) == REFUSED && error.to_string().starts_with("hello does not run"), "{error}");
        }
        let nothing = Cluster::with(&[], "");
        assert_eq!(code_of(&now_and_next(&nothing.kubectl, "hello", None).unwrap_err()), NOT_FOUND);
    }
}
