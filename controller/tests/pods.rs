//! Our launcher pods against those KubeVirt makes of the same instances.
//!
//! `tests/conformance/corpus/pods.jsonl` has KubeVirt's, as far as other programs may rely on them: metadata, the
//! pod's own fields, and the resources, ports and probes of `compute`. Every difference stands in
//! `tests/conformance/pod-differences.txt` with its reason. A difference that is not listed fails, and so does a line
//! that is no longer needed.

#![allow(clippy::expect_used, clippy::print_stderr, clippy::unwrap_used, reason = "the whole file is a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use garboard_api::validate::{Object, admit};
use garboard_api::{ClusterConfig, Identity, Quantity, VirtualMachineInstance, default_vmi, vmi_of};
use garboard_controller::pod::{LauncherImage, PodInput, launcher_pod};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Map, Value, json};

/// UID of every instance of the corpus.
const UID: &str = "c0ffee00-0000-4000-8000-000000000001";
const OVERHEAD: &str = "kubevirt.io/memory-overhead-bytes";

/// A line of the list: which case, and what we lack (`-`) or have too much (`+`).
struct Difference {
    /// ID of the case, or `*` for every one.
    case: String,
    /// The fact; `*` at its end stands for anything.
    fact: String,
}

impl Difference {
    fn covers(&self, case: &str, fact: &str) -> bool {
        let fits = self.fact.strip_suffix('*').map_or(fact == self.fact, |start| fact.starts_with(start));
        fits && (self.case == "*" || self.case == case)
    }
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
    let text = std::fs::read_to_string(conformance().join("pod-differences.txt")).expect("the list");
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

/// KubeVirt's pods: the first whole, the others as a merge patch of it.
fn kubevirts_pods() -> Vec<(String, Value)> {
    let lines = lines("pods.jsonl");
    let first = lines[0]["pod"].clone();
    let of_line = |line: &Value| {
        let mut pod = first.clone();
        merge(&mut pod, &line["pod"]);
        (line["id"].as_str().expect("an id").to_owned(), pod)
    };
    lines.iter().map(of_line).collect()
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let object = target.as_object_mut().expect("made above");
    for (key, value) in patch {
        if value.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The instance that KubeVirt's pod was made of, or nothing if we refuse the manifest.
fn instance(manifest: &Value, config: &ClusterConfig) -> Option<VirtualMachineInstance> {
    let mut vmi = match admit(manifest, config).object? {
        Object::VirtualMachineInstance(vmi) => *vmi,
        Object::ReplicaSet(_)
        | Object::Preset(_)
        | Object::Pool(_)
        | Object::KubeVirt(_)
        | Object::Instancetype(_)
        | Object::Preference(_) => return None,
        Object::VirtualMachine(vm) => vmi_of(&vm),
    };
    default_vmi(&mut vmi, config, &Identity { firmware_uuid: uuid::Uuid::nil() });
    vmi.metadata.uid = Some(UID.to_owned());
    vmi.metadata.namespace = Some("default".to_owned());
    Some(vmi)
}

/// Claims with file systems; the layout of the containers is not compared.
fn claims(vmi: &VirtualMachineInstance) -> BTreeMap<String, PersistentVolumeClaim> {
    let names = vmi.spec.volumes.iter().filter_map(|volume| volume.claim());
    names.map(|name| (name.to_owned(), PersistentVolumeClaim::default())).collect()
}

/// Our pod in the form in which KubeVirt's was recorded.
fn recorded(pod: Value) -> Value {
    let mut pod = pod;
    let spec = pod["spec"].as_object_mut().expect("a specification");
    let containers = spec.remove("containers").expect("containers");
    spec.remove("initContainers");
    spec.remove("volumes");
    let compute = containers.as_array().expect("a list").iter().find(|each| each["name"] == "compute");
    let compute = compute.expect("compute").as_object().expect("a container");
    let kept = ["resources", "ports", "livenessProbe", "readinessProbe"];
    let kept = kept.into_iter().filter_map(|key| Some((key.to_owned(), compute.get(key)?.clone())));
    spec.insert("compute".to_owned(), Value::Object(kept.collect::<Map<_, _>>()));
    let metadata = pod["metadata"].as_object_mut().expect("metadata");
    // KubeVirt's names end at random, ours in the instance's UID.
    let name = metadata.remove("name").expect("a name");
    let name = name.as_str().expect("text").strip_suffix("c0ffee00").expect("the UID at its end").to_owned();
    metadata.insert("generateName".to_owned(), name.into());
    metadata.remove("namespace");
    let pod = pod.as_object().expect("a pod");
    json!({ "metadata": pod["metadata"], "spec": pod["spec"] })
}

/// Every leaf with its path; quantities by their value, memory less what is there beside the guest.
fn facts(pod: &Value) -> BTreeSet<String> {
    let overhead = pod["metadata"]["annotations"][OVERHEAD].as_str().expect("an overhead");
    let overhead: Quantity = overhead.parse().expect("bytes");
    let mut facts = BTreeSet::new();
    leaves("", pod, overhead.milli(), &mut facts);
    facts
}

fn leaves(path: &str, value: &Value, overhead: i64, facts: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, part) in object {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                leaves(&below, part, overhead, facts);
            }
        }
        Value::Array(list) => {
            for (index, part) in list.iter().enumerate() {
                leaves(&format!("{path}[{index}]"), part, overhead, facts);
            }
        }
        Value::Null => {}
        Value::String(text) if path.starts_with("spec.compute.resources.") => {
            let quantity: Quantity = text.parse().expect("a quantity");
            let beside = if path.ends_with(".memory") { overhead } else { 0 };
            facts.insert(format!("{path}: {} thousandths", quantity.milli() - beside));
        }
        Value::String(_) if path.ends_with(OVERHEAD) || path.ends_with("garboard.dev/order") => {
            facts.insert(format!("{path}: …"));
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            facts.insert(format!("{path}: {shown}"));
        }
    }
}

