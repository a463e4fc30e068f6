//! Failures that operators meet: how each comes about, what `why` has to call it, and what has to stand on the screen. Verdicts and texts
//! are written from what was done to the machine. `docs/why.md` lists all of them.

mod claims;
mod ended;
mod parts;
mod pods;
mod refused;
mod running;
mod scheduling;
mod start;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::super::diagnose::diagnose;
use super::super::diagnosis::{DiagnosisVerdict, Health};
use super::super::facts::Facts;
use super::super::text::screen;
use super::{AGO, situation, vmi};

/// The page, from this crate.
const PAGE: &str = "../../docs/why.md";

/// One failure.
pub(super) struct Failure {
    name: &'static str,
    /// How it is induced.
    induced: &'static str,
    verdict: DiagnosisVerdict,
    health: Health,
    /// What has to stand on the screen: what names this cause, and no other.
    says: &'static [&'static str],
    /// Part of what a person is to do about it, or of the remark that says so; the page has it.
    next: &'static str,
    /// What is seen while it lasts, or at its end.
    seen: Option<Seen>,
    /// What is left of it when the pod is gone.
    gone: Option<Seen>,
}

/// Where facts are from.
enum Seen {
    /// A cluster, as `why -o facts` wrote them into a file of `tests/situations`.
    Recorded(&'static str),
    /// What differs from a healthy cluster, with the texts that its programs write.
    Built(Value),
}

/// One that a person has to do something about.
fn failure(name: &'static str, induced: &'static str, verdict: DiagnosisVerdict) -> Failure {
    Failure { name, induced, verdict, health: Health::Wrong, says: &[], next: "", seen: None, gone: None }
}

impl Failure {
    fn says(self, says: &'static [&'static str]) -> Self {
        Self { says, ..self }
    }

    fn next(self, next: &'static str) -> Self {
        Self { next, ..self }
    }

    fn seen(self, differs: Value) -> Self {
        Self { seen: Some(Seen::Built(differs)), ..self }
    }

    fn recorded(self, file: &'static str) -> Self {
        Self { seen: Some(Seen::Recorded(file)), ..self }
    }

    fn gone(self, differs: Value) -> Self {
        Self { gone: Some(Seen::Built(differs)), ..self }
    }

    fn recorded_gone(self, file: &'static str) -> Self {
        Self { gone: Some(Seen::Recorded(file)), ..self }
    }

    /// It goes on by itself.
    fn waits(self) -> Self {
        Self { health: Health::Waiting, ..self }
    }

    /// The guest is as it is meant to be; what fails is a remark beside that.
    fn well(self) -> Self {
        Self { health: Health::Well, ..self }
    }

    /// Everything that is judged of it.
    pub(super) fn facts(&self) -> Vec<Facts> {
        self.seen.iter().chain(&self.gone).map(Seen::facts).collect()
    }

    /// What is wrong with the diagnosis of these facts.
    fn problem(&self, facts: &Facts) -> Option<String> {
        let diagnosis = diagnose(facts);
        let shown = screen(&diagnosis, facts.now);
        let mut problems = Vec::new();
        if (diagnosis.verdict, diagnosis.health) != (self.verdict, self.health) {
            let judged = (diagnosis.verdict, diagnosis.health);
            problems.push(format!("it is {judged:?}, and has to be {:?}", (self.verdict, self.health)));
        }
        problems.extend(self.says.iter().filter(|text| !shown.contains(**text)).map(|text| format!("no `{text}`")));
        let mut advice = diagnosis.next.iter().chain(&diagnosis.also);
        if !advice.any(|each| each.contains(self.next)) {
            problems.push(format!("no advice with `{}`", self.next));
        }
        if diagnosis.evidence.is_empty() {
            problems.push("nothing shows it".to_owned());
        }
        (!problems.is_empty()).then(|| format!("{}: {}\n{shown}", self.name, problems.join(", ")))
    }
}

impl Seen {
    fn facts(&self) -> Facts {
        match self {
            Self::Built(differs) => situation(differs.clone()),
            Self::Recorded(file) => {
                let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/situations")).join(file);
                serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
            }
        }
    }
}

/// The stages of a machine's life, and what fails in each.
fn stages() -> Vec<(&'static str, Vec<Failure>)> {
    vec![
        ("It is refused", refused::all()),
        ("A claim or DataVolume is in the way", claims::all()),
        ("No node takes it", scheduling::all()),
        ("Its pod does not come up", pods::all()),
        ("A part of the cluster is away", parts::all()),
        ("QEMU does not start", start::all()),
        ("Its run ended", ended::all()),
        ("It runs, and something is wrong", running::all()),
    ]
}

