//! USB ports. There is no controller until something needs one.

use garboard_machine::device::{QemuXhci, UsbPort};
use garboard_machine::id::DeviceId;
use garboard_machine::pci::Want;

use super::draft::Draft;
use super::error::PlanError;

/// Hands out USB ports and makes controllers as they fill up.
#[derive(Clone, Debug, Default)]
pub(super) struct UsbPorts {
    used: u32,
}

impl UsbPorts {
    /// The next free port, for a device that `field` asks for.
    pub(super) fn next(&mut self, draft: &mut Draft<'_>, field: &str) -> Result<UsbPort, PlanError> {
        let controller = DeviceId::numbered("usb", self.used / QemuXhci::PORTS);
        let port = self.used % QemuXhci::PORTS + 1;
        if port == 1 {
            let at = draft.place(&controller, Want::Port, field)?;
            draft.buses.push(QemuXhci { id: controller.clone(), at }.into());
        }
        self.used += 1;
        Ok(UsbPort { controller, port })
    }
}
