//! What a guest would see change between two plans, for a person or a program.

use std::path::Path;

use anyhow::Context;
use garboard_plan::{Difference, LaunchPlan, differences};
use serde_json::Value;

use crate::exit;
use crate::options::Output;
use crate::output::write_foreign;

/// Prints what differs; the exit code says whether anything does.
pub fn show(before: &LaunchPlan, after: &LaunchPlan, output: Output) -> anyhow::Result<u8> {
    let found = differences(before, after);
    // A plan may have texts of a launcher.
    output.show(&found, || write_foreign(format!("{}\n", text(&found)).as_bytes()).map(|_| ()))?;
    Ok(if found.is_empty() { exit::OK } else { exit::CHANGED })
}

fn text(found: &[Difference]) -> String {
    if found.is_empty() {
        return "the guest finds the machine that it had".to_owned();
    }
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The plan in a file that `explain -o json` wrote; nothing if the file is something else, such as a manifest.
pub fn plan_in(file: &Path) -> anyhow::Result<Option<LaunchPlan>> {
    // Standard input is read once, as a manifest.
    if file == Path::new("-") {
        return Ok(None);
    }
    let bytes = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let Ok(value) = serde_json::from_slice::<Value>(&bytes) else { return Ok(None) };
    if value.get("argv").is_none() {
        return Ok(None);
    }
    let plan =
        serde_json::from_value(value).with_context(|| format!("{} is no plan of this version", file.display()))?;
    Ok(Some(plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> Value {
        let text = include_str!("../../../tests/golden/many-disks/plan.json");
        let mut plan: Value = serde_json::from_str(text).unwrap();
        plan["argv"] = serde_json::json!(["qemu", "-m", "size=256M"]);
        plan
    }

    #[test]
    fn a_file_is_a_plan_or_something_else() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        assert!(plan_in(&write("plan", &golden().to_string())).unwrap().is_some());
        assert!(plan_in(&write("yaml", "kind: VirtualMachine\n")).unwrap().is_none());
        assert!(plan_in(&write("json", r#"{"kind": "VirtualMachine"}"#)).unwrap().is_none());
        assert!(plan_in(&write("old", r#"{"argv": []}"#)).is_err());
        assert!(plan_in(&directory.path().join("nothing")).is_err());
    }

    #[test]
    fn the_code_says_whether_the_guest_finds_another_machine() {
        let before: LaunchPlan = serde_json::from_value(golden()).unwrap();
        assert_eq!(show(&before, &before, Output::Text).unwrap(), exit::OK);
        let mut after = before.clone();
        after.argv[2] = "size=1G".to_owned();
        assert_eq!(show(&before, &after, Output::Json).unwrap(), exit::CHANGED);
        assert_eq!(text(&differences(&before, &after)), "memory: size=256M -> size=1G");
    }
}
