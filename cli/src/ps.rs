//! `garboard ps`: what runs here, and what has run.

use garboard_protocol::control::{Ended, PauseReason, ReportedPhase, Status};
use garboard_shim_client::pending_restart::{self, PendingRestart};
use garboard_shim_client::places::{MachineId, Places};
use serde::Serialize;

use crate::args::PsArgs;
use crate::client;
use crate::exit;
use crate::output::{Named, note, out};
use crate::past;
use crate::table;

/// One line of the list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    /// As KubeVirt's `printableStatus`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    /// Why there is no status.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Between two runs: KubeVirt's field of a VM's status.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_failure: Option<StartFailure>,
    /// How the last run ended, of a machine that does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<Ended>,
}

/// Failed starts and when the next one is tried.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StartFailure {
    consecutive_fail_count: u32,
    retry_after_timestamp: String,
}

impl Named for Row {
    fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// `garboard ps`.
pub(crate) fn run(args: &PsArgs) -> anyhow::Result<u8> {
    let places = args.here.places()?;
    let wanted = |id: &MachineId| args.here.namespace.as_ref().is_none_or(|namespace| *namespace == id.namespace);
    let running: Vec<MachineId> = places.machines().into_iter().filter(wanted).collect();
    let mut rows: Vec<Row> = running.iter().map(|id| row(&places, id)).collect();
    if args.all {
        let recorded = places.recorded_machines();
        let stopped = recorded.iter().filter(|id| wanted(id) && !running.contains(id));
        rows.extend(stopped.filter_map(|id| Some(past_row(id, past::last(&places, id)?.ended))));
        rows.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    }
    args.output.show(&rows, |wide| {
        if rows.is_empty() {
            note!("no machine runs here; start one with `garboard run FILE`");
            return Ok(());
        }
        out!("{}", table(&rows, wide))
    })?;
    Ok(exit::OK)
}

/// A machine that does not run.
fn past_row(id: &MachineId, ended: Option<Ended>) -> Row {
    let state = match &ended {
        Some(ended) if ended.cause.is_success() => "Succeeded",
        Some(_) => "Failed",
        None => "Stopped",
    };
    Row {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        state,
        status: None,
        problem: None,
        start_failure: None,
        ended,
    }
}

fn row(places: &Places, id: &MachineId) -> Row {
    let silent = |state, problem, start_failure| Row {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        state,
        status: None,
        problem: Some(problem),
        start_failure,
        ended: None,
    };
    if let Some(pending) = pending_restart::awaited(&places.machine(id)) {
        return silent(waiting_state(&pending), pending.summary(), start_failure(&pending));
    }
    match client::status(places, id) {
        Ok(status) => Row {
            state: printable_state(&status),
            status: Some(status),
            problem: None,
            ..silent("", String::new(), None)
        },
        Err(error) => silent("Unknown", format!("{error:#}"), None),
    }
}

/// KubeVirt's status of a machine that will be started again.
fn waiting_state(pending: &PendingRestart) -> &'static str {
    if pending.failures > 0 { "CrashLoopBackOff" } else { "Starting" }
}

fn start_failure(pending: &PendingRestart) -> Option<StartFailure> {
    let retry_after = jiff::Timestamp::from_millisecond(pending.again_at_ms).ok()?;
    (pending.failures > 0).then(|| StartFailure {
        consecutive_fail_count: pending.failures,
        retry_after_timestamp: retry_after.to_string(),
    })
}

/// KubeVirt's printable status, first match wins.
pub(crate) fn printable_state(status: &Status) -> &'static str {
    match (status.phase, status.stopping, status.paused) {
        (ReportedPhase::Succeeded, ..) => "Succeeded",
        (ReportedPhase::Failed, ..) => "Failed",
        (_, true, _) => "Stopping",
        (ReportedPhase::Scheduled, ..) => "Starting",
        (ReportedPhase::Running, _, Some(PauseReason::PausedByUser)) => "Paused",
        (ReportedPhase::Running, _, Some(PauseReason::PausedIOError)) => "Paused(IOError)",
        (ReportedPhase::Running, ..) => "Running",
    }
}

fn table(rows: &[Row], wide: bool) -> String {
    let mut head = vec!["NAMESPACE", "NAME", "STATE", "AGE", "VCPUS", "MEMORY", "ADDRESS"];
    if wide {
        head.extend(["MACHINE", "GUEST"]);
    }
    head.push("NOTES");
    let mut lines = vec![head.into_iter().map(str::to_owned).collect()];
    lines.extend(rows.iter().map(|row| cells(row, wide)));
    table::render(&lines, &[])
}

fn cells(row: &Row, wide: bool) -> Vec<String> {
    let none = || "-".to_owned();
    let mut cells = vec![row.namespace.clone(), row.name.clone(), row.state.to_owned()];
    match &row.status {
        Some(status) => cells.extend([
            age(status.phase_since_ms),
            status.vcpus.to_string(),
            format!("{}Mi", status.memory_bytes >> 20),
            address(status),
        ]),
        None => cells.extend([row.ended.as_ref().map_or_else(none, |ended| age(ended.at_ms)), none(), none(), none()]),
    }
    if wide {
        let machine = row.status.as_ref().map(|status| status.machine.clone());
        let guest = row.status.as_ref().and_then(|status| status.guest.as_ref()?.os.clone());
        cells.extend([machine.unwrap_or_else(none), guest.unwrap_or_else(none)]);
    }
    let ended = row.ended.as_ref().map(|ended| ended.message.clone());
    cells.push(row.status.as_ref().map(notes).or_else(|| row.problem.clone()).or(ended).unwrap_or_default());
    cells
}

fn address(status: &Status) -> String {
    let first = status.interfaces.iter().find_map(|interface| interface.addresses.first());
    first.cloned().unwrap_or_else(|| "-".to_owned())
}

fn notes(status: &Status) -> String {
    let mut notes = Vec::new();
    if status.software_emulation {
        notes.push("emulated".to_owned());
    }
    if status.frozen && status.ended.is_none() {
        notes.push("file systems frozen".to_owned());
    }
    if !status.taints.is_empty() {
        notes.push(format!("tainted: {}", status.taints.join(", ")));
    }
    if status.resets > 0 {
        notes.push(format!("{} resets", status.resets));
    }
    if let Some(ended) = &status.ended {
        notes.push(ended.message.clone());
    }
    notes.join("; ")
}

/// As kubectl prints ages: the largest whole unit.
fn age(since_ms: i64) -> String {
    let seconds = (jiff::Timestamp::now().as_millisecond() - since_ms).max(0) / 1000;
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use garboard_protocol::exit::ExitCause;

    use super::*;

    #[test]
    fn a_machine_that_does_not_run_says_how_it_ended() {
        let id = MachineId { namespace: "default".into(), name: "hello".into() };
        let ended = |cause: ExitCause| Some(Ended { message: cause.message(), cause, report: None, at_ms: 0 });
        let rows = [
            past_row(&id, ended(ExitCause::GuestShutdown)),
            past_row(&id, ended(ExitCause::QemuKilled { signal: 9 })),
            past_row(&id, None),
        ];
        let text = table(&rows, false);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("NAMESPACE  NAME   STATE      AGE"), "{text}");
        assert!(lines[1].contains("Succeeded") && lines[1].ends_with("the guest powered itself off"), "{text}");
        assert!(lines[2].contains("Failed") && lines[2].ends_with("signal 9"), "{text}");
        assert!(lines[3].contains("Stopped"), "{text}");
        assert!(table(&rows, true).contains("ADDRESS  MACHINE  GUEST  NOTES"));
    }
}
