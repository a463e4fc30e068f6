//! `<controller>`: what other devices hang on.

use crate::Input;
use crate::address;
use crate::arguments::Values;
use crate::element::Element;

use super::{alias, virtio_model};

pub(super) fn elements(input: Input<'_>, devices: &[Values]) -> Vec<Element> {
    let mut all = vec![root(input)];
    all.extend(devices.iter().any(is_on_chipset_sata).then(chipset_sata));
    all.extend(devices.iter().filter_map(element));
    all
}

/// The root complex.
fn root(input: Input<'_>) -> Element {
    let root = Element::new("controller").with("type", "pci").with("index", 0).with("model", "pcie-root");
    let hole = input.arguments.global("q35-pcihost", "pci-hole64-size");
    root.children(hole.map(|size| Element::text("pcihole64", size).with("unit", "b")))
}

fn is_on_chipset_sata(device: &Values) -> bool {
    matches!(device.driver().as_str(), "ide-hd" | "ide-cd")
        && device.get("bus").is_some_and(|bus| bus.starts_with("ide."))
}

/// The controller of the chipset, which is there without an argument.
fn chipset_sata() -> Element {
    let address = Element::new("address").with("type", "pci").with("domain", "0x0000").with("bus", "0x00");
    let address = address.with("slot", "0x1f").with("function", "0x2");
    Element::new("controller").with("type", "sata").with("index", 0).child(address)
}

fn element(device: &Values) -> Option<Element> {
    let (driver, id) = (device.driver(), device.id());
    let index = number_at_end(&id)?;
    let of = |kind: &str| Element::new("controller").with("type", kind).with("index", index);
    let controller = match driver.as_str() {
        "pcie-root-port" => return Some(root_port(device, of("pci"))),
        "qemu-xhci" => of("usb").with("model", "qemu-xhci").with_some("ports", device.get("p2")),
        "ich9-ahci" => of("sata"),
        _ if driver.starts_with("virtio-scsi-pci") => scsi(device, of("scsi").with("model", virtio_model(&driver))),
        _ if driver.starts_with("virtio-serial-pci") => of("virtio-serial").with("model", virtio_model(&driver)),
        _ => return None,
    };
    Some(controller.child(alias(device)).children(address::pci(device)))
}

fn root_port(device: &Values, controller: Element) -> Element {
    let port = device.number("port").map(|port| format!("{port:#x}"));
    let target = Element::new("target").with_some("chassis", device.get("chassis")).with_some("port", port);
    let name = Element::new("model").with("name", "pcie-root-port");
    let controller = controller.with("model", "pcie-root-port").child(name).child(target);
    controller.child(alias(device)).children(address::pci(device))
}

fn scsi(device: &Values, controller: Element) -> Element {
    let thread = device.get("iothread").and_then(|id| number_at_end(&id));
    let driver = Element::new("driver").with_some("queues", device.get("num_queues")).with_some("iothread", thread);
    controller.children((!driver.is_bare()).then_some(driver))
}

/// The number at the end of an ID of ours: `1` of `iothread1`.
pub(super) fn number_at_end(id: &str) -> Option<u32> {
    let letters = id.trim_end_matches(|character: char| character.is_ascii_digit());
    id.get(letters.len()..)?.parse().ok()
}
