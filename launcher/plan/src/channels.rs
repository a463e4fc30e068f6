//! Everything that talks to QEMU or to the guest over a socket: monitors, serial port, guest agent, USB redirection.

use garboard_machine::chardev::{Monitor, SocketChardev};
use garboard_machine::device::{IsaSerial, UsbRedir, VirtSerialPort, VirtioSerialPci};
use garboard_machine::id::DeviceId;
use garboard_machine::pci::Placement;

use super::draft::Draft;
use super::error::PlanError;
use super::launch::{DescriptorPurpose, SerialPlan};
use super::usb::UsbPorts;

/// Name the guest agent looks for.
const AGENT_PORT: &str = "org.qemu.guest_agent.0";

/// USB devices that clients can redirect into a guest at the same time, each by a slot of its own (KubeVirt's
/// `UsbClientPassthroughMaxNumberOf`).
const USB_SLOTS: u32 = 4;

/// The two monitors: the supervisor's, and PID 1's for when there is no supervisor.
pub(super) fn monitors(draft: &mut Draft<'_>) {
    let monitors = [
        ("monitor", DescriptorPurpose::MonitorListener),
        ("monitor-init", DescriptorPurpose::LastResortMonitorListener),
    ];
    for (name, purpose) in monitors {
        let id = DeviceId::constant(name);
        let fd = draft.descriptor(purpose);
        draft.chardevs.push(SocketChardev { id: id.clone(), fd, log_set: None });
        draft.monitors.push(Monitor { chardev: id });
    }
}

/// The guest agent's channel; it is always there.
pub(super) fn agent(draft: &mut Draft<'_>) -> Result<(), PlanError> {
    let controller = DeviceId::constant("virtio-serial0");
    let at = draft.place_virtio(&controller, Placement::Port, "spec.domain.devices")?;
    let revision = draft.input.virtio_revision();
    draft.buses.push(VirtioSerialPci { id: controller.clone(), revision, at }.into());
    let id = DeviceId::constant("agent");
    let fd = draft.descriptor(DescriptorPurpose::AgentListener);
    draft.chardevs.push(SocketChardev { id: id.clone(), fd, log_set: None });
    let port = VirtSerialPort { id: id.clone(), controller, nr: 1, chardev: id, name: AGENT_PORT.to_owned() };
    draft.devices.push(port.into());
    Ok(())
}

/// The serial console.
pub(super) fn serials(draft: &mut Draft<'_>) -> Vec<SerialPlan> {
    let devices = draft.input.devices();
    if devices.autoattach_serial_console == Some(false) {
        return Vec::new();
    }
    let (index, logged) = (0, devices.log_serial_console.unwrap_or(true));
    let id = DeviceId::numbered("serial", index);
    let fd = draft.descriptor(DescriptorPurpose::SerialListener { index });
    let log = DescriptorPurpose::SerialLog { index };
    let log_set = logged.then(|| draft.descriptor_set(log, format!("serial{index}-log")));
    draft.chardevs.push(SocketChardev { id: id.clone(), fd, log_set });
    draft.devices.push(IsaSerial { id: id.clone(), chardev: id, index }.into());
    vec![SerialPlan { index, logged }]
}

/// The slots of USB redirection, each a device on a USB port and the socket of its client.
pub(super) fn usb_redirection(draft: &mut Draft<'_>, usb: &mut UsbPorts) -> Result<(), PlanError> {
    if draft.input.devices().client_passthrough.is_none() {
        return Ok(());
    }
    let field = "spec.domain.devices.clientPassthrough";
    draft.input.require_device_or("usb-redir", field, "remove it")?;
    for slot in 0..USB_SLOTS {
        let id = DeviceId::numbered("usbredir", slot);
        let at = usb.of(draft, &id, field)?;
        let fd = draft.descriptor(DescriptorPurpose::UsbRedirListener { slot });
        draft.chardevs.push(SocketChardev { id: id.clone(), fd, log_set: None });
        draft.devices.push(UsbRedir { id: id.clone(), at, chardev: id }.into());
    }
    Ok(())
}
