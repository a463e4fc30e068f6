use serde_json::json;

use super::*;

/// A text that stands wherever a secret may stand.
const SECRET: &str = "hunter2";

#[test]
fn facts_have_no_secrets() {
    let spec = json!({
        "domain": {"devices": {}},
        "volumes": [
            {"name": "a", "cloudInitNoCloud": {"userData": SECRET}},
            {"name": "b", "cloudInitConfigDrive": {"networkData": SECRET}},
            {"name": "c", "sysprep": {"secret": {"name": SECRET}}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "d"}},
        ],
    });
    let metadata = json!({"name": "vm", "annotations": {"example.com/key": SECRET}});
    let vm = json!({
        "metadata": metadata,
        "spec": {
            "template": {"metadata": {"annotations": {"kubevirt.io/ignitiondata": SECRET}}, "spec": spec},
            "dataVolumeTemplates": [{"metadata": metadata, "spec": {"source": {"http": {"url": SECRET}}}}],
        },
    });
    let mut facts = Facts {
        vm: Some(serde_json::from_value(vm).unwrap()),
        vmi: Some(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()),
        data_volumes: vec![json!({"metadata": metadata, "spec": {"source": {"http": {"url": SECRET}}}})],
        ..Facts::default()
    };
    assert_eq!(serde_json::to_string(&facts).unwrap().matches(SECRET).count(), 13);
    strip(&mut facts);
    let gathered = serde_json::to_string(&facts).unwrap();
    assert!(!gathered.contains(SECRET) && gathered.contains("claimName"), "{gathered}");
}
