//! Writes small discs: ISO 9660 with Rock Ridge and Joliet, so that Linux, the BSDs and Windows all see the real names.
//!
//! Why own code: cloud-init and Windows look for exact lower-case names (`user-data`, `autounattend.xml`) which plain ISO 9660
//! cannot hold; a tool (`xorriso`) would be another process and another package in the launcher; the one maintained crate,
//! `hadris-iso`, is a release candidate of a whole file system. What is needed is a few hundred lines that only ever write.
//!
//! ```text
//! sector 0..15    zero          17  Joliet descriptor     19…  path tables (little, big) × 2
//! sector 16       primary       18  end of descriptors         directories (primary), their long names, directories
//!                 descriptor                                   (Joliet), contents (shared by both trees)
//! ```
//!
//! Properties: *deterministic* (same tree and label, same bytes: no clock, no random id), *bounded* ([`MOST_BYTES`],
//! [`MOST_ENTRIES`], seven levels) and *distinct*: the disc's date, from which udev derives its UUID, is made from its
//! content, so that two discs in one guest do not share `/dev/disk/by-uuid/…`.
//!
//! Follows ECMA-119 (1987), the Joliet specification (1995), SUSP 1.10 and RRIP 1.10.

mod label;
mod layout;
mod names;
mod record;
mod tree;
mod view;
mod volume;

pub use label::{LabelError, VolumeLabel};
pub use tree::{DiscTree, Readers, TreeError};

/// Bytes of a sector, of which everything is a multiple.
pub const SECTOR_BYTES: usize = 2048;
/// The most content a disc may hold: 32 MiB. ConfigMaps and Secrets are limited to 1 MiB by Kubernetes itself.
pub const MOST_BYTES: usize = 32 << 20;
/// The most files and directories.
pub const MOST_ENTRIES: usize = 4096;

/// The disc as bytes, a multiple of [`SECTOR_BYTES`] long.
///
/// Infallible: what could be wrong was refused when the tree was filled.
pub fn image(tree: &DiscTree, label: &VolumeLabel) -> Vec<u8> {
    layout::Layout::of(tree).render(label)
}

#[cfg(test)]
mod tests;
