//! Every golden VM's argv and plan, byte for byte. `GARBOARD_GOLDEN=update` writes them anew; read the difference
//! before committing it: each line is something a guest or a user may notice.

#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "the whole file is a test"
)]

mod support;

use std::path::Path;

use garboard_plan::{LaunchPlan, Note};
use serde_json::Value;
use support::{Case, cases};

/// The argv with one argument a line, a flag and its value on one.
fn argv_text(plan: &LaunchPlan) -> String {
    let mut lines: Vec<String> = Vec::new();
    for argument in &plan.argv {
        let follows_flag = lines.last().is_some_and(|line| line.starts_with('-') && !line.contains(' '));
        match lines.last_mut() {
            Some(line) if follows_flag && !argument.starts_with('-') => *line = format!("{line} {argument}"),
            Some(_) | None => lines.push(argument.clone()),
        }
    }
    lines.join("\n") + "\n"
}

/// The plan without its argv, which has a file of its own.
fn plan_text(plan: &LaunchPlan) -> String {
    let without_argv = LaunchPlan { argv: Vec::new(), ..plan.clone() };
    serde_json::to_string_pretty(&without_argv).expect("a plan is JSON") + "\n"
}

fn compare(path: &Path, actual: &str, wrong: &mut Vec<String>) {
    if std::env::var("GARBOARD_GOLDEN").is_ok_and(|value| value == "update") {
        std::fs::write(path, actual).expect("writable");
        return;
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    if expected != actual {
        let differs = |(at, (old, new)): &(usize, (&str, &str))| {
            (old != new).then(|| (*at, (*old).to_owned(), (*new).to_owned()))
        };
        let first =
            expected.lines().chain([""]).zip(actual.lines().chain([""])).enumerate().find_map(|line| differs(&line));
        wrong.push(format!("{}: {first:?}", path.display()));
    }
}

#[test]
fn golden_vms_are_planned_as_before() {
    let cases = cases();
    assert!(cases.len() >= 30, "only {} golden VMs", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        match case.plan() {
            Ok(plan) => {
                compare(&case.dir.join("argv.txt"), &argv_text(&plan), &mut wrong);
                compare(&case.dir.join("plan.json"), &plan_text(&plan), &mut wrong);
            }
            Err(error) => wrong.push(format!("{}: {error}", case.name)),
        }
    }
    assert!(wrong.is_empty(), "GARBOARD_GOLDEN=update if this is wanted:\n{}", wrong.join("\n"));
}

#[test]
fn a_plan_survives_serde() {
    for case in cases() {
        let plan = case.plan().unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<LaunchPlan>(&text).unwrap(), plan, "{}", case.name);
    }
}

#[test]
fn a_second_start_is_the_first_again() {
    for case in cases() {
        let first = case.plan().unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let second = garboard_plan::plan(&case.vmi, &case.facts, &case.options, Some(&first.stored)).unwrap();
        assert_eq!(second, first, "{}", case.name);
    }
}

/// Texts of cloud-init's documents.
fn secrets(value: &Value, key: &str, found: &mut Vec<String>) {
    const DOCUMENTS: [&str; 4] = ["userData", "userDataBase64", "networkData", "networkDataBase64"];
    match value {
        Value::String(text) if DOCUMENTS.contains(&key) => found.push(text.clone()),
        Value::Object(fields) => fields.iter().for_each(|(key, field)| secrets(field, key, found)),
        Value::Array(elements) => elements.iter().for_each(|element| secrets(element, key, found)),
        _ => {}
    }
}

/// Who may read the plan of a machine may not see Secrets: of CHAP it has the user alone.
#[test]
fn a_plan_has_nothing_that_a_guest_is_given_in_secret() {
    let mut tried = 0;
    for mut case in cases() {
        for volume in &mut case.vmi.spec.volumes {
            if let Some(source) = &mut volume.cloud_init_no_cloud {
                source.user_data = Some("#cloud-config\npassword: s3cr3t-of-the-house\n".to_owned());
            }
        }
        let mut given = Vec::new();
        secrets(&serde_json::to_value(&case.vmi).unwrap(), "", &mut given);
        let plan =
            serde_json::to_string(&case.plan().unwrap_or_else(|error| panic!("{}: {error}", case.name))).unwrap();
        for line in given.iter().flat_map(|text| text.lines()).filter(|line| line.len() > 8 && !line.starts_with('#')) {
            assert!(!plan.contains(line), "{}: {line}", case.name);
            tried += 1;
        }
    }
    assert!(tried > 0);
    let plan = Case::load("iscsi").plan().unwrap();
    let secret = plan.argv.iter().find(|argument| argument.contains("secret")).unwrap();
    assert!(secret.contains("file") && !secret.contains("data"), "CHAP's password is in a descriptor: {secret}");
}

#[test]
fn emulation_is_noted_once() {
    let case = Case::load("hello");
    let notes = case.plan().unwrap().notes;
    let about_tcg = |note: &&Note| note.text.contains("TCG");
    assert_eq!(notes.iter().filter(about_tcg).count(), 1, "{notes:?}");
}
