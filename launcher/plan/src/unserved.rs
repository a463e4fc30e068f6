//! What a network without a tap of ours does not give its guest. passt and QEMU's user-mode network answer DHCP themselves
//! and take a host name from us, nothing else; a note in the plan lists what is left out.

use garboard_api::v1::Interface;

use super::draft::{Draft, text};
use super::interface::{BindingPlan, InterfacePlan};

/// Notes what the interface asks for and does not get.
pub(super) fn note(draft: &mut Draft<'_>, interface: &Interface, plan: &InterfacePlan, field: &str) {
    let server = match &plan.binding {
        BindingPlan::Masquerade { .. } | BindingPlan::Bridge { .. } => return,
        BindingPlan::Passt { .. } => "passt",
        BindingPlan::User { .. } => "QEMU's user-mode network",
    };
    let has_ports = !interface.ports.is_empty();
    let spec = draft.input.spec();
    let network = spec.networks.iter().position(|network| network.name == interface.name);
    let pod = network.and_then(|index| spec.networks[index].pod.as_ref());
    let ipv6 = pod.is_some_and(|pod| text(&pod.vm_ipv6_network_cidr).is_some());
    let missed = [
        (has_ports, format!("{field}.ports"), format!("{server} lets in only the ports that `-p` publishes")),
        (
            interface.dhcp_options.is_some(),
            format!("{field}.dhcpOptions"),
            format!("{server} answers DHCP by itself, without these options"),
        ),
        (text(&spec.subdomain).is_some(), "spec.subdomain".to_owned(), format!("{server} gives the guest no domain")),
        (
            ipv6,
            format!("spec.networks[{}].pod.vmIPv6NetworkCIDR", network.unwrap_or_default()),
            format!("{server} chooses the guest's IPv6 addresses"),
        ),
    ];
    for (_, field, text) in missed.into_iter().filter(|(is_asked, ..)| *is_asked) {
        draft.note(Some(&field), text);
    }
}
