//! Who counts, who goes first, and that a decision that was carried out leaves nothing to do.

mod fixpoint;

use garboard_api::v1::VirtualMachineInstanceReplicaSetStatus;
use garboard_api::{Phase, VirtualMachineInstanceReplicaSet};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::decide::{BURST, Decision, World, decide, free_names, missing};
use super::member::{Member, Progress};
use super::status;
use crate::events::EventReason;
use garboard_api::conditions::Reason;

fn set(replicas: i32) -> VirtualMachineInstanceReplicaSet {
    serde_json::from_value(json!({
        "metadata": {"name": "set", "namespace": "ns", "uid": "set-uid"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}}, "template": {
            "metadata": {"labels": {"app": "x"}}, "spec": {"domain": {"devices": {}}},
        }},
    }))
    .unwrap()
}

/// An instance of the set, made in this second.
fn member(name: &str, phase: Phase, second: i64) -> Member {
    let owners = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "name": "set",
        "uid": "set-uid", "controller": true, "blockOwnerDeletion": true}]);
    Member {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        resource_version: Some("1".to_owned()),
        labels: [("app".to_owned(), "x".to_owned())].into(),
        owners: serde_json::from_value(owners).unwrap(),
        created: Timestamp::from_second(second).ok(),
        leaves: false,
        progress: Progress {
            phase,
            is_ready: phase == Phase::Running,
            pod_leaves: false,
            is_lost: phase == Phase::Unknown,
        },
    }
}

fn world(replicas: i32, members: Vec<Member>) -> World {
    let mut world = World { set: set(replicas), members, free: Vec::new(), now: Timestamp::from_second(1000).unwrap() };
    look(&mut world);
    world
}

/// Looks for names again.
fn look(world: &mut World) {
    let is_taken = |name: &str| world.members.iter().any(|member| member.name == name);
    world.free = free_names(&world.set, missing(&world.set, &world.members), is_taken);
}

fn running(count: i64) -> Vec<Member> {
    (0..count).map(|number| member(&format!("r{number}"), Phase::Running, number)).collect()
}

fn names(victims: &[super::decide::Victim]) -> Vec<&str> {
    victims.iter().map(|victim| victim.name.as_str()).collect()
}

/// How many are created, too many, and over.
fn counts(decision: &Decision) -> (usize, usize, usize) {
    (decision.create.len(), decision.excess.len(), decision.finished.len())
}

#[test]
fn as_many_as_are_wanted() {
    for (wanted, there, expected) in
        [(3, 0, (3, 0, 0)), (3, 2, (1, 0, 0)), (2, 2, (0, 0, 0)), (1, 3, (0, 2, 0)), (0, 2, (0, 2, 0))]
    {
        assert_eq!(counts(&decide(&world(wanted, running(there)))), expected, "{there} of {wanted}");
    }
    assert_eq!(decide(&world(1000, Vec::new())).create.len(), BURST);
    assert_eq!(decide(&world(0, running(300))).excess.len(), BURST);
}

#[test]
fn what_is_over_is_replaced_at_once_and_what_leaves_does_not_count() {
    let mut ending = member("ending", Phase::Running, 1);
    ending.progress.pod_leaves = true;
    let mut leaving = member("leaving", Phase::Running, 1);
    leaving.leaves = true;
    let mut of_another_program = member("a", Phase::Unknown, 1);
    of_another_program.progress.is_lost = false;
    let table = [
        (member("a", Phase::Succeeded, 1), (1, 0, 1)),
        (member("a", Phase::Failed, 1), (1, 0, 1)),
        (ending, (1, 0, 1)),
        (leaving, (1, 0, 0)),
        (member("a", Phase::Unknown, 1), (1, 0, 1)),
        (member("a", Phase::Unknown, 999), (1, 0, 1)),
        (of_another_program, (0, 0, 0)),
        (member("a", Phase::Pending, 1), (0, 0, 0)),
    ];
    for (member, expected) in table {
        let decision = decide(&world(1, vec![member.clone()]));
        assert_eq!(counts(&decision), expected, "{member:?}");
        assert!(!decision.create.contains(&member.name));
    }
}

#[test]
fn one_that_fails_at_once_is_replaced_after_a_while() {
    let fresh = world(1, vec![member("a", Phase::Failed, 996)]);
    let decision = decide(&fresh);
    assert_eq!((counts(&decision), decision.recheck.map(|rest| rest.as_secs())), ((0, 0, 0), Some(6)));
    assert_eq!(decision.status.replicas, Some(0));
    let later = World { now: Timestamp::from_second(1006).unwrap(), ..fresh };
    assert_eq!((counts(&decide(&later)), decide(&later).recheck), ((1, 0, 1), None));
}

