//! Machines that are not there, not to run, on their way or on their way out.

use garboard_api::conditions::VmConditionType;
use garboard_api::metadata::finalizer;
use garboard_api::run_strategy::RunStrategy;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::{containers, ending};
use crate::why::diagnosis::{DiagnosisVerdict, Finding, seen};
use crate::why::facts::{Facts, age};

/// Finalizers that Garboard and Kubernetes take away by themselves.
const OURS: [&str; 4] = [finalizer::CONTROLLER, finalizer::FOREGROUND_DELETE, "foregroundDeletion", "orphan"];
/// A controller that works has reacted by then, seconds.
const REACTION_SECONDS: i64 = 60;

/// There is no such machine.
pub(crate) fn not_found(facts: &Facts) -> Option<Finding> {
    if facts.vm.is_some() || facts.vmi.is_some() {
        return None;
    }
    let finding = match facts.near.as_slice() {
        [] => Finding::wrong(
            DiagnosisVerdict::NotFound,
            format!("there is no machine `{}` in this namespace", facts.name),
        ),
        near => {
            let names = near.join(" or ");
            let text = format!("there is no machine `{}` in this namespace; did you mean {names}?", facts.name);
            Finding::wrong(DiagnosisVerdict::NotFound, text)
        }
    };
    let finding = finding.then("kubectl get vm,vmi -A");
    // A pod that is left belongs to an instance that is gone: the garbage collector will have it.
    Some(match facts.pods.first().and_then(|pod| pod.metadata.name.as_deref()) {
        Some(pod) => finding.shown_by(seen(format!("pod/{pod}"), "metadata", "is still there", None)),
        None => match ending::left_of(facts) {
            Some(evidence) => finding.shown_by(evidence).then(format!("kubectl garboard logs {} --last", facts.name)),
            None => finding,
        },
    })
}

/// When it is to run is nothing that a controller acts on.
pub(crate) fn strategy(facts: &Facts) -> Option<Finding> {
    let vm = facts.vm.as_ref().filter(|_| facts.strategy().is_none())?;
    const INSTEAD: &str = "Always, RerunOnFailure, Once, Manual or Halted";
    let written = vm.spec.run_strategy.as_deref().unwrap_or_default();
    let cause = match written {
        "" => format!("it has neither spec.runStrategy nor spec.running, so that nothing starts it; write {INSTEAD}"),
        "WaitAsReceiver" => format!(
            "spec.runStrategy: it waits for a guest that another cluster sends (WaitAsReceiver), and no guest is moved here; write {INSTEAD}"
        ),
        other => format!("spec.runStrategy: `{other}` is not known; write {INSTEAD}"),
    };
    let finding = Finding::wrong(DiagnosisVerdict::FieldRefused, cause);
    let finding = finding.shown_by(seen(format!("vm/{}", facts.name), "spec.runStrategy", written, None));
    Some(finding.then(format!("kubectl edit vm {}", facts.name)))
}

/// The machine's object, or that of its instance, is to go.
pub(crate) fn deletion(facts: &Facts) -> Option<Finding> {
    let (object, metadata) = match (&facts.vm, &facts.vmi) {
        (Some(vm), _) if vm.metadata.deletion_timestamp.is_some() => (format!("vm/{}", facts.name), &vm.metadata),
        (None, Some(vmi)) if vmi.metadata.deletion_timestamp.is_some() => {
            (format!("vmi/{}", facts.name), &vmi.metadata)
        }
        _ => return None,
    };
    let since = metadata.deletion_timestamp.as_ref().map(|time| time.0);
    if let Some(finding) = pod_leaves(facts) {
        return Some(finding.shown_by(seen(object, "metadata.deletionTimestamp", "is being deleted", since)));
    }
    let finalizers = metadata.finalizers.clone().unwrap_or_default();
    let evidence = seen(object.clone(), "metadata.finalizers", finalizers.join(", "), since);
    if let Some(foreign) = finalizers.iter().find(|name| !OURS.contains(&name.as_str())) {
        let cause = format!("it is deleted as soon as the owner of its finalizer {foreign} removes it");
        let finding = Finding::wrong(DiagnosisVerdict::DeletionStuck, cause).since(since).shown_by(evidence);
        return Some(finding.then(format!("find out who owns {foreign}, and why it is not removed")));
    }
    let waited = since.map_or(0, |since| facts.now.duration_since(since).as_secs());
    if facts.is_without_controller() || waited > REACTION_SECONDS {
        let cause = "it is deleted as soon as the controller takes its finalizer away, and the controller does not act";
        let finding = Finding::wrong(DiagnosisVerdict::DeletionStuck, cause).since(since).shown_by(evidence);
        return Some(finding.then("kubectl garboard cluster status"));
    }
    Some(Finding::waiting(DiagnosisVerdict::Stopping, "it is being deleted").since(since).shown_by(evidence))
}

/// Its guest is being shut down, by whichever way that was asked for.
pub(crate) fn stopping(facts: &Facts) -> Option<Finding> {
    let vmi = facts.vmi.as_ref()?;
    let is_over = matches!(facts.phase(), Some("Succeeded" | "Failed"));
    let leaves = vmi.metadata.deletion_timestamp.is_some() || facts.strategy() == Some(RunStrategy::Halted);
    if !leaves || is_over {
        return None;
    }
    if let Some(finding) = pod_leaves(facts) {
        return Some(finding);
    }
    let since = vmi.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let object = format!("vmi/{}", facts.name);
    let finding = Finding::waiting(DiagnosisVerdict::Stopping, "it is to stop, and its pod is not being deleted yet")
        .since(since);
    Some(finding.shown_by(seen(object, "status.phase", facts.phase().unwrap_or_default(), facts.phase_since())))
}

