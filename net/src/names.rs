//! Names that cannot be wrong: link names, MAC addresses, the id under which a VM's host network is known.
//!
//! Not for the interface names of a manifest: those are free text and only appear in messages.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest link name the kernel takes, bytes (`IFNAMSIZ` without its NUL).
pub const LINK_NAME_MAX: usize = 15;

/// Why a text is not the name it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not a link name.
    #[error("`{text}` is not a link name: write 1 to 15 of the characters a-z A-Z 0-9 . _ -")]
    Link {
        /// What was written.
        text: String,
    },
    /// Not a MAC address.
    #[error("`{text}` is not a MAC address: write six pairs of hexadecimal digits in lower case, as 02:00:00:00:00:01")]
    Mac {
        /// What was written.
        text: String,
    },
    /// A MAC address no single interface may have.
    #[error("`{text}` is a group address: the lowest bit of the first byte of an interface's address is 0")]
    GroupMac {
        /// What was written.
        text: String,
    },
    /// Not an id.
    #[error(
        "`{text}` is not a network id: write 1 to 63 of the characters a-z 0-9 -, beginning with a letter or digit"
    )]
    VmNet {
        /// What was written.
        text: String,
    },
}

/// Name of a link: a bridge, a tap, one end of a veth pair. 1 to 15 bytes of `[A-Za-z0-9._-]`, so that it
/// is safe as a path element below `/proc/sys/net` and inside quotes of an nft script.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LinkName(String);

impl LinkName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LinkName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        // `all` and `default` are directories beside the links below /proc/sys/net/ipv4/conf.
        let reserved = matches!(text, "." | ".." | "all" | "default");
        let wrong = text.is_empty() || text.len() > LINK_NAME_MAX || reserved || !text.bytes().all(allowed);
        if wrong { Err(NameError::Link { text: text.to_owned() }) } else { Ok(Self(text.to_owned())) }
    }
}

