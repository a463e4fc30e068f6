//! From a VirtualMachineInstanceReplicaSet to its instances. Pure.
//!
//! The name of an instance follows from the UID of its set and a number: who creates one twice, because it does not know yet that
//! it is there, is refused by the API server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use uuid::Uuid;

use crate::kind::Kind;
use crate::metadata::label;
use crate::v1::{API_VERSION, VirtualMachineInstance, VirtualMachineInstanceReplicaSet, non_empty};

/// How many instances there are where a manifest does not say it.
pub const REPLICAS: i32 = 1;

/// Characters of the end of a name, those of Kubernetes' own generated names: they spell nothing, and none is taken for another.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many there are to choose from.
const COUNT: u128 = 27;
/// How many of them a name ends with.
const ENDING: usize = 5;
/// The longest name of an instance here, in bytes: that of a DNS label, as for other generated names.
const LONGEST: usize = 63;

/// How many instances there are to be; 0 or more.
#[must_use]
pub fn wanted(set: &VirtualMachineInstanceReplicaSet) -> usize {
    usize::try_from(set.spec.replicas.unwrap_or(REPLICAS)).unwrap_or(0)
}

/// What the names of its instances begin with: `metadata.name` of the template, or `metadata.generateName`, or else the name of the
/// set. As in KubeVirt no dash is added.
#[must_use]
pub fn beginning(set: &VirtualMachineInstanceReplicaSet) -> &str {
    let template = set.spec.template.metadata.as_ref();
    let own = template.and_then(|metadata| non_empty(&metadata.name).or(non_empty(&metadata.generate_name)));
    own.or(set.metadata.name.as_deref()).unwrap_or_default()
}

/// The name of the instance with a number, which is always the same. Two numbers may, rarely, have the same name.
#[must_use]
pub fn name(set: &VirtualMachineInstanceReplicaSet, number: u64) -> String {
    let beginning = beginning(set);
    let beginning = beginning.get(..LONGEST - ENDING).unwrap_or(beginning);
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let mut digest = Uuid::new_v5(&Uuid::nil(), format!("{uid}/{number}").as_bytes()).as_u128();
    let mut ending = String::with_capacity(ENDING);
    for _ in 0..ENDING {
        let letter = usize::try_from(digest % COUNT).ok().and_then(|place| LETTERS.get(place));
        ending.extend(letter.copied().map(char::from));
        digest /= COUNT;
    }
    format!("{beginning}{ending}")
}

/// An instance of a set, not defaulted yet.
#[must_use]
pub fn instance(set: &VirtualMachineInstanceReplicaSet, name: &str) -> VirtualMachineInstance {
    let template = &set.spec.template;
    let mut metadata = template.metadata.clone().unwrap_or_default();
    metadata.name = Some(name.to_owned());
    metadata.namespace.clone_from(&set.metadata.namespace);
    metadata.generate_name = None;
    // It describes the supervisor of an instance, and a new instance has a current one.
    metadata.labels.iter_mut().for_each(|labels| drop(labels.remove(label::OUTDATED_LAUNCHER_IMAGE)));
    metadata.owner_references = owner(set).map(|owner| vec![owner]);
    VirtualMachineInstance {
        api_version: API_VERSION.to_owned(),
        kind: Kind::VirtualMachineInstance.name().to_owned(),
        metadata,
        spec: template.spec.clone().unwrap_or_default(),
        status: None,
    }
}

/// The set as the controller of an instance, which goes with it. One that no cluster has stored owns nothing.
#[must_use]
pub fn owner(set: &VirtualMachineInstanceReplicaSet) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: Kind::ReplicaSet.name().to_owned(),
        name: set.metadata.name.clone()?,
        uid: set.metadata.uid.clone()?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    fn set(template: Value) -> VirtualMachineInstanceReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "b5b7a2f6-8d4f-4a51-9f0a-0c3f6a1f2d3e"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": template, "spec": {"domain": {"devices": {}}},
            }},
        }))
        .unwrap()
    }

    #[test]
    fn a_name_follows_from_the_set_and_a_number() {
        let web = set(json!({"labels": {"app": "web"}}));
        let names: BTreeSet<String> = (0..200).map(|number| name(&web, number)).collect();
        assert!(names.len() > 195, "{} names of 200 numbers", names.len());
        assert_eq!(name(&web, 3), name(&web, 3));
        let mut another = web.clone();
        another.metadata.uid = Some("another".to_owned());
        assert!(!names.contains(&name(&another, 3)), "a later set of the same name has other names");
        for each in names {
            assert!(each.starts_with("web") && each.len() == 8 && each.parse::<crate::DnsLabel>().is_ok(), "{each}");
        }
    }

    #[test]
    fn the_template_may_say_what_names_begin_with() {
        let table = [
            (json!({}), "web"),
            (json!({"generateName": "node-"}), "node-"),
            (json!({"generateName": "node-", "name": "box"}), "box"),
            (json!({"generateName": "", "name": ""}), "web"),
        ];
        for (template, expected) in table {
            assert_eq!(beginning(&set(template)), expected);
        }
        let long = set(json!({"name": "x".repeat(100)}));
        assert_eq!(name(&long, 0).len(), 63);
    }

    #[test]
    fn an_instance_has_the_template_and_its_owner_and_nothing_of_others() {
        let template = json!({"labels": {"app": "web", "kubevirt.io/outdatedLauncherImage": ""}, "annotations": {"a": "b"},
            "generateName": "x", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]});
        let written = serde_json::to_value(instance(&set(template), "web5")).unwrap();
        let owner = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "name": "web",
            "uid": "b5b7a2f6-8d4f-4a51-9f0a-0c3f6a1f2d3e", "controller": true, "blockOwnerDeletion": true});
        let metadata = json!({"name": "web5", "namespace": "shop", "labels": {"app": "web"}, "annotations": {"a": "b"},
            "ownerReferences": [owner]});
        assert_eq!(written["metadata"], metadata);
        assert_eq!(written["spec"]["domain"]["devices"], json!({}));
    }

    #[test]
    fn one_instance_is_wanted_where_no_number_is_given_and_never_less_than_none() {
        let mut web = set(json!({}));
        assert_eq!(wanted(&web), 1);
        for (written, expected) in [(0, 0), (7, 7), (-1, 0)] {
            web.spec.replicas = Some(written);
            assert_eq!(wanted(&web), expected);
        }
    }
}
