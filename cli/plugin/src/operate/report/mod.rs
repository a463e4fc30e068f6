//! How an installation is: what runs where, what is wrong, what to do. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use garboard_api::conditions::{ConditionStatus, NodeConditionType, PodConditionType, Reason};
use garboard_api::metadata::device::{KVM, TUN};
use garboard_api::metadata::node_annotation::{HEARTBEAT, SILENT_SECONDS};
use garboard_api::metadata::node_label::SCHEDULABLE;
use garboard_api::{Phase, PrintableStatus};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::Serialize;

use super::gather::Installation;
use super::manifest::VERSION;
use super::{CONTROLLER, NAMESPACE};
use crate::why::{age, connected_controllers, ready_of};

/// An agent whose last heartbeat is as old as this has ended, as the controller sees it.
const STALE: Duration = Duration::from_secs(SILENT_SECONDS);

/// One part of the installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Part {
    /// Its name.
    pub(super) name: &'static str,
    /// Whether it is as it should be.
    pub(super) well: bool,
    /// Its state, in one line.
    pub(super) summary: String,
    /// What is wrong, and what to do: a pair each.
    pub(super) troubles: Vec<Trouble>,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Trouble {
    /// What is wrong.
    pub(super) what: String,
    /// What to do.
    pub(super) remedy: String,
}

/// The state of the whole installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    /// Whether nothing is wrong.
    pub(super) well: bool,
    /// Whether any part of Garboard is in the cluster.
    pub(super) installed: bool,
    /// This program's release.
    pub(super) version: &'static str,
    /// The parts.
    pub(super) parts: Vec<Part>,
}

impl Report {
    /// The state of the parts in one line, for a user who waits.
    pub(super) fn progress(&self) -> String {
        let parts = self.parts.iter().filter(|part| part.name != "machines" && part.name != "definitions");
        parts.map(|part| format!("{}: {}", part.name, part.summary)).collect::<Vec<_>>().join("; ")
    }

    /// Everything but the users' machines is as it should be.
    pub(super) fn is_up(&self) -> bool {
        self.installed && self.parts.iter().all(|part| part.well || part.name == "machines")
    }

    /// What is wrong, a line each.
    pub(super) fn troubles(&self) -> Vec<String> {
        let all = self.parts.iter().flat_map(|part| &part.troubles);
        all.map(|trouble| format!("{} -> {}", trouble.what, trouble.remedy)).collect()
    }
}

/// Judges.
pub(super) fn judge(found: &Installation, now: Timestamp) -> Report {
    let installed = !found.established.is_empty() || found.controller.is_some() || found.agent.is_some();
    if !installed {
        let trouble = trouble("Garboard is not installed here", "kubectl garboard cluster install");
        let parts = vec![part("installation", "not there".to_owned(), vec![trouble])];
        return Report { well: false, installed, version: VERSION, parts };
    }
    let mut parts = vec![definitions(found), controllers(found), agents(found)];
    parts.extend(dashboard(found));
    parts.extend([nodes(found, now), machines(found)]);
    let well = parts.iter().all(|part| part.well);
    Report { well, installed, version: VERSION, parts }
}

fn part(name: &'static str, summary: String, troubles: Vec<Trouble>) -> Part {
    Part { name, well: troubles.is_empty(), summary, troubles }
}

fn trouble(what: impl Into<String>, remedy: impl Into<String>) -> Trouble {
    Trouble { what: what.into(), remedy: remedy.into() }
}

/// What to type about a part of the installation.
fn own(found: &Installation, command: &str) -> String {
    format!("kubectl -n {} {command}", found.namespace)
}

fn definitions(found: &Installation) -> Part {
    let missing: Vec<&String> =
        found.wanted_definitions.iter().filter(|name| !found.established.contains(name)).collect();
    let troubles = missing
        .iter()
        .map(|name| {
            trouble(
                format!("the definition {name} is not there, or not established"),
                "kubectl garboard cluster install",
            )
        })
        .collect();
    let summary = format!("{} of {} established", found.established.len(), found.wanted_definitions.len());
    part("definitions", summary, troubles)
}

fn controllers(found: &Installation) -> Part {
    let Some(deployment) = &found.controller else {
        return part(
            "controller",
            "not there".to_owned(),
            vec![trouble("the controller is not there", "kubectl garboard cluster install")],
        );
    };
    let idle = "it is scaled to nothing: no machine is started, stopped or changed";
    let Deployed { mut summary, troubles } = deployed(found, deployment, &found.controllers, idle, 2);
    if found.emulation.allowed {
        summary.push_str(", with emulation");
    }
    part("controller", summary, troubles)
}

/// Nothing where none was chosen.
fn dashboard(found: &Installation) -> Option<Part> {
    let deployment = found.dashboard.as_ref()?;
    let idle = "it is scaled to nothing: users without kubectl have no page";
    let Deployed { summary, troubles } = deployed(found, deployment, &found.dashboards, idle, 1);
    Some(part("dashboard", summary, troubles))
}

