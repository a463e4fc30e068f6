//! Structural faults: what is found, where, and what the advice is.

use serde_json::{Value, json};

use super::*;
use crate::fault::FaultCode;
use crate::v1::VirtualMachineInstance;

fn vmi(spec: Value) -> Value {
    json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "quay"}, "spec": spec})
}

fn found(spec: Value) -> Vec<(String, FaultCode, String)> {
    let faults = check(&vmi(spec)).into_iter();
    faults.map(|fault| (fault.path.to_string(), fault.code, fault.instead.unwrap_or_default())).collect()
}

fn one(spec: Value) -> (String, FaultCode, String) {
    let mut all = found(spec);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn a_sound_manifest_has_no_faults() {
    let sound = vmi(json!({
        "domain": {
            "cpu": {"cores": 2},
            "memory": {"guest": "512Mi"},
            "devices": {"rng": {}, "interfaces": [{"name": "default", "masquerade": {}}]}
        },
        "networks": [{"name": "default", "pod": {}}],
        "readinessProbe": {"tcpSocket": {"port": 22}},
        "volumes": [{"name": "root", "emptyDisk": {"capacity": 1073741824}}]
    }));
    let inspection = inspect(sound.clone());
    assert_eq!(inspection.faults, []);
    assert_eq!(inspection.rest, sound);
}

#[test]
fn an_object_is_refused_for_so_many_faults_however_many_it_has() {
    let unknown: serde_json::Map<String, Value> = (0..5000).map(|number| (format!("x{number}"), json!(1))).collect();
    for spec in [Value::Object(unknown), json!({"domain": {"devices": {}}, "volumes": vec![1; 5000]})] {
        assert_eq!(inspect(vmi(spec)).faults.len(), walk::MOST_FAULTS);
    }
}

#[test]
fn an_unknown_field_is_named_with_its_index_and_the_closest_one() {
    let spec = json!({"domain": {"devices": {"disks": [{"name": "a"}, {"name": "b", "disk": {"bsu": "virtio"}}]}}});
    let (path, code, instead) = one(spec.clone());
    assert_eq!((path.as_str(), code), ("spec.domain.devices.disks[1].disk.bsu", FaultCode::UnknownField));
    assert_eq!(instead, "did you mean `bus`?");
    assert_eq!(check(&vmi(spec))[0].field, "spec.domain.devices.disks.disk.bsu");
}

#[test]
fn a_field_at_the_wrong_level_is_sent_to_the_right_one() {
    let (path, _, instead) = one(json!({"domain": {"devices": {}, "firmware": {"efi": {}}}}));
    assert_eq!((path.as_str(), instead.as_str()), ("spec.domain.firmware.efi", "move it to `bootloader.efi`"));
    let (path, _, instead) = one(json!({"domain": {"devices": {}}, "disks": []}));
    assert_eq!((path.as_str(), instead.as_str()), ("spec.disks", "move it to `domain.devices.disks`"));
}

#[test]
fn a_setting_without_fields_takes_none() {
    let (path, _, instead) = one(json!({"domain": {"devices": {"rng": {"source": "/dev/urandom"}}}}));
    assert_eq!(path, "spec.domain.devices.rng.source");
    assert!(instead.starts_with("remove it"), "{instead}");
}

#[test]
fn a_value_of_the_wrong_type_is_refused_with_the_right_way_to_write_it() {
    for (spec, at, advice) in [
        (json!({"domain": {"devices": {"blockMultiQueue": "no"}}}), "spec.domain.devices.blockMultiQueue", "`false`"),
        (
            json!({"domain": {"devices": {}, "cpu": {"cores": "4"}}}),
            "spec.domain.cpu.cores",
            "write `4` without quotes",
        ),
        (json!({"domain": {"devices": {}}, "hostname": 7}), "spec.hostname", "`\"7\"`"),
        (json!({"domain": {"devices": {"disks": {"name": "a"}}}}), "spec.domain.devices.disks", "dash"),
        (json!({"domain": {"devices": {}}, "networks": ["default"]}), "spec.networks[0]", "mapping"),
        (json!({"domain": {"devices": {}, "cpu": {"cores": 1.5}}}), "spec.domain.cpu.cores", "whole number"),
        (json!({"domain": {"devices": {}}, "nodeSelector": {"disk": true}}), "spec.nodeSelector.disk", "quotes"),
    ] {
        let (path, code, instead) = one(spec);
        assert_eq!((path.as_str(), code), (at, FaultCode::WrongType));
        assert!(instead.contains(advice), "{instead}");
    }
}

#[test]
fn numbers_out_of_range_and_bad_quantities_are_refused() {
    for (spec, at) in [
        (json!({"domain": {"devices": {}, "cpu": {"cores": -1}}}), "spec.domain.cpu.cores"),
        (json!({"domain": {"devices": {}, "cpu": {"cores": 5_000_000_000_u64}}}), "spec.domain.cpu.cores"),
        (json!({"domain": {"devices": {}, "memory": {"guest": "1gb"}}}), "spec.domain.memory.guest"),
        (
            json!({"domain": {"devices": {}, "resources": {"limits": {"memory": "much"}}}}),
            "spec.domain.resources.limits.memory",
        ),
    ] {
        let (path, code, _) = one(spec);
        assert_eq!((path.as_str(), code), (at, FaultCode::Invalid));
    }
}

#[test]
fn a_missing_mapping_is_a_fault_and_a_missing_text_is_left_to_the_rules() {
    let (path, code, _) = one(json!({"domain": {}}));
    assert_eq!((path.as_str(), code), ("spec.domain.devices", FaultCode::Required));
    assert_eq!(found(json!({"domain": {"devices": {"inputs": [{"type": "tablet"}]}}})), []);
}

#[test]
fn values_of_kubernetes_are_checked_too() {
    let (path, code, instead) =
        one(json!({"domain": {"devices": {}}, "tolerations": [{"key": "k", "operator": "Exist"}]}));
    assert_eq!((path.as_str(), code), ("spec.tolerations[0].operator", FaultCode::NotSupported));
    assert!(instead.contains("did you mean `Exists`?"), "{instead}");
    assert_eq!(one(json!({"domain": {"devices": {}}, "dnsPolicy": "Bogus"})).1, FaultCode::NotSupported);
}

#[test]
fn a_null_is_a_field_that_is_not_there() {
    assert_eq!(found(json!({"domain": {"devices": {}, "cpu": null}})), []);
    assert_eq!(one(json!({"domain": {"devices": null}})).1, FaultCode::Required);
}

#[test]
fn unknown_fields_are_tolerated_in_the_status() {
    let mut object = vmi(json!({"domain": {"devices": {}}}));
    object["status"] = json!({"phase": "Running", "moonPhase": "full", "interfaces": [{"name": "a", "colour": "red"}]});
    let inspection = inspect(object);
    assert_eq!(inspection.faults, []);
    let vmi: VirtualMachineInstance = serde_json::from_value(inspection.rest).unwrap();
    assert_eq!(vmi.status.unwrap().interfaces[0].name.as_deref(), Some("a"));
}

#[test]
fn every_fault_comes_at_once_and_the_rest_decodes_with_its_indices() {
    let object = vmi(json!({
        "hostnme": "quay",
        "domain": {
            "cpu": {"cores": "two", "sockets": 1},
            "devices": {"disks": ["root", {"name": "seed", "disk": "virtio"}, {"name": "third", "bootOrder": 1}]}
        },
        "terminationGracePeriodSeconds": "30"
    }));
    let inspection = inspect(object);
    let paths: Vec<&str> = inspection.faults.iter().map(|fault| fault.path.as_str()).collect();
    for path in [
        "spec.hostnme",
        "spec.domain.cpu.cores",
        "spec.domain.devices.disks[0]",
        "spec.domain.devices.disks[1].disk",
        "spec.terminationGracePeriodSeconds",
    ] {
        assert!(paths.contains(&path), "{path} is not in {paths:?}");
    }
    assert_eq!(paths.len(), 5);
    let vmi: VirtualMachineInstance = serde_json::from_value(inspection.rest).unwrap();
    assert_eq!(vmi.spec.domain.devices.disks[2].name, "third");
    assert_eq!(vmi.spec.domain.cpu.unwrap().sockets, Some(1));
}

#[test]
fn something_that_is_no_object_at_all_is_one_fault() {
    let inspection = inspect_as(Kind::VirtualMachine, json!("text"));
    assert_eq!(inspection.faults.len(), 1);
    assert_eq!(check(&json!("text")), [], "and nothing is checked of an object without a kind");
}

#[test]
fn objects_of_kubernetes_are_checked_too() {
    let faults = check(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"},
        "stringdata": {"a": "b"}, "data": {"c": "no base64!"}
    }));
    let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["stringdata", "data.c"], "in the order of the manifest");
    assert_eq!(faults[0].instead.as_deref(), Some("did you mean `stringData`?"));
}

#[test]
fn the_published_schema_has_no_references_and_no_nulls() {
    fn judge(schema: &Value, at: &str) {
        match schema {
            Value::Object(object) => {
                for (key, value) in object {
                    assert!(!matches!(key.as_str(), "$ref" | "anyOf" | "$defs"), "{at} has {key}");
                    judge(value, &format!("{at}/{key}"));
                }
            }
            Value::Array(list) => list.iter().for_each(|value| judge(value, at)),
            Value::Null => panic!("{at} is null"),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    judge(&json_schema(Kind::VirtualMachine).unwrap(), "");
    assert_eq!(json_schema(Kind::Other), None);
}
