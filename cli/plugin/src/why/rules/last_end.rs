//! How the last run of a machine ended, from whichever source has most of it: the condition, PID 1's termination message, events, the
//! record of the run. Pure.

use garboard_api::Quantity;
use garboard_api::conditions::{Reason, VmiConditionType};
use garboard_protocol::exit::{Account, EndReason, ExitCause};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Event, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as PodQuantity;

use super::refused::bounded;
use crate::why::diagnosis::{Evidence, seen};
use crate::why::facts::{Condition, Facts, containers, when};

/// The kubelet's reason for a container that the OOM killer ended.
const OOM_KILLED: &str = "OOMKilled";
/// Reports of ends that are further apart are of two runs.
const ONE_END: SignedDuration = SignedDuration::from_secs(60);
/// Characters of a line by which it is known again.
const MOST_COMPARED: usize = 60;

/// How a run ended, from the source that has most of it.
pub(super) struct End {
    /// The cause; unknown where an earlier version wrote a message without a reason.
    pub(super) cause: EndReason,
    /// Why, in one line.
    pub(super) message: String,
    /// When.
    pub(super) at: Option<Timestamp>,
    /// What shows it.
    pub(super) evidence: Evidence,
}

/// By the cause that the event names, by its severity where an earlier version named none, or by the record of the run.
pub(super) fn ended_badly(facts: &Facts) -> bool {
    let Some(event) = stopped(facts) else {
        return of_record(facts).is_some_and(|end| !end.cause.is_success());
    };
    let cause = of_event(facts).map_or(EndReason::Unknown, |end| end.cause);
    if cause == EndReason::Unknown { event.type_.as_deref() == Some("Warning") } else { !cause.is_success() }
}

/// What is known of the last end: the condition, PID 1's termination message, the event that outlives both, or the record of the run, which
/// outlives the event.
pub(super) fn last_end(facts: &Facts) -> Option<End> {
    let known = of_condition(facts).or_else(|| of_termination_message(facts)).or_else(|| of_event(facts));
    let Some(end) = known else { return of_record(facts) };
    // That its memory was used up was found out after the others had been written.
    let later = |record: &End| record.cause == EndReason::OutOfMemory && is_same_moment(record.at, end.at);
    let is_open = end.cause == EndReason::MachineKilled;
    Some(of_record(facts).filter(|record| is_open && later(record)).unwrap_or(end))
}

/// Whether two reports are of one end: each has its own clock, and is written to the second.
fn is_same_moment(one: Option<Timestamp>, other: Option<Timestamp>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one.duration_since(other).abs() < ONE_END)
}

fn of_condition(facts: &Facts) -> Option<End> {
    let Condition { reason, message, since, .. } =
        facts.of_vmi(VmiConditionType::Ended).filter(|each| each.status == "True")?;
    let evidence = seen(format!("vmi/{}", facts.name), format!("conditions[Ended] {reason}"), bounded(&message), since);
    let message = match of_termination_message(facts).map(|end| end.message) {
        // PID 1 has QEMU's last output as well.
        Some(longer) if longer.starts_with(message.as_str()) => longer,
        Some(_) | None => bounded(&message),
    };
    Some(End { cause: EndReason::read(&reason), message, at: since, evidence })
}

fn of_termination_message(facts: &Facts) -> Option<End> {
    let (pod, end) = terminated(facts)?;
    let text = end.message.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let at = end.finished_at.as_ref().map(|time| time.0);
    let account = text.map(Account::read);
    let reason = account.map_or(EndReason::Unknown, |account| account.reason);
    // The kubelet's reason: PID 1 was killed before it could write it.
    let cause = if end.reason.as_deref() == Some(OOM_KILLED) { EndReason::OutOfMemory } else { reason };
    let message = match account {
        Some(account) => bounded(&account.message.replace('\n', ": ")),
        None => without_account(facts, end),
    };
    let evidence = seen(format!("pod/{pod}"), "containers[compute] termination message", message.clone(), at);
    Some(End { cause, message, at, evidence })
}

/// The end of a container for which PID 1 wrote no message.
fn without_account(facts: &Facts, end: &ContainerStateTerminated) -> String {
    let reason = end.reason.as_deref().unwrap_or("no reason");
    let ended = format!("its container ended with code {} ({reason})", end.exit_code);
    if reason == OOM_KILLED { format!("{ended}: {}", out_of_memory(facts).message()) } else { ended }
}

