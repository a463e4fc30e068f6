//! What a guest receives beside its addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use dhcproto::Name;
use serde::{Deserialize, Serialize};

/// Codes that sites may use as they like (RFC 3942).
pub const PRIVATE_CODES: std::ops::RangeInclusive<u8> = 224..=254;

/// An option that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// Not a host name or domain.
    #[error("{field}: `{text}` is not a name: labels of 1 to 63 of a-z A-Z 0-9 - _, separated by dots, 253 in all")]
    Name {
        /// Which option.
        field: &'static str,
        /// What was written.
        text: String,
    },
    /// A text that does not fit into one option.
    #[error("{field}: {bytes} bytes; write 1 to 255")]
    Length {
        /// Which option.
        field: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A private option with a code that is not private, or twice the same code.
    #[error("privateOptions: code {code} is not between 224 and 254, or is given twice")]
    Code {
        /// The code.
        code: u8,
    },
}

/// Options of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DhcpOptions {
    /// The guest's host name (DHCPv4 option 12).
    pub hostname: Option<String>,
    /// Its domain (15).
    pub domain: Option<String>,
    /// Search domains (119; DHCPv6 24).
    pub searches: Vec<String>,
    /// Name servers (6; DHCPv6 23), each announced in its own family.
    pub nameservers: Vec<IpAddr>,
    /// File to boot (67).
    pub boot_file_name: Option<String>,
    /// Server to boot from, an address or a name (66).
    pub tftp_server_name: Option<String>,
    /// Time servers (42).
    pub ntp_servers: Vec<Ipv4Addr>,
    /// Private options, 224 to 254.
    pub private: Vec<PrivateOption>,
}

/// One private option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrivateOption {
    /// Its code.
    pub code: u8,
    /// Its value, sent as written.
    pub value: String,
}

impl DhcpOptions {
    /// Whether everything can be sent; else the first error that [`DhcpOptions::sendable`] finds.
    pub fn check(&self) -> Result<(), OptionError> {
        self.clone().sendable().1.into_iter().next().map_or(Ok(()), Err)
    }

    /// What of this can be sent, and why the rest cannot: a guest is better off without one option than without an
    /// address.
    pub fn sendable(mut self) -> (Self, Vec<OptionError>) {
        let mut left_out = Vec::new();
        let mut is_good = |outcome: Result<(), OptionError>| match outcome {
            Ok(()) => true,
            Err(error) => {
                left_out.push(error);
                false
            }
        };
        self.hostname = self.hostname.filter(|text| is_good(check_name("hostname", text)));
        self.domain = self.domain.filter(|text| is_good(check_name("domain", text)));
        self.searches.retain(|text| is_good(check_name("searches", text)));
        self.boot_file_name = self.boot_file_name.filter(|text| is_good(check_length("bootFileName", text)));
        self.tftp_server_name = self.tftp_server_name.filter(|text| is_good(check_length("tftpServerName", text)));
        let mut seen = BTreeSet::new();
        self.private.retain(|option| is_good(check_private(option, seen.insert(option.code))));
        (self, left_out)
    }

    /// Search domains as DNS names; those that are none are left out ([`DhcpOptions::check`] names them).
    pub(super) fn search_names(&self) -> Vec<Name> {
        let fully_qualified = |text: &String| Name::from_ascii(format!("{}.", text.trim_end_matches('.'))).ok();
        self.searches.iter().filter_map(fully_qualified).collect()
    }
}

fn check_name(field: &'static str, text: &str) -> Result<(), OptionError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(allowed);
    let bare = text.strip_suffix('.').unwrap_or(text);
    let good = bare.len() <= 253 && bare.split('.').all(label);
    if good { Ok(()) } else { Err(OptionError::Name { field, text: text.to_owned() }) }
}

fn check_length(field: &'static str, text: &str) -> Result<(), OptionError> {
    if (1..=255).contains(&text.len()) { Ok(()) } else { Err(OptionError::Length { field, bytes: text.len() }) }
}

fn check_private(option: &PrivateOption, is_first: bool) -> Result<(), OptionError> {
    if !is_first || !PRIVATE_CODES.contains(&option.code) {
        return Err(OptionError::Code { code: option.code });
    }
    check_length("privateOptions", &option.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_dns_cannot_carry_are_refused() {
        for good in ["vm", "vm.example.com", "vm.example.com.", "a-b_c", &"a".repeat(63)] {
            assert!(DhcpOptions { hostname: Some(good.to_owned()), ..Default::default() }.check().is_ok(), "{good}");
        }
        for bad in ["", ".", "a..b", "vm example", "ü", &"a".repeat(64), &"a.".repeat(128)] {
            let refused = DhcpOptions { searches: vec![bad.to_owned()], ..Default::default() }.check();
            assert!(matches!(refused, Err(OptionError::Name { field: "searches", .. })), "{bad:?}");
        }
    }

    #[test]
    fn private_codes_are_224_to_254_and_distinct() {
        let check = |codes: &[u8]| {
            let private = codes.iter().map(|&code| PrivateOption { code, value: "x".to_owned() }).collect();
            DhcpOptions { private, ..Default::default() }.check()
        };
        assert!(check(&[224, 254]).is_ok());
        for bad in [&[223][..], &[255], &[224, 224]] {
            assert!(matches!(check(bad), Err(OptionError::Code { .. })), "{bad:?}");
        }
    }

    #[test]
    fn an_option_longer_than_its_length_byte_is_refused() {
        let options = |text: String| DhcpOptions { boot_file_name: Some(text), ..Default::default() };
        assert!(options("x".repeat(255)).check().is_ok());
        assert!(matches!(options("x".repeat(256)).check(), Err(OptionError::Length { bytes: 256, .. })));
        assert!(matches!(options(String::new()).check(), Err(OptionError::Length { bytes: 0, .. })));
    }

    #[test]
    fn what_cannot_be_sent_is_left_out_and_the_rest_is_kept() {
        let option = |code, value: &str| PrivateOption { code, value: value.to_owned() };
        let written = DhcpOptions {
            hostname: Some("vm".to_owned()),
            // The result of `search .` in a resolv.conf.
            searches: vec![".".to_owned(), "example.com".to_owned()],
            boot_file_name: Some("x".repeat(256)),
            tftp_server_name: Some("10.0.0.1".to_owned()),
            private: vec![option(224, ""), option(225, "y"), option(225, "z"), option(7, "y")],
            ..Default::default()
        };
        assert!(written.check().is_err());
        let (sent, left_out) = written.sendable();
        let expected = DhcpOptions {
            hostname: Some("vm".to_owned()),
            searches: vec!["example.com".to_owned()],
            tftp_server_name: Some("10.0.0.1".to_owned()),
            private: vec![option(225, "y")],
            ..Default::default()
        };
        assert_eq!((sent.check(), sent, left_out.len()), (Ok(()), expected, 5));
    }
}
