//! `kubectl garboard explain`: what is executed for a machine of the cluster. The planner is the launcher's own, and its
//! input is what the launcher had: the order in the pod's annotation, and the facts that it found in its pod.

use std::path::Path;

use garboard_api::defaults::{Identity, default_vmi, vmi_of};
use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_api::{ClusterConfig, VirtualMachine, VirtualMachineInstance};
use garboard_machine::facts::HostFacts;
use garboard_plan::{AcceleratorChoice, LaunchPlan, PlanOptions, StoredMachine, plan};
use garboard_protocol::paths;
use garboard_protocol::pod::{ORDER_ANNOTATION, PodOrder};
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::args::ExplainArgs;
use crate::difference;
use crate::exit::{self, BAD_INPUT, NOT_FOUND, REFUSED, exit_error};
use crate::failure::Failure;
use crate::find::{self, Machine, Place};
use crate::kubectl::{Kubectl, failed};
use crate::logs::shown;
use crate::operate::CONTROLLER;
use crate::operate::emulation::{EmulationSetting, kubevirts};
use crate::options::{Output, PlanFormat};
use crate::output::note;
use crate::subresource::GROUP;

/// Everything a plan is made of.
struct Input {
    vmi: VirtualMachineInstance,
    facts: HostFacts,
    options: PlanOptions,
    stored: Option<StoredMachine>,
    /// Which node it is planned for, for a message.
    host: String,
    /// Whether that is the node that it runs on.
    is_its_own: bool,
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
    let input = match (&args.file, &args.machine) {
        (Some(file), _) => of_file(kubectl, file)?,
        (None, Some(name)) => of_machine(kubectl, name)?,
        (None, None) => return Err(exit_error(BAD_INPUT, "name a machine, or a manifest with -f")),
    };
    if !input.is_its_own && (args.shell || args.format.is_some() || args.output != Output::Text) {
        note!("garboard: planned for {}", input.host);
    }
    let plan = planned(&input)?;
    if let Some(PlanFormat::DomainXml) = args.format {
        let sockets = format!("{}/{}", garboard_protocol::pod::RUN_DIRECTORY, paths::SUPERVISOR_DIRECTORY);
        crate::plan_text::show_domain(&plan, &sockets)?;
        return Ok(exit::OK);
    }
    crate::plan_text::show(&plan, &input.host, args.shell, args.output)?;
    Ok(exit::OK)
}

/// Of a plan, or of a manifest.
fn plan_of(kubectl: &Kubectl, file: &Path) -> anyhow::Result<LaunchPlan> {
    match difference::plan_in(file)? {
        Some(plan) => Ok(plan),
        None => planned(&of_file(kubectl, file)?),
    }
}

/// The plan of a machine that runs, and that of its next start on the same node: by a manifest, or else by its own object.
fn now_and_next(kubectl: &Kubectl, name: &str, file: Option<&Path>) -> anyhow::Result<(LaunchPlan, LaunchPlan)> {
    let machine = find::machine(kubectl, name).map_err(failed)?;
    let Some((pod, order)) = machine.pods.iter().find_map(|pod| Some((pod, order_of(pod)?))) else {
        return Err(exit_error(
            REFUSED,
            format!("{name} has no pod to compare with; `explain {name}` plans its start"),
        ));
    };
    let running = of_pod(kubectl, pod, order, name)?;
    if !running.is_its_own {
        note!("garboard: both are planned for {}", running.host);
    }
    let before = planned(&running)?;
    let next = match file {
        Some(file) => Some(vmi_in(kubectl, file)?),
        // Its spec may have been edited since the instance was made.
        None => match &machine.vm {
            Some(vm) => Some(instance_of(kubectl, vm).map_err(failed)?),
            None => machine.vmi,
        },
    };
    let Some(mut vmi) = next else {
        return Err(exit_error(NOT_FOUND, find::unknown(kubectl, name)));
    };
    same_identity(&mut vmi, &running.vmi);
    let vmi = offline(vmi, running.options.accelerator, String::new()).vmi;
    let stored = Some(before.stored.clone());
    let after = planned(&Input { vmi, stored, ..running })?;
    Ok((before, after))
}

/// The next instance is one of the same machine: what the controller derives from name and UID stays, where the manifest has no
/// UUID of its own.
fn same_identity(next: &mut VirtualMachineInstance, running: &VirtualMachineInstance) {
    next.metadata.name.clone_from(&running.metadata.name);
    next.metadata.namespace.clone_from(&running.metadata.namespace);
    next.metadata.uid.clone_from(&running.metadata.uid);
    let uuid = running.spec.domain.firmware.as_ref().and_then(|firmware| firmware.uuid.clone());
    let firmware = next.spec.domain.firmware.get_or_insert_default();
    if uuid.is_some() && firmware.uuid.is_none() {
        firmware.uuid = uuid;
    }
}