/// How a deployment is.
struct Deployed {
    summary: String,
    troubles: Vec<Trouble>,
}

/// `idle`: what it means that there are no replicas; `usual`: how many there should be.
fn deployed(found: &Installation, deployment: &Deployment, pods: &[Pod], idle: &str, usual: u32) -> Deployed {
    let name = deployment.metadata.name.as_deref().unwrap_or(CONTROLLER);
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.as_ref();
    let ready = status.and_then(|status| status.ready_replicas).unwrap_or(0);
    let updated = status.and_then(|status| status.updated_replicas).unwrap_or(0);
    let seen = status.and_then(|status| status.observed_generation) >= deployment.metadata.generation;
    let mut troubles = Vec::new();
    if wanted == 0 {
        troubles.push(trouble(idle, own(found, &format!("scale deployment/{name} --replicas={usual}"))));
    }
    troubles.extend(pods.iter().filter_map(pod_trouble));
    if troubles.is_empty() && (ready < wanted || updated < wanted || !seen) {
        troubles.push(trouble(
            format!("{ready} of {wanted} are ready, {updated} of this version"),
            own(found, &format!("rollout status deployment/{name}")),
        ));
    }
    let image = deployment
        .spec
        .as_ref()
        .and_then(|spec| image_of(spec.template.spec.as_ref()?.containers.first()?.image.as_deref()));
    Deployed { summary: format!("{ready} of {wanted} ready{}{}", places(pods), of(image.as_deref())), troubles }
}

fn agents(found: &Installation) -> Part {
    let Some(set) = &found.agent else {
        return part(
            "agents",
            "not there".to_owned(),
            vec![trouble("the node agents are not there", "kubectl garboard cluster install")],
        );
    };
    let (wanted, ready) =
        set.status.as_ref().map_or((0, 0), |status| (status.desired_number_scheduled, status.number_ready));
    let mut troubles: Vec<Trouble> = found.agents.iter().filter_map(pod_trouble).collect();
    if troubles.is_empty() && (ready < wanted || wanted == 0) {
        let what = if wanted == 0 {
            "no node matches the agents' node selector".to_owned()
        } else {
            format!("{ready} of {wanted} are ready")
        };
        troubles.push(trouble(what, own(found, "describe daemonset garboard-node")));
    }
    let image =
        set.spec.as_ref().and_then(|spec| image_of(spec.template.spec.as_ref()?.containers.first()?.image.as_deref()));
    part("agents", format!("{ready} of {wanted} ready{}", of(image.as_deref())), troubles)
}

/// An image, and whether it is this program's release.
fn image_of(image: Option<&str>) -> Option<String> {
    let image = image?;
    let named = image.split_once('@').map_or(image, |(named, _)| named);
    let is_ours = named.rsplit_once(':').is_some_and(|(_, tag)| tag == VERSION);
    Some(if is_ours { image.to_owned() } else { format!("{image} (this program is {VERSION})") })
}

fn of(image: Option<&str>) -> String {
    image.map(|image| format!(", {image}")).unwrap_or_default()
}

fn places(pods: &[Pod]) -> String {
    let ready = pods.iter().filter(|pod| ready_of(pod));
    let nodes: Vec<&str> = ready.filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref()).collect();
    if nodes.is_empty() { String::new() } else { format!(" on {}", nodes.join(", ")) }
}

/// Why a pod of Garboard is not ready.
fn pod_trouble(pod: &Pod) -> Option<Trouble> {
    if ready_of(pod) || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node");
    let why = waiting(pod).or_else(|| unplaced(pod)).unwrap_or_else(|| "it is not ready yet".to_owned());
    let remedy = if why.contains("mage") {
        "load the image on the node, or install with --image-registry".to_owned()
    } else {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or(NAMESPACE);
        format!("kubectl -n {namespace} describe pod {name}; kubectl -n {namespace} logs {name}")
    };
    Some(trouble(format!("pod {name} on {node}: {why}"), remedy))
}

/// Whether a kubelet's reason is about the image of a container.
fn is_without_image(reason: &str) -> bool {
    const REASONS: [Reason; 3] = [Reason::ErrImagePull, Reason::ErrImageNeverPull, Reason::ImagePullBackOff];
    reason == "InvalidImageName" || REASONS.iter().any(|each| each.name() == reason)
}

fn waiting(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    containers.into_iter().find_map(|each| {
        let waiting = each.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.clone().unwrap_or_default();
        let message = waiting.message.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
        Some(match reason.as_str() {
            _ if is_without_image(&reason) => format!("its image {} cannot be had", each.image),
            "CrashLoopBackOff" => format!("it ends repeatedly ({} times)", each.restart_count),
            _ => format!("{reason}{message}"),
        })
    })
}

fn unplaced(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let (kind, status) = (PodConditionType::PodScheduled.name(), ConditionStatus::False.name());
    let found = conditions.iter().find(|each| each.type_ == kind && each.status == status)?;
    found.message.clone()
}

