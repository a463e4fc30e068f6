//! Pods whose containers do not come up.

use garboard_api::conditions::{Reason, VmiConditionType};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus, Event, Pod};

use super::ending::restarted;
use super::refused::{bounded, edit};
use crate::why::diagnosis::{DiagnosisVerdict, Evidence, Finding, seen};
use crate::why::facts::{Condition, Facts, containers, when};

const PULL: [&str; 6] = [
    Reason::ErrImagePull.name(),
    Reason::ImagePullBackOff.name(),
    "InvalidImageName",
    Reason::ErrImageNeverPull.name(),
    "RegistryUnavailable",
    "ImageInspectError",
];
/// The kubelet's reasons of events of a pod that has a sandbox.
const WITH_SANDBOX: [&str; 4] = ["Pulling", "Pulled", Reason::Created.name(), Reason::Started.name()];
/// The kubelet's reasons for a pod that it does not take, beside those of room, which begin with `OutOf`.
const REJECTED: [&str; 3] = ["UnexpectedAdmissionError", "NodeAffinity", "NodeShutdown"];

/// An image cannot be had: the launcher's, or that of a container disk.
pub(crate) fn image(facts: &Facts) -> Option<Finding> {
    let pod = pending(facts)?;
    let waits =
        waiting(pod).find(|(_, waiting)| waiting.reason.as_deref().is_some_and(|reason| PULL.contains(&reason)));
    let failure = about_pod(facts, pod).into_iter().find(|event| {
        let message = event.message.as_deref().unwrap_or_default();
        event.type_.as_deref() == Some("Warning") && message.contains("Failed to pull image")
    });
    let (status, reason) = match (waits, failure) {
        (Some((status, waiting)), _) => (Some(status), waiting.reason.clone().unwrap_or_default()),
        (None, Some(_)) => (None, Reason::ErrImagePull.name().to_owned()),
        (None, None) => return None,
    };
    let message = waits.and_then(|(_, waiting)| waiting.message.clone());
    let text = failure.and_then(|event| event.message.clone()).or(message).unwrap_or_default();
    let image = named_image(&text).or_else(|| status.map(|status| status.image.clone())).unwrap_or_default();
    let since = failure.and_then(when);
    let place = format!("pod/{}", pod.metadata.name.clone().unwrap_or_default());
    let field = status.map_or_else(|| "events".to_owned(), |status| format!("containers[{}] {reason}", status.name));
    let cause = format!("the image {image} cannot be had");
    let finding = Finding::wrong(DiagnosisVerdict::ImagePull, cause).since(since).shown_by(seen(
        place,
        field,
        bounded(&text),
        since,
    ));
    let is_ours = status.is_some_and(|status| status.image == image) || image.contains("garboard/launcher");
    Some(if is_ours {
        finding
            .then("kubectl garboard cluster status")
            .then("load the launcher's image on the node, or install with --image-registry")
    } else {
        pull_advice(facts, &text, &image).into_iter().fold(finding, Finding::then)
    })
}

/// What a person does about an image, by the error of the container runtime.
fn pull_advice(facts: &Facts, error: &str, image: &str) -> Vec<String> {
    let has = |parts: &[&str]| parts.iter().any(|part| error.contains(part));
    let node = facts.node_name().unwrap_or("the node");
    if has(&["lookup ", "timeout", "deadline exceeded", "refused", "unreachable", "no route to host"]) {
        vec![
            format!("{node} does not reach the registry: load the image on it, or check its network and DNS"),
            format!("crictl pull {image}    # on {node}, to see whether it does now"),
        ]
    } else if has(&["unauthorized", "denied", "authorization failed", "forbidden", "Forbidden"]) {
        vec![
            format!("give a pull secret (imagePullSecret of the containerDisk), or correct the name: {}", edit(facts)),
            "kubectl get secrets --field-selector type=kubernetes.io/dockerconfigjson".to_owned(),
        ]
    } else if has(&["not found", "manifest unknown"]) {
        vec![format!("the registry has no such image: correct its name or its tag: {}", edit(facts))]
    } else {
        vec![format!("correct the image, or give a pull secret: {}", edit(facts))]
    }
}

/// The image that the kubelet is pulling, and since when.
pub(super) fn pulling(facts: &Facts) -> Option<(String, Option<Timestamp>)> {
    let events = about_pod(facts, pending(facts)?);
    let of = |event: &&Event| named_image(event.message.as_deref().unwrap_or_default());
    let reason = |event: &Event, name: &str| event.reason.as_deref() == Some(name);
    let begun = events.iter().copied().find(|event| reason(event, "Pulling"))?;
    let image = of(&begun)?;
    // Within one second the order of events is not known.
    let is_over = events.iter().any(|event| {
        ["Pulled", "Failed", "BackOff"].iter().any(|name| reason(event, name))
            && of(event).as_ref() == Some(&image)
            && when(event) >= when(begun)
    });
    (!is_over).then(|| (image, when(begun)))
}

