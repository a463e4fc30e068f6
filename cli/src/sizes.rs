//! Instancetypes and preferences out of the same files as the machine that names them. What a cluster looks up, is looked up there.

use garboard_api::instancetype::infer::{self, MOST_LOOKS, Next};
use garboard_api::instancetype::{Matcher, Role, Sizing, revision};
use garboard_api::kind::kind_of;
use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_api::{Fault, FaultCode, Kind, VirtualMachine};
use serde_json::Value;

use crate::manifest::Document;

/// A machine's manifest with the names that labels of its volumes give it, and what these stand for.
pub(crate) struct Looked {
    /// The manifest.
    pub(crate) manifest: Value,
    /// What was found.
    pub(crate) sizing: Sizing,
    /// Why a name cannot be inferred.
    pub(crate) fault: Option<Fault>,
}

/// Looks among the given documents for what a machine names. Of another object, and of one that cannot be read, nothing is looked for.
pub(crate) fn look(document: &Document, documents: &[Document]) -> Looked {
    let mut looked = Looked { manifest: document.value.clone(), sizing: Sizing::default(), fault: None };
    if kind_of(&document.value) != Kind::VirtualMachine {
        return looked;
    }
    let Ok(mut vm) = serde_json::from_value::<VirtualMachine>(document.value.clone()) else { return looked };
    vm.metadata.namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.to_owned());
    for role in Role::BOTH {
        if infer::is_due(&vm, role).is_some() {
            looked.fault = looked.fault.or(inferred(&mut vm, role, documents));
            write(&vm, role, &mut looked.manifest);
        }
    }
    for matcher in Role::BOTH.into_iter().filter_map(|role| Matcher::of(&vm, role)).filter(|each| !each.name.is_empty())
    {
        let taken = match object(&vm, &matcher, documents) {
            Some(found) => looked.sizing.take(matcher.role, &found["spec"]).map_err(|error| error.to_string()),
            None => Err("it is not in the given files".to_owned()),
        };
        looked.sizing.missing.extend(taken.err().map(|why| missing(&matcher, &why)));
    }
    looked
}

fn missing(matcher: &Matcher<'_>, why: &str) -> Fault {
    let fault = Fault::new(matcher.path().child("name"), FaultCode::NotFound, format!("{}: {why}", matcher.shown()));
    fault.instead("add its manifest to the command line")
}

/// The object, or the copy of it that the machine names.
fn object<'a>(vm: &VirtualMachine, matcher: &Matcher<'_>, documents: &'a [Document]) -> Option<&'a Value> {
    let namespace = vm.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    if !matcher.revision_name.is_empty() {
        let copy = named(documents, "ControllerRevision", namespace, matcher.revision_name)?;
        return Some(&copy["data"]).filter(|data| revision::kind(matcher.role, data).is_some());
    }
    let kind = matcher.object_kind().ok()?;
    let is_it = |document: &&Document| {
        let is_there = kind.is_of_cluster() || document.namespace() == namespace;
        kind_of(&document.value) == kind && document.name() == matcher.name && is_there
    };
    documents.iter().find(is_it).map(|document| &document.value)
}

fn named<'a>(documents: &'a [Document], kind: &str, namespace: &str, name: &str) -> Option<&'a Value> {
    let is_it =
        |document: &&Document| document.kind() == kind && document.namespace() == namespace && document.name() == name;
    documents.iter().find(is_it).map(|document| &document.value)
}

/// Infers one of the two.
fn inferred(vm: &mut VirtualMachine, role: Role, documents: &[Document]) -> Option<Fault> {
    let namespace = vm.metadata.namespace.clone().unwrap_or_default();
    let mut next = infer::begin(vm, &infer::is_due(vm, role)?);
    for _ in 0..MOST_LOOKS {
        let Next::Look(look) = &next else { break };
        let found = named(documents, look.source.kind(), &look.namespace, &look.name);
        next = infer::follow(look, found, role, &namespace);
    }
    infer::settle(vm, role, next).err()
}

