//! Machines whose guest runs, more or less.

use garboard_api::conditions::{PodConditionType, Reason, VmConditionType, VmiConditionType};
use garboard_api::metadata::annotation::ACCELERATOR;
use k8s_openapi::api::core::v1::Event;

use super::ending::restarted;
use super::refused::bounded;
use crate::operate::emulation::EmulationSetting;
use crate::why::diagnosis::{DiagnosisVerdict, Evidence, Finding, seen};
use crate::why::facts::{Facts, of_pod, when};

/// The guest has not been resumed since it was started so.
const STARTED_PAUSED: &str = "Paused";
/// The host's reason of a write that found no room (`ENOSPC`).
const NO_SPACE: &str = "No space left on device";

pub(super) fn is_running(facts: &Facts) -> bool {
    facts.phase() == Some("Running")
}

fn phase(facts: &Facts) -> Evidence {
    seen(format!("vmi/{}", facts.name), "status.phase", facts.phase().unwrap_or_default(), facts.phase_since())
}

/// QEMU stopped the vCPUs because a disk failed.
pub(crate) fn storage_failed(facts: &Facts) -> Option<Finding> {
    let paused = facts
        .of_vmi(VmiConditionType::Paused)
        .filter(|each| each.status == "True" && each.reason == Reason::PausedIoError.name())?;
    // What failed: it stands between the two texts that are always there.
    let failed = paused.message.split_once(" detected: ").map(|(_, rest)| rest.split(';').next().unwrap_or(rest));
    let detail = failed.map(|text| format!(": {}", bounded(text))).unwrap_or_default();
    let is_full = paused.message.contains(NO_SPACE);
    let evidence =
        seen(format!("vmi/{}", facts.name), "conditions[Paused] PausedIOError", paused.message, paused.since);
    let cause = if is_full {
        format!("its disk has no room left where it is stored, and its vCPUs are stopped until it has{detail}")
    } else {
        format!("its disk failed, and its vCPUs are stopped until it works again (errorPolicy stop){detail}")
    };
    let finding = Finding::wrong(DiagnosisVerdict::StorageFailed, cause).since(paused.since).shown_by(evidence);
    let name = &facts.name;
    let repair = if is_full {
        "enlarge the volume or free space where it is: the guest is resumed by itself within ten minutes"
    } else {
        "bring the storage back: the guest is resumed by itself within minutes"
    };
    Some(
        finding
            .then(format!("kubectl garboard qmp {name} query-block"))
            .then(repair)
            .then(format!("kubectl garboard unpause {name}    # at once")),
    )
}

/// QEMU does not answer, so that the guest's state is the one that it reported last.
pub(crate) fn unresponsive(facts: &Facts) -> Option<Finding> {
    let silent = facts.of_vmi(VmiConditionType::Unresponsive).filter(|each| each.status == "True")?;
    if !is_running(facts) {
        return None;
    }
    let field = format!("conditions[{}] {}", VmiConditionType::Unresponsive.name(), silent.reason);
    let evidence = seen(format!("vmi/{}", facts.name), field, bounded(&silent.message), silent.since);
    let cause = "QEMU does not answer on its monitor, most often because the node's storage hangs; what is known of the guest is old";
    let finding = Finding::wrong(DiagnosisVerdict::Unresponsive, cause).since(silent.since).shown_by(evidence);
    let name = &facts.name;
    let look = match facts.node_name() {
        Some(node) => format!("look at the storage of node {node}: the guest goes on once its disks answer"),
        None => "look at the node's storage: the guest goes on once its disks answer".to_owned(),
    };
    let log = format!("kubectl garboard logs {name} --part qmp    # what QEMU reported last");
    let kill = match facts.strategy() {
        Some(_) => format!("kubectl garboard stop {name} --force    # kills it at once"),
        None => format!("kubectl delete vmi {name}    # kills it after its grace period"),
    };
    Some(finding.then(look).then(log).then(kill))
}

