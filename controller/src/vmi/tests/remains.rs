//! A pod that is gone, and what may be left of it.

use super::*;
use crate::vmi::history::Place;
use crate::vmi::remains::{ASK_AGAIN, lives};

#[test]
fn a_pod_that_is_taken_away_by_force_is_waited_for() {
    let mut world = world(json!([]));
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:10Z"}]);
    let status = world.vmi.status.as_mut().unwrap();
    status.phase = Some(Phase::Running.name().to_owned());
    status.conditions = serde_json::from_value(ready).unwrap();
    let waiting = decide(&world);
    assert_eq!((phase(&waiting), waiting.recheck), ("Running", Some(std::time::Duration::from_secs(8))));
    assert_eq!(condition(&waiting, "Ready"), Some(("False", "PodNotExists")));
    // Nor does its object go: another instance would be made.
    world.vmi.status = Some(waiting.status);
    world.history.missing = Some(world.now);
    world.vmi.metadata.deletion_timestamp = Some(Time(world.now));
    world.now = Timestamp::from_second(1007).unwrap();
    assert_eq!((decide(&world).steps, phase(&decide(&world))), (vec![], "Running"));
    world.now = Timestamp::from_second(1008).unwrap();
    assert!(matches!(decide(&world).steps.as_slice(), [Step::RemoveFinalizer { .. }]));
    world.vmi.metadata.deletion_timestamp = None;
    assert_eq!(phase(&decide(&world)), "Failed", "it is not known how it ended");
}

/// The status of an instance that a controller placed on a node.
fn placed(world: &mut World, phase: Phase, active: Value) {
    let status = world.vmi.status.get_or_insert_default();
    (status.phase, status.node_name) = (Some(phase.name().to_owned()), Some("node-1".to_owned()));
    status.active_pods = serde_json::from_value(active).unwrap();
}

