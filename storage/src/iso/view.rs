//! The two trees of a disc: which names, which extras.

use super::names::{Kind, Names};

/// One of the two trees that describe the same files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// ISO 9660 proper, with Rock Ridge beside each record.
    Primary,
    /// Joliet.
    Joliet,
}

impl View {
    /// The identifier of a name in this tree.
    pub(super) fn identifier(self, names: &mut Names, name: &str, kind: Kind) -> Vec<u8> {
        match self {
            Self::Primary => names.iso(name, kind),
            Self::Joliet => names.joliet(name, kind),
        }
    }

    /// Text of a volume descriptor, padded with spaces to `length` bytes.
    pub(super) fn text(self, text: &str, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = match self {
            Self::Primary => text.bytes().take(length).collect(),
            Self::Joliet => text.encode_utf16().take(length / 2).flat_map(u16::to_be_bytes).collect(),
        };
        while bytes.len() < length {
            match self {
                Self::Joliet if length - bytes.len() >= 2 => bytes.extend([0, b' ']),
                Self::Joliet => bytes.push(0),
                Self::Primary => bytes.push(b' '),
            }
        }
        bytes
    }
}
