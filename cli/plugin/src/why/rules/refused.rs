//! Machines that something refuses before there is a pod.

use garboard_api::conditions::{Reason, VmConditionType, VmiConditionType};
use garboard_api::metadata::annotation::EXCLUDE_PRESETS;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};

use super::containers;
use crate::look::is_name;
use crate::why::diagnosis::{DiagnosisVerdict, Finding, seen};
use crate::why::facts::{Condition, Facts, when};
use crate::why::text::shortened;

/// The most characters of a message of the API server.
const LONGEST: usize = 400;
/// The Service of Garboard's own webhooks (`deploy/base/webhooks.yaml`): the API server names it where it gets no answer.
const OWN_WEBHOOKS: &str = "garboard-webhook";

/// The API server did not take the instance, or what it would be made of is not there.
pub(crate) fn instance(facts: &Facts) -> Option<Finding> {
    if facts.vmi.is_some() {
        return None;
    }
    const REASONS: [Reason; 3] = [Reason::FailedCreate, Reason::FailedFindInstancetype, Reason::FailedFindPreference];
    let of = |condition: &Condition| REASONS.into_iter().find(|reason| reason.name() == condition.reason);
    let condition = facts.of_vm(VmConditionType::Failure);
    let (place, reason, whole, since) = match condition.and_then(|each| Some((of(&each)?, each))) {
        Some((reason, each)) => (format!("conditions[Failure] {}", reason.name()), reason, each.message, each.since),
        None => {
            let event = failure(facts, "VirtualMachine")?;
            ("event FailedCreate".to_owned(), Reason::FailedCreate, message_of(event), when(event))
        }
    };
    let message = bounded(&whole);
    let finding = sizes(facts, reason, &message)
        .or_else(|| presets(facts, &whole))
        .or_else(|| of_the_server(facts, &message))
        .unwrap_or_else(|| {
            let cause = format!("its instance cannot be made: {message}");
            Finding::wrong(DiagnosisVerdict::InstanceRefused, cause).then(edit(facts))
        });
    Some(finding.since(since).shown_by(seen(format!("vm/{}", facts.name), place, message, since)))
}

/// What the machine names of instancetypes and preferences is not there, or does not go with the machine.
fn sizes(facts: &Facts, reason: Reason, message: &str) -> Option<Finding> {
    const INSTANCETYPES: &str =
        "kubectl get virtualmachineinstancetypes,virtualmachineclusterinstancetypes    # what there is";
    const PREFERENCES: &str =
        "kubectl get virtualmachinepreferences,virtualmachineclusterpreferences    # what there is";
    let is_missing = matches!(reason, Reason::FailedFindInstancetype | Reason::FailedFindPreference);
    let fields = ["spec.instancetype", "spec.preference"];
    let texts = ["the preference requires ", "name another instancetype"];
    let is_about_them =
        fields.iter().any(|field| message.starts_with(field)) || texts.iter().any(|text| message.contains(text));
    if !is_missing && !is_about_them {
        return None;
    }
    let cause = if is_missing {
        format!("what it is to be made of cannot be found: {message}")
    } else {
        format!("its instancetype or preference does not go with it: {message}")
    };
    let listed = if reason == Reason::FailedFindPreference { PREFERENCES } else { INSTANCETYPES };
    let finding = Finding::wrong(DiagnosisVerdict::Instancetype, cause).then(listed);
    Some(if is_missing {
        finding.then(format!("create it, and the machine starts by itself; or name another one: {}", edit(facts)))
    } else {
        finding.then(format!("correct the machine, or name another one: {}", edit(facts)))
    })
}

/// Two presets contradict each other.
fn presets(facts: &Facts, message: &str) -> Option<Finding> {
    let (names, rest) = message.split_once("the presets ")?.1.split_once(" both select it, and differ in ")?;
    let (one, other) = names.split_once(" and ")?;
    // Who may write events chooses this text, and a person runs what is advised.
    if ![one, other].into_iter().all(is_name) {
        return None;
    }
    let parts = rest.split(';').next().unwrap_or(rest);
    let cause = format!("its instance is refused: the presets {one} and {other} both select it, and differ in {parts}");
    let exclude = format!(
        "or let presets leave it alone: {}    # annotate the template with {EXCLUDE_PRESETS}: \"true\"",
        edit(facts)
    );
    let finding = Finding::wrong(DiagnosisVerdict::PresetConflict, cause);
    let look = format!("kubectl get vmipreset {one} {other} -o yaml    # correct one of them, or its selector");
    Some(finding.then(look).then(exclude))
}

