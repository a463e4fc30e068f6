//! Supervisors of running pods, round by round.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use garboard_api::conditions::Reason;
use garboard_api::metadata::label;
use garboard_api::v1::SupervisorStatus;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::apply::{outdated, updated};
use super::decide::{Decision, decide, may_begin};
use super::names::*;
use super::observe::{launcher, reported, view};
use super::world::{InstanceView, Launcher, Reported, RoundMemory, Sidecar, Step, World};
use crate::time::stamp;

mod installed;
mod settling;

const OLD: &str = "launcher:1";
const NEW: &str = "launcher:2";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn old(uid: &str, node: &str) -> Launcher {
    Launcher {
        namespace: "ns".into(),
        pod: format!("virt-launcher-{uid}"),
        pod_uid: uid.into(),
        instance: format!("vm-{uid}"),
        instance_uid: format!("{uid}-vmi"),
        node: node.into(),
        image: OLD.into(),
        first_image: OLD.into(),
        written_image: Some(OLD.into()),
        guest_runs: true,
        restarts: 3,
        state: Sidecar::Runs,
    }
}

fn supervisor(second: i64) -> Option<SupervisorStatus> {
    let started = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(second));
    Some(SupervisorStatus { started_at: Some(started), version: Some("1.0.0".into()) })
}

fn world(launchers: impl IntoIterator<Item = Launcher>) -> World {
    let launchers: BTreeMap<_, _> = launchers.into_iter().map(|each| (each.pod_uid.clone(), each)).collect();
    let seen = |uid: &String| (uid.clone(), InstanceView { supervisor: supervisor(0), ..InstanceView::default() });
    World {
        wanted: NEW.into(),
        is_installed: true,
        is_on: true,
        instances: launchers.keys().map(seen).collect(),
        agents: launchers.values().map(|each| each.node.clone()).collect(),
        launchers,
        unreadable: BTreeSet::new(),
        reported: None,
        now: at(1000),
    }
}

fn many(number: usize, nodes: usize) -> World {
    world((0..number).map(|each| old(&format!("{each:04}"), &format!("node-{}", each % nodes))))
}

/// Images that are set, in order: the pod and the image.
fn set(decision: &Decision) -> Vec<(String, String)> {
    let images = decision.steps.iter().filter_map(|step| match step {
        Step::SetImage { pod_uid, image } => Some((pod_uid.clone(), image.clone())),
        Step::Mark { .. } | Step::Unmark { .. } | Step::Event { .. } | Step::Report { .. } => None,
    });
    images.collect()
}

fn reason(decision: &Decision) -> Option<Reason> {
    decision.steps.iter().find_map(|step| match step {
        Step::Report { reported, .. } => reported.as_ref().and_then(|reported| reported.reason),
        Step::Mark { .. } | Step::Unmark { .. } | Step::SetImage { .. } | Step::Event { .. } => None,
    })
}

/// What a kubelet and an agent make of the images that a decision sets, a moment later.
fn comes_up(world: &mut World, decision: &Decision) {
    world.now += Duration::from_secs(5);
    for (uid, image) in set(decision) {
        let launcher = world.launchers.get_mut(&uid).unwrap();
        launcher.image = image;
        launcher.restarts += 1;
        let started = world.now.as_second();
        world.instances.get_mut(&uid).unwrap().supervisor = supervisor(started);
    }
}

/// Those that have come up run on for as long as it takes until they count as updated.
fn settle(world: &mut World, memory: &RoundMemory) -> Decision {
    let runs = decide(world, memory);
    world.now += SETTLED;
    decide(world, &runs.memory)
}

#[test]
fn what_is_current_costs_nothing() {
    let decision = decide(&world([]), &RoundMemory::default());
    assert_eq!((decision.steps, decision.memory), (vec![], RoundMemory::default()));
}

