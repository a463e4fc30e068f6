//! The object that keeps the record of a run. Pure.
//!
//! Whose run it is comes from the pod, never from the record: its name has the pod's UID, and a pod is one run, so that there is one
//! object of each, however often it is sent.

use garboard_api::v1::VirtualMachineInstance;
use garboard_protocol::record::{GROUP, KIND, RunRecord, VERSION};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use crate::pods::LauncherPod;

/// The most of a machine's name that is in the object's, bytes: a hyphen and eight digits follow, and Kubernetes has room for 253.
const LONGEST_NAME: usize = 240;
/// Digits of the pod's UID in the name.
const DIGITS: usize = 8;

/// The object for a record. It belongs to the VirtualMachine, if there is one, and goes with it.
pub(crate) fn object(
    record: &RunRecord,
    pod: &LauncherPod,
    vmi: Option<&VirtualMachineInstance>,
    node: &str,
    now: Timestamp,
) -> Value {
    let owners = vmi.into_iter().flat_map(|vmi| vmi.metadata.owner_references.iter().flatten());
    let owners: Vec<Value> = owners
        .filter(|owner| owner.controller == Some(true) && is_machine(owner))
        .map(|owner| json!({"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}))
        .collect();
    let time = |at_ms: i64| {
        let at = Timestamp::from_millisecond(at_ms).unwrap_or(now);
        format!("{at:.3}")
    };
    let steps: Vec<Value> =
        record.steps.iter().map(|step| json!({"name": step.name, "at": time(step.at_ms)})).collect();
    // The definition refuses a run that ends before it begins.
    let ended = if record.ended_at_ms > 0 { record.ended_at_ms } else { now.as_millisecond() };
    let began = record.steps.iter().map(|step| step.at_ms).find(|at_ms| *at_ms > 0).unwrap_or(ended).min(ended);
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND,
        "metadata": {"name": name(pod), "namespace": pod.namespace, "ownerReferences": owners},
        "spec": {
            "machine": pod.vmi, "instanceUID": pod.vmi_uid, "podUID": pod.uid.as_str(), "node": node,
            "run": record.run, "supervisorVersion": record.version,
            "reason": record.reason, "message": record.message,
            "startedAt": time(began), "endedAt": time(ended), "steps": steps,
            "resets": record.resets, "taints": record.taints, "machineType": record.machine,
            "argv": record.argv, "planDigest": record.plan_digest,
            "qemuOutput": record.qemu_output, "transcript": record.transcript, "serial": record.serial,
        },
    })
}

/// Whether it is a VirtualMachine: the agent's policy refuses any other owner.
fn is_machine(owner: &OwnerReference) -> bool {
    owner.kind == "VirtualMachine" && owner.api_version.starts_with("kubevirt.io/")
}

/// A machine's name has one-byte characters alone.
fn name(pod: &LauncherPod) -> String {
    let machine = pod.vmi.get(..LONGEST_NAME).unwrap_or(&pod.vmi).trim_end_matches(['-', '.']);
    let digits: String = pod.uid.as_str().chars().filter(char::is_ascii_alphanumeric).take(DIGITS).collect();
    format!("{machine}-{digits}")
}

#[cfg(test)]
mod tests {
    use garboard_protocol::record::RunStep;

    use super::*;
    use crate::status::tests::{pod, vmi};

    fn record() -> RunRecord {
        RunRecord {
            reason: "GuestPanic".into(),
            ended_at_ms: 2000,
            steps: vec![RunStep { name: "Running".into(), at_ms: 1000 }],
            serial: "panic\n".into(),
            ..RunRecord::default()
        }
    }

    #[test]
    fn whose_it_is_comes_from_the_pod() {
        let (pod, now) = (pod(), Timestamp::UNIX_EPOCH);
        let made = object(&RunRecord { uid: "another".into(), ..record() }, &pod, None, "node-1", now);
        let spec = &made["spec"];
        assert_eq!((&spec["machine"], &spec["instanceUID"]), (&json!(pod.vmi), &json!(pod.vmi_uid)));
        assert_eq!(
            (&spec["startedAt"], &spec["endedAt"]),
            (&json!("1970-01-01T00:00:01.000Z"), &json!("1970-01-01T00:00:02.000Z"))
        );
        assert_eq!(made["metadata"]["ownerReferences"], json!([]));
        let name = made["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name.starts_with(&format!("{}-", pod.vmi)) && name.len() == pod.vmi.len() + 9, "{name}");
        let long = LauncherPod { vmi: format!("{}.x", "a".repeat(239)), ..pod };
        let made = object(&record(), &long, None, "node-1", now);
        assert_eq!(made["metadata"]["name"].as_str().unwrap().len(), 248);
    }

    #[test]
    fn it_goes_with_the_machine_that_owns_the_instance() {
        let mut owned = vmi(json!({}));
        let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "m",
            "controller": true, "blockOwnerDeletion": true}]);
        owned.metadata.owner_references = serde_json::from_value(owner).unwrap();
        let made = object(&record(), &pod(), Some(&owned), "node-1", Timestamp::UNIX_EPOCH);
        let expected = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "m"}]);
        assert_eq!(made["metadata"]["ownerReferences"], expected);
        owned.metadata.owner_references.as_mut().unwrap()[0].kind = "VirtualMachineInstanceReplicaSet".to_owned();
        let made = object(&record(), &pod(), Some(&owned), "node-1", Timestamp::UNIX_EPOCH);
        assert_eq!(made["metadata"]["ownerReferences"], json!([]));
    }

    #[test]
    fn the_definition_has_each_field_of_it_and_no_other() {
        let definition = std::fs::read_to_string("../deploy/base/crds/machineruns.garboard.dev.yaml").unwrap();
        let made = object(&record(), &pod(), None, "node-1", Timestamp::UNIX_EPOCH);
        let fields: Vec<String> = made["spec"].as_object().unwrap().keys().cloned().collect();
        // Fields of the spec have sixteen spaces before them.
        let is_field = |line: &&str| line.starts_with(&" ".repeat(16)) && !line.starts_with(&" ".repeat(17));
        let listed: Vec<&str> =
            definition.lines().filter(is_field).map(|line| line.trim().trim_end_matches(':')).collect();
        for field in &fields {
            assert!(listed.contains(&field.as_str()), "{field} is not in the definition: {listed:?}");
        }
        let unknown: Vec<&&str> =
            listed.iter().filter(|one| !one.contains(' ') && !fields.iter().any(|field| field == **one)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
