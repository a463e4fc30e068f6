//! PCI addresses that the manifest names. They are taken before anything else gets a place.

use std::collections::BTreeSet;

use garboard_api::v1::{Disk, Interface};
use garboard_machine::pci::Placement;

use super::draft::{Draft, device_id, text};
use super::error::PlanError;

/// Takes every address that a disk or an interface asks for.
pub(super) fn place_all(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    free_those_left(draft);
    let devices = draft.input.devices();
    for (index, interface) in devices.interfaces.iter().enumerate() {
        let list = "spec.domain.devices.interfaces";
        let address = address_of_interface(interface).filter(|_| is_there(interface));
        place(draft, "nic", &interface.name, address, &format!("{list}[{index}].pciAddress"))?;
    }
    for (index, disk) in devices.disks.iter().enumerate() {
        let list = "spec.domain.devices.disks";
        place(draft, "disk", &disk.name, address_of_disk(disk), &format!("{list}[{index}].disk.pciAddress"))?;
    }
    Ok(())
}

/// Lets go of the places that disks and interfaces had at the last start, unless the manifest still has them and pins
/// them nowhere: a device that is pinned to such a place finds it free. All others stay where they were.
fn free_those_left(draft: &mut Draft<'_>) {
    let devices = draft.input.devices();
    let interfaces = devices.interfaces.iter().filter(|one| is_there(one) && address_of_interface(one).is_none());
    let disks = devices.disks.iter().filter(|one| address_of_disk(one).is_none());
    let stay: BTreeSet<String> = interfaces
        .map(|one| format!("nic-{}", one.name))
        .chain(disks.map(|one| format!("disk-{}", one.name)))
        .collect();
    draft.pci.free(|device| {
        let id = device.as_str();
        (id.starts_with("nic-") || id.starts_with("disk-")) && !stay.contains(id)
    });
}

fn is_there(interface: &Interface) -> bool {
    text(&interface.state) != Some("absent")
}

fn address_of_interface(interface: &Interface) -> Option<&str> {
    text(&interface.pci_address)
}

fn address_of_disk(disk: &Disk) -> Option<&str> {
    disk.disk.as_ref().and_then(|target| text(&target.pci_address))
}

fn place(
    draft: &mut Draft<'_>,
    prefix: &'static str,
    name: &str,
    address: Option<&str>,
    field: &str,
) -> Result<(), PlanError> {
    let placement = Draft::placement_at(address, field, Placement::Port)?;
    if let Placement::Exactly(_) = placement {
        draft.place(&device_id(prefix, name, field)?, placement, field)?;
    }
    Ok(())
}
