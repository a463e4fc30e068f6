//! `garboard why`: in one screen, how a machine of this host is, since when, why, and what to do.
//!
//! ```text
//!   control socket, shim's files, records ──look──► Seen ──diagnose (pure)──► Diagnosis ──► a person, or JSON
//! ```

use garboard_kubectl::{Diagnosis, DiagnosisVerdict, Evidence, Finding, Health, diagnosis_screen, nearest, seen};
use garboard_protocol::control::{Ended, PauseReason, ReportedPhase, Status};
use garboard_protocol::exit::ExitCause;
use garboard_shim_client::places::{MachineId, Places};
use garboard_shim_client::{lock, pending_restart};
use jiff::Timestamp;

use crate::args::WhyArgs;
use crate::client;
use crate::output::out;
use crate::past;
use crate::ps::printable_state;

/// Everything that is looked at.
#[derive(Clone, Debug, Default)]
struct Seen {
    machine: String,
    /// The machine has a directory: it runs, or its remains were not cleared away.
    is_there: bool,
    /// Its background process lives.
    is_kept: bool,
    /// Between two runs: the failed starts, and the message about the next one.
    between: Option<(u32, String)>,
    /// What its supervisor reports.
    status: Option<Status>,
    /// Why the supervisor does not answer.
    silence: Option<String>,
    /// How its last recorded run ended; `Some(None)` if there is a record without it.
    last: Option<Option<Ended>>,
    /// Names that are almost this one.
    near: Vec<String>,
}

/// `garboard why MACHINE`.
pub(crate) fn run(args: &WhyArgs) -> anyhow::Result<u8> {
    let places = args.here.places()?;
    let id = args.here.id(&args.machine)?;
    let diagnosis = diagnose(&look(&places, &id));
    args.output.show(&diagnosis, || out!("{}", diagnosis_screen(&diagnosis, Timestamp::now())))?;
    Ok(diagnosis.exit_code(args.exit_code))
}

fn look(places: &Places, id: &MachineId) -> Seen {
    let machine = places.machine(id);
    let mut seen = Seen {
        machine: id.to_string(),
        is_there: machine.exists(),
        is_kept: lock::is_held(&machine),
        between: pending_restart::read(&machine).map(|pending| (pending.failures, pending.summary())),
        last: past::last(places, id).map(|run| run.ended),
        ..Seen::default()
    };
    if seen.is_there && seen.between.is_none() {
        match client::status(places, id) {
            Ok(status) => seen.status = Some(status),
            Err(error) => seen.silence = Some(format!("{error:#}")),
        }
    }
    if !seen.is_there && seen.last.is_none() {
        let known = places.machines().into_iter().chain(places.recorded_machines());
        let names: Vec<String> = known.map(|other| other.to_string()).collect();
        seen.near = nearest(&seen.machine, names.iter().map(String::as_str));
    }
    seen
}

/// Diagnoses it. Pure.
fn diagnose(world: &Seen) -> Diagnosis {
    let (state, finding) = main(world);
    let mut also: Vec<String> = world.status.iter().flat_map(|status| remarks(status, finding.verdict)).collect();
    if world.is_there && !world.is_kept {
        also.push("its shim ended: its published ports are closed, and it is not started again".into());
    }
    Diagnosis {
        machine: world.machine.clone(),
        state,
        verdict: finding.verdict,
        health: finding.health,
        since: finding.since,
        cause: finding.cause,
        node: None,
        evidence: finding.evidence,
        next: finding.next,
        also,
        unseen: Vec::new(),
    }
}

