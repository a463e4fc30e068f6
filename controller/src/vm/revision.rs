//! What a machine was when it was started, as a ControllerRevision of KubeVirt's name and content. It is made before the
//! instance that `status.virtualMachineRevisionName` names it in, goes with its machine, and is replaced at the first start
//! of another generation. Pure.

use std::collections::BTreeMap;

use garboard_api::metadata::label;
use garboard_api::v1::VirtualMachineSpec;
use garboard_api::{VirtualMachine, vmi_of};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};

/// Its name; nothing for a machine that no cluster has stored.
pub(super) fn name(vm: &VirtualMachine) -> Option<String> {
    Some(format!("revision-start-vm-{}-{}", vm.metadata.uid.as_deref()?, vm.metadata.generation?))
}

/// The whole object.
pub(super) fn of(vm: &VirtualMachine) -> Option<ControllerRevision> {
    let labels = BTreeMap::from([(label::REVISION_OF.to_owned(), vm.metadata.uid.clone()?)]);
    Some(ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name(vm)?),
            namespace: vm.metadata.namespace.clone(),
            labels: Some(labels),
            // As of its instance: the machine.
            owner_references: vmi_of(vm).metadata.owner_references,
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(json!({ "spec": vm.spec }))),
        revision: vm.metadata.generation?,
    })
}

/// The machine's specification in a revision; nothing if it has something else.
pub(super) fn spec(revision: &ControllerRevision) -> Option<VirtualMachineSpec> {
    let RawExtension(data) = revision.data.as_ref()?;
    serde_json::from_value(data.get("spec")?.clone()).ok()
}

/// Whether a revision belongs to a machine: who may make revisions in its namespace could take the name first.
pub(super) fn is_of(revision: &ControllerRevision, vm: &VirtualMachine) -> bool {
    let owners = revision.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true)).map(|owner| &owner.uid);
    vm.metadata.uid.as_ref().is_some_and(|uid| controllers.any(|owner| owner == uid))
}

/// Whether the template of a machine, or what it is sized by, is another one than at the start. As JSON: what is left out and
/// what is empty are the same there.
pub(super) fn differs(started: &VirtualMachineSpec, now: &VirtualMachineSpec) -> bool {
    let made_of = |spec: &VirtualMachineSpec| -> Option<Value> {
        serde_json::to_value([
            serde_json::to_value(&spec.template.spec).ok()?,
            serde_json::to_value(&spec.instancetype).ok()?,
            serde_json::to_value(&spec.preference).ok()?,
        ])
        .ok()
    };
    made_of(started) != made_of(now)
}

/// Whether the whole template, with its labels and annotations, is as it was at the start.
pub(super) fn has_same_template(started: &VirtualMachineSpec, now: &VirtualMachineSpec) -> bool {
    let template = |spec: &VirtualMachineSpec| -> Option<Value> { serde_json::to_value(&spec.template).ok() };
    template(started) == template(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm() -> VirtualMachine {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "web", "namespace": "shop", "uid": "7f", "generation": 3},
            "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}}}},
        }))
        .unwrap()
    }

    #[test]
    fn a_revision_has_the_name_and_content_of_kubevirts_and_goes_with_its_machine() {
        let written = serde_json::to_value(of(&vm()).unwrap()).unwrap();
        assert_eq!(written["metadata"]["name"], "revision-start-vm-7f-3");
        assert_eq!((&written["metadata"]["namespace"], &written["revision"]), (&json!("shop"), &json!(3)));
        assert_eq!(written["data"]["spec"], serde_json::to_value(vm().spec).unwrap());
        let owner = &written["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["uid"]), (&json!("VirtualMachine"), &json!("7f")));
        assert_eq!(owner["controller"], json!(true));
        let mut unstored = vm();
        unstored.metadata.uid = None;
        assert_eq!(of(&unstored), None);
    }

    #[test]
    fn what_was_written_is_read_again_and_another_content_is_none() {
        let revision = of(&vm()).unwrap();
        assert_eq!(spec(&revision), Some(vm().spec));
        for data in [None, Some(RawExtension(json!({"spec": 7}))), Some(RawExtension(json!({})))] {
            assert_eq!(spec(&ControllerRevision { data, ..revision.clone() }), None);
        }
    }

    #[test]
    fn a_revision_of_another_owner_is_not_the_machines() {
        let revision = of(&vm()).unwrap();
        assert!(is_of(&revision, &vm()));
        let mut another = vm();
        another.metadata.uid = Some("8a".to_owned());
        assert!(!is_of(&revision, &another), "an earlier machine's of the same name");
        another.metadata.uid = None;
        let mut foreign = revision.clone();
        foreign.metadata.owner_references = None;
        assert!(!is_of(&foreign, &vm()) && !is_of(&foreign, &another));
        foreign.metadata.owner_references = revision.metadata.owner_references;
        foreign.metadata.owner_references.as_mut().unwrap()[0].controller = None;
        assert!(!is_of(&foreign, &vm()), "one that the machine does not control");
    }

    #[test]
    fn only_the_specification_of_the_template_counts() {
        let (started, mut now) = (vm().spec, vm().spec);
        now.run_strategy = Some("Halted".to_owned());
        now.template.metadata = serde_json::from_value(json!({"labels": {"app": "web"}})).unwrap();
        assert!(!differs(&started, &now) && !has_same_template(&started, &now));
        now.instancetype = serde_json::from_value(json!({"name": "u1.small"})).unwrap();
        assert!(differs(&started, &now), "another size");
        now.instancetype = None;
        now.template.spec.as_mut().unwrap().hostname = Some("web".to_owned());
        assert!(differs(&started, &now));
    }
}
