//! Devices that are neither disks, interfaces nor what these hang on.

use garboard_protocol::paths;

use crate::Input;
use crate::address;
use crate::arguments::Values;
use crate::element::Element;

use super::controllers::number_at_end;
use super::{alias, unix_source, virtio_model};

pub(super) fn element(input: Input<'_>, device: &Values) -> Option<Element> {
    let driver = device.driver();
    let element = match driver.as_str() {
        "isa-serial" => return serial(input, device),
        "virtserialport" => return Some(channel(input, device)),
        "usb-redir" => return redirection(input, device),
        "VGA" => video("vga"),
        "bochs-display" => video("bochs"),
        "cirrus-vga" => video("cirrus"),
        "virtio-vga" => video("virtio"),
        "ramfb" => video("ramfb"),
        "usb-tablet" => return Some(input_device("tablet", "usb", device).children(address::usb(device))),
        "virtio-tablet-pci" => input_device("tablet", "virtio", device),
        "virtio-keyboard-pci" => input_device("keyboard", "virtio", device),
        "i6300esb" => watchdog(input),
        "pvpanic" => return Some(Element::new("panic").with("model", "isa").child(alias(device))),
        "pvpanic-pci" => Element::new("panic").with("model", "pvpanic"),
        _ if driver.starts_with("virtio-rng-pci") => {
            let source = Element::new("backend").with("model", "builtin");
            Element::new("rng").with("model", virtio_model(&driver)).child(source)
        }
        _ if driver.starts_with("virtio-balloon-pci") => balloon(device, &driver),
        _ => return None,
    };
    let has_alias = driver.starts_with("virtio-tablet") || driver.starts_with("virtio-keyboard");
    let element = if has_alias { element } else { element.child(alias(device)) };
    Some(element.children(address::pci(device)))
}

fn serial(input: Input<'_>, device: &Values) -> Option<Element> {
    let index = u32::try_from(device.number("index")?).ok()?;
    let target = Element::new("target").with("type", "isa-serial").with("port", index);
    let target = target.child(Element::new("model").with("name", "isa-serial"));
    let chardev = device.get("chardev").and_then(|id| input.arguments.find("-chardev", "id", &id));
    let log = chardev.and_then(|chardev| chardev.get("logfile"));
    let log = log.map(|file| Element::new("log").with("file", file).with("append", "on"));
    let element = Element::new("serial").with("type", "unix");
    let element = element.child(unix_source(input, &paths::serial_socket(index))).children(log);
    Some(element.child(target).child(alias(device)))
}

fn channel(input: Input<'_>, device: &Values) -> Element {
    let target = Element::new("target").with("type", "virtio").with_some("name", device.get("name"));
    let element = Element::new("channel").with("type", "unix");
    let element = element.child(unix_source(input, paths::GUEST_AGENT_SOCKET)).child(target);
    element.child(alias(device)).children(address::virtio_serial(device))
}

fn redirection(input: Input<'_>, device: &Values) -> Option<Element> {
    let slot = number_at_end(&device.id())?;
    let element = Element::new("redirdev").with("bus", "usb").with("type", "unix");
    let element = element.child(unix_source(input, &paths::usb_redirection_slot_socket(slot)));
    Some(element.child(alias(device)).children(address::usb(device)))
}

fn video(model: &str) -> Element {
    Element::new("video").child(Element::new("model").with("type", model).with("heads", 1))
}

fn input_device(kind: &str, bus: &str, device: &Values) -> Element {
    Element::new("input").with("type", kind).with("bus", bus).child(alias(device))
}

/// QEMU pauses where the manifest asks for a power-off, which the supervisor then does.
fn watchdog(input: Input<'_>) -> Element {
    let action = input.arguments.member("-action", "watchdog");
    let action = match action.as_deref() {
        Some("pause") => "poweroff",
        Some("shutdown") => "shutdown",
        Some(_) | None => "reset",
    };
    Element::new("watchdog").with("model", "i6300esb").with("action", action)
}

fn balloon(device: &Values, driver: &str) -> Element {
    let reporting = if device.is_on("free-page-reporting") { "on" } else { "off" };
    let period = device.get("guest-stats-polling-interval");
    let statistics = period.map(|period| Element::new("stats").with("period", period));
    let element = Element::new("memballoon").with("model", virtio_model(driver));
    element.with("freePageReporting", reporting).children(statistics)
}

/// The sound card, and the backend that plays nothing.
pub(super) fn sound(input: Input<'_>, devices: &[Values]) -> Vec<Element> {
    let card = devices.iter().find_map(|device| {
        let sound = match device.driver().as_str() {
            "ich9-intel-hda" => {
                Element::new("sound").with("model", "ich9").child(Element::new("codec").with("type", "duplex"))
            }
            "AC97" => Element::new("sound").with("model", "ac97"),
            _ => return None,
        };
        let audio = Element::new("audio").with("id", 1);
        Some(sound.child(audio).child(alias(device)).children(address::pci(device)))
    });
    let backend = Element::new("audio").with("id", 1).with("type", "none");
    let backend = input.arguments.text("-audiodev").map(|_| backend);
    card.into_iter().chain(backend).collect()
}

/// The place of Hyper-V's where a guest reports its panic: a property of the CPU, and no device of QEMU's.
pub(super) fn hyperv_panic(input: Input<'_>) -> Option<Element> {
    let is_on = input.arguments.cpu_property("hv-crash").as_deref() == Some("on");
    is_on.then(|| Element::new("panic").with("model", "hyperv"))
}
