//! Who counts, who goes, who follows the template when, and that a decision that was carried out leaves nothing to do.

mod fixpoint;
mod updates;

use garboard_api::conditions::Reason;
use garboard_api::metadata::label;
use garboard_api::run_strategy::RunStrategy;
use garboard_api::v1::VirtualMachinePoolStatus;
use garboard_api::{PrintableStatus, VirtualMachinePool, pool as names, selector};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::decide::{Decision, Records, Step, World, decide, free_numbers, missing};
use super::member::{Instance, Member, State};
use super::{status, update};
use crate::events::EventReason;
use crate::replica_set::decide::{BURST, Victim};

/// A pool with these fields beside its selector and template.
fn pool(replicas: i32, more: Value) -> VirtualMachinePool {
    let mut spec = json!({
        "replicas": replicas, "selector": {"matchLabels": {"app": "x"}},
        "virtualMachineTemplate": {"metadata": {"labels": {"app": "x"}}, "spec": {"runStrategy": "Always", "template": {
            "metadata": {"labels": {"tier": "front"}}, "spec": {"domain": {"devices": {}}, "hostname": "first"},
        }}},
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let metadata = json!({"name": "p", "namespace": "ns", "uid": "pool-uid", "generation": 1});
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// A machine of the pool that runs what the pool makes now, created in this second.
fn member(pool: &VirtualMachinePool, number: u32, second: i64) -> Member {
    let name = names::name(pool, number);
    let revision = names::revision_name(pool);
    let instance =
        Instance { uid: format!("{name}-vmi"), revision: Some(revision.clone()), is_ready: true, leaves: false };
    Member {
        uid: format!("{name}-uid-{second}"),
        name,
        resource_version: Some("1".to_owned()),
        labels: [("app".to_owned(), "x".to_owned()), (label::POOL_REVISION.to_owned(), revision)].into(),
        owners: names::owner(pool).into_iter().collect(),
        created: Timestamp::from_second(second).ok(),
        leaves: false,
        is_retired: false,
        state: State {
            is_ready: true,
            shown: Some(PrintableStatus::Running),
            strategy: Some(RunStrategy::Always),
            ..State::default()
        },
        instance: Some(instance),
    }
}

fn members(pool: &VirtualMachinePool, count: u32) -> Vec<Member> {
    (0..count).map(|number| member(pool, number, i64::from(number))).collect()
}

fn world(pool: VirtualMachinePool, members: Vec<Member>) -> World {
    let now = Timestamp::from_second(1000).unwrap();
    let mut world = World { pool, members, free: Vec::new(), waits: false, records: Records::new(), now, chance: 7 };
    look(&mut world);
    world
}

/// Looks for numbers again.
fn look(world: &mut World) {
    let is_taken = |name: &str| world.members.iter().any(|member| member.name == name);
    world.free = free_numbers(&world.pool, missing(&world.pool, &world.members), is_taken);
}

fn created(decision: &Decision) -> Vec<u32> {
    decision
        .create
        .iter()
        .map(|step| if let Step::Create(number) = step { *number } else { panic!("{step:?}") })
        .collect()
}

/// The names of machines that are deleted, and why.
fn deleted(decision: &Decision) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for step in &decision.delete {
        if let Step::Delete { victim, why, .. } = step {
            found.push((victim.name.as_str(), *why));
        }
    }
    found
}

fn victim(member: &Member) -> Victim {
    Victim { name: member.name.clone(), uid: member.uid.clone() }
}

#[test]
fn the_lowest_free_numbers_are_made() {
    let pool = pool(5, json!({}));
    let three = [0, 2, 7].map(|number| member(&pool, number, 1)).to_vec();
    let decision = decide(&world(pool.clone(), three));
    assert_eq!((created(&decision), decision.status.replicas), (vec![1, 3], Some(3)));
    assert_eq!(decision.record, None, "its machines name the record");
    let decision = decide(&world(pool.clone(), Vec::new()));
    assert_eq!((created(&decision), decision.record), (vec![0, 1, 2, 3, 4], Some([].into())));
    let many = self::pool(1000, json!({}));
    assert_eq!(decide(&world(many, Vec::new())).create.len(), BURST);
}

#[test]
fn a_machine_that_leaves_has_its_number_until_it_is_gone() {
    let pool = pool(2, json!({}));
    let mut two = members(&pool, 2);
    two[1].leaves = true;
    let leaving = decide(&world(pool.clone(), two.clone()));
    assert_eq!((created(&leaving), leaving.status.replicas), (vec![], Some(1)));
    two.pop();
    assert_eq!(created(&decide(&world(pool, two))), [1]);
}

#[test]
fn a_number_whose_volumes_are_still_being_removed_waits() {
    let pool = pool(2, json!({}));
    let mut waiting = world(pool.clone(), members(&pool, 1));
    (waiting.free, waiting.waits) = (Vec::new(), true);
    let decision = decide(&waiting);
    assert_eq!((created(&decision), decision.recheck.map(|pause| pause.as_secs())), (vec![], Some(1)));
}

#[test]
fn who_is_too_many_goes_by_the_strategy() {
    let of = |strategy: Value| {
        let pool = pool(1, json!({ "scaleInStrategy": strategy }));
        let three = members(&pool, 3);
        let decision = decide(&world(pool, three));
        deleted(&decision).into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
    };
    let sorted = |order: &str| json!({"proactive": {"selectionPolicy": {"sortPolicy": order}}});
    assert_eq!(of(sorted("DescendingOrder")), ["p-2", "p-1"]);
    assert_eq!(of(sorted("AscendingOrder")), ["p-0", "p-1"]);
    assert_eq!(of(sorted("Newest")), ["p-2", "p-1"]);
    assert_eq!((of(json!({})).len(), of(json!({"proactive": {}})).len()), (2, 2));
    assert_eq!(of(json!({"unmanaged": {}})), [] as [&str; 0]);
    assert_eq!(of(json!({"opportunistic": {}})), [] as [&str; 0]);
    let back = json!({"labelSelector": {"matchLabels": {"tier": "back"}}});
    let selected = json!({"proactive": {"selectionPolicy": {"selectors": back}}});
    assert_eq!(of(selected), [] as [&str; 0], "none of them is taken");
}

#[test]
fn where_volumes_are_kept_a_machine_is_stopped_first_and_then_let_go() {
    let kept =
        json!({"proactive": {"statePreservation": "Offline", "selectionPolicy": {"sortPolicy": "DescendingOrder"}}});
    let pool = pool(1, json!({ "scaleInStrategy": kept }));
    let mut two = members(&pool, 2);
    let last = victim(&two[1]);
    let decision = decide(&world(pool.clone(), two.clone()));
    assert_eq!(decision.delete, [Step::Retire(last.clone())]);
    two[1].is_retired = true;
    two[1].state.strategy = Some(RunStrategy::Halted);
    let stopping = decide(&world(pool.clone(), two.clone()));
    assert_eq!((&stopping.delete[..], stopping.status.replicas), (&[][..], Some(1)), "its guest still shuts down");
    two[1].instance = None;
    assert_eq!(decide(&world(pool.clone(), two.clone())).delete, [], "its controller has not reported it yet");
    two[1].state.is_down = true;
    assert_eq!(decide(&world(pool.clone(), two.clone())).delete, [Step::LetGo(last.clone())]);
    // Its number comes back, when it is gone.
    let more = VirtualMachinePool {
        spec: garboard_api::v1::VirtualMachinePoolSpec { replicas: Some(2), ..pool.spec.clone() },
        ..pool.clone()
    };
    let decision = decide(&world(more, two.clone()));
    assert_eq!((created(&decision), &decision.delete[..]), (vec![], &[Step::LetGo(last.clone())][..]));
    two[1].state.strategy = Some(RunStrategy::Always);
    assert_eq!(decide(&world(pool, two)).delete, [Step::Retire(last)], "a user has started it again");
}

#[test]
fn one_that_does_not_start_goes_with_its_volumes() {
    let kept = json!({"proactive": {"statePreservation": "Offline"}});
    let healing = pool(2, json!({"autohealing": {}, "scaleInStrategy": kept}));
    let mut two = members(&healing, 2);
    two.iter_mut().for_each(|each| each.instance = None);
    two[0].state.failures = 3;
    two[1].state = State {
        shown: Some(PrintableStatus::ErrImagePull),
        not_ready_since: Timestamp::from_second(880).ok(),
        ..State::default()
    };
    let decision = decide(&world(healing.clone(), two.clone()));
    assert_eq!(deleted(&decision), [("p-0", "it does not start")]);
    assert_eq!(decision.recheck.map(|pause| pause.as_secs()), Some(180));
    assert_eq!(created(&decision), [] as [u32; 0], "its number comes when it is gone");
    let mut careless = world(pool(2, json!({})), two.clone());
    assert_eq!((deleted(&decide(&careless)).len(), decide(&careless).recheck), (0, None));
    // One of three is too many: the one that fails is it.
    careless.pool = pool(2, json!({"autohealing": {}}));
    careless.members.push(member(&careless.pool, 2, 1));
    assert_eq!(deleted(&decide(&careless)), [("p-0", "it does not start")]);
}

#[test]
fn a_deletion_names_the_version_that_it_was_decided_on_and_waits_for_the_newest() {
    let healing = pool(1, json!({"autohealing": {}}));
    let mut one = members(&healing, 1);
    (one[0].instance, one[0].state.failures) = (None, 3);
    let decision = decide(&world(healing.clone(), one.clone()));
    let [Step::Delete { victim, resource_version, instance, .. }] = decision.delete.as_slice() else { panic!() };
    assert_eq!((victim.name.as_str(), resource_version.as_deref(), instance), ("p-0", Some("1"), &None));
    assert!(decision.needs_list(), "what the store has is not enough");
    // What it shows is of the version before: its guest may run by now.
    one[0].state.is_stale = true;
    let decision = decide(&world(healing, one));
    assert_eq!((decision.acts(), decision.recheck.map(|pause| pause.as_secs())), (false, Some(1)));
    // For one that is too many it counts who it is, and not what it does.
    let fewer = pool(0, json!({}));
    let mut excess = members(&fewer, 1);
    excess[0].state.is_stale = true;
    assert_eq!(deleted(&decide(&world(fewer, excess))), [("p-0", "too many")]);
}

#[test]
fn what_a_pool_of_this_name_has_left_is_adopted_and_nothing_else() {
    let pool = pool(4, json!({}));
    let mut left = member(&pool, 1, 1);
    left.owners.clear();
    let mut astray = member(&pool, 2, 1);
    astray.labels.remove("app");
    astray
        .owners
        .push(serde_json::from_value(json!({"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x"})).unwrap());
    let mut users = member(&pool, 3, 1);
    users.owners.clear();
    users.labels.remove(label::POOL_REVISION);
    let mut named = member(&pool, 0, 1);
    named.owners.clear();
    named.name = "other".to_owned();
    let decision = decide(&world(pool, vec![left, astray, users, named]));
    let claims: Vec<_> =
        decision.claims.iter().map(|step| if let Step::Claim(claim) = step { claim } else { panic!() }).collect();
    let found: Vec<_> = claims.iter().map(|claim| (claim.name.as_str(), claim.is_adopted)).collect();
    assert_eq!(found, [("p-1", true), ("p-2", false)]);
    assert_eq!(claims[0].owners[0].uid, "pool-uid");
    assert_eq!(claims[1].owners.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(), ["x"]);
    // p-2 and p-3 are names of others.
    assert_eq!((created(&decision), decision.status.replicas), (vec![0, 4, 5], Some(1)));
}

#[test]
fn a_paused_pool_claims_and_counts_and_nothing_else() {
    let pool = pool(3, json!({"paused": true, "autohealing": {}}));
    let mut two = members(&pool, 2);
    two[0].owners.clear();
    two[1].state.failures = 9;
    two[1].labels.insert(label::POOL_REVISION.to_owned(), "p-before".to_owned());
    let paused = world(pool.clone(), two);
    let decision = decide(&paused);
    assert!(decision.claims.len() == 1 && decision.create.is_empty() && decision.delete.is_empty());
    assert!(decision.update.is_empty() && update::named_records(&paused.pool, &paused.members).is_empty());
    assert_eq!((decision.status.replicas, decision.status.ready_replicas), (Some(2), Some(2)));
    let [condition] = decision.status.conditions.as_slice() else { panic!("{:?}", decision.status) };
    assert_eq!((condition.r#type.as_str(), condition.reason.as_deref()), ("ReplicaPaused", Some("SuccessfulPaused")));
    let mut resumed = pool;
    resumed.status = Some(decision.status);
    resumed.spec.paused = Some(false);
    assert_eq!(decide(&world(resumed, Vec::new())).status.conditions, []);
}

#[test]
fn a_pool_that_is_being_deleted_leaves_its_machines_to_the_garbage_collector() {
    let mut pool = pool(5, json!({"autohealing": {}}));
    let mut two = members(&pool, 2);
    two[0].owners.clear();
    two[1].state.failures = 9;
    pool.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(1000).unwrap()));
    let decision = decide(&world(pool, two));
    assert!(!decision.acts() && decision.status.replicas == Some(1), "{decision:?}");
}

#[test]
fn the_status_has_the_selector_as_text_and_who_is_ready() {
    let pool = pool(2, json!({}));
    let mut two = members(&pool, 2);
    two[1].state.is_ready = false;
    let status = decide(&world(pool.clone(), two)).status;
    assert_eq!((status.replicas, status.ready_replicas), (Some(2), Some(1)));
    assert_eq!(status.label_selector, Some(selector::text(&pool.spec.selector)));
}

#[test]
fn a_failure_is_reported_since_the_first_time_and_goes_when_nothing_fails() {
    let empty = VirtualMachinePoolStatus::default();
    let mut world = world(pool(1, json!({})), Vec::new());
    let failed = status::because(&decide(&world).status, &empty, Reason::FailedScaleOut, "no", world.now);
    assert!(status::is_known(&failed, "no") && !status::is_known(&failed, "another"));
    world.pool.status = Some(failed.clone());
    world.now = Timestamp::from_second(2000).unwrap();
    let again = status::because(&decide(&world).status, &failed, Reason::FailedScaleOut, "no", world.now);
    assert_eq!(again, failed);
    assert_eq!(decide(&world).status.conditions, []);
}

#[test]
fn a_pause_and_its_end_are_events_with_kubevirts_names() {
    let before = decide(&world(pool(0, json!({})), Vec::new())).status;
    let after = decide(&world(pool(0, json!({"paused": true})), Vec::new())).status;
    let reason = |one, other| status::pause_changed(one, other).map(|event| event.reason);
    assert_eq!(reason(&before, &after), Some(EventReason::Of(Reason::SuccessfulPaused)));
    assert_eq!(reason(&after, &before), Some(EventReason::Of(Reason::SuccessfulResume)));
    assert_eq!(reason(&after, &after), None);
}
