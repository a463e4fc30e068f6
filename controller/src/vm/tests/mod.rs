//! The table of run strategies, and that a decision that was carried out leaves nothing to do.

use std::collections::BTreeMap;

use garboard_api::conditions::Reason;
use garboard_api::v1::{VirtualMachineInstanceStatus, VirtualMachineStatus};
use garboard_api::{ClusterConfig, Phase, VirtualMachine, VirtualMachineInstance};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::json;

use super::decide::{Decision, Step, World, decide};
use super::sizes::Sizes;
use super::status::{because, failed_volume, is_known};
use crate::data_volumes::{DataVolumeProgress, Foreign, ProgressByName};
use crate::events::EventReason;
use crate::time::QUICK;

mod kept;
mod owners;
mod printable;
mod requests;
mod revisions;

fn vm(strategy: &str) -> VirtualMachine {
    serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "ns", "uid": "vm-uid", "generation": 1},
        "spec": {
            "runStrategy": strategy,
            "template": {"spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}},
        },
    }))
    .unwrap()
}

fn world(strategy: &str) -> World {
    World {
        vm: vm(strategy),
        vmi: None,
        started_from: None,
        data_volumes: ProgressByName::new(),
        foreign: None,
        absent_sources: BTreeMap::new(),
        now: Timestamp::UNIX_EPOCH,
        chance: 0,
        config: ClusterConfig::offline().into(),
        sizes: Sizes::default(),
    }
}

/// The instance of a world's machine, in a phase.
fn instance(world: &World, phase: Phase) -> VirtualMachineInstance {
    let mut vmi = garboard_api::vmi_of(&world.vm);
    vmi.metadata.uid = Some("vmi-uid".to_owned());
    vmi.status = Some(VirtualMachineInstanceStatus { phase: Some(phase.name().to_owned()), ..Default::default() });
    vmi
}

fn with(strategy: &str, phase: Phase) -> World {
    let mut world = world(strategy);
    world.vmi = Some(instance(&world, phase));
    world
}

fn steps(decision: &Decision) -> Vec<&'static str> {
    let name = |step: &Step| {
        Some(match step {
            // Before each creation (`revisions`).
            Step::RecordRevision { .. } => return None,
            Step::CreateDataVolume { .. } => "bring",
            Step::CreateVmi(_) => "create",
            Step::DeleteVmi { .. } => "delete",
            Step::AdoptVmi { .. } => "adopt",
            Step::Annotate { .. } => "annotate",
            Step::Unhalt => "unhalt",
            Step::Keep { .. } => "keep",
            Step::KeepCopy { .. } => "copy",
            Step::DropCopy { .. } => "drop",
            Step::Expand { .. } => "expand",
            Step::RemoveFinalizer { .. } => "release",
        })
    };
    decision.steps.iter().filter_map(name).collect()
}

#[test]
fn the_table_of_run_strategies() {
    let rows: [(&str, [&[&str]; 4]); 5] = [
        // absent, running, succeeded, failed
        ("Always", [&["create"], &[], &["delete"], &["delete"]]),
        ("RerunOnFailure", [&["create"], &[], &["delete"], &["delete"]]),
        ("Once", [&["create"], &[], &[], &[]]),
        ("Manual", [&[], &[], &[], &[]]),
        ("Halted", [&[], &["delete"], &["delete"], &["delete"]]),
    ];
    for (strategy, [absent, running, succeeded, failed]) in rows {
        assert_eq!(steps(&decide(&world(strategy))), absent, "{strategy} without an instance");
        for (phase, expected) in [(Phase::Running, running), (Phase::Succeeded, succeeded), (Phase::Failed, failed)] {
            assert_eq!(steps(&decide(&with(strategy, phase))), expected, "{strategy}, {phase:?}");
        }
    }
}

