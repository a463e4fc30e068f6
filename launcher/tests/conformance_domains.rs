//! The machines we plan against those KubeVirt makes of the same manifests.
//!
//! `tests/conformance/corpus` has the manifests and KubeVirt's domains; every difference is in
//! `tests/conformance/domain-differences.txt` with its reason. A difference that is not listed fails, and so does a
//! line that is no longer needed.

#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "the whole file is a test"
)]

#[path = "support/domain.rs"]
mod domain;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use garboard_api::validate::{Object, admit};
use garboard_api::{ClusterConfig, Identity, VirtualMachineInstance, default_vmi, vmi_of};
use garboard_machine::facts::HostFacts;
use garboard_machine::features::Feature;
use garboard_plan::{AcceleratorChoice, PlanOptions, plan_machine};
use serde_json::Value;

/// One line of the list: which case, what we lack or have too much, and what the manifest must be about.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Difference {
    /// ID of the case, or `*` for every one.
    case: String,
    /// `-fact` for what only KubeVirt has, `+fact` for what only we have. `*` at its end matches anything.
    fact: String,
}

fn conformance() -> PathBuf {
    PathBuf::from("../tests/conformance")
}

fn lines(file: &str) -> Vec<Value> {
    let path = conformance().join("corpus").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The list: `case fact # reason`.
fn listed() -> Vec<Difference> {
    let text = std::fs::read_to_string(conformance().join("domain-differences.txt")).unwrap_or_default();
    let entries = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    entries
        .map(|line| {
            let (entry, reason) = line.split_once(" # ").unwrap_or_else(|| panic!("no reason: {line}"));
            assert!(!reason.trim().is_empty(), "no reason: {line}");
            let (case, fact) = entry.trim().split_once(' ').unwrap_or_else(|| panic!("no fact: {line}"));
            Difference { case: case.to_owned(), fact: fact.trim().to_owned() }
        })
        .collect()
}

impl Difference {
    fn covers(&self, case: &str, fact: &str) -> bool {
        let fits = match self.fact.strip_suffix('*') {
            Some(start) => fact.starts_with(start),
            None => fact == self.fact,
        };
        fits && (self.case == "*" || self.case == case)
    }
}

/// The instance KubeVirt's domain was made of, or nothing if we refuse the manifest.
fn instance(manifest: &Value, config: &ClusterConfig) -> Option<VirtualMachineInstance> {
    match admit(manifest, config).object? {
        Object::VirtualMachineInstance(vmi) => Some(*vmi),
        Object::ReplicaSet(_)
        | Object::Preset(_)
        | Object::Pool(_)
        | Object::KubeVirt(_)
        | Object::Instancetype(_)
        | Object::Preference(_) => None,
        Object::VirtualMachine(vm) => {
            let mut vmi = vmi_of(&vm);
            default_vmi(&mut vmi, config, &Identity { firmware_uuid: uuid::Uuid::nil() });
            Some(vmi)
        }
    }
}

#[test]
fn planned_machines_agree_with_kubevirt() {
    let config = ClusterConfig::offline();
    let manifests: BTreeMap<String, Value> = lines("admission.jsonl")
        .into_iter()
        .map(|case| (case["id"].as_str().expect("an id").to_owned(), case["object"].clone()))
        .collect();
    let list = listed();
    let mut used = BTreeSet::new();
    let (mut wrong, mut compared, mut refused) = (Vec::new(), 0, 0);
    for reference in lines("domains.jsonl") {
        let id = reference["id"].as_str().expect("an id");
        let Some(vmi) = instance(&manifests[id], &config) else {
            refused += 1;
            continue;
        };
        let mut check = |fact: String| match list.iter().position(|entry| entry.covers(id, &fact)) {
            Some(at) => {
                used.insert(at);
            }
            None => wrong.push(format!("{id} {fact}")),
        };
        // KubeVirt runs under KVM.
        let options = PlanOptions { accelerator: AcceleratorChoice::Kvm, ..PlanOptions::default() };
        let mut facts = HostFacts::reference();
        // And it has a newer QEMU than our own reference host.
        facts.qemu.features.devices.insert("igb".to_owned());
        facts.qemu.features.options.insert(Feature::IothreadVqMapping);
        match plan_machine(&vmi, &facts, &options, None) {
            Err(error) => check(format!("refused: {error}")),
            Ok((plan, machine)) => {
                compared += 1;
                let ours = domain::of_machine(&plan, &machine);
                let theirs = domain::of_domain(reference["xml"].as_str().expect("XML"));
                theirs.difference(&ours).for_each(|fact| check(format!("-{fact}")));
                ours.difference(&theirs).for_each(|fact| check(format!("+{fact}")));
            }
        }
    }
    eprintln!("{compared} machines compared, {refused} manifests refused at admission");
    for (at, entry) in list.iter().enumerate() {
        if !used.contains(&at) {
            wrong.push(format!("no longer needed: {} {}", entry.case, entry.fact));
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared >= 150, "only {compared} machines were compared");
}