impl TryFrom<String> for LinkName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<LinkName> for String {
    fn from(name: LinkName) -> Self {
        name.0
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// An Ethernet address of one interface (never a group address), in the one notation of the kernel: what people write is read by
/// the API, and a plan has it in this notation (ADR 1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EthernetAddress([u8; 6]);

impl EthernetAddress {
    /// From six bytes.
    pub fn new(bytes: [u8; 6]) -> Result<Self, NameError> {
        let address = Self(bytes);
        if bytes[0] & 1 == 1 { Err(NameError::GroupMac { text: address.to_string() }) } else { Ok(address) }
    }

    /// The six bytes, in the order they are sent.
    pub fn bytes(self) -> [u8; 6] {
        self.0
    }

    /// A locally administered address made from `seed`: the same seed always gives the same address, so
    /// that it need not be stored.
    pub fn derived(seed: &str) -> Self {
        let [_, _, _, b, c, d, e, f] = fingerprint(seed).to_be_bytes();
        Self([0x02, b, c, d, e, f])
    }
}

impl FromStr for EthernetAddress {
    type Err = NameError;

    /// Reads what [`Display`](fmt::Display) writes, and nothing else.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = || NameError::Mac { text: text.to_owned() };
        let mut bytes = [0; 6];
        for (byte, pair) in bytes.iter_mut().zip(text.split(':')) {
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        if Self(bytes).to_string() == text { Self::new(bytes) } else { Err(wrong()) }
    }
}

impl TryFrom<String> for EthernetAddress {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<EthernetAddress> for String {
    fn from(address: EthernetAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for EthernetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for EthernetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The id under which everything on the host that belongs to one VM's network is found again: the link's
/// name, its alias and the nft table all follow from it. 1 to 63 of `[a-z0-9-]`; a VMI's UID fits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VmNetId(String);

impl VmNetId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Name of the host's end of the veth pair: `gb` and 52 bits of a hash of the id. Two ids with the same
    /// hash are distinguished by [`VmNetId::alias`].
    pub fn host_link(&self) -> LinkName {
        LinkName(format!("gb{:013x}", fingerprint(&self.0) >> 12))
    }

    /// Alias set on the host's end (`ip link` shows it): whose link this is.
    pub fn alias(&self) -> String {
        format!("garboard {}", self.0)
    }

    /// Name of the one nft table (family `inet`) this VM has on the host.
    pub fn table(&self) -> String {
        format!("garboard_{}", self.0)
    }
}

impl FromStr for VmNetId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let wrong = text.is_empty() || text.len() > 63 || text.starts_with('-') || !text.bytes().all(allowed);
        if wrong { Err(NameError::VmNet { text: text.to_owned() }) } else { Ok(Self(text.to_owned())) }
    }
}

impl TryFrom<String> for VmNetId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<VmNetId> for String {
    fn from(id: VmNetId) -> Self {
        id.0
    }
}

impl fmt::Display for VmNetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// FNV-1a, 64 bits: names derived from it must be the same in every build, which the standard library's
/// hasher does not promise.
pub(crate) fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_link_name_fits_the_kernel_and_an_nft_script() {
        for good in ["a", "eth0", "k6t-eth0", "pod37a8eec1ce1", "abcdefghijklmno", "eth0.100"] {
            assert_eq!(good.parse::<LinkName>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "all", "default", "a/b", "a b", "a\"", "a\n", "abcdefghijklmnop", "ethö", "a:1"] {
            assert!(bad.parse::<LinkName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_mac_address_is_read_as_it_is_written_and_is_not_a_group() {
        assert_eq!("02:00:00:00:00:ab".parse::<EthernetAddress>().unwrap().bytes(), [2, 0, 0, 0, 0, 0xab]);
        for other in ["02-00-00-00-00-ab", "02:00:00:00:00:AB", "0200.0000.00ab", "2:0:0:0:0:ab"] {
            assert!(
                other.parse::<EthernetAddress>().is_err(),
                "{other:?}: the API reads it, and the plan writes it anew"
            );
        }
        for bad in ["", "02:00", "02:00:00:00:00:0", "02:00:00:00:00:00:00", "0g:00:00:00:00:00", "+2:00:00:00:00:00"] {
            assert!(matches!(bad.parse::<EthernetAddress>(), Err(NameError::Mac { .. })), "{bad:?}");
        }
        assert!(matches!("ff:ff:ff:ff:ff:ff".parse::<EthernetAddress>(), Err(NameError::GroupMac { .. })));
    }

    #[test]
    fn everything_of_a_vm_is_found_by_its_id() {
        let id: VmNetId = "0c6b6b0e-7c1f-4d57-9c5e-6f0c7d6a1b2c".parse().unwrap();
        assert_eq!(id.table(), "garboard_0c6b6b0e-7c1f-4d57-9c5e-6f0c7d6a1b2c");
        assert_eq!(id.alias(), "garboard 0c6b6b0e-7c1f-4d57-9c5e-6f0c7d6a1b2c");
        assert_eq!(id.host_link().as_str().len(), LINK_NAME_MAX);
        assert_eq!(id.host_link(), id.clone().host_link());
        for bad in ["", "-a", "A", "a_b", "a/b", "a\"b", &"a".repeat(64)] {
            assert!(bad.parse::<VmNetId>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_mac_address_survives_its_text(bytes in any::<[u8; 6]>()) {
            match EthernetAddress::new(bytes) {
                Ok(address) => prop_assert_eq!(address.to_string().parse::<EthernetAddress>(), Ok(address)),
                Err(_) => prop_assert_eq!(bytes[0] & 1, 1),
            }
        }

        #[test]
        fn names_made_for_an_id_are_valid(text in "[a-z0-9][a-z0-9-]{0,62}") {
            let id: VmNetId = text.parse().unwrap();
            prop_assert!(id.host_link().as_str().parse::<LinkName>().is_ok());
            prop_assert_eq!(EthernetAddress::derived(&text).bytes()[0], 2);
        }
    }
}