#[test]
fn a_run_that_succeeded_is_not_repeated_by_rerun_on_failure() {
    for (phase, expected) in [(Phase::Succeeded, &[] as &[&str]), (Phase::Failed, &["create"])] {
        let mut world = with("RerunOnFailure", phase);
        let seen = json!([{"phase": "Running", "phaseTransitionTimestamp": "1970-01-01T00:00:00Z"}]);
        world.vmi.as_mut().unwrap().status.as_mut().unwrap().phase_transition_timestamps =
            serde_json::from_value(seen).unwrap();
        let ended = decide(&world);
        assert_eq!(steps(&ended), ["delete"]);
        world.vm.status = Some(ended.status);
        world.vmi = None;
        assert_eq!(steps(&decide(&world)), expected, "{phase:?}");
    }
}

#[test]
fn once_is_not_started_again_when_it_is_over_and_made_again_when_it_was_taken_away() {
    let over = with("Once", Phase::Succeeded);
    assert_eq!(steps(&decide(&over)), [] as [&str; 0]);
    let mut gone = world("Once");
    gone.vm.status = Some(decide(&over).status);
    gone.now = Timestamp::from_second(600).unwrap();
    assert_eq!(steps(&decide(&gone)), ["create"], "the instance was deleted before its guest ever ran, perhaps");
}

#[test]
fn a_run_that_an_eviction_ended_is_repeated_by_rerun_on_failure() {
    let mut world = with("RerunOnFailure", Phase::Succeeded);
    let evicted = json!([{"type": "EvictionRequested", "status": "True", "reason": "EvictionByEvictionAPI"}]);
    world.vmi.as_mut().unwrap().status.as_mut().unwrap().conditions = serde_json::from_value(evicted).unwrap();
    let seen = json!([{"phase": "Running", "phaseTransitionTimestamp": "1970-01-01T00:00:00Z"}]);
    world.vmi.as_mut().unwrap().status.as_mut().unwrap().phase_transition_timestamps =
        serde_json::from_value(seen).unwrap();
    let ended = decide(&world);
    assert_eq!(steps(&ended), ["delete"]);
    world.vm.status = Some(ended.status);
    world.vmi = None;
    assert_eq!(steps(&decide(&world)), ["create"]);
}

#[test]
fn failed_starts_are_spaced_out() {
    let failed = with("Always", Phase::Failed);
    let first = decide(&failed);
    let failure = first.status.start_failure.clone().unwrap();
    assert_eq!((failure.consecutive_fail_count, failure.last_failed_vmiuid.as_deref()), (Some(1), Some("vmi-uid")));
    let mut gone = World { vmi: None, ..failed.clone() };
    gone.vm.status = Some(first.status);
    let waiting = decide(&gone);
    assert_eq!(steps(&waiting), [] as [&str; 0]);
    assert_eq!(waiting.recheck, Some(std::time::Duration::from_secs(10)));
    assert_eq!(waiting.status.printable_status.as_deref(), Some("CrashLoopBackOff"));
    gone.now = Timestamp::from_second(10).unwrap();
    assert_eq!(steps(&decide(&gone)), ["create"]);
}

#[test]
fn a_run_counts_as_failed_once() {
    let mut world = with("Once", Phase::Failed);
    world.vm.status = Some(decide(&world).status);
    let again = decide(&world).status.start_failure.unwrap();
    assert_eq!(again.consecutive_fail_count, Some(1));
}

#[test]
fn a_machine_goes_after_its_instance() {
    let mut world = with("Always", Phase::Running);
    world.vm.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    world.vm.metadata.finalizers = Some(vec!["kubevirt.io/virtualMachineControllerFinalize".into(), "other".into()]);
    let decision = decide(&world);
    assert_eq!((steps(&decision), decision.status.printable_status.as_deref()), (vec!["delete"], Some("Terminating")));
    world.vmi = None;
    let Step::RemoveFinalizer { rest } = &decide(&world).steps[0] else { panic!() };
    assert_eq!(rest, &["other"]);
}

