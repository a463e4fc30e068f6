//! Machines that name an instancetype or a preference, at the webhooks.

use garboard_api::instancetype::{Role, Sizing};
use garboard_api::{Fault, FaultCode, FieldPath};
use serde_json::{Value, json};

use super::tests::{ask_sized, machine};
use super::{Sizes, mutate, validate};

fn sizes(instancetype: Value, preference: Value) -> Sizes {
    let mut sizing = Sizing::default();
    for (role, spec) in [(Role::Instancetype, instancetype), (Role::Preference, preference)] {
        if !spec.is_null() {
            sizing.take(role, &spec).unwrap();
        }
    }
    Sizes { sizing, ..Sizes::default() }
}

fn size() -> Value {
    json!({"cpu": {"guest": 2}, "memory": {"guest": "2Gi"}})
}

/// A machine without a size of its own.
fn sized(named: Value) -> Value {
    let mut vm = machine();
    vm["spec"]["template"]["spec"]["domain"] = json!({"devices": {"rng": {}}});
    for (key, value) in named.as_object().unwrap() {
        vm["spec"][key] = value.clone();
    }
    vm
}

fn filled(object: &Value, sizes: &Sizes) -> Value {
    let now = jiff::Timestamp::UNIX_EPOCH;
    let response = ask_sized(|request, context| mutate(request, context, now), ("me", object, None), sizes);
    assert!(response.allowed, "{}", response.result.message);
    let mut after = object.clone();
    let patch: json_patch::Patch = serde_json::from_slice(&response.patch.unwrap_or(b"[]".to_vec())).unwrap();
    json_patch::patch(&mut after, &patch).unwrap();
    after
}

#[test]
fn a_machine_keeps_the_names_and_takes_what_precedes_the_defaults() {
    let named = sized(json!({"instancetype": {"name": "u1.small"}, "preference": {"name": "p"}}));
    let preference =
        json!({"machine": {"preferredMachineType": "pc-q35-7.2"}, "devices": {"preferredDiskBus": "virtio"}});
    let after = filled(&named, &sizes(size(), preference));
    assert_eq!(after["spec"]["instancetype"], json!({"name": "u1.small"}));
    let domain = &after["spec"]["template"]["spec"]["domain"];
    assert_eq!(domain["machine"]["type"], "pc-q35-7.2");
    assert_eq!((&domain["cpu"], &domain["memory"]), (&Value::Null, &Value::Null), "not written into the machine");
}

#[test]
fn inferred_names_are_written_into_the_machine() {
    let named = sized(json!({"instancetype": {"inferFromVolume": "root"}}));
    let inferred = json!({"spec": {"instancetype": {"inferFromVolume": null, "name": "u1.small"}}});
    let after = filled(&named, &Sizes { inferred: Some(inferred), ..sizes(size(), Value::Null) });
    assert_eq!(after["spec"]["instancetype"], json!({"name": "u1.small"}));
    let fault = Fault::new(FieldPath::from("spec.instancetype.inferFromVolume"), FaultCode::NotFound, "no label");
    let now = jiff::Timestamp::UNIX_EPOCH;
    let failed = Sizes { fault: Some(fault), ..Sizes::default() };
    let response = ask_sized(|request, context| mutate(request, context, now), ("me", &named, None), &failed);
    assert!(!response.allowed && response.result.message.contains("no label"), "{}", response.result.message);
}

#[test]
fn conflicts_and_requirements_are_refused_with_their_places() {
    let named = json!({"instancetype": {"name": "u1.small"}, "preference": {"name": "p"}});
    let mut conflicting = sized(named.clone());
    conflicting["spec"]["template"]["spec"]["domain"]["memory"] = json!({"guest": "64Mi"});
    let needs = json!({"requirements": {"cpu": {"guest": 4}}});
    let table = [
        (conflicting, Value::Null, "spec.template.spec.domain.memory.guest"),
        (sized(named), needs, "spec.instancetype"),
    ];
    for (object, preference, field) in table {
        let sizes = sizes(size(), preference);
        let now = jiff::Timestamp::UNIX_EPOCH;
        for response in [
            ask_sized(|request, context| mutate(request, context, now), ("me", &object, None), &sizes),
            ask_sized(validate, ("me", &object, None), &sizes),
        ] {
            let causes = response.result.details.map(|details| details.causes).unwrap_or_default();
            assert_eq!((response.allowed, response.result.code), (false, 422), "{object}");
            assert_eq!(causes[0].field, field, "{causes:?}");
        }
    }
}

