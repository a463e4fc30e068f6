//! Reading a manifest and writing it back changes nothing that means anything.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "the whole file is a test")]

mod corpus;

use std::collections::BTreeSet;

use garboard_api::v1::{VirtualMachine, VirtualMachineInstance};
use serde_json::Value;

/// Fields that are written although they were left out: texts and numbers that the schema requires, which KubeVirt decodes
/// as empty and writes as empty. By the end of their path.
const WRITTEN_ALWAYS: &[&str] = &["name", "image", "networkName", "type"];

#[test]
fn every_recorded_manifest_is_written_as_it_was_read() {
    let mut count = 0;
    for line in corpus::lines("admission.jsonl") {
        // What the decoder refuses cannot be read, and what the schema refuses is not kept.
        if matches!(line["by"].as_str(), Some("decode" | "schema")) {
            continue;
        }
        let object = line["object"].clone();
        let written = written(&object);
        let mut lost = Vec::new();
        compare("", &object, &written, &mut lost);
        assert_eq!(lost, Vec::<String>::new(), "{} {}", line["id"], line["case"]);
        count += 1;
    }
    eprintln!("{count} manifests are written as they were read");
    assert!(count > 340, "only {count} manifests");
}

#[test]
fn every_recorded_stored_spec_is_written_as_it_was_read() {
    let machines: BTreeSet<String> = corpus::lines("admission.jsonl")
        .iter()
        .filter(|line| line["object"]["kind"] == "VirtualMachine")
        .map(|line| line["id"].to_string())
        .collect();
    for line in corpus::lines("defaults.jsonl") {
        let kind = if machines.contains(&line["id"].to_string()) { "VirtualMachine" } else { "VirtualMachineInstance" };
        let object = serde_json::json!({
            "apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {}, "spec": line["spec"]
        });
        assert_eq!(written(&object), object, "{} {}", line["id"], line["case"]);
    }
}

fn written(object: &Value) -> Value {
    if object["kind"] == "VirtualMachine" {
        let vm: VirtualMachine = serde_json::from_value(object.clone()).unwrap();
        return serde_json::to_value(vm).unwrap();
    }
    let vmi: VirtualMachineInstance = serde_json::from_value(object.clone()).unwrap();
    serde_json::to_value(vmi).unwrap()
}

fn compare(path: &str, read: &Value, written: &Value, lost: &mut Vec<String>) {
    match (read, written) {
        (Value::Object(read), Value::Object(written)) => {
            for (name, value) in read {
                let at = format!("{path}.{name}");
                match written.get(name) {
                    Some(written) => compare(&at, value, written, lost),
                    // To KubeVirt an empty list and none are the same.
                    None if value == &Value::Array(Vec::new()) => {}
                    None => lost.push(format!("{at} is lost")),
                }
            }
            for (name, value) in written.iter().filter(|(name, _)| !read.contains_key(*name)) {
                let empty = value == "" || value == 0;
                if !(empty && WRITTEN_ALWAYS.contains(&name.as_str())) {
                    lost.push(format!("{path}.{name} was not there: {value}"));
                }
            }
        }
        (Value::Array(read), Value::Array(written)) if read.len() == written.len() => {
            for (index, (read, written)) in read.iter().zip(written).enumerate() {
                compare(&format!("{path}[{index}]"), read, written, lost);
            }
        }
        (read, written) if read == written => {}
        (read, written) => lost.push(format!("{path}: {read} became {written}")),
    }
}
