//! The annotation that keeps a stored machine without its status.

use std::time::Duration;

use garboard_api::metadata::annotation;
use serde_json::Value;

use super::super::kept::SETTLED;
use super::*;

fn stored() -> Value {
    json!({"version": 2, "machineType": "pc-q35-7.2", "cpu": "max", "pci": {"ports": [], "devices": {}},
        "macs": {"default": "02:00:00:00:00:01"}, "diskSerials": {}})
}

/// An instance that has run for so long, and has decided what its guest sees.
fn running_for(seconds: i64) -> World {
    let mut world = with("Always", Phase::Running);
    world.now = Timestamp::from_second(1_000_000).unwrap();
    let since = Timestamp::from_second(1_000_000 - seconds).unwrap().to_string();
    let status = world.vmi.as_mut().unwrap().status.as_mut().unwrap();
    status.stored_machine = Some(stored());
    status.phase_transition_timestamps =
        serde_json::from_value(json!([{"phase": "Running", "phaseTransitionTimestamp": since}])).unwrap();
    world
}

fn annotated(world: &mut World, text: &str) {
    let annotations = world.vm.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::STORED_MACHINE.to_owned(), text.to_owned());
}

fn kept(decision: &Decision) -> Option<Value> {
    decision.steps.iter().find_map(|step| {
        let Step::Keep { value } = step else { return None };
        serde_json::from_str(value).ok()
    })
}

/// A machine of this name as a backup without the status brings it back.
fn restored(text: &str) -> World {
    let mut world = world("Always");
    annotated(&mut world, text);
    world
}

#[test]
fn a_start_has_no_write_for_it_and_a_guest_that_has_run_for_a_while_has_one() {
    let settled = i64::try_from(SETTLED.as_secs()).unwrap();
    let early = decide(&running_for(7));
    assert_eq!((steps(&early), early.recheck), (vec![], Some(SETTLED - Duration::from_secs(7))));
    let mut world = running_for(settled);
    world.vm.spec.template.spec.as_mut().unwrap().domain.firmware =
        serde_json::from_value(json!({"uuid": "u", "serial": "s"})).unwrap();
    let due = decide(&world);
    assert_eq!(steps(&due), ["keep"]);
    let value = kept(&due).unwrap();
    assert_eq!((&value["namespace"], &value["name"], &value["machine"]), (&json!("ns"), &json!("vm"), &stored()));
    assert_eq!(value["firmware"], json!({"uuid": "u", "serial": "s"}));
    // What it has already, in whichever order, is not written again.
    annotated(&mut world, &serde_json::to_string_pretty(&value).unwrap());
    assert_eq!((steps(&decide(&world)), decide(&world).recheck), (vec![], None));
    // Another one's, or what cannot be read, is replaced.
    for text in ["{", &value.to_string().replace("\"vm\"", "\"original\"")] {
        annotated(&mut world, text);
        assert_eq!(kept(&decide(&world)), Some(value.clone()), "{text}");
    }
}

#[test]
fn a_machine_that_stops_is_kept_at_once_and_one_that_goes_or_starts_is_not() {
    let mut world = running_for(7);
    world.vmi.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(world.now));
    assert_eq!(steps(&decide(&world)), ["keep"]);
    world.vm.metadata.deletion_timestamp = Some(Time(world.now));
    assert_eq!(steps(&decide(&world)), [] as [&str; 0]);
    let mut halted = self::world("Halted");
    halted.vm.status = Some(VirtualMachineStatus { stored_machine: Some(stored()), ..Default::default() });
    assert_eq!(steps(&decide(&halted)), ["keep"]);
    let mut starting = self::world("Always");
    starting.vm.status = halted.vm.status;
    assert_eq!(steps(&decide(&starting)), ["create"]);
    let mut starting = running_for(7);
    starting.vmi.as_mut().unwrap().status.as_mut().unwrap().phase = Some("Scheduled".to_owned());
    assert_eq!((steps(&decide(&starting)), decide(&starting).recheck), (vec![], None));
}

#[test]
fn what_does_not_fit_is_not_written() {
    let settled = i64::try_from(SETTLED.as_secs()).unwrap();
    let mut full = running_for(settled);
    full.vm.metadata.annotations = Some([("others".to_owned(), "x".repeat((256 << 10) - 100))].into());
    assert_eq!(steps(&decide(&full)), [] as [&str; 0]);
    let mut large = running_for(settled);
    let stored = large.vmi.as_mut().unwrap().status.as_mut().unwrap().stored_machine.as_mut().unwrap();
    stored["cpuFeatures"] = json!("x".repeat(64 << 10));
    assert_eq!(steps(&decide(&large)), [] as [&str; 0]);
}

#[test]
fn a_restored_machine_is_the_one_that_it_was_and_a_copy_is_another() {
    let text = kept(&decide(&running_for(600))).unwrap().to_string();
    let made = |world: &World| {
        let decision = decide(world);
        let [Step::RecordRevision { .. }, Step::CreateVmi(vmi)] = decision.steps.as_slice() else {
            panic!("{:?}", decision.steps)
        };
        vmi.status.clone().unwrap().stored_machine
    };
    assert_eq!(made(&restored(&text)), Some(stored()));
    for (from, to) in [("\"vm\"", "\"original\""), ("\"ns\"", "\"elsewhere\"")] {
        assert_eq!(made(&restored(&text.replace(from, to))), None);
    }
    // The status is the controller's own, and comes first.
    let mut known = restored(&text.replace("02:00:00:00:00:01", "02:00:00:00:00:02"));
    known.vm.status = Some(VirtualMachineStatus { stored_machine: Some(stored()), ..Default::default() });
    assert_eq!(made(&known), Some(stored()));
}

#[test]
fn an_annotation_that_is_of_no_use_keeps_the_machine_from_its_start_and_the_status_has_the_remedy() {
    let text = kept(&decide(&running_for(600))).unwrap().to_string();
    let rows = [
        ("{".to_owned(), "cannot be parsed"),
        (text.replace("\"version\":2", "\"version\":77"), "a newer Garboard"),
        (text.replace("02:00:00:00:00:01", "01:00:00:00:00:01"), "machine.macs[default]"),
    ];
    for (text, part) in rows {
        let mut world = restored(&text);
        let decision = decide(&world);
        assert_eq!(steps(&decision), [] as [&str; 0]);
        let failure = decision.status.conditions.iter().find(|each| each.r#type == "Failure").unwrap();
        let message = failure.message.clone().unwrap();
        assert!(message.starts_with("metadata.annotations[garboard.dev/stored-machine]: "), "{message}");
        assert!(message.contains(part) && message.contains("remove the annotation"), "{message}");
        world.vm.status = Some(decision.status.clone());
        assert_eq!(decide(&world).status, decision.status, "it is reported once");
        world.vm.metadata.annotations = None;
        assert_eq!(steps(&decide(&world)), ["create"]);
    }
}
