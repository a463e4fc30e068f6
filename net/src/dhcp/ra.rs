//! Router advertisements: the gateway, that addresses come by DHCPv6 (managed), what is on the link,
//! how long packets may be, the name servers. Pure. Sources followed: RFC 4861, RFC 8106, RFC 8319.

use super::v6::Config6;

/// How often advertisements are sent unasked, seconds (RFC 4861: 4 to 1800).
pub const INTERVAL_S: u64 = 300;
/// How long the guest keeps us as its gateway after the last advertisement, seconds: the most the field holds
/// (RFC 8319), so that a guest without a server for hours stays connected.
const ROUTER_LIFETIME_S: u16 = u16::MAX;
/// Without end.
const INFINITE: [u8; 4] = [0xff; 4];

const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;
/// Managed addresses and other configuration: both by DHCPv6.
const MANAGED_AND_OTHER: u8 = 0xc0;
/// The prefix is on the link; addresses are not made from it.
const ON_LINK: u8 = 0x80;
/// Hops the guest's own packets are given.
const HOP_LIMIT: u8 = 64;

/// Whether this ICMPv6 message asks for an advertisement.
pub fn is_solicitation(message: &[u8]) -> bool {
    message.len() >= 8 && message.first() == Some(&SOLICITATION) && message.get(1) == Some(&0)
}

/// The advertisement, without its checksum, which the kernel computes.
pub fn advertisement(config: &Config6) -> Vec<u8> {
    let [high, low] = ROUTER_LIFETIME_S.to_be_bytes();
    let mut message = vec![ADVERTISEMENT, 0, 0, 0, HOP_LIMIT, MANAGED_AND_OTHER, high, low];
    // Reachable time and retransmission timer: left to the guest.
    message.extend([0; 8]);
    let network = config.lease.network;
    message.extend([3, 4, network.prefix_len(), ON_LINK].into_iter().chain(INFINITE).chain(INFINITE).chain([0; 4]));
    message.extend(network.network().octets());
    message.extend([5, 1, 0, 0].into_iter().chain(u32::from(config.mtu).to_be_bytes()));
    if let Ok(units) = u8::try_from(config.nameservers.len() * 2 + 1)
        && units > 1
    {
        message.extend([25, units, 0, 0].into_iter().chain(INFINITE));
        config.nameservers.iter().for_each(|server| message.extend(server.octets()));
    }
    message.extend(search_list(&config.options.searches));
    message
}

/// The DNS search list option, padded to whole units of 8 bytes; nothing if there are no domains or they do
/// not fit.
fn search_list(domains: &[String]) -> Vec<u8> {
    let mut names = Vec::new();
    for domain in domains {
        for label in domain.trim_end_matches('.').split('.') {
            let Ok(length) = u8::try_from(label.len()) else { return Vec::new() };
            names.push(length);
            names.extend(label.bytes());
        }
        names.push(0);
    }
    names.resize(names.len().next_multiple_of(8), 0);
    match u8::try_from(names.len() / 8 + 1) {
        Ok(units) if units > 1 => [31, units, 0, 0].into_iter().chain(INFINITE).chain(names).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::DhcpOptions;
    use super::*;
    use crate::plan::guest::GuestIpv6;

    fn config(options: &DhcpOptions) -> Config6 {
        let lease = GuestIpv6 {
            address: "fd10:0:2::2".parse().unwrap(),
            network: "fd10:0:2::/120".parse().unwrap(),
            gateway: "fd10:0:2::1".parse().unwrap(),
        };
        Config6::new(&lease, 1450, options).unwrap()
    }

    /// (type, units, value) of each option, which fill the message exactly.
    fn options(message: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
        let mut rest = &message[16..];
        let mut found = Vec::new();
        while let [kind, units, ..] = *rest {
            let (option, left) = rest.split_at(usize::from(units) * 8);
            found.push((kind, units, option[2..].to_vec()));
            rest = left;
        }
        found
    }

    #[test]
    fn the_advertisement_announces_dhcp_and_this_gateway() {
        let message = advertisement(&config(&DhcpOptions::default()));
        assert_eq!(message[..8], [134, 0, 0, 0, 64, 0xc0, 0xff, 0xff]);
        let options = options(&message);
        assert_eq!(options.len(), 2);
        let (kind, units, prefix) = &options[0];
        assert_eq!((*kind, *units, prefix[0], prefix[1]), (3, 4, 120, 0x80));
        assert_eq!(prefix[14..20], [0xfd, 0x10, 0, 0, 0, 2]);
        assert_eq!(options[1], (5, 1, vec![0, 0, 0, 0, 5, 0xaa]));
    }

    #[test]
    fn name_servers_and_domains_are_padded_to_whole_units() {
        let announced = DhcpOptions {
            nameservers: vec!["fd00::53".parse().unwrap(), "fd00::54".parse().unwrap(), "10.0.0.1".parse().unwrap()],
            searches: vec!["cluster.local".to_owned(), "a.b.".to_owned()],
            ..Default::default()
        };
        let message = advertisement(&config(&announced));
        assert_eq!(message.len() % 8, 0);
        let options = options(&message);
        assert_eq!((options[2].0, options[2].1), (25, 5));
        assert_eq!((options[3].0, options[3].1), (31, 4));
        assert_eq!(&options[3].2[6..], b"\x07cluster\x05local\0\x01a\x01b\0\0\0\0\0");
    }

    #[test]
    fn only_a_whole_solicitation_is_answered() {
        assert!(is_solicitation(&[133, 0, 0, 0, 0, 0, 0, 0]));
        for other in [&[134, 0, 0, 0, 0, 0, 0, 0][..], &[133, 1, 0, 0, 0, 0, 0, 0], &[133, 0, 0], &[]] {
            assert!(!is_solicitation(other), "{other:?}");
        }
    }
}
