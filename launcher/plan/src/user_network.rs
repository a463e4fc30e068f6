//! QEMU's user-mode network, with the addresses a masqueraded guest would have: gateway first, guest second.

use std::net::Ipv4Addr;

use garboard_machine::id::DeviceId;
use garboard_machine::netdev::UserNetdev;

use super::draft::invalid;
use super::error::PlanError;
use super::interface::{Forward, Protocol};

/// The backend. `net` is an IPv4 range, `field` where it comes from.
pub(super) fn netdev(
    id: DeviceId,
    net: &str,
    field: &str,
    hostname: &str,
    forwards: &[Forward],
) -> Result<UserNetdev, PlanError> {
    let [host, guest, dns] = addresses(net).ok_or_else(|| too_small(net, field))?;
    let hostfwd = forwards.iter().map(|forward| hostfwd(forward, guest, field)).collect::<Result<_, _>>()?;
    Ok(UserNetdev {
        id,
        net: net.to_owned(),
        host: host.to_string(),
        dhcpstart: guest.to_string(),
        dns: dns.to_string(),
        hostname: (!hostname.is_empty()).then(|| hostname.to_owned()),
        hostfwd,
    })
}

pub(super) fn too_small(net: &str, field: &str) -> PlanError {
    let message = format!("`{net}` has no room for a gateway, a guest and a name server");
    invalid(field, message, "write a range like 10.0.2.0/24")
}

/// The first three host addresses of a range: gateway, guest, name server.
pub(super) fn addresses(net: &str) -> Option<[Ipv4Addr; 3]> {
    let (base, bits) = net.split_once('/')?;
    let (base, bits): (Ipv4Addr, u32) = (base.parse().ok()?, bits.parse().ok()?);
    if !(1..=29).contains(&bits) {
        return None;
    }
    let network = u32::from(base) & (u32::MAX << (32 - bits));
    Some([1, 2, 3].map(|host| Ipv4Addr::from(network + host)))
}

fn hostfwd(forward: &Forward, guest: Ipv4Addr, field: &str) -> Result<String, PlanError> {
    let protocol = match forward.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => {
            let message = "QEMU's user-mode network does not forward SCTP";
            return Err(invalid(field, message, "forward TCP or UDP, or run as root"));
        }
    };
    let address = forward.host_address.as_deref().unwrap_or_default();
    Ok(format!("{protocol}:{address}:{}-{guest}:{}", forward.host_port, forward.guest_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_is_first_and_the_guest_second() {
        let expected = ["10.0.2.1", "10.0.2.2", "10.0.2.3"].map(|address| address.parse().unwrap());
        assert_eq!(addresses("10.0.2.0/24"), Some(expected));
        assert_eq!(addresses("10.0.2.77/24"), Some(expected));
        for bad in ["", "10.0.2.0", "10.0.2.0/30", "10.0.2.0/33", "fd00::/64"] {
            assert_eq!(addresses(bad), None, "{bad}");
        }
    }
}