#[test]
fn who_serves_nobody_goes_first_and_then_who_came_last() {
    let mut unready = member("unready", Phase::Running, 1);
    unready.progress.is_ready = false;
    let members = vec![
        member("oldest", Phase::Running, 1),
        member("newest", Phase::Running, 9),
        unready,
        member("pending", Phase::Pending, 1),
        member("pending-later", Phase::Pending, 5),
    ];
    for (wanted, expected) in [
        (4, vec!["pending-later"]),
        (3, vec!["pending-later", "pending"]),
        (2, vec!["pending-later", "pending", "unready"]),
        (1, vec!["pending-later", "pending", "unready", "newest"]),
    ] {
        assert_eq!(names(&decide(&world(wanted, members.clone())).excess), expected);
    }
}

#[test]
fn who_is_selected_and_alone_is_adopted_and_who_is_not_selected_any_more_released() {
    let mut alone = member("alone", Phase::Running, 1);
    alone.owners.clear();
    let mut astray = member("astray", Phase::Running, 1);
    astray.labels.clear();
    astray
        .owners
        .push(serde_json::from_value(json!({"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x"})).unwrap());
    let decision = decide(&world(2, vec![alone, astray]));
    let claims: Vec<_> = decision.claims.iter().map(|claim| (claim.name.as_str(), claim.is_adopted)).collect();
    assert_eq!(claims, [("alone", true), ("astray", false)]);
    assert_eq!(decision.claims[0].owners[0].uid, "set-uid");
    assert_eq!(decision.claims[1].owners.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(), ["x"]);
    assert_eq!((counts(&decision), decision.status.replicas), ((1, 0, 0), Some(1)), "the one counts, the other not");
}

#[test]
fn a_paused_set_claims_and_counts_and_nothing_else() {
    let mut paused = world(2, vec![member("a", Phase::Succeeded, 1), member("b", Phase::Running, 1)]);
    paused.set.spec.paused = Some(true);
    paused.members[1].owners.clear();
    let decision = decide(&paused);
    assert_eq!((counts(&decision), decision.claims.len()), ((0, 0, 0), 1));
    assert_eq!((decision.status.replicas, decision.status.ready_replicas), (Some(1), Some(1)));
    let [condition] = decision.status.conditions.as_slice() else { panic!("{:?}", decision.status) };
    assert_eq!((condition.r#type.as_str(), condition.status.as_str()), ("ReplicaPaused", "True"));
    paused.set.status = Some(decision.status);
    paused.set.spec.paused = Some(false);
    assert_eq!(decide(&paused).status.conditions, []);
}

#[test]
fn a_set_that_is_being_deleted_leaves_its_instances_to_the_garbage_collector() {
    let mut alone = member("alone", Phase::Running, 1);
    alone.owners.clear();
    let mut leaving = world(5, vec![alone, member("over", Phase::Succeeded, 1)]);
    leaving.set.metadata.deletion_timestamp = Some(Time(leaving.now));
    let decision = decide(&leaving);
    assert!(!decision.acts() && decision.status.replicas == Some(0), "{decision:?}");
}

#[test]
fn a_failure_is_reported_since_the_first_time_and_goes_when_nothing_fails() {
    let empty = VirtualMachineInstanceReplicaSetStatus::default();
    let mut world = world(1, Vec::new());
    let failed = status::because(&decide(&world).status, &empty, Reason::FailedCreate, "no", world.now);
    assert!(status::is_known(&failed, "no") && !status::is_known(&failed, "another"));
    world.set.status = Some(failed.clone());
    world.now = Timestamp::from_second(2000).unwrap();
    let again = status::because(&decide(&world).status, &failed, Reason::FailedCreate, "no", world.now);
    assert_eq!(again, failed);
    assert_eq!(decide(&world).status.conditions, []);
}

#[test]
fn a_pause_and_its_end_are_events() {
    let mut paused = world(0, Vec::new());
    let before = decide(&paused).status;
    paused.set.spec.paused = Some(true);
    let after = decide(&paused).status;
    let reason = |one, other| status::pause_changed(one, other).map(|event| event.reason);
    assert_eq!(reason(&before, &after), Some(EventReason::Of(Reason::SuccessfulPaused)));
    assert_eq!(reason(&after, &before), Some(EventReason::Of(Reason::SuccessfulResumed)));
    assert_eq!(reason(&after, &after), None);
}
