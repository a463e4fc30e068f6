//! Pods that no node takes.

use std::collections::BTreeMap;

use garboard_api::conditions::PodConditionType;
use garboard_api::metadata::OWN_DEVICES;
use garboard_api::metadata::node_label::{CPU_FEATURE, CPU_MODEL, MACHINE_TYPE, SCHEDULABLE};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::refused::{bounded, edit, unbound};
use crate::operate::emulation::EmulationSetting;
use crate::why::diagnosis::{DiagnosisVerdict, Finding, seen};
use crate::why::facts::{Condition, Facts, of_pod};

/// What the controller asks of nodes by itself: beginning of the label, the field it comes from, and what it is.
const OFFERS: [(&str, &str, &str); 3] = [
    (CPU_MODEL, "domain.cpu.model", "CPU model"),
    (CPU_FEATURE, "domain.cpu.features", "CPU feature"),
    (MACHINE_TYPE, "domain.machine.type", "machine type"),
];

/// The scheduler has found no node.
pub(crate) fn unschedulable(facts: &Facts) -> Option<Finding> {
    let pod = facts.pod()?;
    let condition = of_pod(pod, PodConditionType::PodScheduled)
        .filter(|each| each.status == "False" && each.reason != "SchedulingGated")?;
    // The part about preemption is about making room, not about what is missing.
    let message = condition.message.split(" preemption:").next().unwrap_or_default();
    let finding = of_claims(facts, message)
        .or_else(|| of_cluster(facts, message))
        .or_else(|| of_devices(facts, message))
        .or_else(|| of_room(facts, pod, message))
        .or_else(|| of_selector(facts, pod, message))
        .or_else(|| of_taints(message))
        .unwrap_or_else(|| {
            let cause = format!("no node can take it: {}", bounded(message));
            Finding::wrong(DiagnosisVerdict::Unschedulable, cause).then("kubectl describe nodes")
        });
    Some(finding.since(condition.since).shown_by(evidence(pod, &condition, message)))
}

fn evidence(pod: &Pod, condition: &Condition, message: &str) -> crate::why::diagnosis::Evidence {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let field = format!("conditions[PodScheduled] {}", condition.reason);
    seen(format!("pod/{name}"), field, bounded(message), condition.since)
}

fn of_claims(facts: &Facts, message: &str) -> Option<Finding> {
    if let Some((_, rest)) = message.split_once("persistentvolumeclaim \"")
        && let Some((claim, tail)) = rest.split_once('"')
        && tail.starts_with(" not found")
    {
        let finding = Finding::wrong(DiagnosisVerdict::ClaimMissing, format!("its claim {claim} is not there"));
        return Some(finding.then("kubectl get pvc").then(edit(facts)));
    }
    if message.contains("unbound immediate PersistentVolumeClaims") {
        let nameless = || {
            let cause = "one of its claims has no volume";
            Finding::wrong(DiagnosisVerdict::ClaimUnbound, cause).then("kubectl get pvc")
        };
        return Some(unbound(facts).unwrap_or_else(nameless));
    }
    message.contains("volume node affinity conflict").then(|| {
        let cause = "the volume of one of its claims is on a node that does not take it";
        Finding::wrong(DiagnosisVerdict::Unschedulable, cause).then("kubectl get pvc,pv")
    })
}

/// No node takes machines, whatever they ask for.
fn of_cluster(facts: &Facts, message: &str) -> Option<Finding> {
    let is_about_labels = message.contains("node affinity/selector") || message.contains("no nodes available");
    if !is_about_labels || facts.schedulable_nodes() != Some(0) {
        return None;
    }
    let cause = "no node takes machines: none has the label kubevirt.io/schedulable=true, which node agents set";
    Some(Finding::wrong(DiagnosisVerdict::NoSchedulableNode, cause).then("kubectl garboard cluster status"))
}

fn of_devices(facts: &Facts, message: &str) -> Option<Finding> {
    let (_, rest) = message.split_once(&format!("Insufficient {OWN_DEVICES}"))?;
    let device: String = rest.chars().take_while(|one| one.is_alphanumeric() || *one == '-').collect();
    let finding = match device.as_str() {
        "kvm" => Finding::wrong(DiagnosisVerdict::NoDevice, "no node that it may run on has /dev/kvm to give")
            .then("kubectl garboard cluster status")
            .then(format!("{}    # slow: vCPUs are interpreted where there is no KVM", emulation(facts).command())),
        other => {
            Finding::wrong(DiagnosisVerdict::NoDevice, format!("no node that it may run on has /dev/{other} to give"))
                .then("kubectl garboard cluster status")
        }
    };
    Some(finding)
}