#[test]
fn the_first_one_is_alone_and_then_some_at_a_time() {
    let mut world = many(40, 10);
    let first = decide(&world, &RoundMemory::default());
    assert_eq!(set(&first), [("0000".to_owned(), NEW.to_owned())]);
    let waits = decide(&world, &first.memory);
    assert_eq!(set(&waits), [], "the watch has not delivered it yet");
    comes_up(&mut world, &first);
    let next = settle(&mut world, &waits.memory);
    assert!(next.steps.contains(&Step::Unmark { pod_uid: "0000".into() }), "{:?}", next.steps);
    assert_eq!(set(&next).len(), AT_ONCE);
    // As the observer does with those that are done.
    world.launchers.remove("0000");
    assert_eq!(set(&decide(&world, &next.memory)), [], "no more at a time");
}

#[test]
fn a_node_has_few_at_a_time() {
    let proven = RoundMemory { is_proven: true, ..RoundMemory::default() };
    assert_eq!(set(&decide(&many(40, 1), &proven)).len(), ON_A_NODE);
    assert_eq!(set(&decide(&many(40, 3), &proven)).len(), 3 * ON_A_NODE);
}

#[test]
fn all_come_up_and_each_is_touched_once() {
    let (mut world, mut memory, mut touched) = (many(33, 4), RoundMemory::default(), Vec::new());
    for _ in 0..100 {
        let decision = decide(&world, &memory);
        touched.extend(set(&decision));
        comes_up(&mut world, &decision);
        memory = decision.memory;
        world.launchers.retain(|uid, each| each.image != NEW || memory.underway.contains_key(uid));
    }
    assert_eq!(world.launchers.len() + memory.underway.len() + memory.marked.len(), 0);
    assert_eq!(touched.len(), 33);
    assert_eq!(touched.iter().map(|(uid, _)| uid).collect::<BTreeSet<_>>().len(), 33);
}

#[test]
fn one_without_a_report_counts_as_updated_when_it_has_settled() {
    let mut world = many(1, 1);
    world.instances.get_mut("0000").unwrap().supervisor = None;
    let first = decide(&world, &RoundMemory::default());
    comes_up(&mut world, &first);
    world.instances.get_mut("0000").unwrap().supervisor = None;
    let second = decide(&world, &first.memory);
    assert!(second.memory.underway.contains_key("0000"));
    world.now += SETTLED;
    assert_eq!(decide(&world, &second.memory).memory.underway.len(), 0);
}

#[test]
fn one_that_runs_and_does_not_report_is_not_believed() {
    let mut world = many(2, 2);
    let first = decide(&world, &RoundMemory::default());
    comes_up(&mut world, &first);
    world.instances.get_mut("0000").unwrap().supervisor = supervisor(0);
    let second = decide(&world, &first.memory);
    world.now += SETTLED;
    let third = decide(&world, &second.memory);
    assert_eq!((set(&third), third.memory.underway.len()), (vec![], 1));
    world.now += DEADLINE;
    let fourth = decide(&world, &third.memory);
    assert_eq!(set(&fourth), [("0000".to_owned(), OLD.to_owned())]);
    assert!(fourth.memory.stop.unwrap().why.contains("no report"));
}

/// The first of two, whose image cannot be pulled, and the decision about it.
fn failed() -> (World, Decision) {
    let mut world = many(2, 2);
    let first = decide(&world, &RoundMemory::default());
    let launcher = world.launchers.get_mut("0000").unwrap();
    launcher.image = NEW.into();
    launcher.state = Sidecar::Waits { reason: "ErrImagePull".into(), message: "not found".into() };
    world.now += Duration::from_secs(5);
    let decision = decide(&world, &first.memory);
    (world, decision)
}