/// What else a supervisor reports, beside the verdict.
fn remarks(status: &Status, verdict: DiagnosisVerdict) -> Vec<String> {
    // Every field: of a new one it has to be decided here whether it is a remark.
    let Status {
        unresponsive,
        ended_helper,
        software_emulation,
        interpreted_by_kvm,
        taints,
        frozen,
        soft_rebooting,
        access_credentials,
        // Of these the verdict is made.
        phase: _,
        phase_since_ms: _,
        paused: _,
        stopping: _,
        ended: _,
        interfaces: _,
        // No verdict and no remark is made of these.
        generation: _,
        namespace: _,
        name: _,
        uid: _,
        pause_message: _,
        observed: _,
        machine: _,
        memory_bytes: _,
        overhead_bytes: _,
        vcpus: _,
        stored: _,
        disks: _,
        guest: _,
        run: _,
        supervisor_pid: _,
        supervisor: _,
        resets: _,
    } = status;
    let is_over = status.ended.is_some();
    let silent = *unresponsive && !is_over && verdict != DiagnosisVerdict::Unresponsive;
    let helper = ended_helper.as_ref().filter(|_| !is_over && verdict != DiagnosisVerdict::NetworkLost);
    let lacking = access_credentials.as_ref().filter(|tried| !is_over && !tried.synchronized);
    let taints = taints.join(", ");
    let all = [
        silent.then(|| UNRESPONSIVE.to_owned()),
        helper.map(|helper| without_network(helper)),
        software_emulation.then(|| "its vCPUs are interpreted by software".to_owned()),
        interpreted_by_kvm.then(|| "KVM of this host interprets the guest's code, which is slow".to_owned()),
        (*frozen && !is_over).then(|| {
            "its file systems are frozen, so that its programs may wait; `garboard unfreeze` thaws them".to_owned()
        }),
        lacking.map(|tried| format!("not all access credentials are in its guest: {}", tried.message)),
        (*soft_rebooting && !is_over).then(|| "its guest was asked to reboot".to_owned()),
        (!taints.is_empty()).then(|| format!("it is tainted: QMP commands changed it: {taints}")),
    ];
    all.into_iter().flatten().collect()
}

/// What explains most, with KubeVirt's name of the state.
fn main(world: &Seen) -> (String, Finding) {
    let name = &world.machine;
    if let Some((failures, message)) = &world.between {
        return between_runs(name, *failures, message);
    }
    if let Some(status) = &world.status {
        return (printable_state(status).to_owned(), of_status(name, status));
    }
    if let Some(silence) = &world.silence {
        let cause = "its supervisor does not answer; the guest may run on";
        let finding = Finding::wrong(DiagnosisVerdict::Unknown, cause)
            .shown_by(seen("supervisor", "answer", silence.clone(), None))
            .then(format!("garboard logs {name}"))
            .then(format!("garboard stop {name}    # replaces the supervisor, then powers the guest down"));
        return ("Unknown".to_owned(), finding);
    }
    match &world.last {
        Some(Some(ended)) => over(name, ended),
        Some(None) => {
            let cause = "its last run is over, and nothing was recorded of how it ended";
            let finding =
                Finding::wrong(DiagnosisVerdict::RunFailed, cause).then(format!("garboard logs --last {name}"));
            ("Stopped".to_owned(), finding)
        }
        None => ("not found".to_owned(), not_found(world)),
    }
}

fn between_runs(name: &str, failures: u32, message: &str) -> (String, Finding) {
    let evidence = seen("shim", "between.json", message, None);
    let logs = format!("garboard logs --last {name}");
    if failures == 0 {
        let finding = Finding::waiting(DiagnosisVerdict::Starting, message).shown_by(evidence).then(logs);
        return ("Starting".to_owned(), finding);
    }
    let finding = Finding::wrong(DiagnosisVerdict::BackOff, message).shown_by(evidence).then(logs);
    ("CrashLoopBackOff".to_owned(), finding.then(format!("garboard stop {name}    # to stop trying")))
}

fn of_status(name: &str, status: &Status) -> Finding {
    let since = Timestamp::from_millisecond(status.phase_since_ms).ok();
    let evidence = seen("supervisor", "phase", format!("{:?}", status.phase), since);
    let finding = by_phase(name, status).since(since).shown_by(evidence);
    match addresses(status) {
        Some(evidence) => finding.shown_by(evidence),
        None => finding,
    }
}

