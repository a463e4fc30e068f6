//! Machines that something refuses before there is a pod.

use garboard_api::conditions::{Reason, VmConditionType, VmiConditionType};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};

use crate::why::diagnosis::{DiagnosisVerdict, Finding, seen};
use crate::why::facts::{Condition, Facts, when};
use crate::why::text::shortened;

/// The most characters of a message of the API server.
const LONGEST: usize = 400;

/// The API server did not take the instance.
pub(crate) fn instance(facts: &Facts) -> Option<Finding> {
    if facts.vmi.is_some() {
        return None;
    }
    const REASONS: [Reason; 3] = [Reason::FailedCreate, Reason::FailedFindInstancetype, Reason::FailedFindPreference];
    let is_one = |condition: &Condition| REASONS.iter().any(|reason| reason.name() == condition.reason);
    let (place, message, since) = match facts.of_vm(VmConditionType::Failure).filter(is_one) {
        Some(condition) => {
            let place = format!("conditions[Failure] {}", condition.reason);
            (place, bounded(&condition.message), condition.since)
        }
        None => {
            let event = failure(facts, "VirtualMachine")?;
            ("event FailedCreate".to_owned(), message_of(event), when(event))
        }
    };
    let cause = format!("its instance cannot be made: {message}");
    let finding = Finding::wrong(DiagnosisVerdict::InstanceRefused, cause).since(since);
    let evidence = seen(format!("vm/{}", facts.name), place, message, since);
    Some(finding.shown_by(evidence).then(format!("kubectl edit vm {}", facts.name)))
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
    if condition.reason == Reason::FailedPvcNotFound.name() {
        let cause = format!("its disk is not there: {message}");
        let finding = Finding::wrong(DiagnosisVerdict::ClaimMissing, cause).since(condition.since).shown_by(evidence);
        return Some(
            finding.then("kubectl get pvc").then(format!("create the claim, or name another one: {}", edit(facts))),
        );
    }
    let finding = Finding::wrong(DiagnosisVerdict::FieldRefused, message).since(condition.since).shown_by(evidence);
    Some(finding.then(edit(facts)))
}

/// Why the controller makes no pod, if that still holds: a claim that has come since is there, whatever was noted.
fn refusal(facts: &Facts) -> Option<Condition> {
    let condition =
        facts.of_vmi(VmiConditionType::Synchronized).filter(|each| each.status == "False" && facts.pod().is_none())?;
    let has_come = |claim: &PersistentVolumeClaim| {
        claim.metadata.name.as_deref().is_some_and(|name| condition.message.split_whitespace().any(|part| part == name))
    };
    let is_over = condition.reason == Reason::FailedPvcNotFound.name() && facts.claims.iter().any(has_come);
    (!is_over && !is_of_the_server(&condition)).then_some(condition)
}

/// The API server refused the pod: the controller passes on what it answered.
fn is_of_the_server(condition: &Condition) -> bool {
    let texts = ["is forbidden: ", "denied the request"];
    condition.reason == Reason::FailedCreate.name() && texts.iter().any(|text| condition.message.contains(text))
}

/// The API server did not take the pod.
pub(crate) fn pod(facts: &Facts) -> Option<Finding> {
    // What the controller itself refuses is in the condition; its event has the same text.
    if facts.pod().is_some() || facts.vmi.is_none() || refusal(facts).is_some() {
        return None;
    }
    let condition =
        facts.of_vmi(VmiConditionType::Synchronized).filter(|each| each.status == "False" && is_of_the_server(each));
    let (place, message, since) = match condition {
        Some(condition) => ("conditions[Synchronized] FailedCreate", bounded(&condition.message), condition.since),
        None => {
            let event = failure(facts, "VirtualMachineInstance")?;
            ("event FailedCreate", message_of(event), when(event))
        }
    };
    let evidence = seen(format!("vmi/{}", facts.name), place, message.clone(), since);
    let namespace = &facts.namespace;
    let finding = if message.contains("violates PodSecurity") {
        let cause = format!("the namespace's Pod Security refuses its pod: {message}");
        Finding::wrong(DiagnosisVerdict::PodSecurity, cause)
            .then(format!("kubectl get namespace {namespace} --show-labels"))
            .then(format!("leave out what needs the privilege: {}", edit(facts)))
    } else if message.contains("exceeded quota") {
        let cause = format!("the namespace's quota is used up: {message}");
        Finding::wrong(DiagnosisVerdict::QuotaExceeded, cause)
            .then(format!("kubectl describe quota -n {namespace}"))
            .then("stop something else in the namespace, or have the quota raised")
    } else {
        let cause = format!("its pod cannot be made: {message}");
        Finding::wrong(DiagnosisVerdict::PodRefused, cause).then(format!("kubectl describe vmi {}", facts.name))
    };
    Some(finding.since(since).shown_by(evidence))
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
