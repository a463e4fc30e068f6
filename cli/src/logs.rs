//! `garboard logs`: the recorder. What a run left behind is read from the machine's shared directory while
//! it runs and from its record afterwards; the names are the same.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use garboard_protocol::paths;

use crate::args::{LogPart, LogsArgs};
use crate::exit::{self, NOT_FOUND, complaint};
use crate::places::{MachineId, Places};

/// The supervisor's own log, one JSON a line.
pub(crate) const SUPERVISOR_LOG: &str = "launcher.log";

/// `garboard logs MACHINE`.
pub(crate) fn run(args: &LogsArgs) -> anyhow::Result<u8> {
    let places = Places::of_caller(None)?;
    let directory = find(&places, &args.machine, args.last)?;
    let mut out = std::io::stdout().lock();
    match args.part {
        LogPart::Events => events(&directory, &mut out)?,
        LogPart::Argv => argv(&directory, &mut out)?,
        LogPart::Plan => copy(&directory, paths::PLAN, &mut out)?,
        LogPart::Qmp => copy(&directory, paths::TRANSCRIPT, &mut out)?,
        LogPart::Qemu => copy(&directory, paths::QEMU_LOG, &mut out)?,
        LogPart::Serial => copy(&directory, &paths::serial_log(0), &mut out)?,
        LogPart::Exit => copy(&directory, paths::EXIT, &mut out)?,
    }
    Ok(exit::OK)
}

/// The directory of the current run, or of the last one that ended.
fn find(places: &Places, id: &MachineId, last: bool) -> anyhow::Result<PathBuf> {
    let running = places.shared(id);
    if !last && running.exists() {
        return Ok(running);
    }
    let mut runs: Vec<PathBuf> =
        std::fs::read_dir(places.records(id)).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    runs.sort();
    runs.pop().ok_or_else(|| {
        let text = format!("nothing is recorded of {id}; was it started by this user, with this --state-dir?");
        complaint(NOT_FOUND, text)
    })
}

fn copy(directory: &Path, name: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let path = directory.join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(out.write_all(&bytes)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(complaint(NOT_FOUND, format!("this run has no {name}: it ended before there was one")))
        }
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

fn argv(directory: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let bytes =
        std::fs::read(directory.join(paths::PLAN)).context("this run has no plan: it ended before it was made")?;
    argv_of(&bytes, out)
}

/// The arguments of a plan, one a line.
pub(crate) fn argv_of(plan: &[u8], out: &mut impl Write) -> anyhow::Result<()> {
    let plan: serde_json::Value = serde_json::from_slice(plan)?;
    for argument in plan["argv"].as_array().into_iter().flatten() {
        writeln!(out, "{}", argument.as_str().unwrap_or_default())?;
    }
    Ok(())
}

/// The last thing a supervisor complained of before it died, for a machine that never came to run.
pub(crate) fn last_complaint(directory: &Path) -> String {
    let text = std::fs::read_to_string(directory.join(SUPERVISOR_LOG)).unwrap_or_default();
    let complaints = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let errors = complaints.filter(|event| event["level"] == "ERROR");
    let last = errors.filter_map(|event| event["fields"]["error"].as_str().map(str::to_owned)).next_back();
    last.unwrap_or_else(|| "its supervisor died again and again".to_owned())
}

/// The supervisor's lines for a person: time, level, message, fields.
fn events(directory: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(directory.join(SUPERVISOR_LOG)).unwrap_or_default();
    for line in text.lines() {
        writeln!(out, "{}", for_person(line))?;
    }
    Ok(())
}

/// One line of a supervisor's log. Whoever reads it sits at a terminal: control characters do not get there.
pub(crate) fn for_person(line: &str) -> String {
    let text = match serde_json::from_str::<serde_json::Value>(line) {
        Ok(event) if event.is_object() => human(&event),
        Ok(_) | Err(_) => line.to_owned(),
    };
    if !text.contains(char::is_control) {
        return text;
    }
    text.chars().flat_map(|one| if one.is_control() { one.escape_default().collect() } else { vec![one] }).collect()
}

fn human(event: &serde_json::Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let mut line =
        format!("{} {:5} {}", text("timestamp"), text("level"), event["fields"]["message"].as_str().unwrap_or(""));
    for (key, value) in event["fields"].as_object().into_iter().flatten() {
        if key != "message" {
            line.push_str(&format!(" {key}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_in_order_and_cannot_drive_the_terminal() {
        let line = r#"{"timestamp":"2026-01-01T00:00:00Z","level":"INFO","fields":{"message":"qmp audit","uid":107,"command":"stop"}}"#;
        assert_eq!(for_person(line), "2026-01-01T00:00:00Z INFO  qmp audit uid=107 command=stop");
        assert_eq!(for_person("garboard-init: no JSON"), "garboard-init: no JSON");
        let evil = r#"{"timestamp":"","level":"INFO","fields":{"message":"\u001b[2Jx"}}"#;
        assert_eq!(for_person(evil), " INFO  \\u{1b}[2Jx");
    }
}
