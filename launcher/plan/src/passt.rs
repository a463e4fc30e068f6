//! passt, the process that translates a guest's frames to ordinary sockets: how it is called. Source followed: passt(1)
//! of Debian 12 (0.0~git20230309) and 13.

use garboard_machine::facts::HostFacts;

use super::interface::{BindingPlan, Forward, InterfacePlan, Protocol};
use super::launch::{FIRST_DESCRIPTOR, HelperPlan};
use super::user_network::addresses;

/// The helper of an interface that passt serves.
pub(super) fn helper(interface: &InterfacePlan, facts: &HostFacts) -> Option<HelperPlan> {
    let BindingPlan::Passt { ipv4, forwards, .. } = &interface.binding else { return None };
    let mut argv = vec![facts.network.passt.clone()?, "--fd".to_owned(), FIRST_DESCRIPTOR.to_string()];
    argv.extend(ipv4.as_deref().map(own_addresses).unwrap_or_default());
    argv.extend(forwards.iter().flat_map(forward));
    Some(HelperPlan { interface: interface.name.clone(), argv, descriptor: FIRST_DESCRIPTOR })
}

/// The addresses a masqueraded guest would have, instead of the host's own.
fn own_addresses(range: &str) -> Vec<String> {
    let Some([gateway, guest, _]) = addresses(range) else { return Vec::new() };
    let bits = range.split_once('/').map_or("24", |(_, bits)| bits);
    let arguments = ["--address", &guest.to_string(), "--netmask", bits, "--gateway", &gateway.to_string()];
    arguments.map(str::to_owned).to_vec()
}

fn forward(forward: &Forward) -> Vec<String> {
    let option = match forward.protocol {
        Protocol::Tcp => "--tcp-ports",
        Protocol::Udp => "--udp-ports",
        // `-p` does not support SCTP.
        Protocol::Sctp => return Vec::new(),
    };
    let address = forward.host_address.as_ref().map(|address| format!("{address}/")).unwrap_or_default();
    vec![option.to_owned(), format!("{address}{}:{}", forward.host_port, forward.guest_port)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_ports_become_passts_arguments() {
        let published = |protocol, address: Option<&str>, host_port, guest_port| {
            forward(&Forward { protocol, host_address: address.map(str::to_owned), host_port, guest_port })
        };
        assert_eq!(published(Protocol::Tcp, None, 2222, 22), ["--tcp-ports", "2222:22"]);
        assert_eq!(published(Protocol::Udp, Some("127.0.0.1"), 5353, 53), ["--udp-ports", "127.0.0.1/5353:53"]);
        assert_eq!(published(Protocol::Tcp, Some("::1"), 80, 8080), ["--tcp-ports", "::1/80:8080"]);
    }

    #[test]
    fn the_guest_has_the_addresses_of_masquerade() {
        let arguments = own_addresses("10.0.2.0/24").join(" ");
        assert_eq!(arguments, "--address 10.0.2.2 --netmask 24 --gateway 10.0.2.1");
    }
}
