//! USB ports. There is no controller until something needs one.

use std::collections::{BTreeMap, BTreeSet};

use garboard_machine::device::{QemuXhci, UsbPort};
use garboard_machine::id::DeviceId;
use garboard_machine::pci::Placement;

use super::draft::Draft;
use super::error::PlanError;
use super::slots::Slots;

/// Hands out USB ports and makes the controllers that have them.
#[derive(Clone, Debug)]
pub(super) struct UsbPorts {
    slots: Slots,
    controllers: BTreeSet<u32>,
}

impl UsbPorts {
    /// With the ports of an earlier start.
    pub(super) fn new(stored: Option<&BTreeMap<String, u32>>) -> Self {
        Self { slots: Slots::new(stored), controllers: BTreeSet::new() }
    }

    /// The port of `device`, which `field` asks for.
    pub(super) fn of(&mut self, draft: &mut Draft<'_>, device: &DeviceId, field: &str) -> Result<UsbPort, PlanError> {
        let slot = self.slots.of(device);
        let number = slot / QemuXhci::PORTS;
        let controller = DeviceId::numbered("usb", number);
        if self.controllers.insert(number) {
            let at = draft.place(&controller, Placement::Port, field)?;
            draft.buses.push(QemuXhci { id: controller.clone(), at }.into());
        }
        Ok(UsbPort { controller, port: slot % QemuXhci::PORTS + 1 })
    }

    /// What was given, for the next start.
    pub(super) fn into_given(self) -> BTreeMap<String, u32> {
        self.slots.into_given()
    }
}
