//! IPv4 addresses as manifests have them.

use std::net::{IpAddr, Ipv4Addr};

/// The IPv4 address that a text is: with leading zeros, which mean nothing (`010.0.0.1` is `10.0.0.1`), or inside an IPv6 address
/// (`::ffff:10.0.0.1`). Kubernetes takes zeros in fields that it had before Go refused them, and KubeVirt's functional tests 1778 to 1780
/// ask for them; KubeVirt 1.7 itself reads servers of NTP and of names by Go's `net.ParseIP`.
pub fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<&str> = text.split('.').map(without_leading_zeros).collect();
    match parts.join(".").parse() {
        Ok(IpAddr::V4(address)) => Some(address),
        Ok(IpAddr::V6(address)) => address.to_ipv4_mapped(),
        Err(_) => None,
    }
}

fn without_leading_zeros(part: &str) -> &str {
    match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0",
        rest => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_mean_nothing_and_an_ipv6_address_may_contain_one() {
        for (text, address) in [
            ("10.0.0.1", "10.0.0.1"),
            ("010.00.000.01", "10.0.0.1"),
            ("0127.0.0.3", "127.0.0.3"),
            ("0.0.0.0", "0.0.0.0"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(ipv4(text), address.parse().ok(), "{text}");
        }
        for text in ["", "10.0.0", "10.0.0.", "10..0.1", "10.0.0.256", "10.0.0.0x1", "+1.0.0.1", "fd00::1", "::1", "a"]
        {
            assert_eq!(ipv4(text), None, "{text}");
        }
    }
}
