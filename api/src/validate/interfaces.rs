//! Network interfaces: names, models, addresses, link states. Bindings, ports and DHCP options have files of their own.

use super::addresses::{is_pci_address, parse_mac};
use super::report::{Report, duplicate, invalid, not_found, unsupported};
use super::subject::{Subject, text};
use super::{bindings, dhcp, networks, ports};
use crate::fault::FieldPath;
use crate::suggest::{closest, one_of};
use crate::v1::Interface;

/// The models of network cards a guest can have.
pub const MODELS: &[&str] = &["virtio", "e1000e", "e1000", "igb", "rtl8139", "ne2k_pci", "pcnet"];
const STATES: &[&str] = &["up", "down", "absent"];
/// ACPI indices a guest can have, both ends included (QEMU's limit is 16 Ki minus one).
const ACPI_INDICES: std::ops::RangeInclusive<i64> = 1..=16_383;

/// Judges every interface, alone and with its network.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let list = subject.path("domain.devices.interfaces");
    let interfaces = &subject.spec.domain.devices.interfaces;
    for (index, interface) in interfaces.iter().enumerate() {
        let at = list.index(index);
        name(subject, interface, &at, report);
        if interfaces.iter().take(index).any(|other| other.name == interface.name) {
            report.push(
                duplicate(at.child("name"), format!("another interface is on the network `{}` too", interface.name))
                    .instead("connect one interface to each network"),
            );
        }
        model_and_addresses(interface, &at, report);
        state(subject, interface, &at, report);
        bindings::check(subject, interface, &at, report);
        ports::check(subject, interface, &at, report);
        dhcp::check(subject, interface, &at, report);
    }
}

fn name(subject: &Subject<'_>, interface: &Interface, at: &FieldPath, report: &mut Report) {
    let name = interface.name.as_str();
    let at = at.child("name");
    if name.is_empty() || !name.chars().all(|each| each.is_ascii_alphanumeric() || matches!(each, '-' | '_')) {
        report.push(
            invalid(at.clone(), format!("`{}` cannot name an interface", name.escape_debug()))
                .instead("write letters, digits, `-` and `_`"),
        );
    }
    if networks::of_interface(subject, name).is_none() {
        let names: Vec<&str> = subject.spec.networks.iter().map(|network| network.name.as_str()).collect();
        let guess = closest(name, &names).map(|known| format!(" (did you mean `{known}`?)")).unwrap_or_default();
        report.push(
            not_found(at, format!("no network is named `{}`", name.escape_debug()))
                .instead(format!("add a network of that name to `networks`, or correct the name{guess}")),
        );
    }
}

fn model_and_addresses(interface: &Interface, at: &FieldPath, report: &mut Report) {
    let model = text(&interface.model);
    if !model.is_empty() && !MODELS.contains(&model) {
        report.push(
            unsupported(at.child("model"), format!("there is no network card `{model}`"))
                .instead(one_of(model, MODELS)),
        );
    }
    let mac = text(&interface.mac_address);
    if !mac.is_empty() {
        match parse_mac(mac) {
            None => report.push(
                invalid(at.child("macAddress"), format!("`{mac}` is not a MAC address"))
                    .instead("write six bytes, such as `02:00:00:aa:bb:01`"),
            ),
            Some([first, ..]) if first & 1 == 1 => report.push(
                invalid(at.child("macAddress"), format!("`{mac}` addresses a group, not one card"))
                    .instead("write an address whose first byte is even, such as `02:00:00:aa:bb:01`"),
            ),
            Some(_) => {}
        }
    }
    let pci = text(&interface.pci_address);
    if !pci.is_empty() && !is_pci_address(pci) {
        report.push(
            invalid(at.child("pciAddress"), format!("`{pci}` is not a PCI address"))
                .instead("write it as domain:bus:slot.function in hexadecimal, such as `0000:04:10.0`"),
        );
    }
    if let Some(index) = interface.acpi_index.map(i64::from)
        && index != 0
        && !ACPI_INDICES.contains(&index)
    {
        report.push(invalid(at.child("acpiIndex"), format!("{index} is not an ACPI index")).instead(format!(
            "write {} to {}",
            ACPI_INDICES.start(),
            ACPI_INDICES.end()
        )));
    }
}