/// A program that its network needs has ended.
pub(crate) fn network_lost(facts: &Facts) -> Option<Finding> {
    let lost = facts.of_vmi(VmiConditionType::NetworkLost).filter(|each| each.status == "True")?;
    if !is_running(facts) {
        return None;
    }
    let field = format!("conditions[{}] {}", VmiConditionType::NetworkLost.name(), lost.reason);
    let evidence = seen(format!("vmi/{}", facts.name), field, bounded(&lost.message), lost.since);
    let cause = "its guest has no network until its next start: a program that carries the network has ended";
    let finding = Finding::wrong(DiagnosisVerdict::NetworkLost, cause).since(lost.since).shown_by(evidence);
    let log = format!("kubectl garboard logs {}    # what the program printed last", facts.name);
    Some(finding.then(restarted(facts)).then(log))
}

/// Its vCPUs were stopped on request.
pub(crate) fn paused(facts: &Facts) -> Option<Finding> {
    let paused = facts.of_vmi(VmiConditionType::Paused).filter(|each| each.status == "True")?;
    let field = format!("conditions[Paused] {}", paused.reason);
    let evidence = seen(format!("vmi/{}", facts.name), field, paused.message, paused.since);
    let cause = if never_resumed(facts) {
        "it was started paused, as its startStrategy requests, and nothing has resumed it yet"
    } else {
        "it was paused on request; its memory is kept"
    };
    let finding = Finding::well(DiagnosisVerdict::Paused, cause).since(paused.since);
    let name = &facts.name;
    let who = format!("kubectl garboard logs {name}    # who did it");
    Some(finding.shown_by(evidence).then(format!("kubectl garboard unpause {name}")).then(who))
}

/// Whether its guest has not begun, because it was to be started paused.
fn never_resumed(facts: &Facts) -> bool {
    let events = facts.events_of("VirtualMachineInstance");
    let was_resumed = events.iter().any(|event| event.reason.as_deref() == Some(Reason::Unpaused.name()));
    facts.spec().and_then(|spec| spec.start_strategy.as_deref()) == Some(STARTED_PAUSED) && !was_resumed
}

/// It runs as it was before it was changed.
pub(crate) fn restart_required(facts: &Facts) -> Option<Finding> {
    let required = facts.of_vm(VmConditionType::RestartRequired).filter(|each| each.status == "True")?;
    if !is_running(facts) {
        return None;
    }
    let message = bounded(&required.message);
    let evidence = seen(format!("vm/{}", facts.name), "conditions[RestartRequired]", message.clone(), required.since);
    let detail = if message.is_empty() { String::new() } else { format!(": {message}") };
    let cause =
        format!("its guest runs with what it was started with; what was changed since waits for a restart{detail}");
    let finding = Finding::well(DiagnosisVerdict::RestartRequired, cause).since(facts.phase_since()).shown_by(evidence);
    Some(finding.then(format!("kubectl garboard restart {}", facts.name)))
}

/// Its guest runs, and its pod does not count as ready.
pub(crate) fn not_ready(facts: &Facts) -> Option<Finding> {
    let ready = facts.of_vmi(VmiConditionType::Ready).filter(|each| each.status == "False")?;
    if !is_running(facts) {
        return None;
    }
    let detail = match ready.message.as_str() {
        "" => format!(" ({})", ready.reason),
        message => format!(": {}", bounded(message)),
    };
    let probe = probe(facts).map(|text| format!("; {text}")).unwrap_or_default();
    let cause = format!("its guest runs, but does not count as ready{detail}{probe}");
    let field = format!("conditions[Ready] {}", ready.reason);
    let evidence = seen(format!("vmi/{}", facts.name), field, bounded(&ready.message), ready.since);
    let finding = Finding::waiting(DiagnosisVerdict::NotReady, cause)
        .since(ready.since)
        .shown_by(evidence)
        .shown_by(phase(facts));
    Some(match facts.pod().and_then(|pod| pod.metadata.name.clone()) {
        Some(pod) => finding.then(format!("kubectl describe pod {pod}")),
        None => finding,
    })
}

