//! What is installed, and what images are stored as.

use k8s_openapi::api::apps::v1::Deployment;

use super::super::apply::{Stored, taken};
use super::super::installed::{current_agents, names};
use super::*;

#[test]
fn agents_of_the_installed_version_that_are_ready_are_found() {
    let set = |updated: i32| {
        serde_json::from_value(json!({
            "metadata": {"generation": 3},
            "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "node", "image": "node:2"}]}}},
            "status": {"currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 2,
                "updatedNumberScheduled": updated, "observedGeneration": 3},
        }))
        .unwrap()
    };
    let agent = |node: &str, image: &str, ready: &str| {
        serde_json::from_value(json!({
            "spec": {"nodeName": node, "containers": [{"name": "node", "image": image}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    };
    let pods = [agent("a", "node:2", "True"), agent("b", "node:1", "True"), agent("c", "node:2", "False")];
    assert_eq!(current_agents(&set(1), &pods), ["a".to_owned()].into());
    assert_eq!(current_agents(&set(2), &pods), ["a".to_owned(), "b".to_owned()].into(), "its image was rewritten");
}

fn deployment(container: Value, status: Value) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"generation": 3},
        "spec": {"selector": {}, "template": {"spec": {"containers": [container]}}},
        "status": status,
    }))
    .unwrap()
}

#[test]
fn the_deployment_has_whose_turn_it_is() {
    let is_named = |container: Value| names(&deployment(container, json!({})), NEW);
    assert!(is_named(json!({"name": "c", "args": ["--emulation", "--launcher-image=launcher:2"]})));
    assert!(is_named(json!({"name": "c", "command": ["garboard-controller", "--launcher-image", "launcher:2"]})));
    assert!(is_named(json!({"name": "c", "env": [{"name": "GARBOARD_LAUNCHER_IMAGE", "value": "launcher:2"}]})));
    assert!(
        !is_named(json!({"name": "c", "args": ["--launcher-image=launcher:3"]})),
        "another version is being installed"
    );
    let whole = json!({"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2});
    let half = json!({"observedGeneration": 3, "replicas": 3, "updatedReplicas": 1});
    for hidden in [json!({"name": "c"}), json!({"name": "c", "args": ["--launcher-image=$(IMAGE)"]})] {
        assert!(names(&deployment(hidden.clone(), whole.clone()), NEW), "all its pods are of its template");
        assert!(!names(&deployment(hidden.clone(), half.clone()), NEW));
        assert!(!names(&deployment(hidden, json!({})), NEW));
    }
}

#[test]
fn a_leader_that_is_not_the_installed_one_does_nothing_and_begins_anew_when_it_is() {
    let mut world = many(4, 2);
    world.is_installed = false;
    let begun = RoundMemory { is_proven: true, ..RoundMemory::default() };
    let decision = decide(&world, &begun);
    assert_eq!((decision.steps, decision.memory), (vec![], RoundMemory::default()));
    world.is_installed = true;
    assert_eq!(set(&decide(&world, &begun)).len(), 4);
}

#[test]
fn agents_are_asked_for_only_where_a_supervisor_may_be_replaced() {
    let mut world = many(2, 2);
    assert!(may_begin(&world, &RoundMemory::default()));
    world.is_on = false;
    assert!(!may_begin(&world, &RoundMemory::default()), "it is switched off");
    let (mut world, decision) = failed();
    assert!(!may_begin(&world, &decision.memory), "it pauses");
    world.launchers.insert("0000".into(), old("0000", "node-0"));
    world.now += FIRST_PAUSE;
    let next = decide(&world, &decision.memory);
    assert!(may_begin(&world, &next.memory));
}

#[test]
fn a_pod_has_what_was_written_into_it() {
    let written =
        |pod: &mut Value| pod["metadata"]["annotations"] = json!({"garboard.dev/launcher-image": "launcher:2"});
    assert_eq!(read(pod(written)).unwrap().written_image.as_deref(), Some("launcher:2"));
    assert_eq!(read(pod(|_| {})).unwrap().written_image, None, "an earlier version made it");
}

#[test]
fn another_name_of_the_wanted_image_is_as_good() {
    let world = many(1, 1);
    let launcher = &world.launchers["0000"];
    let stored = |written: &str, stored: &str| taken(&world, launcher, written, Some(stored.to_owned()));
    assert_eq!(stored(NEW, NEW).unwrap(), None);
    assert_eq!(stored(NEW, "mirror/launcher:2").unwrap().as_deref(), Some("mirror/launcher:2"));
    assert!(matches!(stored(NEW, OLD), Err(Stored::AsBefore { .. })), "it would be outdated for ever");
    assert!(matches!(stored(OLD, "mirror/launcher:1"), Err(Stored::NotPutBack { .. })));
}