/// A volume cannot be mounted.
pub(crate) fn volume(facts: &Facts) -> Option<Finding> {
    let pod = pending(facts)?;
    let is_mount = |event: &&Event| {
        matches!(event.reason.as_deref(), Some("FailedMount" | "FailedAttachVolume" | "FailedMapVolume"))
    };
    let event = about_pod(facts, pod).into_iter().find(is_mount)?;
    let text = bounded(event.message.as_deref().unwrap_or_default());
    let place = format!("pod/{}", pod.metadata.name.clone().unwrap_or_default());
    let field = format!("event {}", event.reason.clone().unwrap_or_default());
    let special = attached_elsewhere(&text).or_else(|| without_source(facts, &text));
    let finding = special.or_else(|| of_other_mode(facts, &text)).unwrap_or_else(|| {
        let finding = Finding::wrong(DiagnosisVerdict::VolumeMount, format!("a volume cannot be mounted: {text}"));
        finding.then("kubectl get pvc,secret,configmap").then(edit(facts))
    });
    Some(finding.since(when(event)).shown_by(seen(place, field, text, when(event))))
}

/// Another node has the volume.
fn attached_elsewhere(text: &str) -> Option<Finding> {
    if !text.contains("Multi-Attach error") {
        return None;
    }
    let cause = format!("the volume of one of its claims is attached to another node: {text}");
    let finding = Finding::wrong(DiagnosisVerdict::ClaimElsewhere, cause).then("kubectl get volumeattachments,pv");
    Some(finding.then("stop what uses it there: it is attached here as soon as that node lets it go"))
}

/// The claim has another mode than the one that the pod was made for: it was replaced meanwhile.
fn of_other_mode(facts: &Facts, text: &str) -> Option<Finding> {
    if !text.contains("but is specified in volume") {
        return None;
    }
    let cause =
        format!("a claim is a block device where its pod was made for a file system, or the other way round: {text}");
    let modes = "kubectl get pvc -o custom-columns=NAME:.metadata.name,MODE:.spec.volumeMode";
    let finding = Finding::wrong(DiagnosisVerdict::VolumeMount, cause).then(modes);
    Some(finding.then(format!("{}    # a new pod is made for the claim as it is now", restarted(facts))))
}

/// A volume is made of an object that is not there.
fn without_source(facts: &Facts, text: &str) -> Option<Finding> {
    const KINDS: [(&str, &str, &str); 2] =
        [("secret \"", "Secret", "secret"), ("configmap \"", "ConfigMap", "configmap")];
    let (name, kind, resource) = KINDS.into_iter().find_map(|(begin, kind, resource)| {
        let (name, rest) = text.split_once(begin)?.1.split_once('"')?;
        rest.starts_with(" not found").then_some((name, kind, resource))
    })?;
    let volume = text.split_once("for volume \"").and_then(|(_, rest)| rest.split_once('"')).map(|(volume, _)| volume);
    let of = volume.map(|volume| format!(", of which its volume {volume} is made,")).unwrap_or_default();
    let cause = format!("the {kind} {name}{of} is not there");
    let finding = Finding::wrong(DiagnosisVerdict::VolumeMount, cause).then(format!("kubectl get {resource}s"));
    Some(finding.then(format!("create it, and the start goes on by itself; or name another one: {}", edit(facts))))
}

/// The network of its pod cannot be made.
pub(crate) fn network(facts: &Facts) -> Option<Finding> {
    let pod = pending(facts)?;
    let events = about_pod(facts, pod);
    let event = events.iter().find(|event| event.reason.as_deref() == Some("FailedCreatePodSandBox"))?;
    // A sandbox comes before everything else that is done for a pod on its node.
    let has_one = |other: &&Event| other.reason.as_deref().is_some_and(|reason| WITH_SANDBOX.contains(&reason));
    if events.iter().any(|other| has_one(other) && when(other) > when(event)) {
        return None;
    }
    let text = bounded(event.message.as_deref().unwrap_or_default());
    let node = facts.node_name().unwrap_or("its node");
    let place = format!("pod/{}", pod.metadata.name.clone().unwrap_or_default());
    let is_of_network = ["network", "CNI", "cni"].iter().any(|part| text.contains(part));
    let finding = if is_of_network {
        let cause = format!("{node} cannot make the network of its pod: {text}");
        Finding::wrong(DiagnosisVerdict::PodNetwork, cause)
            .then(format!("look at the network plug-in on {node}: is its pod well, are there addresses left?"))
            .then("kubectl get pods -n kube-system -o wide")
    } else {
        let cause = format!("{node} cannot make its pod: {text}");
        Finding::wrong(DiagnosisVerdict::ContainerRefused, cause).then(format!("kubectl describe node {node}"))
    };
    Some(finding.since(when(event)).shown_by(seen(place, "event FailedCreatePodSandBox", text, when(event))))
}

