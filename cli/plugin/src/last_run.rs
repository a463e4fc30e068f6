//! The record of a run (`MachineRun`), when the pod is gone: asked of the cluster, or read from a file.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::exit::{self, BAD_INPUT, NOT_FOUND, exit_error};
use crate::failure::Failure;
use crate::kubectl::{Kubectl, failed};
use crate::look::{Look, Question, is_name};
use crate::options::LogPart;
use crate::output;

/// Lines of QEMU's output that a summary has.
const LINES: usize = 10;

/// That of a machine.
pub(crate) fn of_machine(kubectl: &Kubectl, machine: &str, part: LogPart) -> anyhow::Result<u8> {
    match asked(kubectl, machine).map_err(failed)? {
        Some(run) => show(&run, part),
        None => Err(exit_error(NOT_FOUND, format!("{machine} has no record of a run; one is written when a run ends"))),
    }
}

/// That of a machine, if there is one and the user may see it.
pub(crate) fn newest(kubectl: &Kubectl, machine: &str) -> Option<Value> {
    asked(kubectl, machine).unwrap_or_default()
}

fn asked(kubectl: &Kubectl, machine: &str) -> Result<Option<Value>, Failure> {
    if !is_name(machine) {
        return Ok(None);
    }
    let runs = kubectl.look(Question::RunsOf(machine))?;
    Ok(runs.into_iter().max_by_key(|run| text(run, "endedAt").to_owned()))
}

/// That of a file: the object, or a list of which the last run counts.
pub(crate) fn of_file(file: &Path, part: LogPart) -> anyhow::Result<u8> {
    let bytes = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let is_no_record = || exit_error(BAD_INPUT, format!("{}: no MachineRun as JSON", file.display()));
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| is_no_record())?;
    let all = value["items"].as_array().cloned().unwrap_or_else(|| vec![value]);
    let runs = all.into_iter().filter(|run| run["kind"] == "MachineRun");
    let newest = runs.max_by_key(|run| text(run, "endedAt").to_owned()).ok_or_else(is_no_record)?;
    show(&newest, part)
}

/// Prints a part of it.
pub(crate) fn show(run: &Value, part: LogPart) -> anyhow::Result<u8> {
    let shown = match part {
        LogPart::Events => summary(run),
        LogPart::Argv => texts(run, "argv").into_iter().map(|argument| format!("{argument}\n")).collect(),
        LogPart::Qmp => text(run, "transcript").to_owned(),
        LogPart::Qemu => text(run, "qemuOutput").to_owned(),
        LogPart::Serial => text(run, "serial").to_owned(),
        LogPart::Exit => exit_of(run)?,
        LogPart::Plan => {
            let digest = text(run, "planDigest");
            let why = format!("a record has no plan but its digest ({digest}); --part argv has what was executed");
            return Err(exit_error(NOT_FOUND, why));
        }
    };
    output::write_foreign(shown.as_bytes())?;
    Ok(exit::OK)
}

fn text<'a>(run: &'a Value, field: &str) -> &'a str {
    run["spec"][field].as_str().unwrap_or_default()
}

fn texts<'a>(run: &'a Value, field: &str) -> Vec<&'a str> {
    run["spec"][field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn exit_of(run: &Value) -> anyhow::Result<String> {
    let spec = &run["spec"];
    let end = serde_json::json!({
        "reason": spec["reason"], "message": spec["message"], "endedAt": spec["endedAt"], "resets": spec["resets"],
        "taints": spec["taints"],
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&end)?))
}

/// In one screen. Pure.
fn summary(run: &Value) -> String {
    let mut lines = vec![format!("{}: {}", text(run, "reason"), text(run, "message"))];
    let name = run["metadata"]["name"].as_str().unwrap_or_default();
    lines.push(format!("machinerun/{name} on {}, {}", text(run, "node"), text(run, "machineType")));
    for step in run["spec"]["steps"].as_array().into_iter().flatten() {
        let part = |key: &str| step[key].as_str().unwrap_or_default();
        lines.push(format!("{} {}", part("at"), part("name")));
    }
    if let Some(resets) = run["spec"]["resets"].as_u64().filter(|resets| *resets > 0) {
        lines.push(format!("the guest was reset {resets} times"));
    }
    let taints = texts(run, "taints");
    if !taints.is_empty() {
        lines.push(format!("QMP commands changed it: {}", taints.join(", ")));
    }
    let output: Vec<&str> = text(run, "qemuOutput").lines().collect();
    if !output.is_empty() {
        lines.push("QEMU printed last:".to_owned());
        lines.extend(output[output.len().saturating_sub(LINES)..].iter().map(|line| format!("  {line}")));
    }
    lines.push("--part argv, qmp, qemu, serial and exit have the rest".to_owned());
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(ended: &str) -> Value {
        json!({"kind": "MachineRun", "metadata": {"name": "web-1a2b3c4d"}, "spec": {
            "machine": "web", "node": "node-1", "reason": "QemuFailed", "message": "QEMU gave up with exit code 1",
            "startedAt": "2026-01-01T00:00:00.000Z", "endedAt": ended, "machineType": "pc-q35-10.0",
            "steps": [{"name": "Running", "at": "2026-01-01T00:00:00.000Z"}], "resets": 2, "taints": ["stop"],
            "argv": ["qemu", "-S"], "planDigest": "sha256:00", "qemuOutput": "one\ntwo\n", "serial": "login: "}})
    }

    #[test]
    fn a_summary_has_the_cause_the_steps_and_what_qemu_printed() {
        let expected = "QemuFailed: QEMU gave up with exit code 1\nmachinerun/web-1a2b3c4d on node-1, pc-q35-10.0\n\
            2026-01-01T00:00:00.000Z Running\nthe guest was reset 2 times\nQMP commands changed it: stop\n\
            QEMU printed last:\n  one\n  two\n--part argv, qmp, qemu, serial and exit have the rest\n";
        assert_eq!(summary(&run("2026-01-01T00:00:01.000Z")), expected);
        assert!(exit_of(&run("x")).unwrap().contains("\"reason\": \"QemuFailed\""));
    }

    #[test]
    fn a_file_has_a_record_or_a_list_and_anything_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, value: Value| {
            let path = directory.path().join(name);
            std::fs::write(&path, value.to_string()).unwrap();
            path
        };
        let one = write("one", run("2026-01-01T00:00:01.000Z"));
        assert_eq!(of_file(&one, LogPart::Serial).unwrap(), exit::OK);
        let list = write("list", json!({"items": [run("2026-01-01T00:00:01.000Z"), {"kind": "Pod"}]}));
        assert_eq!(of_file(&list, LogPart::Events).unwrap(), exit::OK);
        let pod = write("pod", json!({"kind": "Pod"}));
        assert_eq!(exit::code_of(&of_file(&pod, LogPart::Events).unwrap_err()), BAD_INPUT);
        assert_eq!(exit::code_of(&of_file(&one, LogPart::Plan).unwrap_err()), NOT_FOUND);
    }

    /// With a kubectl that answers as an API server does.
    #[cfg(unix)]
    #[test]
    fn the_newest_run_of_a_machine_counts() {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (run("2026-01-01T00:00:01.000Z"), run("2026-01-02T00:00:00.000Z"));
        let list = json!({"items": [new, old]});
        let kubectl = Kubectl::played(directory.path(), &format!("cat <<'END'\n{list}\nEND"));
        assert_eq!(text(&newest(&kubectl, "web").unwrap(), "endedAt"), "2026-01-02T00:00:00.000Z");
        assert_eq!(newest(&kubectl, "not/a/name"), None);
    }
}
