//! `garboard ps`: what runs here.

use garboard_protocol::control::{PauseReason, Phase, Status};
use serde::Serialize;

use crate::args::{Output, PsArgs};
use crate::client;
use crate::exit;
use crate::keeper::between::{self, Between};
use crate::places::{MachineId, Places};

/// One line of the list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    /// One word, as KubeVirt's `printableStatus`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    /// Why there is no status.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Between two runs: KubeVirt's field of a VM's status.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_failure: Option<StartFailure>,
}

/// Failed starts and when the next one is tried.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StartFailure {
    consecutive_fail_count: u32,
    retry_after_timestamp: String,
}

/// `garboard ps`.
pub(crate) fn run(args: &PsArgs) -> anyhow::Result<u8> {
    let places = Places::of_caller(None)?;
    let rows: Vec<Row> = places.machines().iter().map(|id| row(&places, id)).collect();
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&rows)?),
        Output::Text => print_table(&rows),
    }
    Ok(exit::OK)
}

fn row(places: &Places, id: &MachineId) -> Row {
    let silent = |state, problem, start_failure| Row {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        state,
        status: None,
        problem: Some(problem),
        start_failure,
    };
    if let Some(between) = between::read(&places.machine(id)) {
        return silent(waiting_word(&between), between.sentence(), start_failure(&between));
    }
    match client::status(places, id) {
        Ok(status) => {
            Row { state: state_word(&status), status: Some(status), problem: None, ..silent("", String::new(), None) }
        }
        Err(error) => silent("Unknown", format!("{error:#}"), None),
    }
}

/// KubeVirt's words for a machine that will be started again.
fn waiting_word(between: &Between) -> &'static str {
    if between.failures > 0 { "CrashLoopBackOff" } else { "Starting" }
}

fn start_failure(between: &Between) -> Option<StartFailure> {
    let retry_after = jiff::Timestamp::from_millisecond(between.again_at_ms).ok()?;
    (between.failures > 0).then(|| StartFailure {
        consecutive_fail_count: between.failures,
        retry_after_timestamp: retry_after.to_string(),
    })
}

/// KubeVirt's words, first match wins.
pub(crate) fn state_word(status: &Status) -> &'static str {
    match (status.phase, status.stopping, status.paused) {
        (Phase::Succeeded, ..) => "Succeeded",
        (Phase::Failed, ..) => "Failed",
        (_, true, _) => "Stopping",
        (Phase::Scheduled, ..) => "Starting",
        (Phase::Running, _, Some(PauseReason::PausedByUser)) => "Paused",
        (Phase::Running, _, Some(PauseReason::PausedIOError)) => "Paused(IOError)",
        (Phase::Running, ..) => "Running",
    }
}

fn print_table(rows: &[Row]) {
    if rows.is_empty() {
        eprintln!("no machine runs here; start one with `garboard run FILE`");
        return;
    }
    let head = ["NAMESPACE", "NAME", "STATE", "AGE", "VCPUS", "MEMORY", "ADDRESS", "NOTES"].map(String::from);
    let lines: Vec<[String; 8]> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
    let widths: Vec<usize> = (0..head_len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    for line in lines {
        let padded: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}", width = *width)).collect();
        println!("{}", padded.join("  ").trim_end());
    }
}

const fn head_len() -> usize {
    8
}

fn cells(row: &Row) -> [String; 8] {
    let fixed = [row.namespace.clone(), row.name.clone(), row.state.to_owned()];
    let rest = match &row.status {
        Some(status) => [
            age(status.phase_since_ms),
            status.vcpus.to_string(),
            format!("{}Mi", status.memory_bytes >> 20),
            address(status),
            notes(status),
        ],
        None => ["-".into(), "-".into(), "-".into(), "-".into(), row.problem.clone().unwrap_or_default()],
    };
    let [namespace, name, state] = fixed;
    let [age, vcpus, memory, address, notes] = rest;
    [namespace, name, state, age, vcpus, memory, address, notes]
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
    if !status.taints.is_empty() {
        notes.push(format!("tainted: {}", status.taints.join(", ")));
    }
    if status.resets > 0 {
        notes.push(format!("{} resets", status.resets));
    }
    if let Some(ended) = &status.ended {
        notes.push(ended.sentence.clone());
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
