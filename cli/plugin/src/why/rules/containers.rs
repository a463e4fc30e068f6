//! Pods whose containers do not come up.

use garboard_api::conditions::Reason;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus, Event, Pod};

use super::refused::{bounded, edit};
use crate::why::diagnosis::{DiagnosisVerdict, Finding, seen};
use crate::why::facts::{Facts, containers, when};

const PULL: [&str; 6] = [
    Reason::ErrImagePull.name(),
    Reason::ImagePullBackOff.name(),
    "InvalidImageName",
    Reason::ErrImageNeverPull.name(),
    "RegistryUnavailable",
    "ImageInspectError",
];

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
    let finding = Finding::wrong(DiagnosisVerdict::VolumeMount, format!("a volume cannot be mounted: {text}"));
    let finding = finding.since(when(event)).shown_by(seen(place, field, text, when(event)));
    Some(finding.then("kubectl get pvc,secret,configmap").then(edit(facts)))
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
    let place = format!("pod/{}", pod.metadata.name.clone().unwrap_or_default());
    let field = format!("containers[{}] {reason}", status.name);
    let cause = match reason.as_str() {
        "CrashLoopBackOff" => {
            format!("its {} ends repeatedly ({} times so far): {text}", status.name, status.restart_count)
        }
        _ => format!("its container {} cannot be made: {text}", status.name),
    };
    let since = last.and_then(|last| last.finished_at.as_ref()).map(|time| time.0);
    let finding = Finding::wrong(DiagnosisVerdict::ContainerRefused, cause)
        .since(since)
        .shown_by(seen(place, field, text, since));
    Some(finding.then(format!("kubectl garboard logs {} --previous", facts.name)))
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
