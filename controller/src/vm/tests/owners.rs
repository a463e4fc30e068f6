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
    assert_eq!(steps(&decision), ["annotate"]);
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
fn an_instance_has_what_the_template_tells_a_descheduler_also_while_it_runs() {
    let mut world = with("Always", Phase::Running);
    world.vmi.as_mut().unwrap().spec = crate::vm::decide::instance(&world).spec;
    let evict = "descheduler.alpha.kubernetes.io/evict";
    let of_vmi = |world: &World| world.vmi.as_ref().unwrap().metadata.annotations.clone().unwrap_or_default();
    let template = world.vm.spec.template.metadata.get_or_insert_default();
    let written = [(evict.to_owned(), "true".to_owned()), ("other".to_owned(), "1".to_owned())];
    template.annotations = Some(written.into());
    world.vm.metadata.generation = Some(2);
    let decision = decide(&world);
    assert_eq!(steps(&decision), ["annotate"], "one write with the generation");
    assert!(decision.status.conditions.iter().all(|each| each.r#type != "RestartRequired"));
    carry_out(&mut world, decision);
    assert_eq!(of_vmi(&world).get(evict).map(String::as_str), Some("true"));
    assert_eq!((of_vmi(&world).get("other"), steps(&decide(&world))), (None, vec![]), "it is the next start's");
    world.vm.spec.template.metadata = None;
    let decision = decide(&world);
    carry_out(&mut world, decision);
    assert_eq!((of_vmi(&world).get(evict), steps(&decide(&world))), (None, vec![]));
    // What is over stays as it was.
    world.vmi.as_mut().unwrap().metadata.annotations.get_or_insert_default().insert(evict.to_owned(), String::new());
    world.vmi.as_mut().unwrap().status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
    world.vm.spec.run_strategy = Some("Once".to_owned());
    assert_eq!(steps(&decide(&world)), Vec::<&str>::new());
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

#[test]
fn a_machine_is_not_started_with_what_is_not_its_own_and_says_why() {
    let others = || Foreign::Others("spec.dataVolumeTemplates[0].metadata.name: it is another's".to_owned());
    let leaves = || Foreign::Leaves("it is being removed".to_owned());
    let rows = [
        ("Always", others(), "Provisioning", Some(60), "Failure", "FailedDataVolumeCreate"),
        ("Halted", others(), "Stopped", None, "Failure", "FailedDataVolumeCreate"),
        ("Always", leaves(), "Provisioning", Some(2), "DataVolumesReady", "NotAllDVsReady"),
        ("Halted", leaves(), "Stopped", None, "DataVolumesReady", "NotAllDVsReady"),
    ];
    for (strategy, foreign, shown, seconds, kind, reason) in rows {
        let mut world = bringing(strategy, DataVolumeProgress::Done);
        world.data_volumes.clear();
        world.foreign = Some(foreign.clone());
        let decision = decide(&world);
        assert_eq!(steps(&decision), [] as [&str; 0], "{strategy} {foreign:?}: neither made nor used");
        assert_eq!(decision.status.printable_status.as_deref(), Some(shown), "{strategy} {foreign:?}");
        assert_eq!(decision.recheck.map(|pause| pause.as_secs()), seconds, "{strategy} {foreign:?}");
        // A pool asks for it before it lets a machine go.
        assert_eq!(decision.status.run_strategy.as_deref(), (strategy == "Halted").then_some("Halted"));
        let condition = decision.status.conditions.iter().find(|each| each.r#type == kind).unwrap();
        assert_eq!(
            (condition.reason.as_deref(), condition.message.as_deref()),
            (Some(reason), Some(foreign.message()))
        );
        let event = failed_volume(&world.vm, &decision.status).map(|event| event.reason);
        let is_event = matches!(foreign, Foreign::Others(_));
        assert_eq!(event, is_event.then_some(EventReason::Of(Reason::FailedDataVolumeCreate)));
        world.vm.status = Some(decision.status.clone());
        assert_eq!((decide(&world).status, failed_volume(&world.vm, &decision.status)), (decision.status, None));
    }
    // It is started when its templates name what is its own.
    let mut renamed = bringing("Always", DataVolumeProgress::Done);
    renamed.foreign = Some(others());
    renamed.vm.status = Some(decide(&renamed).status);
    renamed.foreign = None;
    let decision = decide(&renamed);
    assert_eq!(steps(&decision), ["create"]);
    assert!(decision.status.conditions.iter().all(|each| each.r#type != "Failure"), "{decision:?}");
    // A machine that runs with it, since an earlier release has started it, is left alone.
    let mut running = bringing("Always", DataVolumeProgress::Done);
    running.vmi = Some(instance(&running, Phase::Running));
    assert_eq!((steps(&decide(&running)), printed(&running).as_str()), (vec![], "Running"));
}