#[test]
fn a_machine_that_is_orphaned_leaves_its_instance_running() {
    let mut world = with("Always", Phase::Running);
    world.vm.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    world.vm.metadata.finalizers = Some(vec!["kubevirt.io/virtualMachineControllerFinalize".into(), "orphan".into()]);
    assert_eq!(steps(&decide(&world)), ["release"]);
}

fn printed(world: &World) -> String {
    decide(world).status.printable_status.unwrap()
}

#[test]
fn the_printable_status() {
    assert_eq!(printed(&world("RerunOnFailure")), "Starting");
    assert_eq!(printed(&world("Halted")), "Stopped");
    assert_eq!(printed(&with("Always", Phase::Scheduled)), "Starting");
    assert_eq!(printed(&with("Always", Phase::Running)), "Running");
    assert_eq!(printed(&with("Halted", Phase::Running)), "Stopping");
    assert_eq!(printed(&with("Manual", Phase::Succeeded)), "Stopped");
    assert_eq!(printed(&with("Once", Phase::Failed)), "CrashLoopBackOff", "its guest never ran");
}

/// A machine that brings a DataVolume along, which is so far.
fn bringing(strategy: &str, progress: DataVolumeProgress) -> World {
    let mut world = world(strategy);
    let template = json!([{"metadata": {"name": "root"}, "spec": {"source": {"blank": {}}}}]);
    world.vm.spec.data_volume_templates = serde_json::from_value(template).unwrap();
    world.data_volumes.insert("root".to_owned(), progress);
    world
}