/// The kubelet of its node did not take its pod, or the last one; the controller makes another.
pub(crate) fn rejected(facts: &Facts) -> Option<Finding> {
    if !matches!(facts.phase(), Some("Pending" | "Scheduling" | "Scheduled")) {
        return None;
    }
    let (evidence, message) = by_pod(facts).or_else(|| by_instance(facts))?;
    let since = evidence.since;
    let node = facts.node_name().map_or_else(String::new, |node| format!(" of {node}"));
    let cause = format!("the kubelet{node} does not take its pod: {message}; another one is made after a pause");
    let finding = Finding::wrong(DiagnosisVerdict::PodRejected, cause).since(since).shown_by(evidence);
    let look = match facts.node_name() {
        Some(node) => format!("kubectl describe node {node}    # devices, room and state of its kubelet"),
        None => "kubectl describe nodes    # devices, room and state of their kubelets".to_owned(),
    };
    Some(finding.then(look).then("kubectl garboard cluster status"))
}

/// As the pod has it, before the controller has removed it.
fn by_pod(facts: &Facts) -> Option<(Evidence, String)> {
    let pod = facts.pod()?;
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Failed"))?;
    let reason = status.reason.as_deref().filter(|reason| REJECTED.contains(reason) || reason.starts_with("OutOf"))?;
    let message = bounded(status.message.as_deref().unwrap_or_default());
    let name = pod.metadata.name.clone().unwrap_or_default();
    Some((seen(format!("pod/{name}"), format!("status.reason {reason}"), message.clone(), None), message))
}

/// As the controller reports it while it waits with the next one, which has a state of its own.
fn by_instance(facts: &Facts) -> Option<(Evidence, String)> {
    if facts.pod().is_some() {
        return None;
    }
    let is_kubelets = |each: &Condition| {
        each.status == "False"
            && each.reason == Reason::FailedCreate.name()
            && each.message.starts_with("Pod was rejected")
    };
    let condition = facts.of_vmi(VmiConditionType::Synchronized).filter(is_kubelets)?;
    let message = bounded(&condition.message);
    let field = format!("conditions[Synchronized] {}", condition.reason);
    Some((seen(format!("vmi/{}", facts.name), field, message.clone(), condition.since), message))
}

/// The container runtime cannot make a container, or it ends again and again.
pub(crate) fn refused(facts: &Facts) -> Option<Finding> {
    let pod = pending(facts)?;
    let trouble = ["CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"];
    let is_trouble =
        |waiting: &ContainerStateWaiting| waiting.reason.as_deref().is_some_and(|one| trouble.contains(&one));
    let (status, waiting) = waiting(pod).find(|(_, waiting)| is_trouble(waiting))?;
    let reason = waiting.reason.clone().unwrap_or_default();
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let text =
        bounded(&last.and_then(|last| last.message.clone()).or_else(|| waiting.message.clone()).unwrap_or_default());
    let name = pod.metadata.name.clone().unwrap_or_default();
    let (place, field) = (format!("pod/{name}"), format!("containers[{}] {reason}", status.name));
    let (cause, look) = match reason.as_str() {
        "CrashLoopBackOff" => (
            format!("its {} ends repeatedly ({} times so far): {text}", status.name, status.restart_count),
            format!("kubectl garboard logs {} --previous", facts.name),
        ),
        _ => (format!("its container {} cannot be made: {text}", status.name), format!("kubectl describe pod {name}")),
    };
    let since = last.and_then(|last| last.finished_at.as_ref()).map(|time| time.0);
    let finding = Finding::wrong(DiagnosisVerdict::ContainerRefused, cause)
        .since(since)
        .shown_by(seen(place, field, text, since));
    Some(finding.then(look))
}

/// The pod, as long as its guest does not run.
fn pending(facts: &Facts) -> Option<&Pod> {
    matches!(facts.phase(), Some("Pending" | "Scheduling" | "Scheduled")).then(|| facts.pod()).flatten()
}

fn waiting(pod: &Pod) -> impl Iterator<Item = (&ContainerStatus, &ContainerStateWaiting)> {
    containers(pod).into_iter().filter_map(|status| Some((status, status.state.as_ref()?.waiting.as_ref()?)))
}

/// Events about this pod, the newest first.
fn about_pod<'a>(facts: &'a Facts, pod: &Pod) -> Vec<&'a Event> {
    let name = pod.metadata.name.as_deref();
    facts.events_of("Pod").into_iter().filter(|event| event.involved_object.name.as_deref() == name).collect()
}

/// `Failed to pull image "X": …`, `Back-off pulling image "X"`.
fn named_image(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("image \"")?;
    rest.split_once('"').map(|(image, _)| image.to_owned())
}
