//! Runs that are over, and how they ended.

use garboard_api::conditions::VmiConditionType;
use garboard_api::run_strategy::RunStrategy;
use garboard_protocol::exit::EndReason;

use super::last_end::{End, ended_badly, last_end, of_record, out_of_memory, terminated};
use super::refused::bounded;
use super::{containers, running, start_errors};
use crate::why::diagnosis::{DiagnosisVerdict, Evidence, Finding, seen};
use crate::why::facts::{Facts, age};

/// With less a usual guest of Linux does not boot, bytes.
const LITTLE_MEMORY_BYTES: u64 = 256 << 20;

/// The kubelet ended the pod, or did not let it begin.
pub(crate) fn evicted(facts: &Facts) -> Option<Finding> {
    let pod = facts.pod()?;
    let status = pod.status.as_ref().filter(|status| status.phase.as_deref() == Some("Failed"))?;
    // A pod that its kubelet did not take has not begun.
    let reason = status.reason.clone().filter(|_| containers::rejected(facts).is_none())?;
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
    let end = last_end(facts);
    let failed = end.as_ref().filter(|end| is_of_start(end.cause));
    let advice = failed.and_then(|end| start_errors::advice(facts, &end.message));
    let finding = match end {
        Some(end) => {
            let cause = format!("it failed to start {times}; {soon}; the last time: {}", end.message);
            Finding::wrong(DiagnosisVerdict::BackOff, cause).since(end.at).shown_by(end.evidence)
        }
        None => Finding::wrong(DiagnosisVerdict::BackOff, format!("it failed to start {times}; {soon}")),
    };
    let stop = format!("kubectl garboard stop {}", facts.name);
    let finding = advice.into_iter().fold(finding.shown_by(evidence), Finding::then);
    Some(finding.then(format!("kubectl garboard explain {}", facts.name)).then(format!("{stop}    # to stop trying")))
}

