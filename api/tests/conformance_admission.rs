//! Our answers against KubeVirt's on the same manifests.
//!
//! The corpus has KubeVirt 1.9's answers to 379 manifests (see `tests/conformance/corpus/README.md`). Accepting what it
//! refuses is always a defect. Refusing what it accepts is one unless the case stands in `stricter.txt` with a reason,
//! and a case that is no longer stricter must leave that list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use garboard_api::cluster::{ClusterConfig, Gate};
use garboard_api::fault::{Fault, FaultCode};
use garboard_api::validate::{Admission, admit, review};
use serde::Deserialize;
use serde_json::Value;

/// What our answers come to, exactly: of the manifests that KubeVirt accepts those that we accept, and of its refusals those
/// with the right paths, and with no other. A field that is accepted or refused from now on changes them here and in docs/status.md.
const ACCEPTED: usize = 181;
const RIGHT_PATHS: usize = 161;
const NO_OTHER_PATHS: usize = 161;
/// The least share of refusals with the right paths, and of manifests accepted, in percent.
const RIGHT_PATHS_SHARE: usize = 95;
const ACCEPTED_SHARE: usize = 75;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    id: String,
    case: String,
    object: Value,
    verdict: String,
    #[serde(default)]
    by: String,
    #[serde(default)]
    fields: Vec<String>,
    refused_at_start: Option<Vec<String>>,
    without_gate: Option<WithoutGate>,
}

#[derive(Deserialize)]
struct WithoutGate {
    gates: Vec<String>,
    fields: Vec<String>,
}

fn conformance(file: &str) -> String {
    let path = PathBuf::from("../tests/conformance").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn cases() -> Vec<Case> {
    let case = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
    conformance("corpus/admission.jsonl").lines().map(case).collect()
}

/// The cases in which we are stricter, by id, each with its reason.
fn stricter() -> BTreeMap<String, String> {
    conformance("stricter.txt")
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (id, reason) = line.split_once(' ').unwrap_or_else(|| panic!("`{line}` has no reason"));
            (id.to_owned(), reason.trim().to_owned())
        })
        .collect()
}

fn without_indices(field: &str) -> String {
    let mut plain = String::new();
    let mut inside = false;
    for letter in field.chars() {
        inside = (inside || letter == '[') && letter != ']';
        if !inside && letter != ']' {
            plain.push(letter);
        }
    }
    plain
}

/// Whether every path KubeVirt reports is among ours. The schema's and the decoder's have no list indices.
fn has_right_paths(case: &Case, faults: &[Fault]) -> bool {
    let structural = matches!(case.by.as_str(), "schema" | "decode");
    let ours: BTreeSet<String> = faults
        .iter()
        .map(|fault| if structural { without_indices(&fault.field) } else { fault.field.clone() })
        .collect();
    case.fields.iter().all(|field| ours.contains(field))
}

/// Whether we report no path that KubeVirt does not, apart from what is not supported in this version.
fn has_no_other_paths(case: &Case, faults: &[Fault]) -> bool {
    let structural = matches!(case.by.as_str(), "schema" | "decode");
    faults.iter().filter(|fault| fault.code != FaultCode::NotInThisVersion).all(|fault| {
        let field = if structural { without_indices(&fault.field) } else { fault.field.clone() };
        case.fields.contains(&field)
    })
}

fn faults_of(admission: &Admission) -> String {
    admission.faults.iter().map(|fault| format!("\n    {fault} [{}]", fault.field)).collect()
}