fn by_phase(name: &str, status: &Status) -> Finding {
    match (status.phase, status.stopping, status.paused) {
        (ReportedPhase::Succeeded | ReportedPhase::Failed, ..) => match &status.ended {
            Some(ended) => over(name, ended).1,
            None => Finding::waiting(DiagnosisVerdict::Stopping, "its run is over, and its files are being removed"),
        },
        (_, true, _) => Finding::waiting(DiagnosisVerdict::Stopping, "its guest is being powered down")
            .then(format!("garboard stop --force {name}    # not to wait for it")),
        (ReportedPhase::Scheduled, ..) => {
            Finding::waiting(DiagnosisVerdict::Starting, "its supervisor prepares the start of QEMU")
                .then(format!("garboard logs -f {name}"))
        }
        (_, _, Some(PauseReason::PausedIOError)) => {
            let cause = "its disk failed, and its vCPUs are stopped until it works again (errorPolicy stop)";
            Finding::wrong(DiagnosisVerdict::StorageFailed, cause)
                .then(format!("garboard qmp {name} query-block"))
                .then(format!("repair the storage, then: garboard unpause {name}"))
        }
        (_, _, Some(PauseReason::PausedByUser)) => impaired(name, status).unwrap_or_else(|| {
            Finding::well(DiagnosisVerdict::Paused, "its vCPUs were stopped on request; its memory is kept")
                .then(format!("garboard unpause {name}"))
                .then(format!("garboard logs {name}    # who did it"))
        }),
        (ReportedPhase::Running, _, None) => impaired(name, status).unwrap_or_else(|| {
            Finding::well(DiagnosisVerdict::Running, "its guest runs").then(format!("garboard console {name}"))
        }),
    }
}

/// What is wrong with a machine whose QEMU lives.
fn impaired(name: &str, status: &Status) -> Option<Finding> {
    if status.unresponsive {
        let finding = Finding::wrong(DiagnosisVerdict::Unresponsive, UNRESPONSIVE)
            .then("look at this host's storage: the guest goes on once its disks answer")
            .then(format!("garboard logs {name} --part qmp    # what QEMU reported last"));
        return Some(finding.then(format!("garboard stop --force {name}    # kills it at once")));
    }
    let cause = without_network(status.ended_helper.as_deref()?);
    let finding = Finding::wrong(DiagnosisVerdict::NetworkLost, cause).then(format!("garboard restart {name}"));
    Some(finding.then(format!("garboard logs {name}    # what the program printed last")))
}

const UNRESPONSIVE: &str = "QEMU does not answer on its monitor, most often because this host's storage hangs; what is known of the guest \
                            is old";

fn without_network(helper: &str) -> String {
    format!("its guest has no network until its next start: the program {helper} has ended")
}

fn addresses(status: &Status) -> Option<Evidence> {
    let all: Vec<&str> =
        status.interfaces.iter().flat_map(|interface| &interface.addresses).map(String::as_str).collect();
    (!all.is_empty()).then(|| seen("supervisor", "interfaces", all.join(", "), None))
}

/// A run that is over, and how the next one begins.
fn over(name: &str, ended: &Ended) -> (String, Finding) {
    let at = Timestamp::from_millisecond(ended.at_ms).ok();
    let evidence = seen("record", "journal.json", ended.message.clone(), at);
    let (state, finding) = if ended.cause.is_success() {
        ("Succeeded", Finding::well(DiagnosisVerdict::RunOver, format!("its run is over: {}", ended.message)))
    } else {
        (
            "Failed",
            Finding::wrong(
                DiagnosisVerdict::of_bad_end(ended.cause.reason()),
                format!("its run ended badly: {}", ended.message),
            ),
        )
    };
    let finding = finding.since(at).shown_by(evidence).then(format!("garboard logs --last {name}"));
    let finding = match advice(&ended.cause) {
        Some(advice) => finding.then(advice),
        None => finding,
    };
    (state.to_owned(), finding.then("garboard run FILE    # with its manifest, to start it again"))
}

