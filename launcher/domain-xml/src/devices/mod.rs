//! `<devices>`.

mod controllers;
mod disk;
mod interface;
mod others;

use garboard_plan::ScreenPlan;

pub(crate) use disk::{bus, device_kind, medium};
pub(crate) use interface::{model, network};

use crate::Input;
use crate::arguments::Values;
use crate::element::Element;

pub(crate) fn element(input: Input<'_>) -> Element {
    let devices = input.arguments.all("-device");
    let find = |id: &str| devices.iter().find(|device| device.id() == id);
    let emulator = input.plan.argv.first().map(|path| Element::text("emulator", path));
    let mut all = Element::new("devices").children(emulator);
    for disk in &input.plan.disks {
        all = all.children(find(&disk.device).map(|device| disk::element(input, disk, device)));
    }
    all = all.children(controllers::elements(input, &devices));
    for interface in &input.plan.interfaces {
        all = all.children(find(&interface.device).map(|device| interface::element(interface, device)));
    }
    all = all.children(devices.iter().filter_map(|device| others::element(input, device)));
    all = all.children(others::sound(input, &devices)).children(screen(input));
    all = all.children(others::hyperv_panic(input));
    if devices.iter().any(|device| device.driver().starts_with("virtio-balloon")) {
        return all;
    }
    // Without the element libvirt would add one.
    all.child(Element::new("memballoon").with("model", "none"))
}

fn screen(input: Input<'_>) -> Option<Element> {
    match input.plan.display {
        // QEMU listens nowhere: viewers are handed over to it.
        ScreenPlan::Vnc => {
            Some(Element::new("graphics").with("type", "vnc").child(Element::new("listen").with("type", "none")))
        }
        ScreenPlan::Absent => None,
    }
}

/// `<alias>`: QEMU's ID of the device, with the prefix that libvirt requires of an alias that it did not make itself.
fn alias(device: &Values) -> Element {
    Element::new("alias").with("name", format!("ua-{}", device.id()))
}

/// libvirt's name of a revision of virtio: `virtio-non-transitional` of `virtio-blk-pci-non-transitional`.
fn virtio_model(driver: &str) -> &'static str {
    if driver.ends_with("-non-transitional") {
        "virtio-non-transitional"
    } else if driver.ends_with("-transitional") {
        "virtio-transitional"
    } else {
        "virtio"
    }
}

/// A character device on a socket that is in the machine's directory.
fn unix_source(input: Input<'_>, socket: &str) -> Element {
    Element::new("source").with("mode", "bind").with("path", format!("{}/{socket}", input.sockets))
}