fn planned(input: &Input) -> anyhow::Result<LaunchPlan> {
    plan(&input.vmi, &input.facts, &input.options, input.stored.as_ref())
        .map_err(|error| exit_error(BAD_INPUT, error.to_string()))
}

fn of_machine(kubectl: &Kubectl, name: &str) -> anyhow::Result<Input> {
    let machine = find::machine(kubectl, name).map_err(failed)?;
    if let Some((pod, order)) = machine.pods.iter().find_map(|pod| Some((pod, order_of(pod)?))) {
        return of_pod(kubectl, pod, order, name);
    }
    let accelerator = accelerator(kubectl);
    let Some(vmi) = object_of(kubectl, machine).map_err(failed)? else {
        return Err(exit_error(NOT_FOUND, find::unknown(kubectl, name)));
    };
    let host =
        format!("a plain node, because {name} has no pod: QEMU, memory, processors and paths of a real one may differ");
    Ok(offline(vmi, accelerator, host))
}

/// The order of a pod, if it is a launcher pod of Garboard.
fn order_of(pod: &Pod) -> Option<PodOrder> {
    let text = pod.metadata.annotations.as_ref()?.get(ORDER_ANNOTATION)?;
    serde_json::from_str(text).ok()
}

/// The launcher's own input, as far as its pod still shows it.
fn of_pod(kubectl: &Kubectl, pod: &Pod, order: PodOrder, name: &str) -> anyhow::Result<Input> {
    let vmi = serde_json::from_value(order.vmi)
        .map_err(|error| exit_error(BAD_INPUT, format!("the order of {name} is of another release: {error}")))?;
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let place =
        Place { machine: format!("{namespace}/{name}"), namespace, pod: pod.metadata.name.clone().unwrap_or_default() };
    let stored = order.stored.and_then(|stored| serde_json::from_value(stored).ok());
    let found = file::<HostFacts>(kubectl, &place, paths::FACTS)
        .and_then(|facts| Ok((facts, file::<PlanOptions>(kubectl, &place, paths::OPTIONS)?)));
    match found {
        Ok((facts, options)) => Ok(Input { vmi, facts, options, stored, host: node_of(pod), is_its_own: true }),
        Err(failure) => {
            let host = format!("a plain node, because the facts of {} are not available: {failure}", node_of(pod));
            Ok(Input { stored, ..offline(vmi, accelerator_of(order.emulation), host) })
        }
    }
}

fn node_of(pod: &Pod) -> String {
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    name.map_or_else(|| "its node".to_owned(), |name| format!("node {name}"))
}

fn file<T: DeserializeOwned>(kubectl: &Kubectl, place: &Place, name: &str) -> Result<T, Failure> {
    let bytes = shown(kubectl, place, name)?;
    serde_json::from_slice(&bytes).map_err(|error| Failure::Other(format!("{name} is of another release: {error}")))
}

fn object_of(kubectl: &Kubectl, machine: Machine) -> Result<Option<VirtualMachineInstance>, Failure> {
    match (machine.vmi, &machine.vm) {
        (Some(vmi), _) => Ok(Some(vmi)),
        (None, Some(vm)) => instance_of(kubectl, vm).map(Some),
        (None, None) => Ok(None),
    }
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
fn offline(vmi: VirtualMachineInstance, accelerator: AcceleratorChoice, host: String) -> Input {
    let mut vmi = vmi;
    let firmware_uuid = vmi.metadata.uid.as_deref().and_then(|uid| uid.parse().ok()).unwrap_or_default();
    default_vmi(&mut vmi, &ClusterConfig::offline(), &Identity { firmware_uuid });
    let mut facts = HostFacts::launcher_image();
    facts.network.tap = true;
    let options = PlanOptions { accelerator, ..PlanOptions::default() };
    Input { vmi, facts, options, stored: None, host, is_its_own: false }
}

fn accelerator_of(emulated: bool) -> AcceleratorChoice {
    if emulated { AcceleratorChoice::Tcg } else { AcceleratorChoice::Kvm }
}

/// The cluster's accelerator for guests that name none; without the right to read it, KVM.
fn accelerator(kubectl: &Kubectl) -> AcceleratorChoice {
    let controllers = kubectl.within_garboard().get(&["deployment", CONTROLLER]).unwrap_or_default();
    let objects = kubevirts(kubectl).unwrap_or_default();
    accelerator_of(EmulationSetting::of(&controllers, &objects).allowed)
}

/// The machine of a manifest, for a node that is not known.
fn of_file(kubectl: &Kubectl, file: &Path) -> anyhow::Result<Input> {
    let host = "a plain node: nothing runs yet whose node could be asked".to_owned();
    Ok(offline(vmi_in(kubectl, file)?, accelerator(kubectl), host))
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