/// What the API server answers whatever was to be made.
fn of_the_server(facts: &Facts, message: &str) -> Option<Finding> {
    let namespace = &facts.namespace;
    if message.contains("exceeded quota") {
        let cause = format!("the namespace's quota is used up: {message}");
        let finding = Finding::wrong(DiagnosisVerdict::QuotaExceeded, cause);
        let finding = finding.then(format!("kubectl describe quota -n {namespace}"));
        return Some(finding.then("stop something else in the namespace, or have the quota raised"));
    }
    let (_, rest) = message.split_once("failed calling webhook \"")?;
    let name = rest.split('"').next().unwrap_or_default();
    let finding = if message.contains(OWN_WEBHOOKS) {
        let cause = format!("the controllers do not answer the API server, which asks them about it first: {message}");
        Finding::wrong(DiagnosisVerdict::WebhookDown, cause).then("kubectl garboard cluster status")
    } else {
        let cause = format!("the webhook {name}, which the API server asks first, does not answer: {message}");
        Finding::wrong(DiagnosisVerdict::WebhookDown, cause)
            .then(format!("bring back what serves the webhook {name}; its configuration names the service:"))
            .then("kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations -o yaml")
    };
    Some(finding)
}

/// The controller did not make a pod: a field that is not supported, or a claim that is not there.
pub(crate) fn field_or_claim(facts: &Facts) -> Option<Finding> {
    let condition = refusal(facts)?;
    let evidence = seen(
        format!("vmi/{}", facts.name),
        format!("conditions[Synchronized] {}", condition.reason),
        condition.message.clone(),
        condition.since,
    );
    let message = bounded(&condition.message);
    let finding = match Reason::from_name(&condition.reason) {
        Some(Reason::FailedPvcNotFound) => {
            let cause = format!("its disk is not there: {message}");
            let finding = Finding::wrong(DiagnosisVerdict::ClaimMissing, cause).then("kubectl get pvc");
            finding.then(format!("create the claim, or name another one: {}", edit(facts)))
        }
        Some(Reason::BackendStorageNotReady) => {
            Finding::waiting(DiagnosisVerdict::ClaimUnbound, message).then("kubectl get pvc -w")
        }
        _ => Finding::wrong(DiagnosisVerdict::FieldRefused, message).then(edit(facts)),
    };
    Some(finding.since(condition.since).shown_by(evidence))
}

/// Why the controller makes no pod, if that still holds: a claim that has come since is there, whatever was noted.
fn refusal(facts: &Facts) -> Option<Condition> {
    let condition =
        facts.of_vmi(VmiConditionType::Synchronized).filter(|each| each.status == "False" && facts.pod().is_none())?;
    let has_come = |claim: &PersistentVolumeClaim| {
        claim.metadata.name.as_deref().is_some_and(|name| condition.message.split_whitespace().any(|part| part == name))
    };
    let is_over = condition.reason == Reason::FailedPvcNotFound.name() && facts.claims.iter().any(has_come);
    let is_of_others = is_of_the_server(&condition) || containers::rejected(facts).is_some();
    (!is_over && !is_of_others).then_some(condition)
}

/// The API server refused the pod, or the claim that comes before it: the controller passes on what it answered.
fn is_of_the_server(condition: &Condition) -> bool {
    let reasons = [Reason::FailedCreate, Reason::FailedBackendStorageCreate];
    let texts = ["is forbidden: ", "\" is invalid: ", "denied the request", "Internal error occurred: "];
    reasons.iter().any(|reason| reason.name() == condition.reason)
        && texts.iter().any(|text| condition.message.contains(text))
}

/// The API server did not take the pod.
pub(crate) fn pod(facts: &Facts) -> Option<Finding> {
    // What the controller itself refuses is in the condition; its event has the same text.
    if facts.pod().is_some() || facts.vmi.is_none() || refusal(facts).is_some() || containers::rejected(facts).is_some()
    {
        return None;
    }
    let condition =
        facts.of_vmi(VmiConditionType::Synchronized).filter(|each| each.status == "False" && is_of_the_server(each));
    let (place, message, since) = match condition {
        Some(condition) => {
            (format!("conditions[Synchronized] {}", condition.reason), bounded(&condition.message), condition.since)
        }
        None => {
            let event = failure(facts, "VirtualMachineInstance")?;
            ("event FailedCreate".to_owned(), message_of(event), when(event))
        }
    };
    let finding = of_the_server(facts, &message)
        .or_else(|| pod_security(facts, &message))
        .unwrap_or_else(|| refused_pod(facts, &message));
    Some(finding.since(since).shown_by(seen(format!("vmi/{}", facts.name), place, message, since)))
}

fn pod_security(facts: &Facts, message: &str) -> Option<Finding> {
    if !message.contains("violates PodSecurity") {
        return None;
    }
    let cause = format!("the namespace's Pod Security refuses its pod: {message}");
    let finding = Finding::wrong(DiagnosisVerdict::PodSecurity, cause);
    let finding = finding.then(format!("kubectl get namespace {} --show-labels", facts.namespace));
    Some(finding.then(format!("leave out what needs the privilege: {}", edit(facts))))
}

