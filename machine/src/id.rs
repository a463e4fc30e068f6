//! Identifiers QEMU accepts, and how they are made from names of a manifest.
//!
//! QEMU's rule (`id_wellformed`, `util/id.c`): a letter, then letters, digits, `-`, `.` and `_`. Block nodes may have
//! at most 31 bytes (`block.c`, `node_name[32]`), everything else any length.

use std::fmt;

use serde::{Deserialize, Serialize};

/// ID of a device, an object, a character device or a network backend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceId(String);

/// Name of a block node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

/// The most bytes a node name may have.
pub const MAX_NODE_NAME_BYTES: usize = 31;

/// Why a text is no ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// A character QEMU does not allow, or none at all.
    #[error("`{id}` is no QEMU ID: a letter, then letters, digits, `-`, `.` and `_`")]
    Malformed {
        /// The text.
        id: String,
    },
    /// Longer than QEMU keeps.
    #[error("node name `{name}` is longer than {MAX_NODE_NAME_BYTES} bytes")]
    TooLong {
        /// The text.
        name: String,
    },
}

impl DeviceId {
    /// Takes `id` as it is.
    ///
    /// # Errors
    /// [`IdError::Malformed`].
    pub fn new(id: impl Into<String>) -> Result<Self, IdError> {
        let id = id.into();
        if is_wellformed(&id) { Ok(Self(id)) } else { Err(IdError::Malformed { id }) }
    }

    /// `prefix-name`, for a name from a manifest. The prefix is ours and starts with a letter.
    ///
    /// # Errors
    /// [`IdError::Malformed`] if the name has a character that QEMU does not allow.
    pub fn from_name(prefix: &'static str, name: &str) -> Result<Self, IdError> {
        Self::new(format!("{prefix}-{name}"))
    }

    /// `prefix` and a number, which is always well-formed for our own prefixes.
    #[must_use]
    pub fn numbered(prefix: &'static str, number: u32) -> Self {
        Self(format!("{prefix}{number}"))
    }

    /// One of our own constants.
    #[must_use]
    pub fn constant(id: &'static str) -> Self {
        debug_assert!(is_wellformed(id), "{id}");
        Self(id.to_owned())
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl NodeName {
    /// Takes `name` as it is.
    ///
    /// # Errors
    /// [`IdError`] if it is malformed or too long.
    pub fn new(name: impl Into<String>) -> Result<Self, IdError> {
        let name = name.into();
        if !is_wellformed(&name) {
            Err(IdError::Malformed { id: name })
        } else if name.len() > MAX_NODE_NAME_BYTES {
            Err(IdError::TooLong { name })
        } else {
            Ok(Self(name))
        }
    }

    /// `prefix-name`; if that is too long, the end of the name gives way to eight hexadecimal digits of its hash, so
    /// that two long names stay two.
    ///
    /// # Errors
    /// [`IdError::Malformed`] if the name has a character that QEMU does not allow.
    pub fn from_name(prefix: &'static str, name: &str) -> Result<Self, IdError> {
        let whole = format!("{prefix}-{name}");
        if whole.len() <= MAX_NODE_NAME_BYTES {
            return Self::new(whole);
        }
        if !is_wellformed(&whole) {
            return Err(IdError::Malformed { id: whole });
        }
        let hash = fnv1a_64(name.as_bytes()) & 0xffff_ffff;
        // Well-formed means ASCII, so every byte is a place to cut.
        Self::new(format!("{}-{hash:08x}", &whole[..MAX_NODE_NAME_BYTES - 9]))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_wellformed(id: &str) -> bool {
    let mut bytes = id.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

/// FNV-1a with 64 bits: names to stable numbers. Not for anything an adversary may choose collisions of.
#[must_use]
pub fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

macro_rules! text_newtype {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl From<&$name> for crate::argv::Property {
            fn from(id: &$name) -> Self {
                Self::Text(id.0.clone())
            }
        }

        impl From<&$name> for crate::argv::OptionValue {
            fn from(id: &$name) -> Self {
                Self::from(&id.0)
            }
        }
    };
}

text_newtype!(DeviceId);
text_newtype!(NodeName);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_follow_qemus_rule() {
        for good in ["a", "disk-root", "A.b_c-9"] {
            assert!(DeviceId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "9a", "-a", "a b", "a,b", "a/b", "ä"] {
            assert!(DeviceId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn long_node_names_are_shortened_and_stay_different() {
        let name = "a".repeat(40);
        let one = NodeName::from_name("image", &format!("{name}1")).unwrap();
        let other = NodeName::from_name("image", &format!("{name}2")).unwrap();
        assert_ne!(one, other);
        assert_eq!(one.as_str().len(), MAX_NODE_NAME_BYTES);
        assert_eq!(NodeName::from_name("image", "root").unwrap().as_str(), "image-root");
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a_64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_every_id_survives_serde(text in any::<String>()) {
            if let Ok(node) = NodeName::from_name("image", &text) {
                prop_assert!(node.as_str().len() <= MAX_NODE_NAME_BYTES);
                let json = serde_json::to_string(&node).unwrap();
                prop_assert_eq!(serde_json::from_str::<NodeName>(&json).unwrap(), node);
            }
        }
    }
}