pub(super) fn all() -> Vec<Failure> {
    stages().into_iter().flat_map(|(_, failures)| failures).collect()
}

/// An instance that is to run, with this condition of its pod's start.
fn unsynchronized(reason: &str, message: &str) -> Value {
    let condition = json!([{"type": "Synchronized", "status": "False", "reason": reason, "message": message,
        "lastTransitionTime": AGO}]);
    json!({"vmi": vmi("Pending", condition)})
}

#[test]
fn each_failure_is_named_and_has_its_advice() {
    let problems: Vec<String> = all()
        .iter()
        .flat_map(|failure| failure.facts().iter().filter_map(|facts| failure.problem(facts)).collect::<Vec<_>>())
        .collect();
    assert!(problems.is_empty(), "{} are not named:\n{}", problems.len(), problems.join("\n"));
}

/// What is asked of the table itself: rows that could not fail would show nothing.
#[test]
fn the_table_is_of_fifty_different_failures_at_least() {
    let all = all();
    let names: BTreeSet<&str> = all.iter().map(|failure| failure.name).collect();
    assert_eq!(names.len(), all.len(), "a name is there twice");
    assert!(all.len() >= 50, "{}", all.len());
    let gone = all.iter().filter(|failure| failure.gone.is_some()).count();
    assert!(gone >= 25, "of {gone} it is judged what is left when the pod is gone");
    for failure in &all {
        assert!(!failure.says.is_empty() && !failure.next.is_empty(), "{}", failure.name);
        assert!(!failure.next.contains(['|', '`']), "{}: it is a cell of a table", failure.name);
        assert!(failure.seen.is_some() || failure.gone.is_some(), "{}", failure.name);
    }
    // Nor do two rows look alike.
    let screens: BTreeSet<String> = all
        .iter()
        .filter_map(|failure| failure.facts().into_iter().next())
        .map(|facts| screen(&diagnose(&facts), facts.now))
        .collect();
    assert_eq!(screens.len(), all.len(), "two failures have the same screen");
    // A machine that nothing is wrong with has none of these texts.
    let healthy = screen(&diagnose(&situation(running::well())), facts_now());
    for failure in &all {
        let named = failure.says.iter().filter(|text| healthy.contains(**text)).count();
        assert!(named < failure.says.len(), "{}: its texts are on the screen of a machine that is well", failure.name);
    }
}

fn facts_now() -> jiff::Timestamp {
    situation(json!({})).now
}

/// A run that ended leaves its record; what keeps a machine from running is there as long as it does.
#[test]
fn what_is_left_when_the_pod_is_gone_has_no_pod() {
    for failure in all() {
        let Some(gone) = &failure.gone else { continue };
        let facts = gone.facts();
        assert!(facts.pods.is_empty(), "{}", failure.name);
        let evidence = diagnose(&facts).evidence;
        let is_outside = |object: &str| ["machinerun/", "vmi/"].iter().any(|kind| object.starts_with(kind));
        assert!(evidence.iter().any(|each| is_outside(&each.object)), "{}: {evidence:?}", failure.name);
    }
}

fn camel(verdict: DiagnosisVerdict) -> String {
    serde_json::to_value(verdict).unwrap().as_str().unwrap().to_owned()
}

/// The tables of the page. What stands before the first of them is written by hand.
fn tables() -> String {
    let row = |failure: &Failure| {
        let Failure { name, induced, verdict, next, seen, gone, .. } = failure;
        let first = seen.as_ref().or(gone.as_ref());
        let of = if matches!(first, Some(Seen::Recorded(_))) { "recorded" } else { "built" };
        let record = if gone.is_some() { ", record" } else { "" };
        format!("| {name} | {induced} | `{}` | `{next}` | {of}{record} |\n", camel(*verdict))
    };
    let head = "| failure | such as | verdict | to do | judged by |\n| --- | --- | --- | --- | --- |\n";
    let table = |(title, failures): &(&str, Vec<Failure>)| {
        format!("\n## {title}\n\n{head}{}", failures.iter().map(row).collect::<String>())
    };
    stages().iter().map(table).collect()
}

/// `GARBOARD_GOLDEN=update` writes it.
#[test]
fn the_page_lists_every_failure() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (by_hand, _) = page.split_once("\n## ").unwrap();
    let expected = format!("{by_hand}{}", tables());
    if std::env::var("GARBOARD_GOLDEN").is_ok_and(|value| value == "update") {
        std::fs::write(PAGE, &expected).unwrap();
        return;
    }
    assert_eq!(page, expected, "docs/why.md is not up to date: GARBOARD_GOLDEN=update writes it");
}