#[test]
fn one_that_fails_gets_its_image_back_and_stops_the_others() {
    let (mut world, decision) = failed();
    assert_eq!(set(&decision), [("0000".to_owned(), OLD.to_owned())]);
    assert_eq!(reason(&decision), Some(STOPPED));
    let alarms = decision.steps.iter().filter(|step| matches!(step, Step::Report { is_alarm: true, .. }));
    assert_eq!(alarms.count(), 1);
    let message = decision.memory.stop.as_ref().unwrap().why.clone();
    assert!(message.contains("ErrImagePull: not found") && message.contains("launcher:1 was put back"), "{message}");
    // The watch shows the pod as it was, for a moment.
    let same = decide(&world, &decision.memory);
    assert_eq!((set(&same), same.memory.stop.unwrap().failures), (vec![], 1));
    world.launchers.insert("0000".into(), old("0000", "node-0"));
    world.now += Duration::from_secs(60);
    assert_eq!(set(&decide(&world, &decision.memory)), [], "nor is any other touched");
}

#[test]
fn the_one_that_failed_is_tried_again_and_the_roll_out_goes_on_when_it_comes_up() {
    let (mut world, decision) = failed();
    world.launchers.insert("0000".into(), old("0000", "node-0"));
    world.now += FIRST_PAUSE;
    let again = decide(&world, &decision.memory);
    assert_eq!(set(&again), [("0000".to_owned(), NEW.to_owned())]);
    let mut cured = world.clone();
    comes_up(&mut cured, &again);
    let on = settle(&mut cured, &again.memory);
    assert_eq!((set(&on), on.memory.stop), (vec![("0001".to_owned(), NEW.to_owned())], None));
    // Or it fails again: the pause is twice as long.
    let launcher = world.launchers.get_mut("0000").unwrap();
    launcher.image = NEW.into();
    launcher.state = Sidecar::Waits { reason: "CrashLoopBackOff".into(), message: String::new() };
    let stop = decide(&world, &again.memory).memory.stop.unwrap();
    assert_eq!((stop.failures, stop.again_at), (2, world.now + FIRST_PAUSE * 2));
}

#[test]
fn what_an_earlier_leader_began_is_brought_to_its_end() {
    let mut begun = old("0000", "node-0");
    begun.image = NEW.into();
    let mut world = world([begun]);
    let first = decide(&world, &RoundMemory::default());
    assert_eq!((set(&first), first.memory.underway.len()), (vec![], 1));
    world.now += SETTLED;
    let done = decide(&world, &first.memory);
    assert!(done.steps.contains(&Step::Unmark { pod_uid: "0000".into() }));
    assert!(!done.memory.is_proven, "this leader has not seen how it was before");
    // It may have failed; what `compute` runs is on the node.
    let launcher = world.launchers.get_mut("0000").unwrap();
    launcher.state = Sidecar::Waits { reason: "ImagePullBackOff".into(), message: String::new() };
    assert_eq!(set(&decide(&world, &first.memory)), [("0000".to_owned(), OLD.to_owned())]);
}

#[test]
fn nothing_is_touched_that_is_not_ready_for_it() {
    let untouched = |change: &dyn Fn(&mut World)| {
        let mut world = many(1, 1);
        change(&mut world);
        let decision = decide(&world, &RoundMemory::default());
        assert_eq!(set(&decision), [], "{world:?}");
        reason(&decision)
    };
    let launcher = |world: &mut World, change: &dyn Fn(&mut Launcher)| change(world.launchers.get_mut("0000").unwrap());
    assert_eq!(untouched(&|world| world.is_on = false), Some(SWITCHED_OFF));
    assert_eq!(untouched(&|world| world.agents.clear()), Some(WAITS_FOR_AGENTS));
    assert_eq!(untouched(&|world| launcher(world, &|each| each.guest_runs = false)), Some(IN_PROGRESS));
    assert_eq!(untouched(&|world| launcher(world, &|each| each.state = Sidecar::Else)), Some(IN_PROGRESS));
}

