//! `garboard ps`: what runs here.

use garboard_protocol::control::{PauseReason, Phase, Status};
use serde::Serialize;

use crate::args::{Output, PsArgs};
use crate::client;
use crate::exit;
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
    let (namespace, name) = (id.namespace.clone(), id.name.clone());
    match client::status(places, id) {
        Ok(status) => Row { namespace, name, state: state_word(&status), status: Some(status), problem: None },
        Err(error) => Row { namespace, name, state: "Unknown", status: None, problem: Some(format!("{error:#}")) },
    }
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
