//! What a machine depends on: its node, the node's agent, the controllers.

use garboard_api::conditions::{KubeVirtConditionType, NodeConditionType};
use garboard_api::run_strategy::RunStrategy;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::refused::bounded;
use crate::why::diagnosis::{DiagnosisVerdict, Evidence, Finding, seen};
use crate::why::facts::{Facts, age, containers, of_node};

/// A controller that works has made something of a machine by then, seconds.
const REACTION_SECONDS: i64 = 30;

/// The node it is on does not answer.
pub(crate) fn node_lost(facts: &Facts) -> Option<Finding> {
    let name = facts.node_name().filter(|_| facts.pod().is_some() && facts.vmi.is_some())?;
    if matches!(facts.phase(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let remedy = format!(
        "if it is certain that {name} is off: kubectl taint node {name} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    );
    let Some(node) = facts.node() else {
        // Nodes may be seen, and this one is not among them.
        facts.nodes.as_ref()?;
        let cause = format!("its node {name} is not in the cluster any more");
        let evidence = seen(format!("node/{name}"), "metadata", "not found", None);
        return Some(
            Finding::wrong(DiagnosisVerdict::NodeNotReady, cause).shown_by(evidence).then("kubectl get nodes"),
        );
    };
    let ready = of_node(node, NodeConditionType::Ready).filter(|each| each.status != "True")?;
    let cause =
        format!("its node {name} does not answer; whether its guest still runs there cannot be known from here");
    let field = format!("conditions[Ready] {}", ready.reason);
    let value = format!("{}: {}", ready.status, bounded(&ready.message));
    let finding = Finding::wrong(DiagnosisVerdict::NodeNotReady, cause).since(ready.since);
    let finding = finding.shown_by(seen(format!("node/{name}"), field, value, ready.since));
    Some(finding.then(format!("kubectl describe node {name}")).then(remedy))
}

/// It waits for a controller, and none works.
pub(crate) fn controller_down(facts: &Facts) -> Option<Finding> {
    let waits = match (&facts.vm, &facts.vmi) {
        (Some(_), None) => !matches!(facts.strategy(), Some(RunStrategy::Halted | RunStrategy::Manual) | None),
        (Some(_), Some(_)) => facts.strategy() == Some(RunStrategy::Halted) || facts.phase() == Some("Pending"),
        (None, _) => facts.phase() == Some("Pending"),
    };
    if !waits {
        return None;
    }
    if facts.is_without_controller() {
        let cause = "no controller works, so nothing is started, stopped or changed; what runs goes on";
        let deployment = facts.parts.as_ref().and_then(|parts| parts.controller.as_ref());
        let wanted = deployment.and_then(|each| each.spec.as_ref()?.replicas).unwrap_or(0);
        let evidence =
            seen("deployment/garboard-controller", "status.availableReplicas", format!("0 of {wanted}"), None);
        let why = facts.parts.iter().flat_map(|parts| &parts.controllers).find_map(trouble);
        let finding = Finding::wrong(DiagnosisVerdict::ControllerDown, cause).shown_by(evidence);
        let finding = why.into_iter().fold(finding, Finding::shown_by);
        return Some(finding.then("kubectl garboard cluster status"));
    }
    ignored(facts)
}

/// Why the container of one of Garboard's pods does not come up.
fn trouble(pod: &Pod) -> Option<Evidence> {
    let status = containers(pod).into_iter().find(|status| !status.ready)?;
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    let ended = [&status.state, &status.last_state].into_iter().flatten().find_map(|state| state.terminated.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.clone()).unwrap_or_else(|| "it is not ready".to_owned());
    let message = ended.and_then(|ended| ended.message.as_deref()).map(last_line);
    let message = message.or_else(|| waiting.and_then(|waiting| waiting.message.clone())).unwrap_or_default();
    let name = pod.metadata.name.clone().unwrap_or_default();
    let at = ended.and_then(|ended| ended.finished_at.as_ref()).map(|time| time.0);
    Some(seen(format!("pod/{name}"), format!("containers[{}] {reason}", status.name), bounded(&message), at))
}

/// The last line of a log, where the kubelet has kept its end: what it is about and why.
fn last_line(log: &str) -> String {
    let line = log.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    let read: Value = serde_json::from_str(line).unwrap_or_default();
    let texts: Vec<&str> =
        ["message", "problem", "error"].iter().filter_map(|key| read["fields"][*key].as_str()).collect();
    if texts.is_empty() { line.to_owned() } else { texts.join(": ") }
}

/// No controller has touched it for longer than one takes.
fn ignored(facts: &Facts) -> Option<Finding> {
    let metadata = match (&facts.vm, &facts.vmi) {
        (_, Some(vmi)) if vmi.status.as_ref().is_none_or(|status| status.phase.is_none()) => &vmi.metadata,
        (Some(vm), None) if vm.status.as_ref().is_none_or(|status| status.printable_status.is_none()) => &vm.metadata,
        _ => return None,
    };
    let made = metadata.creation_timestamp.as_ref()?.0;
    if facts.now.duration_since(made).as_secs() < REACTION_SECONDS {
        return None;
    }
    let cause = "no controller has acted on it since it was created: is Garboard's controller running?";
    let evidence = seen(format!("vm/{}", facts.name), "status", "empty", Some(made));
    Some(
        Finding::wrong(DiagnosisVerdict::ControllerDown, cause)
            .since(Some(made))
            .shown_by(evidence)
            .then("kubectl garboard cluster status"),
    )
}

/// Its start waits for the agent of its node.
pub(crate) fn agent_down(facts: &Facts) -> Option<Finding> {
    let node = facts.node_name().filter(|node| facts.is_without_agent(node))?;
    if facts.phase() != Some("Scheduled") && facts.phase() != Some("Scheduling") {
        return None;
    }
    let cause = format!("its start waits for the agent of node {node}, which does not work");
    let finding = Finding::wrong(DiagnosisVerdict::AgentDown, cause).since(facts.phase_since());
    Some(finding.shown_by(without_agent(facts, node)).then("kubectl garboard cluster status"))
}

/// What shows that the agent of a node does not work.
fn without_agent(facts: &Facts, node: &str) -> Evidence {
    let Some(pod) = facts.agent(node) else {
        return seen(format!("node/{node}"), "pods", "no garboard-node on it", None);
    };
    let silent = facts.silent_since(node).map(|since| {
        let value = format!("its agent gave its last sign of life {} ago", age(since, facts.now));
        seen(format!("node/{node}"), "annotations", value, Some(since))
    });
    let unready = || {
        let name = pod.metadata.name.clone().unwrap_or_default();
        seen(format!("pod/{name}"), "conditions[Ready]", "False", None)
    };
    trouble(pod).or(silent).unwrap_or_else(unready)
}

/// The agent of its node lives, and no controller reaches it: nothing that a user asks of the guest gets to it.
pub(crate) fn agent_unconnected(facts: &Facts) -> Option<Finding> {
    let node = facts.node_name().filter(|node| facts.phase() == Some("Running") && !facts.is_without_agent(node))?;
    let (_, at) = facts.controllers_of(node).filter(|(count, _)| *count == 0)?;
    // Then that is the cause, and explains this as well.
    if facts.is_without_controller() {
        return None;
    }
    let cause = format!(
        "its guest runs, but the agent of node {node} is connected to no controller: consoles, pauses and other requests do not reach \
         it, and there are no metrics of it"
    );
    let value = "its agent was connected to no controller at its last sign of life";
    let finding = Finding::wrong(DiagnosisVerdict::AgentDown, cause).since(Some(at));
    let finding = finding.shown_by(seen(format!("node/{node}"), "annotations", value, Some(at)));
    let finding = finding.then(format!("check that pods of node {node} reach port 8445 of the controllers' pods"));
    Some(finding.then("kubectl garboard cluster status"))
}

/// What goes on without a controller.
pub(crate) fn controller_remark(facts: &Facts) -> Option<String> {
    let is_verdict = controller_down(facts).is_some();
    (facts.is_without_controller() && !is_verdict)
        .then(|| "no controller works: machines go on, but nothing is started, stopped or changed".to_owned())
}

/// What goes on without an agent.
pub(crate) fn agent_remark(facts: &Facts) -> Option<String> {
    let node = facts.node_name()?;
    (facts.phase() == Some("Running") && facts.is_without_agent(node))
        .then(|| format!("the agent of node {node} does not work: the guest's state here may be out of date"))
}

/// The fault that the cluster's own object reports.
pub(crate) fn cluster_remark(facts: &Facts) -> Option<String> {
    let conditions = facts.kubevirts.iter().flat_map(|each| each["status"]["conditions"].as_array()).flatten();
    let mut bad = conditions.filter(|each| {
        let (kind, status) = (each["type"].as_str().unwrap_or_default(), each["status"].as_str().unwrap_or_default());
        let kind = KubeVirtConditionType::from_name(kind);
        matches!(
            (kind, status),
            (Some(KubeVirtConditionType::Available), "False") | (Some(KubeVirtConditionType::Degraded), "True")
        )
    });
    let first = bad.next()?;
    let message = first["message"].as_str().or(first["reason"].as_str()).unwrap_or_default();
    Some(format!("the cluster's KubeVirt object is not well: {}", bounded(message)))
}
