//! Defaulting compared with the specs that KubeVirt stored.
//!
//! Two stored forms are the same here if they mean the same to KubeVirt: quantities of the same value (it rewrites `1.5Gi`
//! as `1536Mi`), and an empty or zero value that Go leaves out when it writes. UUIDs count by being there.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "the whole file is a test")]

mod corpus;

use std::collections::BTreeMap;

use garboard_api::cluster::ClusterConfig;
use garboard_api::defaults::{Identity, default_vm, default_vmi};
use garboard_api::quantity::Quantity;
use garboard_api::v1::{VirtualMachine, VirtualMachineInstance};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// Written into a machine's template by KubeVirt's webhook, behind the defaults that were recorded.
const NOT_RECORDED: &str = "kubevirt.io/pci-topology-version";

/// Fields that KubeVirt's Go types drop when they are false, because they are no pointers.
const DROPPED_WHEN_FALSE: &[&str] =
    &["disableHotplug", "dedicatedCpuPlacement", "isolateEmulatorThread", "shared", "readOnly"];

#[test]
fn defaults_are_what_kubevirt_stores() {
    let mut stored: BTreeMap<String, Value> =
        corpus::lines("defaults.jsonl").into_iter().map(|line| (id(&line), line["spec"].clone())).collect();
    let total = stored.len();
    let mut alike = 0;
    for line in corpus::lines("admission.jsonl") {
        let Some(expected) = stored.remove(&id(&line)) else { continue };
        let mut differences = Vec::new();
        compare("spec", &comparable(expected), &comparable(defaulted(&line["object"])), &mut differences);
        if differences.is_empty() {
            alike += 1;
        } else {
            eprintln!("{} {}:", id(&line), line["case"]);
            differences.iter().for_each(|difference| eprintln!("    {difference}"));
        }
    }
    assert_eq!(stored, BTreeMap::new(), "recorded specs without a manifest");
    eprintln!("defaulted alike: {alike} of {total}");
    assert_eq!(alike, total, "specs that are defaulted as KubeVirt does it");
    let figure = format!("defaults {alike} of {total}, ");
    let status = std::fs::read_to_string("../docs/status.md").unwrap();
    assert!(status.contains(&figure), "docs/status.md does not have `{figure}`");
}

#[test]
fn what_kubevirt_stored_is_complete_already() {
    let kinds: BTreeMap<String, Value> =
        corpus::lines("admission.jsonl").iter().map(|line| (id(line), line["object"]["kind"].clone())).collect();
    for line in corpus::lines("defaults.jsonl") {
        let object = json!({"kind": kinds[&id(&line)], "metadata": {"name": "quay"}, "spec": line["spec"]});
        let mut differences = Vec::new();
        compare("spec", &comparable(line["spec"].clone()), &comparable(defaulted(&object)), &mut differences);
        assert_eq!(differences, Vec::<String>::new(), "{} {}", id(&line), line["case"]);
    }
}

fn id(line: &Value) -> String {
    line["id"].as_str().unwrap().to_owned()
}

fn defaulted(object: &Value) -> Value {
    let config = ClusterConfig::offline();
    if object["kind"] == "VirtualMachine" {
        let mut vm: VirtualMachine = serde_json::from_value(object.clone()).unwrap();
        default_vm(&mut vm, &config);
        return serde_json::to_value(vm.spec).unwrap();
    }
    let mut vmi: VirtualMachineInstance = serde_json::from_value(object.clone()).unwrap();
    default_vmi(&mut vmi, &config, &Identity { firmware_uuid: Uuid::from_u128(1) });
    serde_json::to_value(vmi.spec).unwrap()
}

/// The form in which two specs are compared.
fn comparable(value: Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(object.into_iter().filter_map(comparable_field).collect::<Map<_, _>>()),
        Value::Array(list) => Value::Array(list.into_iter().map(comparable).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

fn comparable_field((name, value): (String, Value)) -> Option<(String, Value)> {
    let value = match (name.as_str(), value) {
        ("uuid", Value::String(text)) if !text.is_empty() => Value::from("a UUID"),
        ("guest" | "maxGuest" | "memory" | "cpu" | "capacity", amount @ (Value::String(_) | Value::Number(_))) => {
            let quantity: Quantity = serde_json::from_value(amount).unwrap();
            Value::from(format!("{} billionths", quantity.nanos()))
        }
        ("annotations", Value::Object(mut annotations)) => {
            annotations.remove(NOT_RECORDED);
            if annotations.is_empty() {
                return None;
            }
            Value::Object(annotations)
        }
        (name, Value::Bool(false)) if DROPPED_WHEN_FALSE.contains(&name) => return None,
        // Left out by Go, unless the field is required; the round trip checks that a required field is there.
        (_, Value::String(text)) if text.is_empty() => return None,
        (_, Value::Array(list)) if list.is_empty() => return None,
        (_, other) => comparable(other),
    };
    Some((name, value))
}

fn compare(path: &str, expected: &Value, ours: &Value, differences: &mut Vec<String>) {
    match (expected, ours) {
        (Value::Object(expected), Value::Object(ours)) => {
            for name in expected.keys().chain(ours.keys().filter(|name| !expected.contains_key(*name))) {
                let part = |object: &Map<String, Value>| object.get(name).cloned().unwrap_or_default();
                compare(&format!("{path}.{name}"), &part(expected), &part(ours), differences);
            }
        }
        (Value::Array(expected), Value::Array(ours)) if expected.len() == ours.len() => {
            for (index, (expected, ours)) in expected.iter().zip(ours).enumerate() {
                compare(&format!("{path}[{index}]"), expected, ours, differences);
            }
        }
        (expected, ours) if expected == ours => {}
        (expected, ours) => differences.push(format!("{path}: KubeVirt has {expected}, we have {ours}")),
    }
}