#[test]
fn a_machine_brings_its_data_volumes_and_waits_until_they_are_filled() {
    use DataVolumeProgress::{Claimed, Done, Failed, GivenUp, Missing, UnderWay, WaitsForConsumer};
    let rows: [(&str, DataVolumeProgress, &[&str], &str); 15] = [
        ("Always", Claimed, &["bring", "create"], "Starting"),
        ("Halted", Claimed, &["bring"], "Stopped"),
        ("Always", GivenUp("404".to_owned()), &[], "DataVolumeError"),
        ("Halted", GivenUp("404".to_owned()), &[], "DataVolumeError"),
        ("Always", Missing, &["bring"], "Provisioning"),
        ("Halted", Missing, &["bring"], "Provisioning"),
        ("Always", UnderWay("ImportInProgress".to_owned()), &[], "Provisioning"),
        ("Once", UnderWay("ImportInProgress".to_owned()), &[], "Provisioning"),
        ("Manual", UnderWay("ImportInProgress".to_owned()), &[], "Provisioning"),
        ("Manual", WaitsForConsumer, &[], "Stopped"),
        ("Halted", Failed("404".to_owned()), &[], "DataVolumeError"),
        ("Always", WaitsForConsumer, &[], "WaitingForVolumeBinding"),
        ("Always", Failed("404".to_owned()), &[], "DataVolumeError"),
        ("Always", Done, &["create"], "Starting"),
        ("Halted", Done, &[], "Stopped"),
    ];
    for (strategy, progress, wanted, expected) in rows {
        let world = bringing(strategy, progress.clone());
        let decision = decide(&world);
        assert_eq!(steps(&decision), wanted, "{strategy} {progress:?}");
        let printed = decision.status.printable_status.as_deref();
        // A quick start is reported once.
        assert_eq!(printed.unwrap_or("Starting"), expected, "{strategy} {progress:?}");
        let is_wanted = ["Always", "Once"].contains(&strategy);
        let seconds = match &progress {
            Done | Claimed => None,
            Failed(_) | GivenUp(_) | WaitsForConsumer if !is_wanted => Some(60),
            Missing | Failed(_) | GivenUp(_) | WaitsForConsumer | UnderWay(_) => Some(2),
        };
        if ![Done, Claimed].contains(&progress) || !is_wanted {
            assert_eq!(decision.recheck.map(|pause| pause.as_secs()), seconds, "{strategy} {progress:?}");
        }
    }
    let conditions = decide(&bringing("Always", Failed("the server answers 404".to_owned()))).status.conditions;
    let failure = conditions.iter().find(|each| each.r#type == "Failure").unwrap();
    assert_eq!(failure.reason.as_deref(), Some("FailedDataVolumeImport"));
    assert!(failure.message.as_deref().unwrap().contains("root cannot be filled: the server answers 404"));
    // One that another program makes.
    let mut named = bringing("Always", Missing);
    named.vm.spec.data_volume_templates.clear();
    assert_eq!((steps(&decide(&named)), printed(&named).as_str()), (vec![], "ErrorPvcNotFound"));
    // A machine that runs is not stopped by a change of its DataVolume.
    let mut running = bringing("Always", Missing);
    running.vmi = Some(instance(&running, Phase::Running));
    assert_eq!(steps(&decide(&running)), Vec::<&str>::new());
    assert_eq!(printed(&running), "Running");
    let mut stopping = bringing("Halted", Missing);
    stopping.vmi = Some(instance(&stopping, Phase::Running));
    assert_eq!(steps(&decide(&stopping)), ["delete"]);
}

#[test]
fn a_data_volume_whose_source_does_not_exist_is_made_all_the_same() {
    let mut world = bringing("Always", DataVolumeProgress::Missing);
    let sources = |world: &World| -> Vec<Option<String>> {
        let steps = decide(world).steps.into_iter();
        let source = |step| if let Step::CreateDataVolume { absent_source, .. } = step { absent_source } else { None };
        steps.map(source).collect()
    };
    assert_eq!(sources(&world), [None]);
    world.absent_sources = [("root".to_owned(), "images/golden".to_owned())].into();
    assert_eq!(sources(&world), [Some("images/golden".to_owned())]);
}

#[test]
fn what_keeps_an_instance_from_its_start_has_its_printable_status() {
    for (kind, reason, expected) in [
        ("Synchronized", "FailedPvcNotFound", "ErrorPvcNotFound"),
        ("Synchronized", "FailedDataVolumeImport", "DataVolumeError"),
        ("Synchronized", "ErrImagePull", "ErrImagePull"),
        ("Synchronized", "ImagePullBackOff", "ImagePullBackOff"),
        ("DataVolumesReady", "NotAllDVsReady", "Provisioning"),
        ("PodScheduled", "Unschedulable", "ErrorUnschedulable"),
    ] {
        let mut world = with("Always", Phase::Pending);
        let conditions = json!([{"type": kind, "status": "False", "reason": reason}]);
        world.vmi.as_mut().unwrap().status.as_mut().unwrap().conditions = serde_json::from_value(conditions).unwrap();
        assert_eq!(printed(&world), expected);
    }
}

#[test]
fn a_data_volume_that_cannot_be_filled_has_one_event() {
    let mut world = bringing("Always", DataVolumeProgress::Failed("404".to_owned()));
    let failed = decide(&world).status;
    let event = failed_volume(&world.vm, &failed).unwrap();
    assert_eq!(event.reason, EventReason::Of(Reason::FailedDataVolumeImport));
    assert!(event.note.contains("root cannot be filled: 404"), "{}", event.note);
    world.vm.status = Some(failed.clone());
    assert_eq!(failed_volume(&world.vm, &failed), None);
    let refused = because(&self::world("Always"), Reason::FailedCreate, "no quota");
    assert_eq!(failed_volume(&world.vm, &refused), None, "another failure");
}

/// Carries a decision out as the API server would.
fn carry_out(world: &mut World, decision: Decision) {
    world.vm.status = Some(decision.status);
    for step in decision.steps {
        match step {
            Step::CreateDataVolume { name, .. } => {
                world.data_volumes.insert(name, DataVolumeProgress::UnderWay("Pending".to_owned()));
            }
            Step::RecordRevision { object, .. } => world.started_from = super::revision::spec(&object),
            Step::Unhalt => world.vm.spec.run_strategy = Some("Always".to_owned()),
            Step::CreateVmi(vmi) => {
                let mut vmi = *vmi;
                vmi.metadata.uid = Some("made".to_owned());
                world.vmi = Some(vmi);
            }
            Step::DeleteVmi { .. } => {
                let vmi = world.vmi.as_mut().unwrap();
                vmi.metadata.deletion_timestamp = Some(Time(world.now));
            }
            Step::AdoptVmi { owners, .. } => {
                world.vmi.as_mut().unwrap().metadata.owner_references = Some(owners);
            }
            Step::Annotate { annotations, .. } => {
                let all = world.vmi.as_mut().unwrap().metadata.annotations.get_or_insert_default();
                for (key, value) in annotations {
                    match value {
                        Some(value) => drop(all.insert(key, value)),
                        None => drop(all.remove(&key)),
                    }
                }
            }
            Step::Keep { value } => {
                let annotations = world.vm.metadata.annotations.get_or_insert_default();
                annotations.insert("garboard.dev/stored-machine".to_owned(), value);
            }
            Step::RemoveFinalizer { rest } => world.vm.metadata.finalizers = Some(rest),
            // Machines that name an instancetype have tests of their own.
            Step::KeepCopy { .. } | Step::DropCopy { .. } | Step::Expand { .. } => panic!("no size is named"),
        }
    }
}

proptest! {
    /// Fixpoint: what was decided and done needs no second time, and its status is not written again.
    #[test]
    fn a_decision_that_was_carried_out_leaves_nothing_to_do(
        strategy in prop::sample::select(vec!["Always", "RerunOnFailure", "Once", "Manual", "Halted"]),
        phase in prop::option::of(prop::sample::select(Phase::ALL.to_vec())),
        is_deleted in any::<bool>(),
        is_owned in any::<bool>(),
        progress in prop::option::of(prop::sample::select(vec![
            DataVolumeProgress::Missing, DataVolumeProgress::Claimed, DataVolumeProgress::Done, DataVolumeProgress::UnderWay("ImportInProgress".to_owned()), DataVolumeProgress::Failed("no".to_owned()),
        ])),
    ) {
        let mut world = progress.map_or_else(|| world(strategy), |progress| bringing(strategy, progress));
        world.vmi = phase.map(|phase| instance(&world, phase));
        if let (false, Some(vmi)) = (is_owned, &mut world.vmi) {
            vmi.metadata.owner_references = None;
        }
        if is_deleted {
            world.vm.metadata.deletion_timestamp = Some(Time(world.now));
        }
        // Adoption is followed by what the strategy requires.
        for _ in 0..3 {
            let decision = decide(&world);
            carry_out(&mut world, decision);
        }
        let again = decide(&world);
        prop_assert_eq!(steps(&again), Vec::<&str>::new());
        prop_assert_eq!(Some(&again.status), world.vm.status.as_ref());
    }
}

#[test]
fn a_start_that_is_quick_is_reported_once() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let mut world = world("Always");
    world.now = at(100);
    let made = decide(&world);
    assert_eq!(
        (steps(&made), &made.status, made.recheck),
        (vec!["create"], &VirtualMachineStatus::default(), Some(QUICK))
    );
    world.vmi = Some(instance(&world, Phase::Pending));
    world.vmi.as_mut().unwrap().metadata.creation_timestamp = Some(Time(at(100)));
    let waits = |second| {
        let decision = decide(&World { now: at(second), ..world.clone() });
        (decision.status.printable_status, decision.recheck.map(|rest| rest.as_secs()))
    };
    assert_eq!(waits(102), (None, Some(4)), "it may have been made at the end of its second");
    assert_eq!(waits(105), (None, Some(1)));
    assert_eq!(waits(106), (Some("Starting".to_owned()), None), "it takes long");
    let running = decide(&World { vmi: Some(instance(&world, Phase::Running)), ..world.clone() });
    assert_eq!(running.status.printable_status.as_deref(), Some("Running"));
    // What is wrong is reported at once, and so is a start that has something to take back.
    let unschedulable = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
    let mut stuck = world.clone();
    stuck.vmi.as_mut().unwrap().status.as_mut().unwrap().conditions = serde_json::from_value(unschedulable).unwrap();
    assert_eq!(decide(&stuck).status.printable_status.as_deref(), Some("ErrorUnschedulable"));
    world.vm.status =
        Some(VirtualMachineStatus { printable_status: Some("CrashLoopBackOff".into()), ..Default::default() });
    assert_eq!(decide(&world).status.printable_status.as_deref(), Some("Starting"));
}