fn nodes(found: &Installation, now: Timestamp) -> Part {
    let mut troubles = Vec::new();
    let (mut taking, mut with_kvm, mut interpreting) = (0, 0, 0);
    for node in found.nodes.iter().filter(|node| is_for_machines(node, found)) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if offers(node, KVM) {
            with_kvm += 1;
            interpreting += usize::from(found.interpreting.contains(name));
        }
        match node_trouble(found, node, name, now) {
            Some(trouble) => troubles.push(trouble),
            None => taking += 1,
        }
    }
    if taking > 0 && with_kvm == 0 && !found.emulation.allowed {
        troubles.push(trouble(
            "no node offers /dev/kvm, so no machine can be scheduled",
            format!("load kvm_intel or kvm_amd on the nodes, or: {}", found.emulation.command()),
        ));
    }
    if taking == 0 && troubles.is_empty() {
        troubles.push(trouble("no node takes machines", own(found, "get pods -o wide")));
    }
    let summary = format!("{taking} of {} take machines, {}", found.nodes.len(), kvm(with_kvm, interpreting));
    part("nodes", summary, troubles)
}

/// How many nodes have KVM, and of how many it is known that guests are slow there. Firmware and small guests do run, so that it is
/// no trouble.
fn kvm(with_kvm: usize, interpreting: usize) -> String {
    match interpreting {
        0 => format!("{with_kvm} with KVM"),
        all if all == with_kvm => format!("{with_kvm} with KVM that interprets guest code (kubectl garboard why NAME)"),
        some => format!(
            "{with_kvm} with KVM, {some} of them with KVM that interprets guest code (kubectl garboard why NAME)"
        ),
    }
}

/// Nodes that the agents are for.
fn is_for_machines(node: &Node, found: &Installation) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let selector =
        found.agent.as_ref().and_then(|set| set.spec.as_ref()?.template.spec.as_ref()?.node_selector.clone());
    selector.unwrap_or_default().iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn node_trouble(found: &Installation, node: &Node, name: &str, now: Timestamp) -> Option<Trouble> {
    let describe = format!("kubectl describe node {name}");
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|each| each.type_ == NodeConditionType::Ready.name());
    if ready.is_none_or(|ready| ready.status != ConditionStatus::True.name()) {
        return Some(trouble(format!("{name} is not ready"), describe));
    }
    let agent = own(found, "logs daemonset/garboard-node");
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(SCHEDULABLE));
    if label.map(String::as_str) != Some("true") {
        return Some(trouble(
            format!("{name} takes no machines: its agent has not set the label {SCHEDULABLE}=true"),
            agent,
        ));
    }
    let beat = node.metadata.annotations.as_ref().and_then(|all| all.get(HEARTBEAT)).and_then(|text| text.parse().ok());
    if let Some(beat) = beat.filter(|beat: &Timestamp| now.duration_since(*beat).unsigned_abs() >= STALE) {
        return Some(trouble(format!("the agent of {name} has sent no heartbeat for {}", age(beat, now)), agent));
    }
    if connected_controllers(node).is_some_and(|(count, _)| count == 0) {
        let what = format!("the agent of {name} is connected to no controller: no request reaches its machines");
        return Some(trouble(what, agent));
    }
    (!offers(node, TUN)).then(|| trouble(format!("{name} offers no network devices ({TUN})"), agent))
}

/// Whether a node has some of a device; a quantity is `1k` as well as `1000`.
fn offers(node: &Node, name: &str) -> bool {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    allocatable.and_then(|all| all.get(name)).is_some_and(|quantity| quantity.0 != "0")
}

/// Whether a person has to look at a machine in this state: a printable status, or the phase of an instance that has none.
fn needs_attention(state: &str) -> bool {
    match PrintableStatus::from_name(state) {
        Some(status) => status.needs_attention(),
        None => state == Phase::Failed.name(),
    }
}

/// What to do about a roll-out of supervisors that has stopped; the message has where and why.
const STOPPED_ADVICE: &str = "load the image or correct the node; or install the version of before";

/// Machines are their users' business, and no reason for this command to fail; a roll-out that has stopped is.
fn machines(found: &Installation) -> Part {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for state in &found.machines {
        *counts.entry(state).or_default() += 1;
    }
    let parts: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let troubled: usize = counts.iter().filter(|(state, _)| needs_attention(state)).map(|(_, count)| count).sum();
    let hint = if troubled > 0 { " (kubectl get vm,vmi -A; kubectl garboard why NAME)" } else { "" };
    let outdated = match found.outdated {
        0 => String::new(),
        number => format!("; {number} with a supervisor of another image"),
    };
    let summary = if parts.is_empty() { "none".to_owned() } else { format!("{}{hint}{outdated}", parts.join(", ")) };
    let stopped = found.stopped.iter().map(|why| trouble(format!("no supervisor is replaced: {why}"), STOPPED_ADVICE));
    part("machines", summary, stopped.collect())
}

#[cfg(test)]
mod tests;
