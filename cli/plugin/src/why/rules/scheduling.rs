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

/// A scheduler that works has looked at a pod by then, seconds.
const REACTION_SECONDS: i64 = 30;
/// What the controller asks of nodes by itself: beginning of the label, the field it comes from, and what it is.
const OFFERS: [(&str, &str, &str); 3] = [
    (CPU_MODEL, "domain.cpu.model", "CPU model"),
    (CPU_FEATURE, "domain.cpu.features", "CPU feature"),
    (MACHINE_TYPE, "domain.machine.type", "machine type"),
];
/// Sizes of huge pages on amd64, as Kubernetes writes them: a node has no others.
const PAGE_SIZES: [&str; 2] = ["2Mi", "1Gi"];

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
        .or_else(|| of_neighbours(facts, message))
        .or_else(|| of_cordons(message))
        .or_else(|| of_taints(message))
        .unwrap_or_else(|| {
            let cause = format!("no node can take it: {}", bounded(message));
            Finding::wrong(DiagnosisVerdict::Unschedulable, cause).then("kubectl describe nodes")
        });
    Some(finding.since(condition.since).shown_by(evidence(pod, &condition, message)))
}

/// Nobody has looked for a node yet.
pub(crate) fn held_back(facts: &Facts) -> Option<Finding> {
    let pod = facts.pod().filter(|_| facts.phase() == Some("Scheduling"))?;
    let (name, spec) = (pod.metadata.name.clone().unwrap_or_default(), pod.spec.as_ref()?);
    let gates = spec.scheduling_gates.iter().flatten().map(|gate| gate.name.as_str()).collect::<Vec<_>>().join(", ");
    if !gates.is_empty() {
        let cause = format!("its pod is kept from the scheduler by {gates} until the owner of that removes it");
        let finding = Finding::waiting(DiagnosisVerdict::Unschedulable, cause).since(facts.phase_since());
        let finding = finding.shown_by(seen(format!("pod/{name}"), "spec.schedulingGates", gates.clone(), None));
        return Some(finding.then(format!("find out what sets and removes the scheduling gate {gates}")));
    }
    let made = pod.metadata.creation_timestamp.as_ref()?.0;
    let is_looked_at = spec.node_name.is_some() || of_pod(pod, PodConditionType::PodScheduled).is_some();
    if is_looked_at || facts.now.duration_since(made).as_secs() < REACTION_SECONDS {
        return None;
    }
    let scheduler = spec.scheduler_name.as_deref().unwrap_or("default-scheduler");
    let cause =
        format!("no scheduler has looked at its pod: the pod is for the scheduler {scheduler}, which does not run");
    let finding = Finding::wrong(DiagnosisVerdict::Unschedulable, cause).since(Some(made));
    let finding = finding.shown_by(seen(format!("pod/{name}"), "spec.schedulerName", scheduler, Some(made)));
    let finding = finding.then("kubectl get pods -A | grep scheduler");
    Some(finding.then(format!("start that scheduler, or name another one in schedulerName: {}", edit(facts))))
}

fn evidence(pod: &Pod, condition: &Condition, message: &str) -> crate::why::diagnosis::Evidence {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let field = format!("conditions[PodScheduled] {}", condition.reason);
    seen(format!("pod/{name}"), field, bounded(message), condition.since)
}

fn of_claims(facts: &Facts, message: &str) -> Option<Finding> {
    if let Some((_, rest)) = message.split_once("persistentvolumeclaim \"")
        && let Some((claim, tail)) = rest.split_once('"')
        && let Some(state) = [" not found", " is being deleted"].into_iter().find(|state| tail.starts_with(state))
    {
        let state = if state == " not found" { " is not there" } else { state };
        let finding = Finding::wrong(DiagnosisVerdict::ClaimMissing, format!("its claim {claim}{state}"));
        return Some(finding.then("kubectl get pvc").then(edit(facts)));
    }
    const UNBOUND: [&str; 3] = [
        "unbound immediate PersistentVolumeClaims",
        "didn't find available persistent volumes to bind",
        "did not have enough free storage",
    ];
    if UNBOUND.iter().any(|text| message.contains(text)) {
        let nameless = || {
            let cause = "one of its claims has no volume";
            Finding::wrong(DiagnosisVerdict::ClaimUnbound, cause).then("kubectl get pvc")
        };
        return Some(unbound(facts).unwrap_or_else(nameless));
    }
    elsewhere(facts, message)
}

