//! What is kept of objects, and how it is found.

use std::cell::RefCell;

use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::*;

fn instance(name: &str, owner: &str, version: &str) -> Cached<Instances> {
    let object = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-uid"), "resourceVersion": version,
            "managedFields": [{"manager": "kubectl", "time": "2026-01-01T00:00:00Z"}],
            "ownerReferences": [{"apiVersion": "v1", "kind": "VirtualMachine", "name": "vm", "uid": "no-controller"},
                {"apiVersion": "v1", "kind": "VirtualMachine", "name": "vm", "uid": owner, "controller": true}]},
        "spec": {"domain": {"devices": {}}},
    });
    serde_json::from_value(object).unwrap()
}

fn names<K: Kind>(found: &[Arc<Cached<K>>]) -> Vec<String> {
    found.iter().map(|each| each.key().name).collect()
}

#[test]
fn what_is_owned_is_found_and_what_was_deleted_is_reported() {
    let (known, mut filler) = Known::<Instances>::new();
    let changes = RefCell::new(Vec::new());
    let changed = |object: &Cached<Instances>| changes.borrow_mut().push(object.key().name);
    let received = || std::mem::take(&mut *changes.borrow_mut());
    filler.note(Event::Init, &changed);
    filler.note(Event::InitApply(instance("a", "one", "1")), &changed);
    filler.note(Event::InitApply(instance("b", "two", "2")), &changed);
    assert_eq!(names(&known.controlled_by("one")), [] as [&str; 0], "a list that is half there is none");
    filler.note(Event::InitDone, &changed);
    assert_eq!((names(&known.controlled_by("one")), received().len()), (vec!["a".to_owned()], 2));
    assert_eq!(names(&known.controlled_by("no-controller")), [] as [&str; 0]);
    filler.note(Event::Apply(instance("a", "one", "3")), &changed);
    assert_eq!(received(), [] as [&str; 0], "nothing but its version and managedFields is different");
    assert_eq!(known.named("ns", "a").unwrap().read().unwrap().metadata.resource_version.as_deref(), Some("3"));
    filler.note(Event::Apply(instance("a", "three", "4")), &changed);
    assert_eq!(
        (known.controlled_by("one").len(), known.controlled_by("three").len(), received()),
        (0, 1, vec!["a".into(), "a".into()]),
        "who controlled it until now looks as well"
    );
    filler.note(Event::Delete(instance("a", "three", "5")), &changed);
    assert_eq!((known.controlled_by("three").len(), received()), (0, vec!["a".to_owned()]));
    // The watch was broken, and `b` was deleted meanwhile.
    filler.note(Event::Init, &changed);
    filler.note(Event::InitDone, &changed);
    assert_eq!((known.controlled_by("two").len(), received()), (0, vec!["b".to_owned()]));
}

#[test]
fn of_annotations_the_trace_is_at_hand() {
    let of = |annotations: Value| {
        let object = json!({"metadata": {"name": "a", "namespace": "ns", "annotations": annotations}, "spec": {}});
        let object: Cached<Machines> = serde_json::from_value(object).unwrap();
        kube::Resource::meta(&object).annotations.clone()
    };
    let trace = json!({"garboard.dev/trace": "t", "other": "o"});
    assert_eq!(of(trace), Some([("garboard.dev/trace".to_owned(), "t".to_owned())].into()));
    assert_eq!([of(json!({"other": "o"})), of(json!(null))], [None, None]);
}

#[test]
fn a_list_with_an_object_that_cannot_be_read_is_read() {
    let bad = json!({"metadata": {"name": "bad"}, "spec": {"domain": {"devices": {}}}, "status": {"memory": {"guestCurrent": "1e1.5"}}});
    let list =
        json!({"metadata": {}, "items": [bad, {"metadata": {"name": "good"}, "spec": {"domain": {"devices": {}}}}]});
    let list: kube::core::ObjectList<Cached<Instances>> = serde_json::from_value(list).unwrap();
    assert!(list.items[1].read().is_ok());
    let problem = list.items[0].read().unwrap_err();
    assert_eq!(problem.kind, "VirtualMachineInstance");
    assert!(!problem.problem.is_empty() && problem.problem.chars().count() <= 301);
    assert_eq!(format!("{:?}", list.items[0]), "VirtualMachineInstance /bad", "its content is not for logs");
}

#[test]
fn a_manifest_is_not_kept_twice() {
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": "x".repeat(20_000), "kubevirt.io/vm-generation": "2"});
    let object = json!({"metadata": {"name": "a", "annotations": annotations}, "spec": {"domain": {"devices": {}}}});
    let instance: Cached<Instances> = serde_json::from_value(object.clone()).unwrap();
    let machine: Cached<Machines> = serde_json::from_value(object).unwrap();
    for kept in [instance.raw(), machine.raw()] {
        assert_eq!(kept["metadata"]["annotations"], json!({"kubevirt.io/vm-generation": "2"}));
    }
}

#[test]
fn of_a_pod_only_what_decisions_need_is_kept() {
    let padding = "x".repeat(20_000);
    let claims = garboard_cluster::report::claims::ANNOTATION;
    let object: Value = json!({
        "metadata": {"name": "p", "namespace": "ns", "labels": {"a": padding},
            "annotations": {"garboard.dev/order": padding, claims: "{}"}},
        "spec": {"nodeName": "n", "containers": [{"name": "compute", "image": "launcher:1", "readinessProbe": {"exec": {}},
            "resources": {"limits": {"memory": "1Gi", "cpu": "1"}, "requests": {"memory": padding}}},
            {"name": "other", "image": padding}],
            "terminationGracePeriodSeconds": 60, "volumes": [{"name": padding}]},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "Ready", "status": "True"}],
            "hostIP": padding, "initContainerStatuses": [{"name": "launcher", "image": padding, "imageID": padding, "ready": true,
                "restartCount": 0, "containerID": padding, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]},
    });
    let kept: Cached<Pods> = serde_json::from_value(object).unwrap();
    assert!(kept.raw().to_string().len() < 600, "{}", kept.raw());
    let pod = kept.read().unwrap();
    assert!(pod.metadata.annotations.unwrap().contains_key(claims));
    let spec = pod.spec.unwrap();
    assert_eq!(spec.termination_grace_period_seconds, Some(60), "a stop may ask for more");
    let compute = &spec.containers[0];
    assert!(compute.readiness_probe.is_some());
    assert_eq!(compute.image.as_deref(), Some("launcher:1"), "an upgrade compares it");
    let limits = compute.resources.as_ref().unwrap().limits.as_ref().unwrap();
    assert_eq!(limits["memory"].0, "1Gi", "an end without memory names it");
    let status = pod.status.unwrap();
    assert_eq!(status.pod_ips.unwrap()[0].ip, "10.0.0.1");
    assert!(status.init_container_statuses.unwrap()[0].state.as_ref().unwrap().running.is_some());
}
