//! What presets give the instance of a machine, on its way from the controller into the store.

use std::collections::BTreeMap;

use garboard_api::{ClusterConfig, VirtualMachine, VirtualMachineInstance};
use serde_json::{Value, json};

use super::tests::{OVERRIDDEN, filled, machine, preset, with_presets};
use crate::data_volumes::ProgressByName;
use crate::vm::decide::{Step, World, decide};

/// A machine as it is stored, whose instance presets select.
fn stored() -> VirtualMachine {
    let mut vm = machine();
    vm["spec"]["template"]["metadata"] = json!({"labels": {"size": "small"}});
    serde_json::from_value(filled(&vm)).unwrap()
}

/// The instance that the controller makes of a machine.
fn made_of(vm: VirtualMachine) -> VirtualMachineInstance {
    let world = World {
        vm,
        vmi: None,
        started_from: None,
        data_volumes: ProgressByName::new(),
        foreign: None,
        absent_sources: BTreeMap::new(),
        now: jiff::Timestamp::UNIX_EPOCH,
        chance: 0,
        config: ClusterConfig::offline().into(),
        sizes: crate::vm::sizes::Sizes::default(),
    };
    let decision = decide(&world);
    let Some(Step::CreateVmi(vmi)) = decision.steps.last() else { panic!("{:?}", decision.steps) };
    vmi.as_ref().clone()
}

/// What it is stored as where there are these presets, or why it is refused.
fn asked(vmi: &VirtualMachineInstance, presets: &[Value]) -> Result<Value, String> {
    with_presets(&serde_json::to_value(vmi).unwrap(), presets).0
}

#[test]
fn a_machine_is_made_an_instance_as_it_is_written_that_waits_for_its_pod() {
    let made = made_of(stored());
    let domain = &made.spec.domain;
    assert_eq!(
        (&domain.cpu, &domain.features, &domain.clock, &made.spec.eviction_strategy),
        (&None, &None, &None, &None)
    );
    let firmware = domain.firmware.as_ref().unwrap();
    assert_eq!(firmware.uuid.as_deref(), Some("00000000-0000-0000-0000-000000000007"), "that of its machine");
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(made.metadata.finalizers, Some(vec!["kubevirt.io/foregroundDeleteVirtualMachine".to_owned()]));
}

#[test]
fn presets_give_the_instance_of_a_machine_their_parts_before_its_defaults() {
    let parts = json!({
        "cpu": {"cores": 2}, "features": {"apic": {"endOfInterrupt": true}}, "firmware": {"serial": "of-the-preset"},
        "resources": {"requests": {"cpu": "500m"}}, "devices": {},
    });
    let after = asked(&made_of(stored()), &[preset("whole", parts)]).unwrap();
    let domain = &after["spec"]["domain"];
    assert_eq!((&domain["cpu"]["cores"], &domain["cpu"]["model"]), (&json!(2), &json!("host-model")));
    assert_eq!(domain["cpu"].get("sockets"), None, "the part is given as a whole");
    let features = json!({"acpi": {"enabled": true}, "apic": {"enabled": true, "endOfInterrupt": true}});
    assert_eq!(domain["features"], features);
    assert_eq!(domain["resources"]["requests"]["cpu"], "500m");
    assert_ne!(domain["firmware"]["serial"], "of-the-preset", "a machine has one of its own, as in KubeVirt");
    let annotations = &after["metadata"]["annotations"];
    assert_eq!(annotations["virtualmachinepreset.kubevirt.io/whole"], "kubevirt.io/v1");
    assert_eq!(annotations[OVERRIDDEN], "whole: spec.domain.firmware");
}

#[test]
fn without_presets_the_instance_of_a_machine_has_its_defaults() {
    let after = asked(&made_of(stored()), &[]).unwrap();
    let domain = &after["spec"]["domain"];
    assert_eq!((&domain["cpu"]["cores"], &domain["cpu"]["sockets"]), (&json!(1), &json!(1)));
    assert_eq!(domain["features"], json!({"acpi": {"enabled": true}}));
    assert_eq!((&after["status"]["phase"], &after["status"]["runtimeUser"]), (&json!("Pending"), &json!(107)));
    assert_eq!(after["metadata"]["finalizers"], json!(["kubevirt.io/foregroundDeleteVirtualMachine"]));
}

#[test]
fn presets_that_do_not_agree_keep_a_machine_from_its_instance() {
    let presets =
        [2, 3].map(|cores| preset(&format!("cores-{cores}"), json!({"cpu": {"cores": cores}, "devices": {}})));
    let refused = asked(&made_of(stored()), &presets).unwrap_err();
    assert!(refused.contains("cores-2 and cores-3"), "{refused}");
}

#[test]
fn what_the_template_of_a_machine_has_stays() {
    let mut sized = stored();
    sized.spec.template.spec.as_mut().unwrap().domain.cpu = serde_json::from_value(json!({"cores": 4})).unwrap();
    let two = preset("two", json!({"cpu": {"cores": 2}, "devices": {}}));
    let after = asked(&made_of(sized), &[two]).unwrap();
    assert_eq!(after["spec"]["domain"]["cpu"]["cores"], 4);
    assert_eq!(after["metadata"]["annotations"][OVERRIDDEN], "two: spec.domain.cpu");
}