/// Which probe fails, as the kubelet reported it last.
fn probe(facts: &Facts) -> Option<String> {
    let name = facts.pod()?.metadata.name.as_deref();
    let is_probe =
        |event: &&Event| event.reason.as_deref() == Some("Unhealthy") && event.involved_object.name.as_deref() == name;
    let event = facts.events_of("Pod").into_iter().find(is_probe)?;
    Some(bounded(event.message.as_deref().unwrap_or_default()))
}

/// Its guest runs.
pub(crate) fn runs(facts: &Facts) -> Option<Finding> {
    if !is_running(facts) {
        return None;
    }
    let mut finding =
        Finding::well(DiagnosisVerdict::Running, "its guest runs").since(facts.phase_since()).shown_by(phase(facts));
    if let Some((pod, ready)) = facts.pod().and_then(|pod| Some((pod, of_pod(pod, PodConditionType::Ready)?))) {
        let place = format!("pod/{}", pod.metadata.name.clone().unwrap_or_default());
        finding = finding.shown_by(seen(place, "conditions[Ready]", ready.status, ready.since));
    }
    let interfaces = facts.vmi.iter().flat_map(|vmi| &vmi.status).flat_map(|status| &status.interfaces);
    let addresses: Vec<String> = interfaces.filter_map(|each| each.ip_address.clone()).collect();
    if !addresses.is_empty() {
        let evidence = seen(format!("vmi/{}", facts.name), "status.interfaces", addresses.join(", "), None);
        finding = finding.shown_by(evidence);
    }
    Some(finding.then(format!("kubectl garboard console {}", facts.name)))
}

/// KVM of its node interprets the code of its guest, whose console stays empty for as long as its kernel boots.
pub(crate) fn interpreted(facts: &Facts) -> Option<Finding> {
    let evidence = interpretation(facts).filter(|_| is_running(facts))?;
    let cause = "its guest runs very slowly: KVM on this node interprets guest code; a guest of Linux may print nothing for hours";
    let finding = Finding::wrong(DiagnosisVerdict::Interpreted, cause).since(facts.phase_since());
    let finding = faster(facts).into_iter().fold(finding.shown_by(evidence).shown_by(phase(facts)), Finding::then);
    Some(finding.then(format!("{}    # after that", restarted(facts))))
}

/// Whether KVM interprets the code of its guest, or did in its last run: the event outlives the condition.
pub(super) fn interpretation(facts: &Facts) -> Option<Evidence> {
    let (object, reason) = (format!("vmi/{}", facts.name), Reason::KvmInterpretsGuestCode.name());
    if let Some(slow) = facts.of_vmi(VmiConditionType::SoftwareEmulation) {
        let field = format!("conditions[{}] {reason}", VmiConditionType::SoftwareEmulation.name());
        let is_so = slow.status == "True" && slow.reason == reason;
        return is_so.then(|| seen(object, field, bounded(&slow.message), slow.since));
    }
    let events = facts.events_of("VirtualMachineInstance");
    let event = events.into_iter().find(|event| event.reason.as_deref() == Some(reason))?;
    let message = bounded(event.message.as_deref().unwrap_or_default());
    Some(seen(object, format!("event {reason}"), message, when(event)))
}

/// What to type so that QEMU interprets the code of its guest from the next start on, which is faster than such a KVM.
pub(super) fn faster(facts: &Facts) -> Vec<String> {
    let emulation = EmulationSetting::of(&[], &facts.kubevirts);
    let all = (!emulation.allowed).then(|| {
        format!("{}    # for all machines: QEMU's own interpreter is faster than this KVM", emulation.command())
    });
    let one = match facts.vm {
        Some(_) => {
            let metadata = format!(r#"{{"annotations":{{"{ACCELERATOR}":"tcg"}}}}"#);
            let patch = format!(r#"{{"spec":{{"template":{{"metadata":{metadata}}}}}}}"#);
            format!("kubectl patch vm {} --type merge -p '{patch}'    # or for this machine alone", facts.name)
        }
        None => format!("or for this machine alone: write the annotation {ACCELERATOR}: tcg into its manifest"),
    };
    all.into_iter().chain([one]).collect()
}
