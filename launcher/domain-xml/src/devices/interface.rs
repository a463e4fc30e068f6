//! `<interface>`.

use garboard_plan::{BindingPlan, InterfacePlan, LinkState, NicModel};

use crate::address;
use crate::arguments::Values;
use crate::element::Element;

use super::{alias, virtio_model};

/// How it is joined to a network, as libvirt calls it, and the name of its tap.
pub(crate) fn network(interface: &InterfacePlan) -> (&'static str, Option<&str>) {
    match &interface.binding {
        BindingPlan::Masquerade { tap, .. } | BindingPlan::Bridge { tap } => ("ethernet", Some(tap.as_str())),
        BindingPlan::User { .. } | BindingPlan::Passt { .. } => ("user", None),
    }
}

/// libvirt's name of the model.
pub(crate) fn model(interface: &InterfacePlan, driver: &str) -> &'static str {
    match interface.model {
        NicModel::Virtio => virtio_model(driver),
        NicModel::E1000
        | NicModel::E1000e
        | NicModel::Igb
        | NicModel::Rtl8139
        | NicModel::Ne2kPci
        | NicModel::Pcnet => interface.model.name(),
    }
}

pub(super) fn element(interface: &InterfacePlan, device: &Values) -> Element {
    let (kind, tap) = network(interface);
    let mut element = Element::new("interface").with("type", kind);
    element = element.child(Element::new("mac").with("address", &interface.mac)).children(addresses(interface));
    element = element.children(tap.map(|tap| Element::new("target").with("dev", tap).with("managed", "no")));
    element = element.child(Element::new("model").with("type", model(interface, &device.driver())));
    if interface.model == NicModel::Virtio && interface.queues > 1 {
        element = element.child(Element::new("driver").with("queues", interface.queues));
    }
    if interface.link == LinkState::Down {
        element = element.child(Element::new("link").with("state", "down"));
    }
    element = element.children(interface.mtu.map(|mtu| Element::new("mtu").with("size", mtu)));
    element = element.children(interface.boot_order.map(|order| Element::new("boot").with("order", order)));
    if device.get("romfile").as_deref() == Some("") {
        element = element.child(Element::new("rom").with("enabled", "no"));
    }
    element = element.children(device.get("acpi-index").map(|index| Element::new("acpi").with("index", index)));
    element.child(alias(device)).children(address::pci(device))
}

/// The range of a user-mode network: the guest's own address is given by its DHCP server.
fn addresses(interface: &InterfacePlan) -> Option<Element> {
    let range = match &interface.binding {
        BindingPlan::User { ipv4, .. } => Some(ipv4),
        BindingPlan::Passt { ipv4, .. } => ipv4.as_ref(),
        BindingPlan::Masquerade { .. } | BindingPlan::Bridge { .. } => None,
    };
    let (address, prefix) = range?.split_once('/')?;
    Some(Element::new("ip").with("family", "ipv4").with("address", address).with("prefix", prefix))
}
