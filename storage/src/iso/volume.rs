//! Volume descriptors: the first thing a guest reads of a disc.

use super::record::{Extent, Moment, both_u16, both_u32, directory_record};
use super::view::View;
use super::{SECTOR_BYTES, VolumeLabel};

/// The descriptor that ends the list.
pub(super) const TERMINATOR: [u8; 7] = [0xff, b'C', b'D', b'0', b'0', b'1', 1];

/// `%/E`: UCS-2 level 3, Joliet's mark.
const JOLIET_ESCAPE: [u8; 3] = [0x25, 0x2f, 0x45];

/// A descriptor's content.
pub(super) struct VolumeFacts<'a> {
    pub(super) view: View,
    pub(super) label: &'a VolumeLabel,
    /// Length of the disc.
    pub(super) sectors: u32,
    pub(super) root: Extent,
    /// Path tables in either byte order.
    pub(super) little: Extent,
    pub(super) big: Extent,
    pub(super) moment: Moment,
}

/// A primary (ECMA-119 8.4) or supplementary (8.5) volume descriptor: one sector.
pub(super) fn descriptor(facts: &VolumeFacts<'_>) -> Vec<u8> {
    let text = |value: &str, length: usize| facts.view.text(value, length);
    let mut out = vec![if facts.view == View::Primary { 1 } else { 2 }];
    out.extend(b"CD001");
    out.extend([1, 0]);
    out.extend(text("LINUX", 32));
    out.extend(text(facts.label.as_str(), 32));
    out.extend([0; 8]);
    out.extend(both_u32(facts.sectors));
    let mut escape = [0; 32];
    if facts.view == View::Joliet {
        escape[..3].copy_from_slice(&JOLIET_ESCAPE);
    }
    out.extend(escape);
    out.extend(both_u16(1)); // volumes in the set
    out.extend(both_u16(1)); // number of this one
    out.extend(both_u16(2048));
    out.extend(both_u32(facts.little.bytes));
    out.extend(facts.little.sector.to_le_bytes());
    out.extend([0; 4]);
    out.extend(facts.big.sector.to_be_bytes());
    out.extend([0; 4]);
    out.extend(directory_record(&[0], facts.root, true, facts.moment, &[]));
    out.extend(text("", 128)); // set
    out.extend(text("", 128)); // publisher
    out.extend(text("", 128)); // preparer
    out.extend(text("GARBOARD", 128));
    for _ in 0..3 {
        out.extend(text("", 37)); // copyright, abstract, bibliography
    }
    out.extend(facts.moment.long()); // created
    out.extend(facts.moment.long()); // modified: udev makes the UUID of it
    for _ in 0..2 {
        out.extend(b"0000000000000000\0"); // expires, effective: not set
    }
    out.push(1); // version of this structure
    out.resize(SECTOR_BYTES, 0);
    out
}
