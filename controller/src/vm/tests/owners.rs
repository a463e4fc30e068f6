//! Whose an instance is, and of which version of its machine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::*;

#[test]
fn an_instance_of_another_owner_is_left_alone() {
    let mut world = with("Halted", Phase::Running);
    let vmi = world.vmi.as_mut().unwrap();
    vmi.metadata.owner_references.as_mut().unwrap()[0].uid = "another".into();
    vmi.status.as_mut().unwrap().stored_machine = Some(json!({"macs": ["02:00:00:00:00:01"]}));
    let decision = decide(&world);
    assert_eq!(steps(&decision), [] as [&str; 0]);
    let status = &decision.status;
    assert_eq!((status.created, status.ready, &status.stored_machine), (None, None, &None), "nothing of it is ours");
    assert_eq!(status.printable_status.as_deref(), Some("Stopped"));
    assert!(status.conditions.iter().any(|each| each.r#type == "Failure"), "{:?}", status.conditions);
    let mut failed = with("Always", Phase::Failed);
    failed.vmi.as_mut().unwrap().metadata.owner_references.as_mut().unwrap()[0].uid = "another".into();
    assert_eq!(decide(&failed).status.start_failure, None, "its failure is not counted");
    // Nor does this machine wait for it to go.
    world.vm.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    world.vm.metadata.finalizers = Some(vec!["kubevirt.io/virtualMachineControllerFinalize".into()]);
    assert_eq!(steps(&decide(&world)), ["release"]);
}

#[test]
fn a_change_beside_the_template_makes_the_instance_as_new_as_its_machine() {
    let mut world = with("Always", Phase::Running);
    let made = garboard_api::vmi_of(&world.vm);
    assert_eq!(made.metadata.annotations.as_ref().unwrap()["kubevirt.io/vm-generation"], "1");
    world.vmi.as_mut().unwrap().spec = crate::vm::decide::instance(&world).spec;
    world.vm.metadata.generation = Some(2);
    let decision = decide(&world);
    assert_eq!(steps(&decision), ["bump"]);
    carry_out(&mut world, decision);
    let decision = decide(&world);
    assert_eq!((steps(&decision), decision.status.observed_generation), (vec![], Some(2)));
    world.vm.metadata.generation = Some(3);
    world.vm.spec.template.spec.as_mut().unwrap().hostname = Some("another".to_owned());
    let decision = decide(&world);
    assert_eq!((steps(&decision), decision.status.observed_generation), (vec![], Some(2)));
    assert!(decision.status.conditions.iter().any(|each| each.r#type == "RestartRequired"));
}

#[test]
fn an_orphan_is_adopted_and_then_followed() {
    let mut world = with("Always", Phase::Running);
    world.vmi.as_mut().unwrap().metadata.owner_references = None;
    let decision = decide(&world);
    assert_eq!(steps(&decision), ["adopt"]);
    let Step::AdoptVmi { owners, .. } = &decision.steps[0] else { panic!() };
    assert_eq!((owners[0].uid.as_str(), owners[0].controller), ("vm-uid", Some(true)));
    // Who owns it beside its controller stays, and an owner that was taken off meanwhile is not put back.
    let plain = OwnerReference { uid: "plain".to_owned(), ..OwnerReference::default() };
    let vmi = world.vmi.as_mut().unwrap();
    vmi.metadata.owner_references = Some(vec![plain]);
    vmi.metadata.resource_version = Some("7".to_owned());
    let decision = decide(&world);
    let Step::AdoptVmi { owners, resource_version, .. } = &decision.steps[0] else { panic!() };
    assert_eq!(owners.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(), ["plain", "vm-uid"]);
    assert_eq!(resource_version.as_deref(), Some("7"));
}

#[test]
fn an_instance_that_leaves_and_is_not_ours_is_neither_adopted_nor_followed() {
    let mut world = with("Always", Phase::Running);
    world.vmi.as_mut().unwrap().metadata.owner_references = None;
    world.vmi.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let decision = decide(&world);
    assert_eq!((steps(&decision), decision.status.printable_status.as_deref()), (vec![], Some("Starting")));
    let failure = decision.status.conditions.iter().find(|each| each.r#type == "Failure").unwrap();
    assert!(failure.message.as_ref().unwrap().contains("is being removed"), "{failure:?}");
}