#[test]
fn instances_are_marked_once_and_the_number_is_reported_now_and_then() {
    let mut world = many(3, 3);
    world.is_on = false;
    let marks = |decision: &Decision| decision.steps.iter().filter(|step| matches!(step, Step::Mark { .. })).count();
    let first = decide(&world, &RoundMemory::default());
    assert_eq!(marks(&first), 3);
    let Some(Step::Report { reported, is_alarm: false }) = first.steps.last().cloned() else {
        panic!("{:?}", first.steps)
    };
    assert_eq!(reported.as_ref().unwrap().outdated, 3);
    world.reported = reported;
    assert_eq!(decide(&world, &first.memory).steps, []);
    world.launchers.remove("0002");
    assert_eq!(decide(&world, &first.memory).steps, [], "not at once");
    world.now += REPORT_INTERVAL;
    assert_eq!(decide(&world, &first.memory).steps.len(), 1);
    world.launchers.clear();
    assert_eq!(decide(&world, &first.memory).steps, [Step::Report { reported: None, is_alarm: false }]);
    // A leader that comes later finds them marked.
    let mut marked = many(1, 1);
    let Some(Step::Mark { message, .. }) = decide(&marked, &RoundMemory::default()).steps.first().cloned() else {
        panic!()
    };
    marked.instances.get_mut("0000").unwrap().marked = Some(message);
    assert_eq!(marks(&decide(&marked, &RoundMemory::default())), 0);
}

fn pod(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u",
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "v", "controller": true}]},
        "spec": {"nodeName": "n", "containers": [{"name": "compute", "image": "launcher:1"}],
            "initContainers": [{"name": "volumeroot", "image": "disk:7"}, {"name": "launcher", "image": "launcher:2"}]},
        "status": {"phase": "Running", "conditions": [{"type": "kubevirt.io/virtual-machine-unpaused", "status": "True"}],
            "initContainerStatuses": [{"name": "launcher", "image": "", "imageID": "", "ready": true, "restartCount": 4, "state": {"running": {}}}]},
    });
    change(&mut pod);
    pod
}

/// Of a pod as the store keeps it.
fn read(pod: Value) -> Option<Launcher> {
    let kept: crate::stores::Cached<crate::stores::Pods> = serde_json::from_value(pod).unwrap();
    launcher(&kept.read().unwrap())
}

