//! Runs that are over, and how they ended.

use garboard_api::Quantity;
use garboard_api::conditions::{Reason, VmiConditionType};
use garboard_api::run_strategy::RunStrategy;
use garboard_protocol::exit::{Account, EndReason, ExitCause};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Event, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as PodQuantity;

use super::refused::bounded;
use super::running;
use crate::why::diagnosis::{DiagnosisVerdict, Evidence, Finding, seen};
use crate::why::facts::{Condition, Facts, age, containers, when};

/// The kubelet's reason for a container that the OOM killer ended.
const OOM_KILLED: &str = "OOMKilled";

/// How a run ended, from the source that has most of it.
struct End {
    /// The cause; unknown where an earlier version wrote a message without a reason.
    cause: EndReason,
    message: String,
    at: Option<Timestamp>,
    evidence: Evidence,
}

/// The kubelet ended the pod, or did not let it begin.
pub(crate) fn evicted(facts: &Facts) -> Option<Finding> {
    let pod = facts.pod()?;
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Failed"))?;
    let reason = status.reason.clone()?;
    let message = bounded(status.message.as_deref().unwrap_or_default());
    let name = pod.metadata.name.clone().unwrap_or_default();
    let since = terminated(facts).and_then(|(_, end)| end.finished_at.as_ref()).map(|time| time.0);
    let cause = format!("the kubelet ended its pod ({reason}): {message}");
    let finding = Finding::wrong(DiagnosisVerdict::Evicted, cause).since(since);
    let finding = finding.shown_by(seen(format!("pod/{name}"), format!("status.reason {reason}"), message, since));
    let node = facts.node_name().unwrap_or_default();
    Some(finding.then(format!("kubectl describe node {node}")).then(again(facts)))
}

/// It failed before its guest ran, and is tried again later.
pub(crate) fn back_off(facts: &Facts) -> Option<Finding> {
    let failure = facts.vm.as_ref()?.status.as_ref()?.start_failure.as_ref()?;
    let count = failure.consecutive_fail_count.filter(|count| *count > 0)?;
    if matches!(facts.phase(), Some("Running" | "Succeeded")) {
        return None;
    }
    let retry = failure.retry_after_timestamp.as_ref().map(|time| time.0);
    let soon = match retry {
        Some(retry) if retry > facts.now => {
            format!("it is tried again in {} s", retry.duration_since(facts.now).as_secs())
        }
        Some(_) | None => "it is being tried again".to_owned(),
    };
    let times = if count == 1 { "once".to_owned() } else { format!("{count} times in a row") };
    let evidence =
        seen(format!("vm/{}", facts.name), "status.startFailure.consecutiveFailCount", count.to_string(), None);
    let finding = match last_end(facts) {
        Some(end) => {
            let cause = format!("it failed to start {times}; {soon}; the last time: {}", end.message);
            Finding::wrong(DiagnosisVerdict::BackOff, cause).since(end.at).shown_by(end.evidence)
        }
        None => Finding::wrong(DiagnosisVerdict::BackOff, format!("it failed to start {times}; {soon}")),
    };
    let stop = format!("kubectl garboard stop {}", facts.name);
    Some(
        finding
            .shown_by(evidence)
            .then(format!("kubectl garboard explain {}", facts.name))
            .then(format!("{stop}    # to stop trying")),
    )
}

/// Its run ended badly.
pub(crate) fn failed(facts: &Facts) -> Option<Finding> {
    let badly = facts.phase() == Some("Failed") || (facts.vmi.is_none() && facts.vm.is_some() && ended_badly(facts));
    let is_meant_to_run = matches!(facts.strategy(), Some(RunStrategy::Always | RunStrategy::RerunOnFailure));
    if !badly
        || back_off(facts).is_some()
        || facts.strategy() == Some(RunStrategy::Halted)
        || (facts.vmi.is_none() && is_meant_to_run)
    {
        return None;
    }
    let Some(end) = last_end(facts) else {
        let reason = facts.vmi.as_ref().and_then(|vmi| vmi.status.as_ref()?.reason.clone());
        let cause = format!(
            "its run ended badly: {}",
            reason.as_deref().map_or("nothing was recorded of how".to_owned(), bounded)
        );
        let evidence = seen(format!("vmi/{}", facts.name), "status.phase", "Failed", facts.phase_since());
        return Some(
            Finding::wrong(DiagnosisVerdict::RunFailed, cause)
                .since(facts.phase_since())
                .shown_by(evidence)
                .then(again(facts)),
        );
    };
    let finding =
        Finding::wrong(DiagnosisVerdict::of_bad_end(end.cause), format!("its run ended badly: {}", end.message))
            .since(end.at);
    let finding = advice(facts, &end).into_iter().fold(finding, Finding::then).shown_by(end.evidence);
    Some(interpretation_of(facts, end.cause).into_iter().fold(finding, Finding::shown_by))
}