fn state(subject: &Subject<'_>, interface: &Interface, at: &FieldPath, report: &mut Report) {
    let state = text(&interface.state);
    if state.is_empty() {
        return;
    }
    let at = at.child("state");
    if !STATES.contains(&state) {
        report
            .push(unsupported(at.clone(), format!("an interface cannot be `{state}`")).instead(one_of(state, STATES)));
    }
    if interface.sriov.is_some() && matches!(state, "up" | "down") {
        report.push(invalid(at.clone(), "the link of an SR-IOV interface cannot be set").instead("remove `state`"));
    }
    if state != "absent" {
        return;
    }
    if interface.bridge.is_none() {
        report.push(
            invalid(at.clone(), "only an interface bound by `bridge` can be taken away")
                .instead("remove `state`, or remove the interface and its network"),
        );
    }
    let of_default_network = networks::of_interface(subject, &interface.name).is_some_and(|network| {
        network.pod.is_some() || network.multus.as_ref().is_some_and(|multus| multus.default == Some(true))
    });
    if of_default_network {
        report.push(invalid(at, "the interface on the default network cannot be taken away").instead("remove `state`"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, faults, refused};

    const MAC: &str = "spec.domain.devices.interfaces[0].macAddress";
    const MODEL: &str = "spec.domain.devices.interfaces[0].model";
    const STATE: &str = "spec.domain.devices.interfaces[0].state";
    const NAME: &str = "spec.domain.devices.interfaces[0].name";

    #[test]
    fn models_addresses_and_states_that_exist() {
        for model in super::MODELS {
            accepted(&[&[(MODEL, json!(model))]]);
        }
        accepted(&[
            &[(MAC, json!("02-00-00-AA-BB-01"))],
            &[(STATE, json!("down"))],
            &[("spec.domain.devices.interfaces[0].acpiIndex", json!(16_383))],
            &[(NAME, json!("Upper_1")), ("spec.networks[0].name", json!("Upper_1"))],
        ]);
    }

    #[test]
    fn models_addresses_and_states_that_do_not() {
        refused(&[
            (&[(MODEL, json!("virtoi"))], MODEL, "did you mean `virtio`?"),
            (&[(MAC, json!("02:00:00:aa:bb"))], MAC, "not a MAC address"),
            (&[(MAC, json!("ff:ff:ff:ff:ff:ff"))], MAC, "group"),
            (
                &[("spec.domain.devices.interfaces[0].pciAddress", json!("nope"))],
                "spec.domain.devices.interfaces[0].pciAddress",
                "PCI",
            ),
            (
                &[("spec.domain.devices.interfaces[0].acpiIndex", json!(16_384))],
                "spec.domain.devices.interfaces[0].acpiIndex",
                "16383",
            ),
            (&[(STATE, json!("donw"))], STATE, "did you mean `down`?"),
            (&[(STATE, json!("absent"))], STATE, "bound by `bridge`"),
            (&[(NAME, json!("a.b"))], NAME, "cannot name an interface"),
            (&[(NAME, json!("defalt"))], NAME, "did you mean `default`?"),
            (
                &[("spec.domain.devices.interfaces[1]", json!({"name": "default", "masquerade": {}}))],
                "spec.domain.devices.interfaces[1].name",
                "another interface",
            ),
        ]);
    }

    #[test]
    fn a_name_without_its_other_half_is_reported_on_both_sides() {
        let fields: Vec<String> = faults(&[(NAME, json!("other"))]).into_iter().map(|fault| fault.field).collect();
        assert!(
            fields.contains(&NAME.to_owned()) && fields.contains(&"spec.networks[0].name".to_owned()),
            "{fields:?}"
        );
    }
}