#[test]
fn a_changed_template_asks_for_a_restart_and_another_strategy_does_not() {
    let mut world = world("Always");
    world.vm.metadata.generation = Some(1);
    let decision = decide(&world);
    let [Step::RecordRevision { .. }, Step::CreateVmi(vmi)] = decision.steps.as_slice() else { panic!("no instance") };
    world.vmi = Some(vmi.as_ref().clone());
    let asked = |world: &World| decide(world).status.conditions.iter().any(|each| each.r#type == "RestartRequired");
    world.vm.metadata.generation = Some(2);
    assert!(!asked(&world), "the run strategy alone is no reason");
    world.vm.spec.template.spec.as_mut().unwrap().domain.memory =
        serde_json::from_value(json!({"guest": "96Mi"})).unwrap();
    assert!(asked(&world));
    world.vm.metadata.generation = Some(1);
    assert!(!asked(&world), "it was made from this very generation");
}

#[test]
fn a_refused_instance_is_reported_once_and_again_only_if_the_message_changes() {
    let mut world = world("Always");
    let at = |second| Timestamp::from_second(second).unwrap();
    world.now = at(1);
    let refused = because(&world, Reason::FailedCreate, "no quota");
    assert_eq!((refused.printable_status.as_deref(), refused.created), (Some("Starting"), None));
    assert!(refused.conditions.iter().any(|each| each.reason.as_deref() == Some("VMINotExists")));
    world.vm.status = Some(refused);
    assert!(is_known(&world.vm, "no quota") && !is_known(&world.vm, "no right"));
    world.now = at(9);
    assert_eq!(Some(because(&world, Reason::FailedCreate, "no quota")), world.vm.status);
    let steps = steps(&decide(&world));
    assert_eq!(steps, ["create"], "it is tried again");
    assert!(
        decide(&world).status.conditions.iter().all(|each| each.r#type != "Failure"),
        "and forgotten when it is made"
    );
}

#[test]
fn what_one_instance_decided_is_given_to_the_next() {
    let stored = json!({"machineType": "pc-q35-7.2"});
    let mut world = with("Always", Phase::Running);
    world.vmi.as_mut().unwrap().status.as_mut().unwrap().stored_machine = Some(stored.clone());
    world.vm.status = Some(decide(&world).status);
    assert_eq!(world.vm.status.as_ref().unwrap().stored_machine, Some(stored.clone()));
    world.vmi = None;
    let decision = decide(&world);
    let [Step::RecordRevision { .. }, Step::CreateVmi(next)] = decision.steps.as_slice() else {
        panic!("{:?}", decision.steps)
    };
    assert_eq!(next.status.as_ref().unwrap().stored_machine, Some(stored.clone()));
    assert_eq!(decision.status.stored_machine, Some(stored));
}

fn asked(requests: serde_json::Value) -> Option<VirtualMachineStatus> {
    Some(serde_json::from_value(json!({"stateChangeRequests": requests, "runStrategy": "Manual"})).unwrap())
}