/// Its run is over, and ended well.
pub(crate) fn over(facts: &Facts) -> Option<Finding> {
    let succeeded = facts.phase() == Some("Succeeded");
    // Under Once an instance that is taken away is made again.
    let has_run = facts.vmi.is_none() && facts.strategy() == Some(RunStrategy::RerunOnFailure);
    if !(succeeded || has_run && stayed_down(facts)) {
        return None;
    }
    let strategy = facts.strategy().map_or("an instance is one run", |strategy| match strategy {
        RunStrategy::Once => "runStrategy Once is one run",
        RunStrategy::RerunOnFailure => "runStrategy RerunOnFailure starts again only what has failed",
        RunStrategy::Always | RunStrategy::Manual | RunStrategy::Halted => "it is not to run on",
    });
    let finding = match last_end(facts) {
        Some(end) => Finding::well(DiagnosisVerdict::RunOver, format!("its run is over: {}; {strategy}", end.message))
            .since(end.at)
            .shown_by(end.evidence),
        None => {
            let evidence = seen(
                format!("vmi/{}", facts.name),
                "status.phase",
                facts.phase().unwrap_or("gone"),
                facts.phase_since(),
            );
            Finding::well(DiagnosisVerdict::RunOver, format!("its run is over; {strategy}"))
                .since(facts.phase_since())
                .shown_by(evidence)
        }
    };
    Some(finding.then(again(facts)))
}

/// The controller has started this strategy before: it notes that in the status.
fn stayed_down(facts: &Facts) -> bool {
    let noted = facts.vm.as_ref().and_then(|vm| vm.status.as_ref()?.run_strategy.clone());
    noted.as_deref() == facts.strategy().map(RunStrategy::name)
}

/// By the cause that the event names, by its severity where an earlier version named none, or by the record of the run.
fn ended_badly(facts: &Facts) -> bool {
    let Some(event) = stopped(facts) else {
        return of_record(facts).is_some_and(|end| !end.cause.is_success());
    };
    let cause = Account::read(event.message.as_deref().unwrap_or_default()).reason;
    if cause == EndReason::Unknown { event.type_.as_deref() == Some("Warning") } else { !cause.is_success() }
}

/// What is known of the last end: the condition, PID 1's termination message, the event that outlives both, or the record of the run, which
/// outlives the event.
fn last_end(facts: &Facts) -> Option<End> {
    of_condition(facts)
        .or_else(|| of_termination_message(facts))
        .or_else(|| of_event(facts))
        .or_else(|| of_record(facts))
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
fn out_of_memory(facts: &Facts) -> ExitCause {
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
    let of_vmi = facts.vmi.as_ref().map(|vmi| &vmi.spec);
    let of_vm = || facts.vm.as_ref()?.spec.template.spec.as_ref();
    of_vmi.or_else(of_vm)?.domain.resources.as_ref()?.limits.get("memory")
}

fn terminated(facts: &Facts) -> Option<(String, &ContainerStateTerminated)> {
    let pod = facts.pod()?;
    let compute = containers(pod).into_iter().find(|status| status.name == "compute")?;
    let end = compute.state.as_ref()?.terminated.as_ref()?;
    Some((pod.metadata.name.clone().unwrap_or_default(), end))
}

fn of_event(facts: &Facts) -> Option<End> {
    let event = stopped(facts)?;
    let account = Account::read(event.message.as_deref().unwrap_or_default());
    let message = bounded(account.message);
    let evidence = seen(format!("vmi/{}", facts.name), "event Stopped", message.clone(), when(event));
    Some(End { cause: account.reason, message, at: when(event), evidence })
}

/// With the last line that QEMU printed, where it gave up or crashed.
fn of_record(facts: &Facts) -> Option<End> {
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
        Some(line) if !text("message").contains(line) => bounded(&format!("{}: {line}", text("message"))),
        Some(_) | None => bounded(text("message")),
    };
    let at = text("endedAt").parse::<Timestamp>().ok();
    let name = run["metadata"]["name"].as_str().unwrap_or_default();
    let evidence = seen(format!("machinerun/{name}"), format!("spec.reason {}", text("reason")), message.clone(), at);
    Some(End { cause, message, at, evidence })
}

