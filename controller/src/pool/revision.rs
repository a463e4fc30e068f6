//! What machines of a pool are made of, as a ControllerRevision that machines and instances name in a label. It is made before the first
//! machine that names it, goes with its pool, and is deleted when another is made and nothing names it any more. Pure.
//!
//! KubeVirt's has the whole specification of the pool, under a name of its generation: there each scale makes a record.

use std::collections::BTreeMap;

use garboard_api::metadata::label;
use garboard_api::v1::VirtualMachinePoolSpec;
use garboard_api::{VirtualMachinePool, pool};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;

/// The whole object; nothing for a pool that no cluster has stored.
pub(super) fn of(pool: &VirtualMachinePool) -> Option<ControllerRevision> {
    let labels = BTreeMap::from([(label::REVISION_OF.to_owned(), pool.metadata.uid.clone()?)]);
    Some(ControllerRevision {
        metadata: ObjectMeta {
            name: Some(pool::revision_name(pool)),
            namespace: pool.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![pool::owner(pool)?]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(json!(pool::recorded(pool)))),
        revision: pool.metadata.generation?,
    })
}

/// What a record has; nothing if it is another program's.
pub(super) fn content(revision: &ControllerRevision) -> Option<VirtualMachinePoolSpec> {
    let RawExtension(data) = revision.data.as_ref()?;
    data.get("virtualMachineTemplate")?;
    serde_json::from_value(data.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> VirtualMachinePool {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "7f", "generation": 3},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "virtualMachineTemplate": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}}}},
            }},
        }))
        .unwrap()
    }

    #[test]
    fn a_record_has_the_template_and_goes_with_its_pool() {
        let written = serde_json::to_value(of(&pool()).unwrap()).unwrap();
        assert_eq!(written["metadata"]["name"], pool::revision_name(&pool()));
        assert_eq!(written["metadata"]["labels"], json!({"garboard.dev/revision-of": "7f"}));
        let owner = &written["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["uid"]), (&json!("VirtualMachinePool"), &json!("7f")));
        assert_eq!((&written["revision"], written["data"].get("replicas")), (&json!(3), None));
        let mut unstored = pool();
        unstored.metadata.uid = None;
        assert_eq!(of(&unstored), None);
    }

    #[test]
    fn what_was_written_is_read_again_and_another_content_is_none() {
        let revision = of(&pool()).unwrap();
        assert_eq!(content(&revision), Some(pool::recorded(&pool())));
        for data in
            [None, Some(RawExtension(json!({"spec": {}}))), Some(RawExtension(json!({"virtualMachineTemplate": 7})))]
        {
            assert_eq!(content(&ControllerRevision { data, ..revision.clone() }), None);
        }
    }
}
