//! What a machine was when it was started.

use super::super::decide::{ends, filled};
use super::super::revision;
use super::*;

/// The record of a decision: its name, and whether an earlier one goes.
fn recorded(decision: &Decision) -> Option<(String, bool)> {
    let [Step::RecordRevision { object, replaces }, Step::CreateVmi(_)] = decision.steps.as_slice() else {
        return None;
    };
    Some((object.metadata.name.clone().unwrap(), *replaces))
}

#[test]
fn a_start_is_recorded_before_its_instance_is_made_which_names_the_record() {
    let decision = decide(&world("Always"));
    assert_eq!(recorded(&decision), Some(("revision-start-vm-vm-uid-1".to_owned(), false)));
    let Step::CreateVmi(vmi) = &decision.steps[1] else { panic!("{:?}", decision.steps) };
    let named = vmi.status.as_ref().unwrap().virtual_machine_revision_name.as_deref();
    assert_eq!(named, Some("revision-start-vm-vm-uid-1"));
    assert_eq!(recorded(&decide(&world("Halted"))), None);
}

#[test]
fn the_record_of_an_earlier_start_goes_with_the_first_start_of_another_generation() {
    let mut world = world("Always");
    world.vm.status = Some(VirtualMachineStatus { observed_generation: Some(1), ..VirtualMachineStatus::default() });
    let of_first = "revision-start-vm-vm-uid-1".to_owned();
    assert_eq!(recorded(&decide(&world)), Some((of_first, false)), "the same again: there is no other");
    world.vm.metadata.generation = Some(2);
    assert_eq!(recorded(&decide(&world)), Some(("revision-start-vm-vm-uid-2".to_owned(), true)));
}

#[test]
fn a_machine_that_cannot_be_started_leaves_no_record() {
    let mut world = world("Always");
    let annotations = [("garboard.dev/stored-machine".to_owned(), "nonsense".to_owned())];
    world.vm.metadata.annotations = Some(annotations.into());
    let decision = decide(&world);
    assert_eq!(decision.steps, []);
}

/// A machine that was started, whose record is known, and its instance as the webhook has it stored.
fn started() -> World {
    let mut world = world("Always");
    let Step::CreateVmi(vmi) = &decide(&world).steps[1] else { panic!("no instance") };
    world.vmi = Some(filled(vmi, &world.config));
    world.vmi.as_mut().unwrap().metadata.uid = Some("vmi-uid".to_owned());
    world.started_from = revision::spec(&revision::of(&world.vm).unwrap());
    world
}

fn asks_for_a_restart(world: &World) -> bool {
    decide(world).status.conditions.iter().any(|each| each.r#type == "RestartRequired")
}

/// Parts of presets are given when an instance is created; the comparison knows none.
#[test]
fn what_an_instance_has_of_presets_asks_for_no_restart() {
    let mut world = started();
    let domain = &mut world.vmi.as_mut().unwrap().spec.domain;
    domain.cpu = serde_json::from_value(json!({"cores": 2, "model": "host-model"})).unwrap();
    world.vm.metadata.generation = Some(2);
    world.vm.spec.run_strategy = Some("Manual".to_owned());
    assert!(!asks_for_a_restart(&world));
    world.vm.spec.template.spec.as_mut().unwrap().hostname = Some("other".to_owned());
    assert!(asks_for_a_restart(&world));
}

/// A restart is asked for by a change of the template, not by one of the cluster's settings that came meanwhile.
#[test]
fn a_setting_of_the_cluster_that_changed_since_the_start_asks_for_no_restart() {
    let mut world = started();
    world.vm.metadata.generation = Some(2);
    world.vm.spec.run_strategy = Some("Manual".to_owned());
    let mut config = ClusterConfig::offline();
    config.cpu_model = Some("Haswell".to_owned());
    world.config = config.into();
    assert!(!asks_for_a_restart(&world));
    let without = World { started_from: None, ..world.clone() };
    assert!(asks_for_a_restart(&without), "without the record it cannot be known which of the two has changed");
    world.vm.spec.template.spec.as_mut().unwrap().hostname = Some("other".to_owned());
    assert!(asks_for_a_restart(&world));
}

/// KubeVirt's `conditionallyBumpGenerationAnnotationOnVmi` compares the whole template.
#[test]
fn labels_of_the_template_that_changed_since_the_start_leave_an_instance_of_the_generation_before() {
    let mut world = started();
    world.vm.metadata.generation = Some(2);
    let follows = |world: &World| matches!(decide(world).steps.as_slice(), [Step::Annotate { .. }]);
    assert!(follows(&world), "what changed is not of the template");
    world.vm.spec.template.metadata = serde_json::from_value(json!({"labels": {"app": "web"}})).unwrap();
    let decision = decide(&world);
    assert_eq!(decision.steps, []);
    assert_eq!((decision.status.observed_generation, decision.status.desired_generation), (Some(1), Some(2)));
    assert!(decision.status.conditions.iter().all(|each| each.r#type != "RestartRequired"));
}

/// Its record is not asked for any more: that alone neither adds the condition nor takes it away.
#[test]
fn an_instance_that_is_to_end_keeps_what_was_reported_of_a_restart() {
    let mut world = World { started_from: None, ..started() };
    world.vm.metadata.generation = Some(2);
    let mut config = ClusterConfig::offline();
    config.cpu_model = Some("Haswell".to_owned());
    world.config = config.into();
    assert!(!ends(&world) && asks_for_a_restart(&world), "there is no record");
    let reported = decide(&world).status;
    world.vm.spec.run_strategy = Some("Halted".to_owned());
    assert!(ends(&world) && !asks_for_a_restart(&world));
    world.vm.status = Some(reported);
    assert!(asks_for_a_restart(&world));
}

#[test]
fn an_instance_ends_by_strategy_by_request_and_with_its_machine() {
    assert!(!ends(&with("Always", Phase::Running)) && !ends(&world("Halted")));
    assert!(ends(&with("Halted", Phase::Running)) && ends(&with("Always", Phase::Failed)));
    let mut stopped = with("Manual", Phase::Running);
    assert!(!ends(&stopped));
    stopped.vm.status = super::asked(json!([{"action": "Stop", "uid": "vmi-uid"}]));
    assert!(ends(&stopped));
    let mut deleted = with("Manual", Phase::Running);
    deleted.vm.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert!(ends(&deleted));
    let mut leaving = with("Manual", Phase::Running);
    leaving.vmi.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert!(ends(&leaving));
}