/// How the last run ended of a machine that does not run, where its record is all that is left; a remark.
pub(crate) fn last_run(facts: &Facts) -> Option<String> {
    if facts.vmi.is_some() || !facts.pods.is_empty() {
        return None;
    }
    let end = of_record(facts)?;
    let when = end.at.map(|at| format!(", {} ago", age(at, facts.now))).unwrap_or_default();
    Some(format!("its last run{when}: {}; `kubectl garboard logs {} --last` has its record", end.message, facts.name))
}

/// What the record of the last run has to say about a machine that is no more.
pub(super) fn left_of(facts: &Facts) -> Option<Evidence> {
    of_record(facts).map(|end| end.evidence)
}

/// The event in which a node agent reports how the last run of this name ended.
pub(super) fn stopped(facts: &Facts) -> Option<&Event> {
    let is_end = |event: &&Event| event.reason.as_deref() == Some(Reason::Stopped.name());
    facts.events_of("VirtualMachineInstance").into_iter().find(is_end)
}

fn advice(facts: &Facts, end: &End) -> Vec<String> {
    let name = &facts.name;
    let last = if facts.pod().is_some() { "" } else { " --last" };
    let has_log = facts.pod().is_some() || facts.last_run().is_some();
    let logs = has_log.then(|| format!("kubectl garboard logs {name}{last}"));
    let faster = interpretation_of(facts, end.cause).map(|_| running::faster(facts)).into_iter().flatten();
    logs.into_iter().chain(faster).chain(remedy(facts, end.cause)).chain([again(facts)]).collect()
}

/// QEMU gives up where KVM, which interprets the guest's code, meets an instruction that it does not know.
fn interpretation_of(facts: &Facts, cause: EndReason) -> Option<Evidence> {
    running::interpretation(facts).filter(|_| cause == EndReason::QemuFailed)
}

/// What to do about a cause.
fn remedy(facts: &Facts, cause: EndReason) -> Option<String> {
    match cause {
        EndReason::OutOfMemory => out_of_memory(facts).remedy().map(str::to_owned),
        EndReason::QemuKilled | EndReason::MachineKilled => {
            facts.node_name().map(|node| format!("kubectl describe node {node}    # what killed it?"))
        }
        EndReason::QemuCrashed => Some("report it to QEMU, with the log".to_owned()),
        EndReason::QemuFailed | EndReason::NotStarted => Some(format!("kubectl garboard explain {}", facts.name)),
        EndReason::GracePeriodExceeded => Some("give the guest ACPI or a guest agent, or more grace".to_owned()),
        EndReason::GuestPanic
        | EndReason::Watchdog
        | EndReason::GuestShutdown
        | EndReason::GuestReboot
        | EndReason::StoppedGracefully
        | EndReason::ForceStopped
        | EndReason::Unknown => None,
    }
}

/// How it is started again.
pub(super) fn again(facts: &Facts) -> String {
    let name = &facts.name;
    let start = format!("kubectl garboard start {name}");
    match facts.strategy() {
        None => format!("kubectl delete vmi {name}, and create it again"),
        Some(RunStrategy::RerunOnFailure) if facts.phase() == Some("Succeeded") => start,
        Some(RunStrategy::Always | RunStrategy::RerunOnFailure) => {
            format!("kubectl get vm {name} -w    # it is started again")
        }
        Some(RunStrategy::Manual | RunStrategy::Halted) => start,
        Some(RunStrategy::Once) => format!("{}; {start}", made_manual(name)),
    }
}

/// How it gets a new run while its guest runs.
pub(super) fn restarted(facts: &Facts) -> String {
    let name = &facts.name;
    let restart = format!("kubectl garboard restart {name}");
    match facts.strategy() {
        None => again(facts),
        Some(RunStrategy::Once) => format!("{}; {restart}", made_manual(name)),
        Some(RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Manual | RunStrategy::Halted) => restart,
    }
}

/// A machine of the strategy Once can be started again after this.
fn made_manual(name: &str) -> String {
    format!("kubectl patch vm {name} --type merge -p '{{\"spec\":{{\"runStrategy\":\"Manual\"}}}}'")
}