/// What is to be done for it depends on whether there is a KubeVirt object; the deployment is not looked at.
fn emulation(facts: &Facts) -> EmulationSetting {
    EmulationSetting::of(&[], &facts.kubevirts)
}

fn of_room(facts: &Facts, pod: &Pod, message: &str) -> Option<Finding> {
    let missing: Vec<&str> = ["cpu", "memory", "ephemeral-storage"]
        .into_iter()
        .filter(|what| message.contains(&format!("Insufficient {what}")))
        .collect();
    if missing.is_empty() {
        return (message.contains("Too many pods")).then(|| {
            Finding::wrong(DiagnosisVerdict::NoRoom, "the nodes that it may run on have as many pods as they take")
                .then("kubectl describe nodes")
        });
    }
    let asked: Vec<String> = missing.iter().map(|what| format!("{} {what}", requested(pod, what))).collect();
    let cause = format!("no node that it may run on has {} left", asked.join(" and "));
    let finding =
        Finding::wrong(DiagnosisVerdict::NoRoom, cause).then("kubectl describe nodes    # see Allocated resources");
    Some(finding.then(format!("ask for less: {}", edit(facts))))
}

/// What the pod's largest container asks for; the sum would not be a number the user wrote anywhere.
fn requested(pod: &Pod, what: &str) -> String {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests = containers.filter_map(|each| each.resources.as_ref()?.requests.as_ref());
    let all: Vec<&BTreeMap<String, Quantity>> = requests.collect();
    let found = all.iter().find_map(|requests| requests.get(what));
    found.map_or_else(|| "the".to_owned(), |quantity| readable(&quantity.0))
}

/// A plain number of bytes in MiB.
fn readable(quantity: &str) -> String {
    match quantity.parse::<u64>() {
        Ok(bytes) if bytes >= 1 << 20 => format!("{} MiB of", bytes >> 20),
        Ok(_) | Err(_) => quantity.to_owned(),
    }
}

fn of_selector(facts: &Facts, pod: &Pod, message: &str) -> Option<Finding> {
    if !message.contains("node affinity/selector") {
        return None;
    }
    let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.clone()).unwrap_or_default();
    let path = if facts.vm.is_some() { "spec.template.spec" } else { "spec" };
    if let Some(finding) = of_offer(facts, &selector, path) {
        return Some(finding);
    }
    let is_offer = |key: &str| OFFERS.iter().any(|(family, ..)| key.starts_with(family));
    let own = |key: &str| key != SCHEDULABLE && key != "kubernetes.io/arch" && !is_offer(key);
    let asked: Vec<String> =
        selector.iter().filter(|(key, _)| own(key)).map(|(key, value)| format!("{key}={value}")).collect();
    let cause = if asked.is_empty() {
        format!("no node that takes machines fits its {path}.affinity")
    } else {
        format!("no node that takes machines has the labels of its {path}.nodeSelector: {}", asked.join(", "))
    };
    let finding = Finding::wrong(DiagnosisVerdict::NoNodeMatches, cause);
    Some(finding.then("kubectl get nodes -l kubevirt.io/schedulable=true --show-labels").then(edit(facts)))
}

/// What no node's QEMU can give a guest.
fn of_offer(facts: &Facts, selector: &BTreeMap<String, String>, path: &str) -> Option<Finding> {
    let mut lacking = selector.keys().filter(|label| facts.nodes_with(label) == Some(0));
    let (label, (family, field, what)) =
        lacking.find_map(|label| Some((label, OFFERS.iter().find(|offer| label.starts_with(offer.0))?)))?;
    let name = label.strip_prefix(family).unwrap_or(label);
    let cause = format!("no node that takes machines gives guests the {what} {name} of its {path}.{field}");
    let finding = Finding::wrong(DiagnosisVerdict::NoNodeMatches, cause);
    let nodes = format!("kubectl get nodes -l kubevirt.io/schedulable=true -o yaml | grep {family}    # what there is");
    Some(finding.then(nodes).then(edit(facts)))
}

fn of_taints(message: &str) -> Option<Finding> {
    let (_, rest) = message.split_once("untolerated taint")?;
    let taint = rest.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(taint, _)| taint.trim());
    let cause = match taint {
        Some(taint) => format!("nodes do not take it because of their taint {}", taint.trim_end_matches(':')),
        None => "nodes do not take it because of a taint".to_owned(),
    };
    let finding = Finding::wrong(DiagnosisVerdict::Tainted, cause);
    Some(
        finding
            .then("kubectl get nodes -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints")
            .then("remove the taint, or add a toleration to the machine"),
    )
}