#[test]
fn pods_agree_with_kubevirt() {
    let config = ClusterConfig::offline();
    let manifests: BTreeMap<String, Value> = lines("admission.jsonl")
        .into_iter()
        .map(|case| (case["id"].as_str().expect("an id").to_owned(), case["object"].clone()))
        .collect();
    let list = listed();
    let mut used = BTreeSet::new();
    let (mut wrong, mut compared, mut refused) = (Vec::new(), 0, 0);
    for (id, reference) in kubevirts_pods() {
        let Some(vmi) = instance(&manifests[&id], &config) else {
            refused += 1;
            continue;
        };
        let mut check = |fact: String| {
            let entries = list.iter().enumerate().filter(|(_, entry)| entry.covers(&id, &fact));
            let found: Vec<usize> = entries.map(|(at, _)| at).collect();
            if found.is_empty() {
                wrong.push(format!("{id} {fact}"));
            }
            used.extend(found);
        };
        let claims = claims(&vmi);
        let image = LauncherImage { reference: "launcher-image".to_owned(), pull_policy: "IfNotPresent".to_owned() };
        let input = PodInput { vmi: &vmi, claims: &claims, launcher_image: &image, config: &config };
        match launcher_pod(&input) {
            Err(error) => check(format!("refused: {error}")),
            Ok(pod) => {
                compared += 1;
                let ours = facts(&recorded(serde_json::to_value(pod).expect("JSON")));
                let theirs = facts(&reference);
                theirs.difference(&ours).for_each(|fact| check(format!("-{fact}")));
                ours.difference(&theirs).for_each(|fact| check(format!("+{fact}")));
            }
        }
    }
    eprintln!("{compared} pods compared, {refused} manifests refused at admission");
    for (at, entry) in list.iter().enumerate() {
        if !used.contains(&at) {
            wrong.push(format!("no longer needed: {} {}", entry.case, entry.fact));
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    let figure = format!("compared with {compared} of KubeVirt ");
    let status = std::fs::read_to_string("../docs/status.md").expect("docs/status.md");
    assert!(status.contains(&figure), "docs/status.md does not have `{figure}`");
}
