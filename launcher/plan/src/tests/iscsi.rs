//! Disks on iSCSI.

use garboard_machine::blockdev::Blockdev;

use super::*;
use crate::options::VolumeFacts;

fn on_iscsi(disk: &Value, iscsi: &Value) -> VirtualMachineInstance {
    let mut whole = json!({ "name": "root", "disk": { "bus": "virtio" } });
    merge(&mut whole, disk);
    let mut source = json!({ "targetPortal": "storage.example", "iqn": "iqn.2017-01.io:sn.42", "lun": 2 });
    merge(&mut source, iscsi);
    vmi(&json!({}), &json!({ "disks": [whole] }), &json!({ "volumes": [{ "name": "root", "iscsi": source }] }))
}

#[test]
fn qemu_opens_the_unit_itself() {
    let (plan, machine) = planned(&on_iscsi(&json!({}), &json!({})));
    let Some(Blockdev::Iscsi(node)) = machine.blockdevs.first() else { panic!("{:?}", machine.blockdevs) };
    assert_eq!((node.portal.as_str(), node.lun, &node.password_secret), ("storage.example:3260", 2, &None));
    let disk = &plan.disks[0];
    assert_eq!((disk.format, disk.overlay, disk.descriptor_sets.len()), (ImageFormat::Raw, false, 0));
    assert!(!plan.descriptors.iter().any(|one| matches!(one.purpose, DescriptorPurpose::IscsiPassword { .. })));
}

#[test]
fn chaps_user_is_an_argument_and_its_password_a_descriptor() {
    let vmi = on_iscsi(&json!({}), &json!({ "secretRef": { "name": "chap" } }));
    let facts = VolumeFacts { chap_user: Some("ada".to_owned()), ..VolumeFacts::assumed(ImageFormat::Raw) };
    let options = PlanOptions { volumes: [("root".to_owned(), facts)].into(), ..PlanOptions::default() };
    let plan = plan(&vmi, &HostFacts::reference(), &options, None).unwrap();
    let is_password =
        |one: &&Descriptor| matches!(&one.purpose, DescriptorPurpose::IscsiPassword { volume } if volume == "root");
    let number = plan.descriptors.iter().find(is_password).unwrap().number;
    let argv = plan.argv.join(" ");
    assert!(argv.contains(&format!("\"file\":\"/proc/self/fd/{number}\"")), "{argv}");
    assert!(argv.contains("\"user\":\"ada\",\"password-secret\":\"chap-root\""), "{argv}");
}

#[test]
fn what_has_no_effect_on_such_a_disk_is_refused() {
    let table = [
        (json!({ "io": "threads" }), "spec.domain.devices.disks[0].io"),
        (json!({ "blockSize": { "matchVolume": {} } }), "spec.domain.devices.disks[0].blockSize.matchVolume"),
    ];
    for (disk, field) in table {
        let error = refusal(&on_iscsi(&disk, &json!({})), &HostFacts::reference());
        assert!(error.to_string().contains(field), "{error}");
    }
}
