//! Where a device is, in libvirt's terms.

use crate::arguments::Values;
use crate::element::Element;

/// `<address>` of a device on a PCI bus; nothing for one that is on none.
pub(crate) fn pci(device: &Values) -> Option<Element> {
    let bus = match device.get("bus")?.as_str() {
        "pcie.0" => 0,
        // The bus behind a root port has the port's own number, and so has libvirt's controller.
        bus => bus.strip_prefix("port")?.parse::<u32>().ok()?,
    };
    let place = device.get("addr")?;
    let (slot, function) = place.split_once('.').unwrap_or((place.as_str(), "0x0"));
    let address = Element::new("address")
        .with("type", "pci")
        .with("domain", "0x0000")
        .with("bus", format!("{bus:#04x}"))
        .with("slot", format!("{:#04x}", hexadecimal(slot)?))
        .with("function", format!("{:#x}", hexadecimal(function)?));
    Some(if device.is_on("multifunction") { address.with("multifunction", "on") } else { address })
}

/// `<address>` of a device on a USB port.
pub(crate) fn usb(device: &Values) -> Option<Element> {
    let bus = device.get("bus")?;
    let controller = bus.strip_suffix(".0")?.strip_prefix("usb")?;
    Some(Element::new("address").with("type", "usb").with("bus", controller).with("port", device.get("port")?))
}

/// `<address>` of a disk behind a SCSI controller.
pub(crate) fn scsi(device: &Values) -> Option<Element> {
    let bus = device.get("bus")?;
    let controller = bus.strip_suffix(".0")?.strip_prefix("scsi")?;
    Some(drive(controller, &device.get("scsi-id")?, &device.get("lun")?))
}

/// `<address>` of a disk on a SATA port: of the chipset's own controller (`ide.N`), or of one that was added (`ahciN.N`).
pub(crate) fn sata(device: &Values) -> Option<Element> {
    let bus = device.get("bus")?;
    let (controller, port) = bus.split_once('.')?;
    let controller = if controller == "ide" { "0" } else { controller.strip_prefix("ahci")? };
    Some(drive(controller, "0", port))
}

fn drive(controller: &str, target: &str, unit: &str) -> Element {
    Element::new("address")
        .with("type", "drive")
        .with("controller", controller)
        .with("bus", 0)
        .with("target", target)
        .with("unit", unit)
}

/// `<address>` of a port of a virtio-serial controller.
pub(crate) fn virtio_serial(device: &Values) -> Option<Element> {
    let bus = device.get("bus")?;
    let controller = bus.strip_suffix(".0")?.strip_prefix("virtio-serial")?;
    let address = Element::new("address").with("type", "virtio-serial").with("controller", controller);
    Some(address.with("bus", 0).with("port", device.get("nr")?))
}

fn hexadecimal(text: &str) -> Option<u8> {
    u8::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}
