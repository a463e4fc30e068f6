//! What a config drive contains of tagged devices: their addresses on the guest's PCI bus.

use garboard_plan::LaunchPlan;
use garboard_storage::seed::{DeviceAddress, DeviceTag};

/// The tagged interfaces and disks of a plan. A disk on another bus has no address in the plan; the planner
/// made a note of it.
pub(super) fn tagged(plan: &LaunchPlan) -> Vec<DeviceTag> {
    let interfaces = plan.interfaces.iter().filter_map(|one| {
        let mac = Some(one.mac.clone());
        Some(DeviceTag { mac, ..device(plan, "nic", &one.device, one.tag.as_deref()?)? })
    });
    let disks = plan.disks.iter().filter_map(|one| {
        let serial = one.serial.clone();
        Some(DeviceTag { serial, ..device(plan, "disk", &one.device, one.tag.as_deref()?)? })
    });
    interfaces.chain(disks).collect()
}

fn device(plan: &LaunchPlan, kind: &str, id: &str, tag: &str) -> Option<DeviceTag> {
    let (_, place) = plan.stored.pci.devices.iter().find(|(device, _)| device.as_str() == id)?;
    Some(DeviceTag {
        kind: kind.to_owned(),
        address: DeviceAddress { bus: "pci".to_owned(), address: place.address().to_string() },
        mac: None,
        serial: None,
        numa_node: 0,
        aligned_vcpus: Vec::new(),
        tags: vec![tag.to_owned()],
    })
}

#[cfg(test)]
mod tests {
    use garboard_machine::facts::HostFacts;
    use serde_json::json;

    use super::*;
    use garboard_plan::{PlanOptions, plan};

    #[test]
    fn tagged_devices_are_listed_by_their_address() {
        let disk = |name: &str, bus: &str| json!({ "name": name, "disk": { "bus": bus }, "serial": "SN", "tag": name });
        let volume = |name: &str| json!({ "name": name, "emptyDisk": { "capacity": "1Mi" } });
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": "quay", "namespace": "tests" },
            "spec": {
                "domain": { "memory": { "guest": "64Mi" }, "devices": {
                    "disks": [disk("data", "virtio"), disk("other", "scsi")],
                    "interfaces": [{ "name": "net", "masquerade": {}, "tag": "lan" }],
                } },
                "networks": [{ "name": "net", "pod": {} }],
                "volumes": [volume("data"), volume("other")],
            },
        });
        let vmi = serde_json::from_value(vmi).unwrap();
        let plan = plan(&vmi, &HostFacts::reference(), &PlanOptions::default(), None).unwrap();
        let listed: Vec<_> = tagged(&plan).into_iter().map(|one| (one.kind, one.address.address, one.tags)).collect();
        let expected =
            |kind: &str, address: &str, tag: &str| (kind.to_owned(), address.to_owned(), vec![tag.to_owned()]);
        let bus = plan.stored.pci.devices.iter().find(|(id, _)| id.as_str() == "disk-data").unwrap().1.bus();
        let number: u8 = bus.trim_start_matches("port").parse().unwrap();
        let at = format!("0000:{number:02x}:00.0");
        assert_eq!(listed, [expected("nic", "0000:01:00.0", "lan"), expected("disk", &at, "data")]);
        let fields: Vec<_> = plan.notes.iter().filter_map(|note| note.field.as_deref()).collect();
        assert!(fields.contains(&"spec.domain.devices.disks[1].tag"), "{fields:?}");
    }
}
