//! What has to be sent so that a machine is what its pool makes now. Pure.
//!
//! The specification is the template's, whatever was changed of it on the machine; what its webhook fills in, comes again with it. Labels
//! and annotations that others wrote stay: only those go that the machine had of the template before.

use std::collections::BTreeMap;

use garboard_api::v1::{VirtualMachinePoolSpec, VirtualMachineTemplateSpec};
use garboard_api::{VirtualMachine, merge, pool};
use serde_json::{Map, Value, json};

/// A merge patch for a machine as it is stored; nothing if it is that already. `before` is what it was made of, if that is known.
pub(super) fn patch(
    stored: &Value,
    wanted: &VirtualMachine,
    before: Option<&VirtualMachinePoolSpec>,
) -> serde_json::Result<Option<Value>> {
    type Of = fn(&VirtualMachineTemplateSpec) -> BTreeMap<String, String>;
    let written = |key: &str| stored["metadata"][key].as_object().cloned().unwrap_or_default();
    let had = |of: Of| before.map(|before| of(&before.virtual_machine_template)).unwrap_or_default();
    let (labels, annotations) = (written("labels"), written("annotations"));
    let wanted_labels = exchanged(&labels, &had(pool::labels), wanted.metadata.labels.as_ref());
    let wanted_annotations = exchanged(&annotations, &had(pool::annotations), wanted.metadata.annotations.as_ref());
    let is = json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": stored["spec"]});
    let to_be = json!({
        "metadata": {"labels": wanted_labels, "annotations": wanted_annotations},
        "spec": serde_json::to_value(&wanted.spec)?,
    });
    Ok(merge::patch(&is, &to_be))
}

/// What is written, with what is wanted, and without what only the template had before.
fn exchanged(
    written: &Map<String, Value>,
    before: &BTreeMap<String, String>,
    wanted: Option<&BTreeMap<String, String>>,
) -> Map<String, Value> {
    let kept =
        written.iter().filter(|(key, _)| !before.contains_key(*key)).map(|(key, value)| (key.clone(), value.clone()));
    let new = wanted.into_iter().flatten().map(|(key, value)| (key.clone(), json!(value)));
    kept.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use garboard_api::VirtualMachinePool;

    use super::*;

    fn pool(labels: Value, spec: Value) -> VirtualMachinePool {
        let template = json!({"metadata": {"labels": labels, "annotations": {"note": "a"}}, "spec": spec});
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"selector": {}, "virtualMachineTemplate": template}}))
        .unwrap()
    }

    fn spec(hostname: &str) -> Value {
        json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}, "hostname": hostname}}})
    }

    /// A machine as a cluster has it: filled in, and with what others have written.
    fn stored(pool: &VirtualMachinePool) -> Value {
        let mut stored = serde_json::to_value(pool::machine(pool, 0)).unwrap();
        stored["metadata"]["labels"]["others"] = json!("x");
        stored["metadata"]["annotations"]["garboard.dev/stored-machine"] = json!("kept");
        stored["spec"]["template"]["spec"]["domain"]["firmware"] = json!({"uuid": "made-up"});
        stored["spec"]["template"]["spec"]["nodeSelector"] = json!({"by": "hand"});
        stored
    }

    fn patched(stored: &Value, patch: &Value) -> Value {
        let mut after = stored.clone();
        json_patch::merge(&mut after, patch);
        after
    }

    #[test]
    fn the_specification_is_the_templates_and_others_labels_stay() {
        let before = pool(json!({"app": "x", "old": "1"}), spec("one"));
        let after = pool(json!({"app": "x", "new": "2"}), spec("two"));
        let (stored, wanted) = (stored(&before), pool::machine(&after, 0));
        let change = patch(&stored, &wanted, Some(&pool::recorded(&before))).unwrap().unwrap();
        let machine = patched(&stored, &change);
        let revision = pool::revision_name(&after);
        let labels = json!({"others": "x", "app": "x", "new": "2", "kubevirt.io/vm-pool-revision-name": revision});
        assert_eq!(machine["metadata"]["labels"], labels);
        assert_eq!(machine["metadata"]["annotations"], json!({"note": "a", "garboard.dev/stored-machine": "kept"}));
        assert_eq!(machine["spec"], serde_json::to_value(wanted.spec).unwrap(), "what was changed by hand goes, too");
        assert_eq!(machine["metadata"]["name"], "p-0");
    }

    #[test]
    fn without_a_record_no_label_goes() {
        let before = pool(json!({"app": "x", "old": "1"}), spec("one"));
        let after = pool(json!({"app": "x"}), spec("one"));
        let stored = stored(&before);
        let change = patch(&stored, &pool::machine(&after, 0), None).unwrap().unwrap();
        assert_eq!(patched(&stored, &change)["metadata"]["labels"]["old"], "1");
    }

    #[test]
    fn a_machine_that_is_what_is_wanted_needs_no_change() {
        let pool = pool(json!({"app": "x"}), spec("one"));
        let machine = pool::machine(&pool, 0);
        let stored = serde_json::to_value(&machine).unwrap();
        assert_eq!(patch(&stored, &machine, Some(&pool::recorded(&pool))).unwrap(), None);
    }
}
