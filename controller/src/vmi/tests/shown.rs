//! What clients see of an instance, beside its life.

use super::*;
use crate::data_volumes::DataVolumeProgress;
use crate::descheduler::Changes;

/// An instance with one claim, whose guest runs.
fn with_claim() -> World {
    let mut world = world(json!([{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}]));
    world.vmi.status.as_mut().unwrap().phase = Some(Phase::Running.name().to_owned());
    world.pod = Some(pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})));
    world
}

fn access_modes(mode: &str) -> Value {
    json!({"claimName": "root", "accessModes": [mode]})
}

#[test]
fn a_claim_that_one_node_at_a_time_can_use_keeps_a_guest_where_it_is() {
    let reason = |world: &World| condition(&decide(world), "LiveMigratable").unwrap().1.to_owned();
    assert_eq!(reason(&with_claim()), "NotMigratable", "of this claim nothing is known");
    for (mode, expected) in [("ReadWriteOnce", "DisksNotLiveMigratable"), ("ReadWriteMany", "NotMigratable")] {
        let mut on_pod = with_claim();
        let annotation = json!({"garboard.dev/claims": json!({"root": access_modes(mode)}).to_string()});
        on_pod.pod.as_mut().unwrap().metadata.annotations = serde_json::from_value(annotation).unwrap();
        assert_eq!(reason(&on_pod), expected, "on the pod: {mode}");
        let mut reported = with_claim();
        let volumes = json!([{"name": "root", "target": "vda", "persistentVolumeClaimInfo": access_modes(mode)}]);
        reported.vmi.status.as_mut().unwrap().volume_status = serde_json::from_value(volumes).unwrap();
        assert_eq!(reason(&reported), expected, "in the status: {mode}");
        let mut asked = world(json!([{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}]));
        let claim = json!({"metadata": {"name": "root"}, "spec": {"accessModes": [mode]}});
        asked.claims.insert("root".to_owned(), serde_json::from_value(claim).unwrap());
        // What is made is written later.
        asked.data_volumes.insert("other".to_owned(), DataVolumeProgress::Failed("404".to_owned()));
        assert_eq!(reason(&asked), expected, "before there is a pod: {mode}");
    }
}

#[test]
fn volumes_stay_where_they_are() {
    assert_eq!(condition(&decide(&with_claim()), "StorageLiveMigratable"), Some(("False", "NotMigratable")));
}

#[test]
fn an_instance_is_provisioning_while_an_importer_is_at_work_on_what_it_names() {
    let mut world = world(json!([]));
    let mut shown = |progress: DataVolumeProgress| {
        world.data_volumes.insert("root".to_owned(), progress);
        let decision = decide(&world);
        let found = condition(&decision, "Provisioning").map(|(status, _)| status.to_owned());
        world.vmi.status = Some(decision.status);
        found
    };
    let filling = DataVolumeProgress::UnderWay("ImportInProgress".to_owned());
    assert_eq!(shown(filling.clone()).as_deref(), Some("True"));
    assert_eq!(shown(DataVolumeProgress::WaitsForConsumer), None, "no import is under way");
    assert_eq!(shown(filling.clone()).as_deref(), Some("True"));
    assert_eq!(shown(DataVolumeProgress::Failed("404".to_owned())), None);
}

/// A quick start is written once, when its pod is long there: what was waited for is over in it, too.
#[test]
fn what_an_instance_waited_for_is_over_once_it_has_its_pod() {
    let mut world = world(json!([]));
    world.data_volumes.insert("root".to_owned(), DataVolumeProgress::UnderWay("ImportInProgress".to_owned()));
    world.vmi.status = Some(decide(&world).status);
    world.data_volumes.clear();
    world.pod = Some(pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})));
    world.vmi.status.as_mut().unwrap().phase = Some(Phase::Running.name().to_owned());
    let decision = decide(&world);
    assert_eq!(condition(&decision, "DataVolumesReady"), Some(("True", "AllDVsReady")));
    assert_eq!(condition(&decision, "Provisioning"), None);
}

#[test]
fn the_image_that_qemu_is_of_is_shown_and_stays_when_its_pod_is_gone() {
    let mut world = with_claim();
    let image = |decision: &Decision| decision.status.launcher_container_image_version.clone();
    assert_eq!(image(&decide(&world)), None);
    let containers =
        json!([{"name": "probe", "image": "other:1"}, {"name": "compute", "image": "garboard/launcher:1"}]);
    world.pod.as_mut().unwrap().spec.as_mut().unwrap().containers = serde_json::from_value(containers).unwrap();
    let decision = decide(&world);
    assert_eq!(image(&decision).as_deref(), Some("garboard/launcher:1"));
    world.vmi.status = Some(decision.status);
    world.pod = None;
    assert_eq!(image(&decide(&world)).as_deref(), Some("garboard/launcher:1"));
}

/// A pod that has what its instance tells a descheduler is not written to.
#[test]
fn what_an_instance_tells_a_descheduler_is_on_its_pod() {
    let evict = "descheduler.alpha.kubernetes.io/evict";
    let mut world = world(json!([]));
    world.vmi.status.as_mut().unwrap().phase = Some("Running".to_owned());
    world.pod = Some(pod(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})));
    assert_eq!(decide(&world).steps, []);
    world.vmi.metadata.annotations.get_or_insert_default().insert(evict.to_owned(), "true".to_owned());
    let steps = decide(&world).steps;
    let [Step::AnnotatePod { name, uid, annotations }] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!((name.as_str(), uid.as_str()), ("virt-launcher-vm-01234567", "pod-uid"));
    assert_eq!(annotations, &Changes::from([(evict.to_owned(), Some("true".to_owned()))]));
    let pod = world.pod.as_mut().unwrap();
    pod.metadata.annotations.get_or_insert_default().insert(evict.to_owned(), "true".to_owned());
    assert_eq!(decide(&world).steps, []);
    // One that goes is left alone.
    world.pod.as_mut().unwrap().metadata.annotations = None;
    world.pod.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(world.now));
    assert_eq!(decide(&world).steps, []);
}
