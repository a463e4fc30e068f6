//! Addresses as they are written in a manifest: MAC, PCI and IP addresses, and absolute paths.
//!
//! Only the notation is judged here. Whether an address is free belongs to the plan.

use std::net::IpAddr;

use crate::fault::SentText;
use crate::ip::ipv4;
use crate::mac::MacAddr;

/// Reads a MAC address in one of the three usual notations.
pub(crate) fn parse_mac(text: &str) -> Option<[u8; 6]> {
    text.parse::<MacAddr>().ok().map(MacAddr::octets)
}

/// Whether `text` has the form of a PCI address, `DDDD:BB:SS.F`: four, two and two hexadecimal digits, one octal.
pub(crate) fn is_pci_address(text: &str) -> bool {
    let hexadecimal =
        |part: &str, width: usize| part.len() == width && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Some((rest, function)) = text.rsplit_once('.') else { return false };
    let parts: Vec<&str> = rest.split(':').collect();
    let [domain, bus, slot] = parts.as_slice() else { return false };
    hexadecimal(domain, 4)
        && hexadecimal(bus, 2)
        && hexadecimal(slot, 2)
        && matches!(function.as_bytes(), [b'0'..=b'7'])
}

/// Whether `text` is an IPv4 or IPv6 address, without zone or prefix length.
pub(crate) fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || ipv4(text).is_some()
}

/// What keeps `text` from being an absolute path to a file inside an image, without `.` and `..`, and what clients of KubeVirt
/// read of it.
///
/// One slash at the end is allowed, since a path may name a directory.
pub(crate) fn image_path_problem(text: &str) -> Option<(&'static str, SentText)> {
    if text == "/" {
        return Some(("is the root directory", SentText::Root));
    }
    let path = text.strip_suffix('/').unwrap_or(text);
    let Some(relative) = path.strip_prefix('/') else {
        return Some(("is not an absolute path", SentText::NotAbsolute));
    };
    if relative.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Some(("has an empty, `.` or `..` component", SentText::NotAbsolute));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_notations_of_a_mac_address_are_read() {
        let expected = Some([2, 0, 0, 0xaa, 0xbb, 1]);
        for text in ["02:00:00:aa:bb:01", "02-00-00-AA-BB-01", "0200.00aa.bb01"] {
            assert_eq!(parse_mac(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_mac_address_of_six_bytes_is_refused() {
        for text in [
            "",
            "junk",
            "02:00:00:aa:bb",
            "02:00:00:aa:bb:01:02:03",
            "02:00-00:aa:bb:01",
            "2:0:0:a:b:1",
            "02:00:00:aa:bb:0g",
        ] {
            assert_eq!(parse_mac(text), None, "{text}");
        }
    }

    #[test]
    fn a_pci_address_has_domain_bus_slot_and_an_octal_function() {
        for good in ["0000:04:10.0", "0000:81:01.7", "ABCD:ef:00.1"] {
            assert!(is_pci_address(good), "{good}");
        }
        for bad in ["", "junk", "0000:80:80.80", "0000:04:10.8", "04:10.0", "0000:04:10", "0000:4:10.0", "0000:04:1g.0"]
        {
            assert!(!is_pci_address(bad), "{bad}");
        }
    }

    #[test]
    fn an_address_has_no_zone_and_no_prefix_length() {
        assert!(is_ip("10.0.0.1") && is_ip("01.1.1.1") && !is_ip("10.0.0") && !is_ip("fe80::1%eth0"));
        assert!(is_ip("fd00::1") && !is_ip("fd00::1/64") && !is_ip("a"));
    }

    #[test]
    fn a_path_in_an_image_is_absolute_and_has_no_dots() {
        for good in ["/disk", "/disk/", "/disk/a.qcow2", "/..a"] {
            assert_eq!(image_path_problem(good), None, "{good}");
        }
        for bad in ["/", "disk", "/disk/../etc", "/./a", "//a", "/a//", "..", ""] {
            assert!(image_path_problem(bad).is_some(), "{bad}");
        }
    }
}