#[test]
fn the_rules_judge_what_an_instancetype_brings() {
    let mut memory = size();
    memory["memory"]["hugepages"] = json!({"pageSize": "3Mi"});
    let named = sized(json!({"instancetype": {"name": "u1.small"}}));
    let response = ask_sized(validate, ("me", &named, None), &sizes(memory, Value::Null));
    assert!(
        !response.allowed && response.result.message.contains("from the instancetype"),
        "{}",
        response.result.message
    );
}

#[test]
fn a_machine_whose_objects_are_not_there_yet_is_taken_with_a_warning() {
    let named = sized(json!({"instancetype": {"name": "later"}}));
    let missing = Fault::new(FieldPath::from("spec.instancetype.name"), FaultCode::NotFound, "it does not exist");
    let unknown = Sizes { sizing: Sizing { missing: vec![missing], ..Sizing::default() }, ..Sizes::default() };
    let response = ask_sized(validate, ("me", &named, None), &unknown);
    assert!(response.allowed, "{}", response.result.message);
    let warnings = response.warnings.unwrap_or_default();
    assert_eq!(warnings, ["spec.instancetype.name: it does not exist"], "nothing about memory, which is not known");
}

#[test]
fn another_name_needs_another_revision() {
    let of = |name: &str, revision: &str| sized(json!({"instancetype": {"name": name, "revisionName": revision}}));
    let table =
        [("a", "r", "b", "r", false), ("a", "r", "b", "s", true), ("a", "r", "a", "r", true), ("a", "", "b", "", true)];
    for (name, revision, next, other, is_allowed) in table {
        let (old, new) = (of(name, revision), of(next, other));
        let response = ask_sized(validate, ("me", &new, Some(&old)), &sizes(size(), Value::Null));
        assert_eq!(response.allowed, is_allowed, "{name} {revision} {next} {other}: {}", response.result.message);
        let (old, new) = (pool_of(&old), pool_of(&new));
        let response = ask_sized(validate, ("me", &new, Some(&old)), &Sizes::default());
        assert_eq!(response.allowed, is_allowed, "of a pool: {name} {revision} {next} {other}");
        let place = "spec.virtualMachineTemplate.spec.instancetype.revisionName: ";
        assert_eq!(response.result.message.contains(place), !is_allowed, "{}", response.result.message);
    }
}

/// A pool of machines like this one.
fn pool_of(vm: &Value) -> Value {
    json!({
        "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "p"}}, "virtualMachineTemplate": {
            "metadata": {"labels": {"app": "p"}}, "spec": vm["spec"],
        }},
    })
}

#[test]
fn a_pool_with_a_disk_without_a_volume_is_refused_by_the_webhook_of_kubevirts_name() {
    let mut pool = pool_of(&machine());
    let devices = "/spec/virtualMachineTemplate/spec/template/spec/domain/devices";
    pool.pointer_mut(devices).unwrap()["disks"] = json!([{"name": "testdisk"}]);
    let now = jiff::Timestamp::UNIX_EPOCH;
    let before = ask_sized(|request, context| mutate(request, context, now), ("me", &pool, None), &Sizes::default());
    assert!(before.allowed && before.patch.is_none(), "{}", before.result.message);
    let response = ask_sized(validate, ("me", &pool, None), &Sizes::default());
    let place = "spec.virtualMachineTemplate.spec.template.spec.domain.devices.disks[0]";
    assert_eq!(response.result.message, format!("{place}.Name 'testdisk' not found."));
    let warnings = response.warnings.unwrap_or_default();
    assert!(warnings.iter().any(|text| text.starts_with(&format!("{place}.name: no volume"))), "{warnings:?}");
    pool["spec"]["replicas"] = json!(-1);
    let both = ask_sized(|request, context| mutate(request, context, now), ("me", &pool, None), &Sizes::default());
    assert!(!both.allowed && both.result.message.contains("spec.replicas"), "{}", both.result.message);
}

#[test]
fn a_pool_is_taken_with_the_names_of_its_machines_and_each_machine_gets_what_they_mean() {
    for matcher in [json!({"name": "u1.small"}), json!({"inferFromVolume": "root"})] {
        let pool = pool_of(&sized(json!({ "instancetype": matcher })));
        assert_eq!(filled(&pool, &Sizes::default()), pool, "nothing is written into the template");
        let response = ask_sized(validate, ("me", &pool, None), &Sizes::default());
        assert!(response.allowed, "{matcher}: {}", response.result.message);
        assert_eq!(response.warnings.unwrap_or_default(), [] as [String; 0], "{matcher}");
    }
}