/// Something else that the API server has against the pod, and what a person does about it.
fn refused_pod(facts: &Facts, message: &str) -> Finding {
    let namespace = &facts.namespace;
    let known: [(&str, String); 5] = [
        (
            "error looking up service account",
            format!("kubectl get serviceaccounts -n {namespace}    # create it, or name another one"),
        ),
        ("no PriorityClass with name", "kubectl get priorityclasses    # create it, or name another one".to_owned()),
        (" per Container is ", format!("kubectl describe limitrange -n {namespace}    # what a container may ask for")),
        (" per Pod is ", format!("kubectl describe limitrange -n {namespace}    # what a pod may ask for")),
        ("because it is being terminated", format!("kubectl get namespace {namespace}    # it is being deleted")),
    ];
    let advice = known.into_iter().find(|(text, _)| message.contains(text)).map(|(_, advice)| advice);
    let advice = advice.unwrap_or_else(|| format!("kubectl describe vmi {}", facts.name));
    let cause = format!("its pod cannot be made: {message}");
    Finding::wrong(DiagnosisVerdict::PodRefused, cause).then(advice).then(edit(facts))
}

/// The last failure event of the controller about making something for an object, if nothing was made since.
fn failure<'a>(facts: &'a Facts, kind: &str) -> Option<&'a Event> {
    let events = facts.events_of(kind);
    let reason = |event: &Event| event.reason.as_deref().and_then(Reason::from_name);
    let about_making = |event: &&&Event| {
        matches!(reason(event), Some(Reason::FailedCreate | Reason::SuccessfulCreate | Reason::SuccessfulDelete))
            && is_of_this_one(facts, event, kind)
    };
    let last = events.iter().find(about_making)?;
    (reason(last) == Some(Reason::FailedCreate)).then_some(*last)
}

/// An earlier machine of the same name has left events as well.
fn is_of_this_one(facts: &Facts, event: &Event, kind: &str) -> bool {
    let uid = match kind {
        "VirtualMachine" => facts.vm.as_ref().and_then(|vm| vm.metadata.uid.as_ref()),
        _ => facts.vmi.as_ref().and_then(|vmi| vmi.metadata.uid.as_ref()),
    };
    uid.is_none() || event.involved_object.uid.is_none() || event.involved_object.uid.as_ref() == uid
}

/// The event's message, without what the controller's client adds.
fn message_of(event: &Event) -> String {
    let own = event.message.as_deref().unwrap_or_default();
    // Its own view of the whole answer.
    let own = own.split_once(": ApiError {").or_else(|| own.split_once(" (Status")).map_or(own, |(text, _)| text);
    bounded(own.trim_end_matches(": Forbidden"))
}

/// In one line, and not endless.
pub(super) fn bounded(text: &str) -> String {
    let one_line: String = text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
    shortened(one_line.trim(), LONGEST)
}

/// How the user changes the machine, or the instance if it stands alone.
pub(super) fn edit(facts: &Facts) -> String {
    let kind = if facts.vm.is_some() { "vm" } else { "vmi" };
    format!("kubectl edit {kind} {}", facts.name)
}

/// A claim that the pod waits for.
pub(super) fn unbound(facts: &Facts) -> Option<Finding> {
    let phase = |claim: &PersistentVolumeClaim| claim.status.as_ref().and_then(|status| status.phase.clone());
    let claim = facts.claims.iter().find(|claim| phase(claim).as_deref() != Some("Bound"))?;
    let name = claim.metadata.name.clone().unwrap_or_default();
    let since = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let state = phase(claim).unwrap_or_else(|| "no phase".to_owned());
    let events = facts.events_of("PersistentVolumeClaim");
    let why = events.iter().find(|event| event.involved_object.name.as_deref() == Some(&name));
    let message = why.and_then(|event| event.message.as_deref()).map(bounded);
    let cause = match &message {
        Some(message) => format!("its claim {name} has no volume: {message}"),
        None => format!("its claim {name} has no volume"),
    };
    let finding = Finding::wrong(DiagnosisVerdict::ClaimUnbound, cause).since(since);
    let finding = finding.shown_by(seen(format!("pvc/{name}"), "status.phase", state, since));
    Some(finding.then(format!("kubectl describe pvc {name}")).then("kubectl get storageclass,pv"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn presets_whose_names_are_none_are_in_no_command() {
        let advised = |one: &str| {
            let message = format!(
                "the presets {one} and small both select it, and differ in spec.domain.cpu; change one of them"
            );
            let condition = json!({"type": "Failure", "status": "True", "reason": "FailedCreate", "message": message});
            let vm =
                json!({"metadata": {"name": "vm"}, "spec": {"template": {}}, "status": {"conditions": [condition]}});
            let facts = Facts { vm: Some(serde_json::from_value(vm).unwrap()), ..Facts::default() };
            instance(&facts).unwrap().next.join("\n")
        };
        assert!(advised("big").contains("kubectl get vmipreset big small"));
        assert!(!advised("$(reboot)").contains("reboot"));
    }
}