#[test]
fn we_answer_as_kubevirt_does() {
    let config = ClusterConfig::offline();
    let (cases, mut listed) = (cases(), stricter());
    let (mut accepted, mut refused, mut right, mut exact) = (0, 0, 0, 0);
    let mut wrong = Vec::new();
    let (to_accept, to_refuse): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.verdict == "accept");
    for case in &to_accept {
        let admission = admit(&case.object, &config);
        match (admission.faults.is_empty(), listed.remove(&case.id)) {
            (true, None) => accepted += 1,
            (true, Some(_)) => {
                accepted += 1;
                wrong.push(format!("{} ({}) is in stricter.txt, but we accept it", case.id, case.case));
            }
            (false, Some(reason)) => {
                let unsupported = admission.faults.iter().any(|fault| fault.code == FaultCode::NotInThisVersion);
                if unsupported != reason.starts_with("not supported in this version") {
                    wrong.push(format!("{} is in the wrong part of stricter.txt:{}", case.id, faults_of(&admission)));
                }
            }
            (false, None) => {
                wrong.push(format!(
                    "{} ({}) is accepted by KubeVirt, but:{}",
                    case.id,
                    case.case,
                    faults_of(&admission)
                ));
            }
        }
    }
    for case in &to_refuse {
        let admission = admit(&case.object, &config);
        refused += usize::from(!admission.faults.is_empty());
        if admission.faults.is_empty() {
            wrong.push(format!("{} ({}) is refused by KubeVirt, but we accept it", case.id, case.case));
        } else if has_right_paths(case, &admission.faults) {
            right += 1;
            exact += usize::from(has_no_other_paths(case, &admission.faults));
        } else {
            eprintln!("{} ({}) is refused at {:?}, but:{}", case.id, case.case, case.fields, faults_of(&admission));
        }
    }
    wrong.extend(
        listed.keys().map(|id| format!("{id} is in stricter.txt, but KubeVirt does not accept it, or it is no case")),
    );
    eprintln!(
        "accepts {accepted}/{}, refusals {refused}/{}, right paths {right}/{}, of these no other path {exact}",
        to_accept.len(),
        to_refuse.len(),
        to_refuse.len()
    );
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(
        (accepted, right, exact),
        (ACCEPTED, RIGHT_PATHS, NO_OTHER_PATHS),
        "accepts, right paths, no other paths"
    );
    assert!(accepted * 100 >= to_accept.len() * ACCEPTED_SHARE, "accepts fell to {accepted}");
    assert!(right * 100 >= to_refuse.len() * RIGHT_PATHS_SHARE, "right paths fell to {right}");
    let figures = [
        format!("refusals and their paths {right} of {}, accepts {accepted} of {} ", to_refuse.len(), to_accept.len()),
        format!("stricter than KubeVirt | {} cases, ", stricter().len()),
        format!("{} manifests, {} refused ", cases.len(), refused + to_accept.len() - accepted),
    ];
    let status = std::fs::read_to_string("../docs/status.md").expect("docs/status.md");
    for figure in figures {
        assert!(status.contains(&figure), "docs/status.md does not have `{figure}`");
    }
}

#[test]
fn without_a_feature_gate_we_answer_as_a_cluster_that_lacks_it() {
    let mut seen = 0;
    for case in cases() {
        let Some(without) = &case.without_gate else { continue };
        let config = without.gates.iter().fold(ClusterConfig::offline(), |config, name| {
            config.without(Gate::named(name).unwrap_or_else(|| panic!("{}: no gate {name}", case.id)))
        });
        let admission = admit(&case.object, &config);
        let ours: BTreeSet<&str> = admission.faults.iter().map(|fault| fault.field.as_str()).collect();
        let missing: Vec<&String> = without.fields.iter().filter(|field| !ours.contains(field.as_str())).collect();
        assert!(
            missing.is_empty(),
            "{} ({}): {missing:?} is missing from:{}",
            case.id,
            case.case,
            faults_of(&admission)
        );
        seen += 1;
    }
    assert!(seen >= 4, "only {seen} cases name a gate");
}

#[test]
fn what_would_be_refused_at_start_is_a_warning_when_a_machine_is_created() {
    let mut seen = 0;
    for case in cases() {
        let Some(fields) = &case.refused_at_start else { continue };
        let admission = admit(&case.object, &ClusterConfig::offline());
        let ours: BTreeSet<&str> = admission.warnings.iter().map(|fault| fault.field.as_str()).collect();
        assert!(fields.iter().all(|field| ours.contains(field.as_str())), "{} ({}): {ours:?}", case.id, case.case);
        seen += 1;
    }
    assert!(seen > 0, "no case is refused at start");
}

#[test]
fn every_fault_has_its_place_and_a_remedy() {
    for case in cases() {
        let admission = admit(&case.object, &ClusterConfig::offline());
        for fault in admission.faults.iter().chain(&admission.warnings) {
            assert!(fault.instead.is_some(), "{} ({}): {fault}", case.id, case.case);
            assert!(!fault.message.ends_with('.') && !fault.message.is_empty(), "{fault}");
            assert!(!fault.path.is_root(), "{} ({}): {fault}", case.id, case.case);
        }
    }
}

#[test]
fn a_person_gets_at_least_the_faults_that_a_client_gets() {
    for case in cases() {
        let config = ClusterConfig::offline();
        let (short, long) = (admit(&case.object, &config), review(&case.object, &config));
        assert_eq!(short.faults.is_empty(), long.faults.is_empty(), "{} ({})", case.id, case.case);
        assert!(short.faults.iter().all(|fault| long.faults.contains(fault)), "{} ({})", case.id, case.case);
    }
}
