//! PCI addresses that the manifest names. They are taken before anything else gets a place.

use garboard_machine::pci::Want;

use super::draft::{Draft, device_id, text};
use super::error::PlanError;

/// Takes every address that a disk or an interface asks for.
pub(super) fn place_all(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let devices = draft.input.devices();
    for (index, interface) in devices.interfaces.iter().enumerate() {
        let is_there = text(&interface.state) != Some("absent");
        let list = "spec.domain.devices.interfaces";
        let address = text(&interface.pci_address).filter(|_| is_there);
        place(draft, ("nic", &interface.name), address, &format!("{list}[{index}].pciAddress"))?;
    }
    for (index, disk) in devices.disks.iter().enumerate() {
        let address = disk.disk.as_ref().and_then(|target| text(&target.pci_address));
        let list = "spec.domain.devices.disks";
        place(draft, ("disk", &disk.name), address, &format!("{list}[{index}].disk.pciAddress"))?;
    }
    Ok(())
}

fn place(
    draft: &mut Draft<'_>,
    (prefix, name): (&'static str, &str),
    address: Option<&str>,
    field: &str,
) -> Result<(), PlanError> {
    let want = Draft::want_address(address, field, Want::Port)?;
    if let Want::Exactly(_) = want {
        draft.place(&device_id(prefix, name, field)?, want, field)?;
    }
    Ok(())
}