/// The cluster had it leave its node, and its guest has ended for that.
pub(crate) fn displaced(facts: &Facts) -> Option<Finding> {
    let evicted = facts
        .of_vmi(VmiConditionType::EvictionRequested)
        .filter(|each| each.status == "True" && matches!(facts.phase(), Some("Succeeded" | "Failed")))?;
    let node = facts.node_name().unwrap_or("its node");
    let why = match evicted.reason.as_str() {
        "PreemptionByScheduler" => format!("a pod of a higher priority has taken its place on {node}"),
        "EvictionByEvictionAPI" => format!("its pod was evicted from {node}, as a drain does"),
        "DeletionByTaintManager" => format!("{node} has a taint that its pod does not tolerate for longer"),
        "TerminationByKubelet" => format!("the kubelet of {node} ended its pod"),
        other => format!("the cluster had its pod leave {node} ({other})"),
    };
    let end = last_end(facts).map(|end| format!("; its run: {}", end.message)).unwrap_or_default();
    let follows = matches!(facts.strategy(), Some(RunStrategy::Always | RunStrategy::RerunOnFailure));
    let cause = format!("{why}: {}{end}", bounded(&evicted.message));
    let finding = if follows {
        Finding::waiting(DiagnosisVerdict::Evicted, cause)
    } else {
        Finding::wrong(DiagnosisVerdict::Evicted, cause)
    };
    let field = format!("conditions[EvictionRequested] {}", evicted.reason);
    let evidence = seen(format!("vmi/{}", facts.name), field, bounded(&evicted.message), evicted.since);
    Some(
        finding
            .since(evicted.since)
            .shown_by(evidence)
            .then(format!("kubectl describe node {node}"))
            .then(again(facts)),
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
        Some(end) => {
            let cause = format!("its run is over: {}; {strategy}", end.message);
            let finding = Finding::well(DiagnosisVerdict::RunOver, cause).since(end.at).shown_by(end.evidence);
            serial(facts, end.cause).into_iter().fold(finding, Finding::then)
        }
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

/// What the guest printed last, where that explains its end.
fn serial(facts: &Facts, cause: EndReason) -> Option<String> {
    let last = if facts.pod().is_some() { "" } else { " --last" };
    let look = match cause {
        EndReason::GuestPanic => "what its kernel printed last",
        EndReason::Watchdog => "what the guest printed before it stopped feeding its watchdog",
        // A kernel that fails so badly that its processor is reset.
        EndReason::GuestReboot => "did it reboot, or did its kernel fail (a triple fault looks the same)?",
        EndReason::OutOfMemory
        | EndReason::QemuFailed
        | EndReason::QemuKilled
        | EndReason::QemuCrashed
        | EndReason::MachineKilled
        | EndReason::NotStarted
        | EndReason::GracePeriodExceeded
        | EndReason::GuestShutdown
        | EndReason::StoppedGracefully
        | EndReason::ForceStopped
        | EndReason::Unknown => return None,
    };
    Some(format!("kubectl garboard logs {}{last} --part serial    # {look}", facts.name))
}

/// The controller has started this strategy before: it notes that in the status.
fn stayed_down(facts: &Facts) -> bool {
    let noted = facts.vm.as_ref().and_then(|vm| vm.status.as_ref()?.run_strategy.clone());
    noted.as_deref() == facts.strategy().map(RunStrategy::name)
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

fn advice(facts: &Facts, end: &End) -> Vec<String> {
    let name = &facts.name;
    let last = if facts.pod().is_some() { "" } else { " --last" };
    let has_log = facts.pod().is_some() || facts.last_run().is_some();
    let logs = has_log.then(|| format!("kubectl garboard logs {name}{last}"));
    let faster = interpretation_of(facts, end.cause).map(|_| running::faster(facts)).into_iter().flatten();
    let known = start_errors::advice(facts, &end.message).filter(|_| is_of_start(end.cause));
    let serial = serial(facts, end.cause).filter(|_| has_log);
    let special = faster.chain(known).chain(serial).chain(remedy(facts, end.cause));
    logs.into_iter().chain(special).chain([again(facts)]).collect()
}

/// Whether QEMU gave up, or was not even started: the message has why.
fn is_of_start(cause: EndReason) -> bool {
    matches!(cause, EndReason::QemuFailed | EndReason::NotStarted)
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
        EndReason::GuestPanic => more_memory(facts),
        EndReason::Watchdog
        | EndReason::GuestShutdown
        | EndReason::GuestReboot
        | EndReason::StoppedGracefully
        | EndReason::ForceStopped
        | EndReason::Unknown => None,
    }
}

/// A kernel that has too little memory to unpack its system panics.
fn more_memory(facts: &Facts) -> Option<String> {
    let guest = facts.spec()?.domain.memory.as_ref()?.guest.as_ref()?;
    let is_small = guest.to_bytes().is_some_and(|bytes| bytes < LITTLE_MEMORY_BYTES);
    is_small.then(|| {
        format!("its guest has {guest} of memory, with which few systems boot: raise spec.domain.memory.guest")
    })
}

/// How it is started again.
pub(super) fn again(facts: &Facts) -> String {
    let name = &facts.name;
    let start = format!("kubectl garboard start {name}");
    match facts.strategy() {
        None => format!("kubectl delete vmi {name}, and create it again"),
        Some(RunStrategy::RerunOnFailure) if is_done(facts) => start,
        Some(RunStrategy::Always | RunStrategy::RerunOnFailure) => {
            format!("kubectl get vm {name} -w    # it is started again")
        }
        Some(RunStrategy::Manual | RunStrategy::Halted) => start,
        Some(RunStrategy::Once) => format!("{}; {start}", made_manual(name)),
    }
}

/// Whether its last run ended well, also where its instance is gone.
fn is_done(facts: &Facts) -> bool {
    facts.phase() == Some("Succeeded") || facts.vmi.is_none() && stayed_down(facts) && !ended_badly(facts)
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