#[test]
fn a_launcher_is_read_from_its_pod() {
    let found = read(pod(|_| {})).unwrap();
    assert_eq!((found.image.as_str(), found.first_image.as_str()), ("launcher:2", "launcher:1"));
    assert_eq!((found.restarts, found.state, found.guest_runs), (4, Sidecar::Runs, true));
    assert_eq!((found.instance.as_str(), found.instance_uid.as_str(), found.node.as_str()), ("vm", "v", "n"));
    assert_eq!(read(pod(|pod| pod["status"]["phase"] = json!("Failed"))), None, "it is over");
    assert_eq!(read(pod(|pod| pod["spec"]["nodeName"] = json!(null))), None, "it is nowhere yet");
    let waits = json!({"waiting": {"reason": "ErrImagePull", "message": "no"}});
    let found = read(pod(|pod| pod["status"]["initContainerStatuses"][0]["state"] = waits)).unwrap();
    assert_eq!(found.state, Sidecar::Waits { reason: "ErrImagePull".into(), message: "no".into() });
    assert!(!read(pod(|pod| pod["status"]["conditions"] = json!([]))).unwrap().guest_runs);
    let leaves = pod(|pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    assert!(!read(leaves).unwrap().guest_runs);
}

#[test]
fn a_mark_is_label_and_condition() {
    let vmi = |labels: Value| {
        let condition =
            json!([{"type": OUTDATED_LAUNCHER.name(), "status": "True", "reason": OTHER_IMAGE.name(), "message": "m"}]);
        let metadata = json!({"name": "vm", "labels": labels});
        let spec = json!({"domain": {"devices": {}}});
        let status = json!({"conditions": condition, "supervisor": {"version": "1.0.0"}});
        view(&serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap())
    };
    let marked = vmi(json!({label::OUTDATED_LAUNCHER_IMAGE: ""}));
    assert_eq!(marked.marked.as_deref(), Some("m"));
    assert_eq!(marked.supervisor.unwrap().version.as_deref(), Some("1.0.0"));
    assert_eq!(vmi(json!({})).marked, None);
}

#[test]
fn the_kubevirt_object_is_read_as_it_was_written() {
    let written = json!({"status": {"outdatedVirtualMachineInstanceWorkloads": 7,
        "conditions": [{"type": LAUNCHERS_UPDATED.name(), "status": "False", "reason": IN_PROGRESS.name(), "message": "m"}]}});
    let mut object = serde_json::from_value(written).unwrap();
    let found = reported(&object).unwrap();
    assert_eq!((found.outdated, found.reason, found.message.as_str()), (7, Some(IN_PROGRESS), "m"));
    super::leave_out(&mut object);
    assert_eq!(object.status, Some(Default::default()), "the rest of the status is another's to write");
}

#[test]
fn conditions_keep_the_time_of_their_status_whatever_their_reason_is() {
    let mut world = many(1, 1);
    let launcher = world.launchers["0000"].clone();
    let first = outdated(&world, &launcher, OTHER_IMAGE, "m");
    let (status, since) = (first.status.clone(), first.last_transition_time.clone());
    assert_eq!((status.as_str(), since.as_ref().map(|time| time.0)), ("True", Some(world.now)));
    world.now += Duration::from_secs(60);
    world.instances.get_mut("0000").unwrap().condition = Some(first);
    let failed = outdated(&world, &launcher, UPDATE_FAILED, "n");
    assert_eq!((failed.reason.as_deref(), failed.message.as_deref()), (Some(UPDATE_FAILED.name()), Some("n")));
    assert_eq!(failed.last_transition_time, since);

    let reported = |reason| Reported { outdated: 1, reason: Some(reason), message: "m".to_owned() };
    let begun = updated(&reported(IN_PROGRESS), &[], at(5));
    let stopped = updated(&reported(STOPPED), std::slice::from_ref(&begun), at(9));
    assert_eq!((stopped.status.as_str(), stopped.reason.as_deref()), ("False", Some(STOPPED.name())));
    assert_eq!((stopped.last_transition_time, begun.last_transition_time.unwrap().0), (Some(stamp(at(5))), at(5)));
}

/// A kubelet that does not have the image of a pod.
fn cannot_pull(world: &mut World, uid: &str) {
    let launcher = world.launchers.get_mut(uid).unwrap();
    launcher.image = NEW.into();
    launcher.state = Sidecar::Waits { reason: "ErrImagePull".into(), message: "no such image".into() };
}

#[test]
fn a_success_beside_a_failure_does_not_end_the_stop() {
    let mut world = many(6, 3);
    let begun = decide(&world, &RoundMemory { is_proven: true, ..RoundMemory::default() });
    assert_eq!(set(&begun).len(), 6);
    world.now += Duration::from_secs(5);
    cannot_pull(&mut world, "0000");
    let failed = decide(&world, &begun.memory);
    assert_eq!(set(&failed), [("0000".to_owned(), OLD.to_owned())]);
    comes_up(&mut world, &failed);
    let launcher = world.launchers.get_mut("0001").unwrap();
    (launcher.image, launcher.restarts) = (NEW.into(), launcher.restarts + 1);
    world.instances.get_mut("0001").unwrap().supervisor = supervisor(world.now.as_second());
    let later = settle(&mut world, &failed.memory);
    assert!(later.steps.contains(&Step::Unmark { pod_uid: "0001".into() }), "{:?}", later.steps);
    assert_eq!(later.memory.stop.as_ref().map(|stop| (stop.pod_uid.as_str(), stop.failures)), Some(("0000", 1)));
    assert_eq!(set(&later), [], "nothing is begun before the pause is over");
}

#[test]
fn failures_of_one_time_are_one_failure() {
    let mut world = many(4, 2);
    let begun = decide(&world, &RoundMemory { is_proven: true, ..RoundMemory::default() });
    world.now += Duration::from_secs(5);
    for uid in ["0000", "0001", "0002", "0003"] {
        cannot_pull(&mut world, uid);
    }
    let failed = decide(&world, &begun.memory);
    assert_eq!(failed.memory.stop.as_ref().map(|stop| stop.failures), Some(1));
}

#[test]
fn a_pod_that_goes_while_its_supervisor_is_replaced_is_no_failure() {
    let mut world = many(3, 3);
    let begun = decide(&world, &RoundMemory::default());
    world.now += Duration::from_secs(5);
    let going = world.launchers.get_mut("0000").unwrap();
    (going.image, going.guest_runs, going.state) = (NEW.into(), false, Sidecar::Else);
    let next = decide(&world, &begun.memory);
    assert_eq!((next.memory.stop.as_ref(), set(&next)), (None, vec![("0001".to_owned(), NEW.to_owned())]));
    world.now += DEADLINE;
    assert_eq!(decide(&world, &next.memory).memory.stop, None);
}

#[test]
fn one_whose_guest_never_ran_is_not_waited_for() {
    let mut world = many(2, 2);
    let never = world.launchers.get_mut("0000").unwrap();
    (never.image, never.guest_runs, never.state) = (NEW.into(), false, Sidecar::Else);
    let decision = decide(&world, &RoundMemory::default());
    assert!(!decision.memory.underway.contains_key("0000"));
    assert_eq!(set(&decision), [("0001".to_owned(), NEW.to_owned())]);
}

#[test]
fn one_that_failed_and_cannot_be_tried_does_not_hold_the_others_back() {
    let mut world = many(2, 2);
    let begun = decide(&world, &RoundMemory::default());
    world.now += Duration::from_secs(5);
    cannot_pull(&mut world, "0000");
    let failed = decide(&world, &begun.memory);
    let lost = world.launchers.get_mut("0000").unwrap();
    (lost.image, lost.state) = (OLD.into(), Sidecar::Else);
    assert_eq!(set(&decide(&world, &failed.memory)), [], "the pause");
    world.now += FIRST_PAUSE;
    let next = decide(&world, &failed.memory);
    assert_eq!(set(&next), [("0001".to_owned(), NEW.to_owned())]);
    comes_up(&mut world, &next);
    assert_eq!(settle(&mut world, &next.memory).memory.stop, None, "the image is good");
}

#[test]
fn what_has_nothing_to_go_back_to_is_reported_once_and_followed_when_it_runs() {
    let mut one = old("0000", "node-1");
    (one.image, one.first_image) = ("launcher:3".into(), NEW.into());
    let mut world = world([one]);
    let begun = decide(&world, &RoundMemory::default());
    world.now += Duration::from_secs(5);
    cannot_pull(&mut world, "0000");
    let mut back = begun.memory.clone();
    back.underway.get_mut("0000").unwrap().from = None;
    let failed = decide(&world, &back);
    assert!(failed.memory.stop.is_some() && set(&failed).is_empty());
    let again = decide(&world, &failed.memory);
    assert!(again.memory.underway.is_empty() && again.memory.stop == failed.memory.stop, "not every round");
    let launcher = world.launchers.get_mut("0000").unwrap();
    launcher.state = Sidecar::Runs;
    world.instances.get_mut("0000").unwrap().supervisor = None;
    let runs = decide(&world, &again.memory);
    world.now += SETTLED;
    assert_eq!(decide(&world, &runs.memory).memory.stop, None);
}

#[test]
fn an_image_that_was_not_put_back_is_put_back_again_and_nothing_else_is_done() {
    let mut world = many(2, 2);
    let begun = decide(&world, &RoundMemory::default());
    world.now += Duration::from_secs(5);
    cannot_pull(&mut world, "0000");
    let failed = decide(&world, &begun.memory);
    let back = [("0000".to_owned(), OLD.to_owned())];
    assert_eq!(set(&failed), back);
    // The API server did not take it: the pod shows the image that failed.
    world.now += Duration::from_secs(1);
    let soon = decide(&world, &failed.memory);
    assert_eq!(set(&soon), [], "not every second");
    world.now += PUT_BACK_EVERY;
    let later = decide(&world, &soon.memory);
    assert_eq!((set(&later), &later.memory.stop), (back.to_vec(), &failed.memory.stop));
}
