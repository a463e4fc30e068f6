//! Hardware addresses of network cards.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The bit of the first byte of an address for many cards (multicast).
const GROUP: u8 = 0b01;
/// The bit of the first byte of an address that no vendor assigned.
const LOCAL: u8 = 0b10;

/// A MAC address of six bytes (EUI-48). Written with colons and in lower case: `02:00:00:aa:bb:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr([u8; 6]);

/// A text is not a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a MAC address of six bytes", text.escape_debug())]
pub struct MacAddrError {
    /// The text.
    pub text: String,
}

impl MacAddr {
    /// The address of these bytes.
    pub const fn new(octets: [u8; 6]) -> Self {
        Self(octets)
    }

    /// The bytes of the address.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// Whether many cards listen to the address, so that no card can have it.
    pub const fn is_group(self) -> bool {
        self.0[0] & GROUP != 0
    }

    /// Whether the address was made up, and not given out with a card.
    pub const fn is_local(self) -> bool {
        self.0[0] & LOCAL != 0
    }
}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    /// Reads what Go's `net.ParseMAC` reads as six bytes: pairs of digits joined by colons or by dashes, or groups of four
    /// joined by dots.
    fn from_str(text: &str) -> Result<Self, MacAddrError> {
        read(text).map(Self).ok_or_else(|| MacAddrError { text: text.to_owned() })
    }
}

fn read(text: &str) -> Option<[u8; 6]> {
    let separator = text.chars().find(|each| !each.is_ascii_hexdigit())?;
    let width = match separator {
        ':' | '-' => 2,
        '.' => 4,
        _ => return None,
    };
    let mut digits = String::with_capacity(12);
    for group in text.split(separator) {
        if group.len() != width || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        digits.push_str(group);
    }
    let mut octets = [0; 6];
    if digits.len() != 2 * octets.len() {
        return None;
    }
    for (octet, at) in octets.iter_mut().zip((0..).step_by(2)) {
        *octet = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
    }
    Some(octets)
}

impl fmt::Display for MacAddr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl TryFrom<String> for MacAddr {
    type Error = MacAddrError;

    fn try_from(text: String) -> Result<Self, MacAddrError> {
        text.parse()
    }
}

impl From<MacAddr> for String {
    fn from(address: MacAddr) -> Self {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn three_notations_are_read_and_one_is_written() {
        for text in ["02:00:00:aa:bb:01", "02-00-00-AA-BB-01", "0200.00aa.bb01"] {
            assert_eq!(text.parse::<MacAddr>().unwrap().to_string(), "02:00:00:aa:bb:01");
        }
    }

    #[test]
    fn what_is_no_address_of_six_bytes_is_refused() {
        for text in ["", "junk", "02:00:00:aa:bb", "02:00:00:aa:bb:01:02:03", "02:00-00:aa:bb:01", "2:0:0:a:b:1", "é:"]
        {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
        let error = "a\nb".parse::<MacAddr>().unwrap_err();
        assert_eq!(error.to_string(), "`a\\nb` is not a MAC address of six bytes");
    }

    #[test]
    fn the_first_byte_has_the_kind() {
        let kinds = |text: &str| text.parse().map(|mac: MacAddr| (mac.is_group(), mac.is_local())).unwrap();
        assert_eq!(kinds("02:00:00:00:00:01"), (false, true));
        assert_eq!(kinds("01:00:5e:00:00:01"), (true, false));
        assert_eq!(kinds("ff:ff:ff:ff:ff:ff"), (true, true));
    }

    proptest! {
        #[test]
        fn every_address_survives_every_notation(octets: [u8; 6]) {
            let address = MacAddr::new(octets);
            let colons = address.to_string();
            prop_assert_eq!(colons.parse(), Ok(address));
            prop_assert_eq!(colons.replace(':', "-").to_uppercase().parse(), Ok(address));
            let [a, b, c, d, e, f] = octets;
            prop_assert_eq!(format!("{a:02x}{b:02x}.{c:02x}{d:02x}.{e:02x}{f:02x}").parse(), Ok(address));
            let json = serde_json::to_string(&address).unwrap();
            prop_assert_eq!(serde_json::from_str::<MacAddr>(&json).unwrap(), address);
        }

        #[test]
        fn no_text_makes_reading_panic(text in "\\PC{0,30}") {
            let _ = text.parse::<MacAddr>();
        }
    }
}