/// A pod whose end was asked for: `deletionTimestamp` is when its grace is over.
fn pod_leaves(facts: &Facts) -> Option<Finding> {
    let pod = facts.pods.iter().find(|pod| pod.metadata.deletion_timestamp.is_some())?;
    let end = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    let asked = end.checked_sub(jiff::SignedDuration::from_secs(grace)).ok();
    let name = pod.metadata.name.clone().unwrap_or_default();
    let left = end.duration_since(facts.now).as_secs();
    let evidence = seen(format!("pod/{name}"), "metadata.deletionTimestamp", format!("{grace} s of grace"), asked);
    if left >= -REACTION_SECONDS {
        let (cause, force) = match left {
            1.. => (
                format!("its guest is being shut down; it is ended by force in {left} s at the latest"),
                facts
                    .vm
                    .as_ref()
                    .map(|_| format!("kubectl garboard stop {} --force    # not to wait for it", facts.name)),
            ),
            _ => ("its guest was shut down, and its pod is being cleared away".to_owned(), None),
        };
        let finding = Finding::waiting(DiagnosisVerdict::Stopping, cause).since(asked).shown_by(evidence);
        return Some(force.into_iter().fold(finding, Finding::then));
    }
    Some(overdue(facts, pod, end).since(asked).shown_by(evidence))
}

fn overdue(facts: &Facts, pod: &Pod, end: Timestamp) -> Finding {
    let late = age(end, facts.now);
    let name = pod.metadata.name.clone().unwrap_or_default();
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_else(|| "no node".to_owned());
    let foreign: Vec<String> = pod.metadata.finalizers.clone().unwrap_or_default();
    if !foreign.is_empty() {
        let text =
            format!("its pod should have been gone {late} ago, but carries the finalizer {}", foreign.join(", "));
        return Finding::wrong(DiagnosisVerdict::DeletionStuck, text).then(format!("kubectl describe pod {name}"));
    }
    let text = format!("its pod should have been gone {late} ago; the kubelet of {node} has not reported that it is");
    Finding::wrong(DiagnosisVerdict::DeletionStuck, text)
        .then(format!("kubectl describe node {node}"))
        .then(format!("kubectl describe pod {name}"))
}

/// It is not to run.
pub(crate) fn halted(facts: &Facts) -> Option<Finding> {
    let vm = facts.vm.as_ref()?;
    if facts.vmi.is_some() {
        return None;
    }
    let strategy = facts.strategy()?;
    let since = facts.of_vm(VmConditionType::Ready).and_then(|ready| ready.since);
    let object = format!("vm/{}", facts.name);
    let written = if vm.spec.running.is_some() { "spec.running" } else { "spec.runStrategy" };
    let start = format!("kubectl garboard start {}", facts.name);
    let finding = match strategy {
        RunStrategy::Halted => Finding::well(DiagnosisVerdict::Halted, "it is not to run, and does not").then(start),
        RunStrategy::Manual => {
            Finding::well(DiagnosisVerdict::Halted, "it runs when it is started, and nothing has started it")
                .then(start)
        }
        RunStrategy::Once | RunStrategy::RerunOnFailure | RunStrategy::Always => return None,
    };
    Some(finding.since(since).shown_by(seen(object, written, strategy.name(), None)))
}

/// The kubelet pulls an image for it, the launcher's or that of a container disk.
fn pulls(facts: &Facts) -> Option<Finding> {
    let (image, since) = containers::pulling(facts)?;
    let pod = facts.pod()?.metadata.name.clone()?;
    let lasts = since.map(|since| format!(", for {}", age(since, facts.now))).unwrap_or_default();
    let node = facts.node_name().unwrap_or("its node");
    let evidence = seen(format!("pod/{pod}"), "event Pulling", image.clone(), since);
    let finding = Finding::waiting(DiagnosisVerdict::Starting, format!("{node} is pulling the image {image}{lasts}"));
    let events = format!("kubectl get events -w --field-selector involvedObject.name={pod}    # how the pull ends");
    let slow = format!("if it takes too long, check that {node} reaches the registry, or load the image on it");
    Some(finding.since(since).shown_by(evidence).then(events).then(slow))
}

/// Nothing is wrong, and it does not run yet.
pub(crate) fn starting(facts: &Facts) -> Option<Finding> {
    if let Some(finding) = pulls(facts) {
        return Some(finding);
    }
    let (cause, since) = match facts.phase() {
        Some("Pending") => ("its pod is about to be made", facts.phase_since()),
        Some("Scheduling") => (waits_for(facts), facts.phase_since()),
        Some("Scheduled") => ("its launcher prepares the start of QEMU", facts.phase_since()),
        Some(_) => return None,
        None if matches!(
            facts.strategy(),
            Some(RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Once)
        ) =>
        {
            let made = facts.vm.as_ref().and_then(|vm| vm.metadata.creation_timestamp.as_ref());
            ("its instance is about to be made", made.map(|time| time.0))
        }
        None => return None,
    };
    let object = if facts.vmi.is_some() { format!("vmi/{}", facts.name) } else { format!("vm/{}", facts.name) };
    let state = facts.phase().unwrap_or("no instance");
    let finding = Finding::waiting(DiagnosisVerdict::Starting, cause).since(since);
    let watch = format!("kubectl garboard logs {} -f", facts.name);
    let has_launcher = facts.phase() == Some("Scheduled");
    let next = if has_launcher { watch } else { format!("kubectl get vmi {} -w", facts.name) };
    Some(finding.shown_by(seen(object, "status.phase", state, since)).then(next))
}

fn waits_for(facts: &Facts) -> &'static str {
    let is_placed = facts.pod().is_some_and(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
    if is_placed { "its pod's containers are being made" } else { "its pod waits for a node" }
}
