//! The common instancetypes and preferences: every object is admitted, and those that machines can have now are known.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use garboard_api::ClusterConfig;
use garboard_api::validate::{Object, review};
use serde_json::Value;

#[test]
fn every_object_of_the_catalogue_is_admitted() {
    let text = std::fs::read_to_string("../deploy/common-instancetypes.yaml").unwrap();
    let config = ClusterConfig::from_kubevirt(&Value::Null);
    let (mut sizes, mut preferences, mut usable) = (0, 0, Vec::new());
    for document in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        let admission = review(&object, &config);
        assert_eq!(admission.faults, [], "{name}");
        match admission.object.unwrap() {
            Object::Instancetype(_) => sizes += 1,
            Object::Preference(_) => preferences += 1,
            other @ (Object::VirtualMachine(_)
            | Object::VirtualMachineInstance(_)
            | Object::ReplicaSet(_)
            | Object::Preset(_)
            | Object::Pool(_)
            | Object::KubeVirt(_)) => panic!("{name}: {other:?}"),
        }
        if admission.warnings.is_empty() {
            usable.push(name.to_owned());
        }
    }
    assert_eq!((sizes, preferences), (55, 48));
    for name in ["u1.small", "u1.2xlarge", "o1.nano", "fedora", "debian", "cirros", "windows.10.virtio"] {
        assert!(usable.iter().any(|each| each == name), "{name} is warned of");
    }
}
