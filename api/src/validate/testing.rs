//! How the tests of the rules are written: a plain manifest with one thing changed, and the fault that is expected.

use serde_json::{Value, json};

use crate::cluster::ClusterConfig;
use crate::fault::Fault;

/// One bad manifest: what is changed, where the mistake is, and a part of the message.
pub(crate) type Bad<'a> = (&'a [(&'a str, Value)], &'a str, &'a str);

/// An instance that nothing is wrong with.
pub(crate) fn instance() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "quay", "namespace": "default"},
        "spec": {
            "architecture": "amd64",
            "domain": {
                "cpu": {"cores": 2},
                "memory": {"guest": "512Mi"},
                "devices": {
                    "disks": [
                        {"name": "root", "disk": {"bus": "virtio"}},
                        {"name": "seed", "disk": {"bus": "virtio"}},
                    ],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [
                {"name": "root", "containerDisk": {"image": "registry.example/guest:1"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}},
            ],
        },
    })
}

/// Sets what stands at a path such as `spec.volumes[1].name`. `null` takes it away.
pub(crate) fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for step in path.replace('[', ".[").split('.') {
        at = match step.strip_prefix('[').and_then(|step| step.strip_suffix(']')) {
            Some(index) => {
                let index: usize = index.parse().expect("an index");
                if at.is_null() {
                    *at = json!([]);
                }
                let list = at.as_array_mut().expect("a list");
                while list.len() <= index {
                    list.push(Value::Null);
                }
                &mut list[index]
            }
            None => &mut at[step],
        };
    }
    *at = value;
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The instance with these changes.
pub(crate) fn changed(changes: &[(&str, Value)]) -> Value {
    let mut object = instance();
    for (path, value) in changes {
        set(&mut object, path, value.clone());
    }
    without_nulls(&mut object);
    object
}

/// The faults that the rules find in the instance with these changes, without defaults.
pub(crate) fn faults(changes: &[(&str, Value)]) -> Vec<Fault> {
    faults_in(changes, &ClusterConfig::offline())
}

/// The same for a certain cluster.
pub(crate) fn faults_in(changes: &[(&str, Value)], config: &ClusterConfig) -> Vec<Fault> {
    let vmi = serde_json::from_value(changed(changes)).expect("the changed instance decodes");
    super::validate_vmi(&vmi, config)
}

/// Every bad manifest is refused at its path with its message, and with a remedy.
pub(crate) fn refused(table: &[Bad<'_>]) {
    for (changes, path, part) in table {
        let faults = faults(changes);
        let fault = faults.iter().find(|fault| fault.path.as_str() == *path && fault.to_string().contains(part));
        let fault = fault.unwrap_or_else(|| panic!("{changes:?}: no `{part}` at {path}, but {faults:#?}"));
        assert!(fault.instead.is_some(), "{changes:?}: has no remedy: {fault}");
    }
}

/// None of these is refused.
pub(crate) fn accepted(table: &[&[(&str, Value)]]) {
    for changes in table {
        let faults = faults(changes);
        assert!(faults.is_empty(), "{changes:?}: {faults:#?}");
    }
}

/// The verdict on a machine with these changes, in a certain cluster.
pub(crate) fn machine_verdict_in(changes: &[(&str, Value)], config: &ClusterConfig) -> super::ValidationVerdict {
    let mut vm = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "quay", "namespace": "default"},
        "spec": {"runStrategy": "Always", "template": {"spec": instance()["spec"]}},
    });
    for (path, value) in changes {
        set(&mut vm, path, value.clone());
    }
    super::validate_vm(&serde_json::from_value(vm).expect("the changed machine decodes"), config)
}

/// The same offline.
pub(crate) fn machine_verdict(changes: &[(&str, Value)]) -> super::ValidationVerdict {
    machine_verdict_in(changes, &ClusterConfig::offline())
}

/// The machine with these changes is refused there, in KubeVirt's spelling and with this message.
pub(crate) fn refused_machine(changes: &[(&str, Value)], path: &str, field: &str, part: &str) {
    let verdict = machine_verdict(changes);
    let fault = verdict.faults.iter().find(|fault| fault.path.as_str() == path && fault.to_string().contains(part));
    let fault = fault.unwrap_or_else(|| panic!("{changes:?}: no `{part}` at {path}: {:#?}", verdict.faults));
    assert_eq!(fault.field, field, "{changes:?}");
    assert!(fault.instead.is_some(), "{changes:?}");
}
