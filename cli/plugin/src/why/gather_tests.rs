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

/// Each page has one sentence that says what is looked at.
#[test]
fn the_documents_name_what_is_looked_at() {
    let kubectl = include_str!("../../../../docs/kubectl.md");
    let troubleshooting = include_str!("../../../../docs/troubleshooting-cluster.md");
    // Every field: of a new fact it has to be decided here what the pages call it.
    let Facts {
        now: _,
        namespace: _,
        name: _,
        vm: _,
        vmi: _,
        pods: _,
        events: _,
        claims: _,
        data_volumes: _,
        nodes: _,
        parts: _,
        kubevirts: _,
        near: _,
        unseen: _,
    } = Facts::default();
    let names = [
        "the machine",
        "its instance",
        "pods",
        "events",
        "claims",
        "DataVolumes",
        "nodes",
        "node agents",
        "controllers",
        "the KubeVirt object",
    ];
    for (page, text) in [("kubectl.md", kubectl), ("troubleshooting-cluster.md", troubleshooting)] {
        let (_, rest) = text.split_once("It looks at ").unwrap();
        let sentence = rest.split_once(['.', ';', ':']).unwrap().0.replace('\n', " ");
        for name in names {
            assert!(sentence.contains(name), "docs/{page} does not say that {name} are looked at: {sentence}");
        }
    }
}
