//! Manifests with something wrong in them, made at random: every one is answered, and none is a surprise to the types.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

mod corpus;

use std::sync::OnceLock;

use garboard_api::schema::inspect;
use garboard_api::validate::{admit, review};
use garboard_api::{ClusterConfig, VirtualMachine, VirtualMachineInstance};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

/// Recorded manifests that KubeVirt accepts.
fn accepted() -> &'static [Value] {
    static ACCEPTED: OnceLock<Vec<Value>> = OnceLock::new();
    ACCEPTED.get_or_init(|| {
        let lines = corpus::lines("admission.jsonl").into_iter();
        let good = lines.filter(|line| line["verdict"] == "accept" && line["case"] != "256 disks");
        good.map(|mut line| line["object"].take()).collect()
    })
}

/// Values that stand where others belong.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!("9Gi")),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null, {"name": 5}, "x"])),
        Just(json!({"name": {}, "enabled": "yes", "spec": []})),
    ]
}

/// The places in a value where another could stand.
fn places(value: &Value) -> Vec<String> {
    fn collect(at: &str, value: &Value, found: &mut Vec<String>) {
        let mut part = |name: &str, value: &Value| {
            let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
            found.push(at.clone());
            collect(&at, value, found);
        };
        match value {
            Value::Object(object) => object.iter().for_each(|(name, value)| part(name, value)),
            Value::Array(list) => list.iter().enumerate().for_each(|(index, value)| part(&index.to_string(), value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = Vec::new();
    collect("", value, &mut found);
    found.retain(|place| !matches!(place.as_str(), "/kind" | "/apiVersion"));
    found
}

fn with_mistakes(which: &Index, mistakes: &[(Index, Value)]) -> Value {
    let mut manifest = which.get(accepted()).clone();
    for (place, value) in mistakes {
        let places = places(&manifest);
        if places.is_empty() {
            break;
        }
        if let Some(target) = manifest.pointer_mut(place.get::<String>(&places)) {
            *target = value.clone();
        }
    }
    manifest
}

fn decodes(manifest: Value) -> Result<(), String> {
    let decoded = if manifest["kind"] == "VirtualMachine" {
        serde_json::from_value::<VirtualMachine>(manifest).map(drop)
    } else {
        serde_json::from_value::<VirtualMachineInstance>(manifest).map(drop)
    };
    decoded.map_err(|error| error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_the_structural_check_leaves_always_decodes(
        which: Index,
        mistakes in prop::collection::vec((any::<Index>(), odd_value()), 1..4),
    ) {
        let manifest = with_mistakes(&which, &mistakes);
        let inspection = inspect(manifest.clone());
        prop_assert_eq!(decodes(inspection.rest.clone()), Ok(()), "{}", inspection.rest);
        prop_assert_eq!(inspect(inspection.rest).faults.iter().filter(|fault| !is_missing(fault)).count(), 0);
        if inspection.faults.is_empty() {
            // Nulls are taken out, and nothing else.
            prop_assert_eq!(decodes(manifest.clone()).is_err() && !has_null(&manifest), false, "{}", manifest);
        }
    }

    #[test]
    fn every_manifest_is_answered(
        which: Index,
        mistakes in prop::collection::vec((any::<Index>(), odd_value()), 1..4),
    ) {
        let manifest = with_mistakes(&which, &mistakes);
        let config = ClusterConfig::offline();
        let strict = admit(&manifest, &config);
        prop_assert_eq!(strict.object.is_some(), strict.faults.is_empty());
        let full = review(&manifest, &config);
        prop_assert_eq!(strict.faults.is_empty(), full.faults.is_empty(), "{}", manifest);
    }
}

/// A mapping that must be there and was taken out is still missing.
fn is_missing(fault: &garboard_api::Fault) -> bool {
    fault.code == garboard_api::FaultCode::Required
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(object) => object.values().any(has_null),
        Value::Array(list) => list.iter().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