fn advice(cause: &ExitCause) -> Option<&'static str> {
    match cause {
        ExitCause::OutOfMemory { .. } => cause.remedy(),
        ExitCause::QemuKilled { .. } | ExitCause::MachineKilled => {
            Some("look into the host's own logs: another process sent QEMU a signal")
        }
        ExitCause::QemuCrashed { .. } => Some("report it to QEMU, with the log"),
        ExitCause::NotStarted { .. } | ExitCause::QemuFailed { .. } => Some("garboard doctor"),
        ExitCause::GracePeriodExceeded => Some("give the guest ACPI or a guest agent, or more grace"),
        ExitCause::GuestPanic
        | ExitCause::Watchdog
        | ExitCause::GuestShutdown
        | ExitCause::GuestReboot
        | ExitCause::StoppedGracefully
        | ExitCause::ForceStopped
        | ExitCause::Unknown => None,
    }
}

fn not_found(world: &Seen) -> Finding {
    let name = &world.machine;
    let cause = match world.near.as_slice() {
        [] => format!("no machine {name} runs here, and none is recorded"),
        near => format!("no machine {name} runs here, and none is recorded; did you mean {}?", near.join(" or ")),
    };
    Finding { health: Health::Wrong, ..Finding::wrong(DiagnosisVerdict::NotFound, cause) }.then("garboard ps -a")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn running(more: serde_json::Value) -> Seen {
        let mut status = json!({
            "generation": 1, "namespace": "default", "name": "hello", "uid": "u", "phase": "Running", "phaseSinceMs": 0,
            "paused": null, "stopping": false, "softwareEmulation": false, "machine": "q35", "memoryBytes": 1,
            "vcpus": 1, "interfaces": [], "guest": null, "taints": [], "supervisorPid": 1, "resets": 0, "ended": null,
        });
        for (key, value) in more.as_object().unwrap() {
            status[key] = value.clone();
        }
        let status = Some(serde_json::from_value(status).unwrap());
        Seen { machine: "default/hello".into(), is_there: true, is_kept: true, status, ..Seen::default() }
    }

    fn ended(cause: &ExitCause) -> Seen {
        let ended = Ended { message: cause.message(), cause: cause.clone(), report: None, at_ms: 0 };
        Seen { machine: "default/hello".into(), last: Some(Some(ended)), ..Seen::default() }
    }

    fn table() -> Vec<(Seen, DiagnosisVerdict, Health, &'static str)> {
        let gone = Seen { machine: "default/hello".into(), ..Seen::default() };
        let there = Seen { is_there: true, is_kept: true, ..gone.clone() };
        let between = |failures| Seen { between: Some((failures, "tried in 9 s".into())), ..there.clone() };
        vec![
            (running(json!({})), DiagnosisVerdict::Running, Health::Well, "its guest runs"),
            (running(json!({"paused": "PausedByUser"})), DiagnosisVerdict::Paused, Health::Well, "on request"),
            (
                running(json!({"paused": "PausedIOError"})),
                DiagnosisVerdict::StorageFailed,
                Health::Wrong,
                "its disk failed",
            ),
            (
                running(json!({"unresponsive": true})),
                DiagnosisVerdict::Unresponsive,
                Health::Wrong,
                "does not answer on its monitor",
            ),
            (
                running(json!({"unresponsive": true, "paused": "PausedByUser"})),
                DiagnosisVerdict::Unresponsive,
                Health::Wrong,
                "does not answer on its monitor",
            ),
            (
                running(json!({"endedHelper": "passt"})),
                DiagnosisVerdict::NetworkLost,
                Health::Wrong,
                "the program passt has ended",
            ),
            (running(json!({"stopping": true})), DiagnosisVerdict::Stopping, Health::Waiting, "powered down"),
            (running(json!({"phase": "Scheduled"})), DiagnosisVerdict::Starting, Health::Waiting, "prepares"),
            (between(0), DiagnosisVerdict::Starting, Health::Waiting, "tried in 9 s"),
            (between(3), DiagnosisVerdict::BackOff, Health::Wrong, "tried in 9 s"),
            (
                Seen { silence: Some("timed out".into()), ..there.clone() },
                DiagnosisVerdict::Unknown,
                Health::Wrong,
                "does not answer",
            ),
            (ended(&ExitCause::GuestShutdown), DiagnosisVerdict::RunOver, Health::Well, "its run is over"),
            (ended(&ExitCause::QemuKilled { signal: 9 }), DiagnosisVerdict::QemuKilled, Health::Wrong, "signal 9"),
            (
                ended(&ExitCause::OutOfMemory { limit_bytes: None }),
                DiagnosisVerdict::OutOfMemory,
                Health::Wrong,
                "ended badly",
            ),
            (
                Seen { last: Some(None), ..gone.clone() },
                DiagnosisVerdict::RunFailed,
                Health::Wrong,
                "nothing was recorded",
            ),
            (
                Seen { near: vec!["default/helo".into()], ..gone.clone() },
                DiagnosisVerdict::NotFound,
                Health::Wrong,
                "did you mean default/helo?",
            ),
            (gone, DiagnosisVerdict::NotFound, Health::Wrong, "none is recorded"),
        ]
    }

    #[test]
    fn each_situation_has_its_verdict_its_cause_and_what_to_do() {
        for (world, verdict, health, cause) in table() {
            let diagnosis = diagnose(&world);
            assert_eq!((diagnosis.verdict, diagnosis.health), (verdict, health), "{diagnosis:#?}");
            assert!(diagnosis.cause.contains(cause), "{diagnosis:#?}");
            assert!(!diagnosis.next.is_empty(), "{diagnosis:#?}");
        }
    }

    #[test]
    fn every_bad_end_has_its_verdict_and_its_message() {
        for cause in garboard_protocol::testing::causes().iter().filter(|cause| !cause.is_success()) {
            let diagnosis = diagnose(&ended(cause));
            assert_eq!(diagnosis.verdict, DiagnosisVerdict::of_bad_end(cause.reason()), "{diagnosis:#?}");
            assert!(diagnosis.cause.ends_with(&cause.message()), "{diagnosis:#?}");
        }
    }

    #[test]
    fn advice_can_be_executed() {
        use clap::Parser;
        for advice in table().into_iter().flat_map(|(world, ..)| diagnose(&world).next) {
            let Some(at) = advice.find("garboard ") else { continue };
            let line = advice[at..].split("    #").next().unwrap().trim().to_owned();
            assert!(crate::args::Cli::try_parse_from(line.split_whitespace()).is_ok(), "{line}");
        }
    }

    #[test]
    fn what_is_no_verdict_is_a_remark() {
        let lacking = json!({"synchronized": false, "message": "Guest agent is offline"});
        let impaired = json!({"accessCredentials": lacking, "unresponsive": true, "endedHelper": "passt", "interpretedByKvm": true, "frozen": true});
        let remarks = diagnose(&running(impaired.clone())).also;
        assert!(!remarks.iter().any(|each| each == UNRESPONSIVE), "it is the verdict: {remarks:#?}");
        assert!(remarks.contains(&without_network("passt")), "{remarks:#?}");
        assert!(remarks.iter().any(|each| each.ends_with("Guest agent is offline")), "{remarks:#?}");
        assert!(remarks.iter().any(|each| each.contains("KVM of this host")), "{remarks:#?}");
        assert!(remarks.iter().any(|each| each.contains("garboard unfreeze")), "{remarks:#?}");
        let mut stopping = impaired;
        stopping["stopping"] = json!(true);
        let diagnosis = diagnose(&running(stopping));
        assert_eq!(diagnosis.verdict, DiagnosisVerdict::Stopping);
        assert!(diagnosis.also.iter().any(|each| each == UNRESPONSIVE), "{diagnosis:#?}");
    }

    #[test]
    fn a_machine_without_its_background_process_says_so() {
        let diagnosis = diagnose(&Seen { is_kept: false, ..running(json!({"taints": ["stop"]})) });
        assert!(diagnosis.also.iter().any(|also| also.contains("published ports")), "{diagnosis:#?}");
        assert!(diagnosis.also.iter().any(|also| also.contains("tainted")), "{diagnosis:#?}");
    }
}
