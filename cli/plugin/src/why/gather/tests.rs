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
        "readinessProbe": {"exec": {"command": ["login", SECRET]}},
        "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
    });
    let metadata = json!({"name": "vm", "annotations": {"example.com/key": SECRET}});
    let vm = json!({
        "metadata": metadata,
        "spec": {
            "template": {"metadata": {"annotations": {"kubevirt.io/ignitiondata": SECRET}}, "spec": spec},
            "dataVolumeTemplates": [{"metadata": metadata, "spec": {"source": {"http": {"url": SECRET}}}}],
        },
    });
    let container = json!({"name": "compute", "readinessProbe": {"exec": {"command": ["login", SECRET]}}});
    let pod = json!({"metadata": metadata, "spec": {"containers": [container], "initContainers": [container]}});
    // The importer's: where a DataVolume comes from, and with which headers it is asked for.
    let importer = json!({"cdi.kubevirt.io/storage.import.endpoint": SECRET, "cdi.kubevirt.io/storage.import.extraHeaders.0": SECRET});
    let claim = json!({"metadata": {"name": "d", "annotations": importer}});
    let controller = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    let mut facts = Facts {
        vm: Some(serde_json::from_value(vm).unwrap()),
        pods: vec![serde_json::from_value(pod).unwrap()],
        claims: vec![serde_json::from_value(claim).unwrap()],
        events: vec![serde_json::from_value(json!({"metadata": metadata, "involvedObject": {}})).unwrap()],
        parts: Some(Parts { controller: Some(controller), ..Parts::default() }),
        vmi: Some(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()),
        data_volumes: vec![json!({"metadata": metadata, "spec": {"source": {"http": {"url": SECRET}}}})],
        runs: vec![json!({"metadata": metadata, "spec": {"serial": SECRET, "transcript": SECRET, "argv": [SECRET]}})],
        ..Facts::default()
    };
    assert_eq!(serde_json::to_string(&facts).unwrap().matches(SECRET).count(), 28);
    strip(&mut facts);
    let gathered = serde_json::to_string(&facts).unwrap();
    assert!(!gathered.contains(SECRET) && gathered.contains("claimName"), "{gathered}");
}

/// What the pages call each fact that is looked at. Every field of `Facts` has a line, or this does not compile.
macro_rules! called {
    ($($fact:ident => $names:expr,)*) => {{
        let Facts { $($fact: _,)* } = Facts::default();
        let names: [&[&str]; _] = [$(&$names,)*];
        names.concat()
    }};
}

/// Each page has one sentence that says what is looked at.
#[test]
fn the_documents_name_what_is_looked_at() {
    let kubectl = include_str!("../../../../../docs/kubectl.md");
    let troubleshooting = include_str!("../../../../../docs/troubleshooting-cluster.md");
    let names = called! {
        now => [],
        namespace => [],
        name => [],
        vm => ["the machine"],
        vmi => ["its instance"],
        pods => ["pods"],
        events => ["events"],
        runs => ["records of its runs"],
        claims => ["claims"],
        data_volumes => ["DataVolumes"],
        nodes => ["nodes"],
        parts => ["node agents", "controllers"],
        kubevirts => ["the KubeVirt object"],
        near => [],
        unseen => [],
    };
    for (page, text) in [("kubectl.md", kubectl), ("troubleshooting-cluster.md", troubleshooting)] {
        let (_, rest) = text.split_once("It looks at ").unwrap();
        let sentence = rest.split_once(['.', ';', ':']).unwrap().0.replace('\n', " ");
        for name in &names {
            assert!(sentence.contains(*name), "docs/{page} does not say that {name} are looked at: {sentence}");
        }
    }
}
