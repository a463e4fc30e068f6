//! How much of its node's disk a guest may write.

use super::*;

const GIB: u64 = 1 << 30;

/// A container disk of `virtual_bytes`, an empty disk of 1 GiB and a claim, with what may be written to the first two.
fn rooms(limit: Option<&str>, pod: Option<u64>, virtual_bytes: Option<u64>) -> (LaunchPlan, Machine) {
    let disks: Vec<Value> =
        ["root", "more", "kept"].map(|name| json!({ "name": name, "disk": { "bus": "virtio" } })).into();
    let volumes = json!({ "volumes": [
        { "name": "root", "containerDisk": { "image": "i" } },
        { "name": "more", "emptyDisk": { "capacity": "1Gi" } },
        { "name": "kept", "persistentVolumeClaim": { "claimName": "c" } },
    ] });
    let limits = limit.map_or(json!({}), |limit| json!({ "limits": { "ephemeral-storage": limit } }));
    let vmi = vmi(&json!({ "resources": limits }), &json!({ "disks": disks }), &volumes);
    let root = VolumeFacts { virtual_bytes, ..VolumeFacts::assumed(ImageFormat::Qcow2) };
    let options =
        PlanOptions { volumes: [("root".to_owned(), root)].into(), scratch_limit_bytes: pod, ..PlanOptions::default() };
    plan_machine(&vmi, &HostFacts::reference(), &options, None).unwrap()
}

fn given(plan: &LaunchPlan) -> [Option<u64>; 3] {
    [0, 1, 2].map(|disk| plan.disks[disk].room_bytes)
}

#[test]
fn a_small_disk_gets_what_it_needs_and_the_rest_is_shared() {
    let (plan, _) = rooms(Some("4Gi"), None, Some(20 * GIB));
    let [Some(root), None, None] = given(&plan) else { panic!("{:?}", given(&plan)) };
    assert!(root < 3 * GIB && root > 3 * GIB - (8 << 20), "4 GiB less the empty disk and its tables: {root}");
    assert!(plan.resources.scratch_bytes <= 4 * GIB);
    assert!(plan.notes.iter().any(|note| note.text.contains(&root.to_string())), "{:?}", plan.notes);
    let (plan, _) = rooms(Some("1Gi"), None, Some(20 * GIB));
    assert_eq!(given(&plan), [Some(GIB / 2), Some(GIB / 2), None]);
    assert_eq!(plan.resources.scratch_bytes, GIB);
}

#[test]
fn a_limit_of_the_pod_counts_like_one_of_the_manifest() {
    for (limit, pod) in [(Some("1Gi"), Some(8 * GIB)), (Some("8Gi"), Some(GIB)), (None, Some(GIB))] {
        let (plan, _) = rooms(limit, pod, Some(20 * GIB));
        assert_eq!(given(&plan), [Some(GIB / 2), Some(GIB / 2), None], "{limit:?} {pod:?}");
    }
}

#[test]
fn where_there_is_room_for_all_nothing_is_bounded() {
    for (limit, pod, virtual_bytes) in [
        (None, None, Some(500 * GIB)),
        (None, None, None),
        (None, Some(1000 * GIB), Some(100 * GIB)),
        (Some("600Gi"), Some(1000 * GIB), Some(500 * GIB)),
    ] {
        let (plan, machine) = rooms(limit, pod, virtual_bytes);
        assert_eq!(given(&plan), [None, None, None], "{limit:?} {pod:?} {virtual_bytes:?}");
        assert!(machine.blockdevs.iter().all(|node| node.properties().get("size").is_none()));
    }
}

#[test]
fn an_image_that_claims_a_huge_disk_has_the_room_of_a_usual_one_in_a_pod() {
    let (plan, _) = rooms(None, Some(100_000 * GIB), Some(64 << 40));
    let [Some(root), None, None] = given(&plan) else { panic!("{:?}", given(&plan)) };
    assert!((128 * GIB..129 * GIB).contains(&root), "{root}");
    // The pod's creator does not see the image, and must allow what the supervisor will.
    let (unseen, _) = rooms(None, None, None);
    assert!(unseen.resources.scratch_bytes >= plan.resources.scratch_bytes);
    let (unseen, _) = rooms(Some("500Gi"), None, None);
    let (seen, _) = rooms(Some("500Gi"), Some(1000 * GIB), Some(300 * GIB));
    assert!(unseen.resources.scratch_bytes >= seen.resources.scratch_bytes);
}

#[test]
fn the_end_of_a_layer_lies_between_its_file_and_its_image() {
    let (plan, machine) = rooms(Some("1Gi"), None, Some(20 * GIB));
    let node = |name: &str| {
        let nodes: Vec<_> = machine.blockdevs.iter().map(|node| node.properties()).collect();
        nodes.into_iter().find(|node| node.text("node-name") == Some(name)).unwrap()
    };
    assert_eq!(node("image-root").text("file"), Some("room-root"));
    assert_eq!((node("room-root").text("driver"), node("room-root").text("file")), (Some("raw"), Some("file-root")));
    assert_eq!(plan.disks[0].nodes.room.as_deref(), Some("room-root"), "a supervisor asks QEMU for it");
    let sized = plan.argv.iter().filter(|argument| argument.contains(r#""size":536870912"#)).count();
    assert_eq!(sized, 2);
}

#[test]
fn the_least_room_holds_an_empty_image() {
    let (plan, _) = rooms(Some("1"), None, Some(64 << 40));
    let least = garboard_machine::qcow2::host_bytes_of_empty(64 << 40);
    assert_eq!(given(&plan)[0], Some(least));
}
