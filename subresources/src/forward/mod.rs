//! Forwarding a port: which address of the guest is dialled, and what is refused (KubeVirt's `pkg/virt-api/rest/portforward.go`,
//! `dialers.go`). Pure.
//!
//! The address is that of the launcher pod, as its kubelet has reported it, and none that a guest could report of itself:
//! with `masquerade` and with `bridge` it leads to the guest ([ADR 35](../../docs/adr/0035-ports-of-a-guest.md)).

use std::net::{IpAddr, Ipv4Addr};

use garboard_api::v1::{Interface, Network};
use garboard_api::{VirtualMachine, VirtualMachineInstance};
use k8s_openapi::api::core::v1::Pod;

use crate::instance::{VMI_NOT_RUNNING, bad, conflict, is_paused, is_running};
use crate::refusal::Refusal;

/// Without an interface a guest has no address. KubeVirt's wording.
const NO_INTERFACE: &str = "no network interfaces are present";

/// A protocol that is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A connection for each websocket.
    Tcp,
    /// A datagram for each message.
    Udp,
}

impl Protocol {
    /// The segment of the path.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The port of the guest.
    pub port: u16,
    /// The protocol, TCP where the path names none.
    pub protocol: Protocol,
}

/// Reads the segments that follow `portforward`.
///
/// # Errors
/// They are no port, or no protocol that is forwarded.
pub fn target(parameters: &[&str]) -> Result<Target, Refusal> {
    let port = parameters.first().copied().unwrap_or_default();
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let number = port.parse().ok().filter(|&number: &u16| is_number && number > 0);
    let port = number.ok_or_else(|| bad(&format!("{port:?} is no port; write a number from 1 to 65535")))?;
    let protocol = match parameters.get(1).copied() {
        None | Some("tcp") => Protocol::Tcp,
        Some("udp") => Protocol::Udp,
        Some(other) => return Err(bad(&format!("the protocol {other:?} is not forwarded; write tcp or udp"))),
    };
    Ok(Target { port, protocol })
}

/// The instance of a VirtualMachine.
///
/// # Errors
/// It has none: an instance of the same name that is another's does not count.
pub fn instance_of<'a>(
    vm: &VirtualMachine,
    vmi: Option<&'a VirtualMachineInstance>,
) -> Result<&'a VirtualMachineInstance, Refusal> {
    let is_its = |vmi: &&VirtualMachineInstance| {
        let mut owners = vmi.metadata.owner_references.iter().flatten();
        owners.any(|owner| Some(&owner.uid) == vm.metadata.uid.as_ref())
    };
    vmi.filter(is_its).ok_or_else(|| conflict("VMI is not started"))
}

/// Whether a port may be forwarded.
///
/// # Errors
/// The guest does not run, is paused, or has no interface at the pod's network.
pub fn may_forward(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if is_paused(vmi) {
        return Err(conflict("VMI is paused"));
    }
    if !is_running(vmi) {
        return Err(bad(VMI_NOT_RUNNING));
    }
    if interface(vmi).is_some() { Ok(()) } else { Err(bad(NO_INTERFACE)) }
}

/// The interface at the pod's network.
fn interface(vmi: &VirtualMachineInstance) -> Option<&Interface> {
    let is_at_pod = |network: &&Network| network.pod.is_some();
    let network = vmi.spec.networks.iter().find(is_at_pod)?;
    let mut interfaces = vmi.spec.domain.devices.interfaces.iter();
    interfaces.find(|interface| interface.name == network.name && interface.state.as_deref() != Some("absent"))
}

/// The addresses of the guest, in the order in which they are tried.
///
/// # Errors
/// The pod is not the one that the instance runs in, shares its node's network, or has no address that is a pod's.
pub fn addresses(vmi: &VirtualMachineInstance, pod: &Pod) -> Result<Vec<IpAddr>, Refusal> {
    let active = vmi.status.as_ref().map(|status| &status.active_pods);
    let is_its = pod.metadata.uid.as_ref().is_some_and(|uid| active.is_some_and(|active| active.contains_key(uid)));
    if !is_its {
        return Err(Refusal::Internal(
            "the launcher pod is not the one that the instance runs in; try again".to_owned(),
        ));
    }
    if pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true)) {
        return Err(bad("the pod of this instance shares the network of its node: a port of it is the node's"));
    }
    let status = pod.status.as_ref();
    let all = status.and_then(|status| status.pod_ips.clone()).unwrap_or_default().into_iter().map(|ip| ip.ip);
    let first = status.and_then(|status| status.pod_ip.clone());
    let mut found: Vec<IpAddr> = Vec::new();
    for address in all.chain(first).filter_map(|text| text.parse().ok()).filter(is_of_a_pod) {
        if !found.contains(&address) {
            found.push(address);
        }
    }
    if found.is_empty() { Err(bad(NO_INTERFACE)) } else { Ok(found) }
}

/// Whether a pod can have this address. A node that lies about its pods must not have this process connect to itself, or to
/// what only its own host may ask (the metadata of a cloud).
fn is_of_a_pod(address: &IpAddr) -> bool {
    let is_special = |address: Ipv4Addr| {
        address.is_loopback()
            || address.is_unspecified()
            || address.is_link_local()
            || address.is_multicast()
            || address.is_broadcast()
    };
    match address {
        IpAddr::V4(address) => !is_special(*address),
        IpAddr::V6(address) => match address.to_ipv4() {
            // `::ffff:a.b.c.d`, and `::a.b.c.d`, among them `::` and `::1`.
            Some(_) => false,
            None => !address.is_unicast_link_local() && !address.is_multicast(),
        },
    }
}

/// Why a guest was not reached: what can be seen from outside, and what to look at.
#[must_use]
pub fn unreached(vmi: &VirtualMachineInstance, target: Target, error: &str) -> Refusal {
    let Target { port, protocol } = target;
    let is_listed = |interface: &Interface| {
        let is_port = |protocol: Protocol| {
            interface.ports.iter().any(|each| {
                let named = each.protocol.as_deref().unwrap_or("TCP");
                each.port == i32::from(port) && named.eq_ignore_ascii_case(protocol.name())
            })
        };
        interface.ports.is_empty() || is_port(protocol)
    };
    let hint = match interface(vmi) {
        Some(interface) if !is_listed(interface) => {
            format!("; spec.domain.devices.interfaces lists the ports that reach the guest, and not {port}")
        }
        Some(_) | None => String::new(),
    };
    Refusal::Internal(format!("dialing VM: {} port {port}: {error}{hint}", protocol.name()))
}

#[cfg(test)]
mod tests;