/// Writes what was inferred into the manifest, which keeps everything else as it was written.
fn write(vm: &VirtualMachine, role: Role, manifest: &mut Value) {
    let inferred = serde_json::to_value(vm).unwrap_or_default();
    if let Some(spec) = manifest["spec"].as_object_mut() {
        let matcher = &inferred["spec"][role.field()];
        if matcher.is_null() {
            spec.remove(role.field());
        } else {
            spec.insert(role.field().to_owned(), matcher.clone());
        }
    }
    let place = "/spec/template/spec/domain";
    let has_memory = inferred.pointer(place).is_some_and(|domain| domain.get("memory").is_some());
    if let Some(domain) = manifest.pointer_mut(place).and_then(Value::as_object_mut).filter(|_| !has_memory) {
        domain.remove("memory");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(value: Value) -> Document {
        Document { origin: "x.yaml".to_owned(), value }
    }

    fn instancetype(kind: &str, namespace: Option<&str>, vcpus: u32) -> Document {
        document(json!({
            "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": kind,
            "metadata": {"name": "small", "namespace": namespace},
            "spec": {"cpu": {"guest": vcpus}, "memory": {"guest": "1Gi"}},
        }))
    }

    fn machine(spec: Value) -> Document {
        let mut vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm"},
            "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}}}},
        });
        for (key, value) in spec.as_object().unwrap() {
            vm["spec"][key] = value.clone();
        }
        document(vm)
    }

    fn vcpus(looked: &Looked) -> Option<u32> {
        looked.sizing.instancetype.as_ref().map(|size| size.cpu.guest)
    }

    #[test]
    fn the_kind_and_the_namespace_decide_which_object_is_meant() {
        let documents = [
            instancetype("VirtualMachineInstancetype", Some("other"), 2),
            instancetype("VirtualMachineInstancetype", None, 3),
            instancetype("VirtualMachineClusterInstancetype", None, 4),
        ];
        let of = |matcher: Value| look(&machine(json!({"instancetype": matcher})), &documents);
        assert_eq!(vcpus(&of(json!({"name": "small"}))), Some(4));
        assert_eq!(vcpus(&of(json!({"name": "small", "kind": "VirtualMachineInstancetype"}))), Some(3));
        let absent = of(json!({"name": "large"}));
        assert_eq!((vcpus(&absent), absent.sizing.missing.len()), (None, 1));
        assert!(absent.sizing.missing[0].to_string().contains("VirtualMachineClusterInstancetype large"));
    }

    #[test]
    fn a_copy_is_found_by_its_name() {
        let data = instancetype("VirtualMachineClusterInstancetype", None, 5).value;
        let copy =
            json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "r"}, "data": data});
        let vm = machine(json!({"instancetype": {"name": "small", "revisionName": "r"}}));
        assert_eq!(vcpus(&look(&vm, &[document(copy)])), Some(5));
        assert_eq!(vcpus(&look(&vm, &[])), None);
    }

    #[test]
    fn labels_of_a_claim_name_the_instancetype() {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c",
            "labels": {"instancetype.kubevirt.io/default-instancetype": "small"}}});
        let documents = [document(claim), instancetype("VirtualMachineClusterInstancetype", None, 6)];
        let volume = json!({"name": "root", "persistentVolumeClaim": {"claimName": "c"}});
        let template = json!({"spec": {"domain": {"devices": {}, "memory": {"guest": "9Gi"}}, "volumes": [volume]}});
        let matcher = json!({"inferFromVolume": "root", "inferFromVolumeFailurePolicy": "Ignore"});
        let vm = machine(json!({"instancetype": matcher, "preference": matcher, "template": template}));
        let looked = look(&vm, &documents);
        assert_eq!((vcpus(&looked), looked.fault.is_none()), (Some(6), true));
        assert_eq!(looked.manifest["spec"]["instancetype"], json!({"name": "small"}));
        assert_eq!(looked.manifest["spec"].get("preference"), None, "no label, and the policy ignores that");
        assert_eq!(looked.manifest["spec"]["template"]["spec"]["domain"].get("memory"), None);
        let alone = look(&machine(json!({"preference": {"inferFromVolume": "root"}})), &documents);
        assert!(alone.fault.unwrap().to_string().contains("there is no volume `root`"));
    }
}
