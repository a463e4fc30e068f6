//! `clientPassthrough`: four slots on the USB controller.

use super::*;

const FIELD: &str = "spec.domain.devices.clientPassthrough";

fn with(more: &Value) -> VirtualMachineInstance {
    let mut devices = json!({ "clientPassthrough": {} });
    merge(&mut devices, more);
    vmi(&json!({}), &devices, &json!({}))
}

/// Driver, bus and port of each USB device, by ID.
fn on_usb(machine: &Machine) -> Vec<(String, String, String)> {
    let devices = machine.devices.iter().filter_map(|device| {
        let properties = device.properties();
        let driver = properties.text("driver").filter(|driver| driver.starts_with("usb-"))?.to_owned();
        let at = format!("{} {}", properties.text("bus")?, properties.text("port")?);
        Some((device.id().to_string(), driver, at))
    });
    devices.collect()
}

#[test]
fn each_slot_is_a_device_with_a_socket_of_its_own() {
    let (plan, machine) = planned(&with(&json!({})));
    let slots: Vec<_> = on_usb(&machine);
    let expected: Vec<_> = (0..4)
        .map(|slot| (format!("usbredir{slot}"), "usb-redir".to_owned(), format!("usb0.0 {}", slot + 1)))
        .collect();
    assert_eq!(slots, expected);
    for slot in 0..4_u32 {
        let id = format!("usbredir{slot}");
        let device = machine.devices.iter().find(|device| device.id().as_str() == id).unwrap().properties();
        assert_eq!(device.text("chardev"), Some(id.as_str()));
        let chardev = machine.chardevs.iter().find(|chardev| chardev.id.as_str() == id).unwrap();
        let opened = plan.descriptors.iter().find(|one| one.number == chardev.fd).unwrap();
        assert_eq!(opened.purpose, DescriptorPurpose::UsbRedirListener { slot });
    }
    let controllers = machine.devices.iter().filter(|one| one.properties().text("driver") == Some("qemu-xhci"));
    assert_eq!(controllers.count(), 1);
}

#[test]
fn who_does_not_ask_for_it_has_neither_slots_nor_a_controller() {
    let (plan, machine) = planned(&vmi(&json!({}), &json!({}), &json!({})));
    assert!(!plan.argv.iter().any(|argument| argument.contains("usb-redir") || argument.contains("qemu-xhci")));
    assert!(on_usb(&machine).is_empty());
}

#[test]
fn it_comes_to_a_machine_and_leaves_it_without_moving_another_device() {
    let pen = json!({ "inputs": [{ "name": "pen", "type": "tablet", "bus": "usb" }] });
    let plain = vmi(&json!({}), &pen, &json!({}));
    let (first, _) = planned(&plain);
    let start = |vmi: &VirtualMachineInstance, stored: &StoredMachine| {
        plan_machine(vmi, &HostFacts::reference(), &PlanOptions::default(), Some(stored)).unwrap()
    };
    let (second, machine) = start(&with(&pen), &first.stored);
    let pen_at = ("input-pen".to_owned(), "usb-tablet".to_owned(), "usb0.0 1".to_owned());
    assert!(on_usb(&machine).contains(&pen_at), "{:?}", on_usb(&machine));
    assert_eq!(on_usb(&machine).len(), 5);
    for (device, place) in &first.stored.pci.devices {
        assert_eq!(second.stored.pci.devices.get(device), Some(place), "{device}");
    }
    let (third, _) = start(&plain, &second.stored);
    assert_eq!(third.argv, start(&plain, &first.stored).0.argv);
}

#[test]
fn a_qemu_without_it_is_named() {
    let mut facts = HostFacts::reference();
    facts.qemu.features.devices.remove("usb-redir");
    let error = refusal(&with(&json!({})), &facts);
    assert_eq!((error.field(), error.fault()), (Some(FIELD), Fault::Host), "{error}");
    assert!(error.to_string().contains("remove it, or install a QEMU that has it"), "{error}");
}
