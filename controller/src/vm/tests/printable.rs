//! A case for each printable status. A new value does not compile here until it has one.

use garboard_api::PrintableStatus;

use super::*;

/// A world whose machine has this status.
fn case_of(status: PrintableStatus) -> World {
    match status {
        PrintableStatus::Terminating => {
            let mut world = with("Always", Phase::Running);
            world.vm.metadata.deletion_timestamp = Some(Time(world.now));
            world
        }
        PrintableStatus::Stopping => with("Halted", Phase::Running),
        PrintableStatus::Paused => with_condition(Phase::Running, "Paused", "True", "PausedByUser"),
        PrintableStatus::Running => with("Always", Phase::Running),
        PrintableStatus::Unknown => with("Always", Phase::Unknown),
        PrintableStatus::ErrorPvcNotFound => unsynchronized("FailedPvcNotFound"),
        PrintableStatus::DataVolumeError => bringing("Always", DataVolumeProgress::Failed("404".to_owned())),
        PrintableStatus::Provisioning => bringing("Always", DataVolumeProgress::Missing),
        PrintableStatus::WaitingForVolumeBinding => bringing("Always", DataVolumeProgress::WaitsForConsumer),
        PrintableStatus::ErrImagePull => unsynchronized("ErrImagePull"),
        PrintableStatus::ImagePullBackOff => unsynchronized("ImagePullBackOff"),
        PrintableStatus::ErrorUnschedulable => {
            with_condition(Phase::Scheduling, "PodScheduled", "False", "Unschedulable")
        }
        PrintableStatus::Starting => with("Always", Phase::Scheduled),
        PrintableStatus::CrashLoopBackOff => with("Always", Phase::Failed),
        PrintableStatus::Stopped => world("Halted"),
    }
}

fn with_condition(phase: Phase, kind: &str, status: &str, reason: &str) -> World {
    let mut world = with("Always", phase);
    let conditions = json!([{"type": kind, "status": status, "reason": reason}]);
    world.vmi.as_mut().unwrap().status.as_mut().unwrap().conditions = serde_json::from_value(conditions).unwrap();
    world
}

fn unsynchronized(reason: &str) -> World {
    with_condition(Phase::Pending, "Synchronized", "False", reason)
}

#[test]
fn each_printable_status_has_a_case() {
    for status in PrintableStatus::ALL.iter().copied() {
        assert_eq!(printed(&case_of(status)), status.name());
    }
}

#[test]
fn of_each_volume_it_is_reported_that_it_can_be_part_of_no_snapshot() {
    let mut world = with("Always", Phase::Running);
    let volumes =
        json!([{"name": "root", "containerDisk": {"image": "i"}}, {"name": "data", "dataVolume": {"name": "d"}}]);
    world.vm.spec.template.spec.as_mut().unwrap().volumes = serde_json::from_value(volumes).unwrap();
    let statuses = decide(&world).status.volume_snapshot_statuses;
    let found: Vec<_> = statuses.iter().map(|each| (each.name.as_str(), each.enabled)).collect();
    assert_eq!(found, [("root", false), ("data", false)]);
    assert!(statuses.iter().all(|each| each.reason.is_some()));
}