#[test]
fn the_agent_of_a_living_node_answers_before_anything_follows_a_pod_that_is_gone() {
    let mut world = world(json!([]));
    placed(&mut world, Phase::Running, json!({"pod-uid": "node-1"}));
    (world.agent_lives, world.history.missing) = (true, Some(Timestamp::UNIX_EPOCH));
    let waiting = decide(&world);
    assert_eq!((phase(&waiting), waiting.recheck), ("Running", Some(ASK_AGAIN)), "however long ago");
    assert_eq!(condition(&waiting, "Ready"), Some(("False", "PodNotExists")));
    let ready = waiting.status.conditions.iter().find(|each| each.r#type == "Ready").unwrap();
    assert!(ready.message.as_deref().unwrap().contains("the agent of node node-1"), "{ready:?}");
    world.vmi.metadata.deletion_timestamp = Some(Time(world.now));
    assert_eq!(decide(&world).steps, [], "nor does its object go");
    // The answer.
    placed(&mut world, Phase::Running, json!({"pod-uid": ""}));
    world.history.missing = Some(world.now);
    assert!(matches!(decide(&world).steps.as_slice(), [Step::RemoveFinalizer { .. }]), "at once");
    world.vmi.metadata.deletion_timestamp = None;
    assert_eq!(phase(&decide(&world)), "Failed");
    // A node that is lost: the removal of the pod counts.
    placed(&mut world, Phase::Running, json!({"pod-uid": "node-1"}));
    world.agent_lives = false;
    assert_eq!(decide(&world).recheck, Some(KILLED_BY_FORCE));
    world.history.missing = Some(Timestamp::UNIX_EPOCH);
    assert_eq!(phase(&decide(&world)), "Failed");
}

#[test]
fn of_a_quick_start_the_node_is_written_so_that_its_agent_can_answer() {
    let mut world = world(json!([]));
    let place = Place { pod_uid: "pod-uid".to_owned(), node: "node-1".to_owned() };
    let made = PodHistory { made: Some(world.now), placed: Some(true), place: Some(place), ..PodHistory::default() };
    (world.history, world.agent_lives) = (PodHistory { missing: Some(world.now), ..made }, true);
    // An answer about the pod before this one does not count.
    placed(&mut world, Phase::Pending, json!({"pod-before": ""}));
    let asked = decide(&world);
    assert_eq!((phase(&asked), asked.recheck, asked.steps.as_slice()), ("Pending", Some(ASK_AGAIN), &[] as &[Step]));
    assert_eq!(asked.status.node_name.as_deref(), Some("node-1"));
    assert_eq!(serde_json::to_value(&asked.status.active_pods).unwrap(), json!({"pod-uid": "node-1"}));
    assert_eq!(asked.labels.get("kubevirt.io/nodeName").map(String::as_str), Some("node-1"));
    placed(&mut world, Phase::Pending, json!({"pod-uid": ""}));
    assert_eq!(phase(&decide(&world)), "Failed");
    // One that a kubelet would not have gets another.
    (world.history.rejected, world.history.refusals) = (true, 1);
    assert_eq!(decide(&world).recheck, Some(KILLED_BY_FORCE), "a kubelet that started again has no devices yet");
    world.now = Timestamp::from_second(1008).unwrap();
    assert!(matches!(decide(&world).steps.as_slice(), [Step::CreatePod(_)]));
    placed(&mut world, Phase::Pending, json!({"pod-uid": "node-1"}));
    assert_eq!(
        (decide(&world).steps, decide(&world).recheck),
        (vec![], Some(ASK_AGAIN)),
        "something may be left of it"
    );
}

#[test]
fn a_question_of_an_earlier_leader_is_answered_before_another_pod_is_made() {
    let mut world = world(json!([]));
    placed(&mut world, Phase::Pending, json!({"pod-uid": "node-1"}));
    (world.agent_lives, world.history.missing) = (true, Some(Timestamp::UNIX_EPOCH));
    let waiting = decide(&world);
    assert_eq!((waiting.steps.as_slice(), waiting.recheck), (&[] as &[Step], Some(ASK_AGAIN)), "its QEMU may run");
    assert_eq!((phase(&waiting), waiting.labels.contains_key("kubevirt.io/nodeName")), ("Pending", true));
    world.vmi.metadata.deletion_timestamp = Some(Time(world.now));
    let leaving = decide(&world);
    assert_eq!(
        (leaving.steps.as_slice(), leaving.recheck),
        (&[] as &[Step], Some(ASK_AGAIN)),
        "nor does its object go"
    );
    world.vmi.metadata.deletion_timestamp = None;
    placed(&mut world, Phase::Pending, json!({"pod-uid": ""}));
    assert!(matches!(decide(&world).steps.as_slice(), [Step::CreatePod(_)]), "nothing is left");
    // A node that is lost.
    placed(&mut world, Phase::Pending, json!({"pod-uid": "node-1"}));
    (world.agent_lives, world.history.missing) = (false, Some(world.now));
    assert_eq!((decide(&world).steps, decide(&world).recheck), (vec![], Some(KILLED_BY_FORCE)));
    world.history.missing = Some(Timestamp::UNIX_EPOCH);
    assert!(matches!(decide(&world).steps.as_slice(), [Step::CreatePod(_)]));
}

#[test]
fn a_new_leader_lets_no_instance_go_whose_pod_it_may_not_know_of() {
    let mut world = world(json!([]));
    let at = |second| Timestamp::from_second(second).unwrap();
    (world.leading_since, world.vmi.metadata.creation_timestamp) = (at(998), Some(Time(at(990))));
    world.vmi.metadata.deletion_timestamp = Some(Time(world.now));
    let waiting = decide(&world);
    assert_eq!((waiting.steps, waiting.recheck), (vec![], Some(std::time::Duration::from_secs(6))));
    world.now = at(1006);
    assert!(matches!(decide(&world).steps.as_slice(), [Step::RemoveFinalizer { .. }]));
    (world.now, world.vmi.metadata.creation_timestamp) = (at(999), Some(Time(at(999))));
    assert!(matches!(decide(&world).steps.as_slice(), [Step::RemoveFinalizer { .. }]), "this one is its own");
}

#[test]
fn what_an_agent_has_reported_of_a_pod_stays_although_the_watch_still_shows_the_pod() {
    let mut world = world(json!([]));
    placed(&mut world, Phase::Running, json!({"pod-uid": ""}));
    world.pod = Some(pod(json!({"phase": "Running"})));
    assert_eq!(decide(&world).status.active_pods.get("pod-uid").map(String::as_str), Some(""));
}

#[test]
fn a_node_lives_while_it_is_ready_and_its_agent_gives_signs() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let node = |ready: &str, taints: Value, sign: &str| {
        let annotations = json!({"kubevirt.io/heartbeat": sign});
        let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
        let node = json!({"metadata": {"annotations": annotations}, "spec": {"taints": taints}, "status": status});
        serde_json::from_value::<k8s_openapi::api::core::v1::Node>(node).unwrap()
    };
    let (sign, none) = ("1970-01-01T00:10:00Z", json!([]));
    // The limit is ten minutes: ADR 21 has it too.
    assert!(lives(&node("True", none.clone(), sign), at(1199)));
    assert!(lives(&node("True", none.clone(), sign), at(500)), "its clock is ahead");
    assert!(!lives(&node("True", none.clone(), sign), at(1200)), "the agent is silent");
    assert!(!lives(&node("Unknown", none.clone(), sign), at(700)));
    assert!(!lives(&node("True", none, "now"), at(700)), "there is no agent");
    let off = json!([{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]);
    assert!(!lives(&node("True", off, sign), at(700)), "an operator declares that it is off");
}

#[test]
fn the_agents_report_ends_the_waiting_for_a_pod_that_is_gone() {
    let mut world = world(json!([]));
    world.vmi.status.as_mut().unwrap().phase = Some(Phase::Succeeded.name().to_owned());
    world.vmi.metadata.deletion_timestamp = Some(Time(world.now));
    assert!(matches!(decide(&world).steps.as_slice(), [Step::RemoveFinalizer { .. }]));
}