/// The volume of a claim is where the pod cannot be, or another pod has it.
fn elsewhere(facts: &Facts, message: &str) -> Option<Finding> {
    let names: Vec<&str> = facts.claims.iter().filter_map(|claim| claim.metadata.name.as_deref()).collect();
    let which = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    if message.contains("volume node affinity conflict") {
        let cause = format!("the volume of one of its claims{which} is on nodes that do not take it");
        let finding = Finding::wrong(DiagnosisVerdict::ClaimElsewhere, cause).then("kubectl get pvc,pv -o wide");
        return Some(
            finding.then("see what keeps the machine from the nodes that have the volume: kubectl describe pv"),
        );
    }
    message.contains("ReadWriteOncePod access mode").then(|| {
        let cause =
            format!("another pod has one of its claims{which}, whose access mode ReadWriteOncePod is for one pod");
        let finding = Finding::wrong(DiagnosisVerdict::ClaimElsewhere, cause);
        finding
            .then(format!("kubectl describe pvc {}    # Used By", names.join(" ")))
            .then("stop the other machine first")
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
    let (_, rest) = message.split_once(&format!("Insufficient {OWN_DEVICES}")).or_else(|| foreign_device(message))?;
    let is_of_name = |one: &char| one.is_alphanumeric() || ['-', '.', '/', '_'].contains(one);
    let device: String = rest.chars().take_while(is_of_name).collect();
    let device = device.trim_end_matches('.');
    let wrong = |cause: String| Finding::wrong(DiagnosisVerdict::NoDevice, cause);
    Some(match device {
        "kvm" => wrong("no node that it may run on has /dev/kvm to give".to_owned())
            .then("kubectl garboard cluster status")
            .then(format!("{}    # slow: vCPUs are interpreted where there is no KVM", emulation(facts).command())),
        other if other.contains('/') => wrong(format!("no node that it may run on has any {other} left"))
            .then("kubectl describe nodes    # see Allocatable and Allocated resources")
            .then(format!("ask for fewer, or for another device: {}", edit(facts))),
        other => wrong(format!("no node that it may run on has /dev/{other} to give"))
            .then("kubectl garboard cluster status"),
    })
}

/// A device of another plug-in: its name has a domain before a slash.
fn foreign_device(message: &str) -> Option<(&str, &str)> {
    let begin = "Insufficient ";
    let mut all = message.match_indices(begin).map(|(at, _)| message.split_at(at + begin.len()));
    all.find(|(_, rest)| rest.split([',', ' ']).next().is_some_and(|name| name.contains('/')))
}

/// What is to be done for it depends on whether there is a KubeVirt object; the deployment is not looked at.
fn emulation(facts: &Facts) -> EmulationSetting {
    EmulationSetting::of(&[], &facts.kubevirts)
}

fn of_room(facts: &Facts, pod: &Pod, message: &str) -> Option<Finding> {
    if let Some(finding) = of_hugepages(facts, pod, message) {
        return Some(finding);
    }
    let missing: Vec<&str> = ["cpu", "memory", "ephemeral-storage"]
        .into_iter()
        .filter(|what| message.contains(&format!("Insufficient {what}")))
        .collect();
    if missing.is_empty() {
        const FULL: [(&str, &str); 2] = [("Too many pods", "pods"), ("exceed max volume count", "volumes attached")];
        let (_, what) = FULL.into_iter().find(|(text, _)| message.contains(text))?;
        let cause = format!("the nodes that it may run on have as many {what} as they take");
        return Some(Finding::wrong(DiagnosisVerdict::NoRoom, cause).then("kubectl describe nodes"));
    }
    let asked: Vec<String> = missing.iter().map(|what| format!("{} {what}", requested(pod, what))).collect();
    let cause = format!("no node that it may run on has {} left", asked.join(" and "));
    let finding =
        Finding::wrong(DiagnosisVerdict::NoRoom, cause).then("kubectl describe nodes    # see Allocated resources");
    Some(finding.then(format!("ask for less: {}", edit(facts))))
}

/// Pages that nodes have to reserve before a guest can have them, or that no node can have.
fn of_hugepages(facts: &Facts, pod: &Pod, message: &str) -> Option<Finding> {
    let (_, rest) = message.split_once("Insufficient hugepages-")?;
    let size: String = rest.chars().take_while(|one| one.is_alphanumeric()).collect();
    let what = format!("hugepages-{size}");
    let cause = format!("no node that it may run on has {} {what} left", requested(pod, &what));
    let finding = Finding::wrong(DiagnosisVerdict::NoRoom, cause);
    let finding = finding.then(if PAGE_SIZES.contains(&size.as_str()) {
        format!("reserve pages of {size} on a node (sysctl vm.nr_hugepages), and restart its kubelet")
    } else {
        format!("write {} as memory.hugepages.pageSize, nodes have no others: {}", PAGE_SIZES.join(" or "), edit(facts))
    });
    Some(finding.then(format!("or leave out memory.hugepages: {}", edit(facts))))
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

/// Where other pods are keeps it from every node.
fn of_neighbours(facts: &Facts, message: &str) -> Option<Finding> {
    const RULES: [(&str, &str); 4] = [
        ("didn't match pod anti-affinity rules", "affinity.podAntiAffinity"),
        ("didn't satisfy existing pods anti-affinity rules", "the podAntiAffinity of pods that are there already"),
        ("didn't match pod affinity rules", "affinity.podAffinity"),
        ("didn't match pod topology spread constraints", "topologySpreadConstraints"),
    ];
    let (_, rule) = RULES.into_iter().find(|(text, _)| message.contains(text))?;
    let cause = format!("where other pods run keeps it from every node: {rule}");
    let finding =
        Finding::wrong(DiagnosisVerdict::NoNodeMatches, cause).then("kubectl get pods -A -o wide --show-labels");
    Some(finding.then(edit(facts)))
}

/// Nodes are cordoned, such as for a drain.
fn of_cordons(message: &str) -> Option<Finding> {
    if !message.contains("were unschedulable") {
        return None;
    }
    let cause = format!("no node can take it, because nodes are cordoned: {}", bounded(message));
    let finding = Finding::wrong(DiagnosisVerdict::Unschedulable, cause);
    let finding = finding.then("kubectl get nodes    # SchedulingDisabled");
    Some(finding.then("kubectl uncordon NODE    # once the node may be used again"))
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