/// The cause of an end by the OOM killer, with the memory limit of the guest's container. Where no pod is left, the limit that the
/// machine asks for is used.
pub(super) fn out_of_memory(facts: &Facts) -> ExitCause {
    let limit_bytes = match facts.pod() {
        Some(pod) => limit_of_pod(pod).and_then(|limit| limit.0.parse::<Quantity>().ok()?.to_bytes()),
        None => limit_of_machine(facts).and_then(Quantity::to_bytes),
    };
    ExitCause::OutOfMemory { limit_bytes }
}

fn limit_of_pod(pod: &Pod) -> Option<&PodQuantity> {
    let compute = pod.spec.as_ref()?.containers.iter().find(|each| each.name == "compute")?;
    compute.resources.as_ref()?.limits.as_ref()?.get("memory")
}

fn limit_of_machine(facts: &Facts) -> Option<&Quantity> {
    facts.spec()?.domain.resources.as_ref()?.limits.get("memory")
}

/// How the container of QEMU ended, and the name of its pod.
pub(super) fn terminated(facts: &Facts) -> Option<(String, &ContainerStateTerminated)> {
    let pod = facts.pod()?;
    let compute = containers(pod).into_iter().find(|status| status.name == "compute")?;
    let end = compute.state.as_ref()?.terminated.as_ref()?;
    Some((pod.metadata.name.clone().unwrap_or_default(), end))
}

fn of_event(facts: &Facts) -> Option<End> {
    let event = stopped(facts)?;
    let text = event.message.as_deref().unwrap_or_default();
    if event.reason.as_deref() == Some(EndReason::OutOfMemory.as_str()) {
        let (cause, message) = (EndReason::OutOfMemory, bounded(text));
        let evidence = seen(format!("vmi/{}", facts.name), format!("event {cause}"), message.clone(), when(event));
        return Some(End { cause, message, at: when(event), evidence });
    }
    let account = Account::read(text);
    let message = bounded(account.message);
    let evidence = seen(format!("vmi/{}", facts.name), "event Stopped", message.clone(), when(event));
    Some(End { cause: account.reason, message, at: when(event), evidence })
}

/// With the last line that QEMU printed, where it gave up or crashed.
pub(super) fn of_record(facts: &Facts) -> Option<End> {
    let run = facts.last_run()?;
    // That of an earlier instance says nothing of this one.
    let uid = facts.vmi.as_ref().and_then(|vmi| vmi.metadata.uid.as_deref());
    if uid.is_some_and(|uid| run["spec"]["instanceUID"] != uid) {
        return None;
    }
    let text = |key: &str| run["spec"][key].as_str().unwrap_or_default();
    let cause = EndReason::read(text("reason"));
    let last_line = text("qemuOutput").lines().map(str::trim).rfind(|line| !line.is_empty());
    let message = match last_line.filter(|_| matches!(cause, EndReason::QemuFailed | EndReason::QemuCrashed)) {
        Some(line) if !has_end_of(text("message"), line) => bounded(&format!("{}: {line}", text("message"))),
        Some(_) | None => bounded(text("message")),
    };
    let at = text("endedAt").parse::<Timestamp>().ok();
    let name = run["metadata"]["name"].as_str().unwrap_or_default();
    let evidence = seen(format!("machinerun/{name}"), format!("spec.reason {}", text("reason")), message.clone(), at);
    Some(End { cause, message, at, evidence })
}

/// Whether a message ends as a line does, which may be in it without its middle.
fn has_end_of(message: &str, line: &str) -> bool {
    let at = line.char_indices().rev().nth(MOST_COMPARED).map_or(0, |(at, _)| at);
    message.ends_with(line.get(at..).unwrap_or(line))
}

/// The event in which a node agent reports how the last run of this name ended, or the controller that it was for want of memory.
pub(super) fn stopped(facts: &Facts) -> Option<&Event> {
    let ends = [Reason::Stopped.name(), EndReason::OutOfMemory.as_str()];
    let is_end = |event: &&Event| event.reason.as_deref().is_some_and(|reason| ends.contains(&reason));
    facts.events_of("VirtualMachineInstance").into_iter().find(is_end)
}
