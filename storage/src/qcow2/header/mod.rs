//! Parses and judges the header of a qcow2 image. Reads bytes only; never fails other than by [`HeaderError`].

use super::MOST_VIRTUAL_BYTES;
use crate::beneath::shown;

/// `QFI` and 0xfb.
pub const MAGIC: [u8; 4] = *b"QFI\xfb";

const LENGTH_V2: usize = 72;
const LENGTH_V3: usize = 104;
/// QEMU's `QCOW_MAX_L1_SIZE`, in bytes.
const MOST_L1_BYTES: u64 = 32 << 20;
/// QEMU's `QCOW_MAX_REFTABLE_SIZE`, in bytes.
const MOST_REFCOUNT_TABLE_BYTES: u64 = 8 << 20;
/// QEMU's `QCOW_MAX_SNAPSHOTS`.
const MOST_SNAPSHOTS: u32 = 65536;
/// The shortest entry of a snapshot table.
const SNAPSHOT_ENTRY_BYTES: u64 = 40;
/// QEMU's limit for the name of a backing file.
const MOST_NAME_BYTES: u32 = 1023;

const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

const EXTENSION_END: u32 = 0;
const EXTENSION_DATA_FILE: u32 = 0x4441_5441;

/// A valid header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// Size of the disk the guest sees, in bytes.
    pub virtual_bytes: u64,
    /// Size of a cluster in bytes: 512 to 2 MiB.
    pub cluster_bytes: u64,
    /// Internal snapshots; they are ignored, only the active state is used.
    pub snapshot_count: u32,
    /// The image was not closed cleanly (lazy refcounts). Harmless for reading.
    pub dirty: bool,
}

/// Why an image with qcow2's magic is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// No magic.
    #[error(
        "this is not a qcow2 image; use `format: raw` rules for it, or convert it with `qemu-img convert -O qcow2`"
    )]
    NotQcow2,
    /// The file ends inside the header.
    #[error("the qcow2 header is cut off after {have_bytes} bytes; copy or download the image again")]
    Truncated {
        /// Bytes present.
        have_bytes: usize,
    },
    /// Version 1 or one from the future.
    #[error("qcow2 version {version} is not supported; convert the image with `qemu-img convert -O qcow2`")]
    Version {
        /// The version it claims.
        version: u32,
    },
    /// Names another file as its base.
    #[error(
        "the image names `{name}` as its backing file, which would be read from this host; flatten it with `qemu-img convert -O qcow2`"
    )]
    BackingFile {
        /// The name, escaped and cut.
        name: String,
    },
    /// Names another file for its content.
    #[error(
        "the image keeps its data in an external file, `{name}`; put it into one file with `qemu-img convert -O qcow2`"
    )]
    ExternalDataFile {
        /// The name, escaped and cut; empty when it gives none.
        name: String,
    },
    /// Encrypted.
    #[error("the image is encrypted; decrypt it with `qemu-img convert` first")]
    Encrypted,
    /// Marked corrupt by QEMU.
    #[error("the image is marked corrupt; repair it with `qemu-img check -r all`, or build it again")]
    Corrupt,
    /// Needs a feature that neither we nor QEMU 7.2 support.
    #[error("the image needs unknown qcow2 features ({bits:#x}); write it with a released QEMU")]
    UnknownFeatures {
        /// The incompatible feature bits that are unknown.
        bits: u64,
    },
    /// A number that cannot be.
    #[error("the qcow2 header is not valid: {what}; copy or build the image again")]
    Unsound {
        /// Which number, and what is wrong with it.
        what: &'static str,
    },
    /// Beyond [`MOST_VIRTUAL_BYTES`].
    #[error(
        "the image claims {virtual_bytes} bytes; at most {MOST_VIRTUAL_BYTES} (64 TiB) are supported, make it smaller"
    )]
    TooLarge {
        /// The size it claims.
        virtual_bytes: u64,
    },
}

/// Big-endian fields at fixed places; past the end is [`HeaderError::Truncated`].
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], HeaderError> {
        let truncated = HeaderError::Truncated { have_bytes: self.0.len() };
        let end = at.checked_add(N).ok_or(HeaderError::Unsound { what: "an offset overflows" })?;
        self.0.get(at..end).and_then(|bytes| bytes.try_into().ok()).ok_or(truncated)
    }

    fn u32(&self, at: usize) -> Result<u32, HeaderError> {
        self.array(at).map(u32::from_be_bytes)
    }

    fn u64(&self, at: usize) -> Result<u64, HeaderError> {
        self.array(at).map(u64::from_be_bytes)
    }

    /// A name of a stranger for a message: what is there of it.
    fn name(&self, at: u64, length: u32) -> String {
        let start = usize::try_from(at).unwrap_or(usize::MAX).min(self.0.len());
        let wanted = usize::try_from(length.min(MOST_NAME_BYTES)).unwrap_or(0);
        let end = start.saturating_add(wanted).min(self.0.len());
        shown(&String::from_utf8_lossy(self.0.get(start..end).unwrap_or_default()))
    }
}

/// The numbers a header begins with, as they stand there.
struct Numbers {
    cluster_bits: u32,
    virtual_bytes: u64,
    l1_entries: u32,
    l1_offset: u64,
    refcount_offset: u64,
    refcount_clusters: u32,
    snapshot_count: u32,
    snapshot_offset: u64,
}

/// Judges the first bytes of an image: `head` should reach to the end of its first cluster (at most 2 MiB) or of the
/// file. `file_bytes` is the length of the whole file, which every table must lie in.
///
/// # Errors
/// [`HeaderError`]: see its variants; each states what to do.
pub fn parse_header(head: &[u8], file_bytes: u64) -> Result<Header, HeaderError> {
    let fields = Fields(head);
    if !head.starts_with(&MAGIC) {
        return Err(HeaderError::NotQcow2);
    }
    let version = fields.u32(4)?;
    if version != 2 && version != 3 {
        return Err(HeaderError::Version { version });
    }
    let numbers = Numbers {
        cluster_bits: fields.u32(20)?,
        virtual_bytes: fields.u64(24)?,
        l1_entries: fields.u32(36)?,
        l1_offset: fields.u64(40)?,
        refcount_offset: fields.u64(48)?,
        refcount_clusters: fields.u32(56)?,
        snapshot_count: fields.u32(60)?,
        snapshot_offset: fields.u64(64)?,
    };
    let cluster_bytes = match numbers.cluster_bits {
        bits @ 9..=21 => 1_u64 << bits,
        _ => return Err(HeaderError::Unsound { what: "the cluster size is not between 512 bytes and 2 MiB" }),
    };
    let (backing_offset, backing_length) = (fields.u64(8)?, fields.u32(16)?);
    if backing_offset != 0 || backing_length != 0 {
        return Err(HeaderError::BackingFile { name: fields.name(backing_offset, backing_length) });
    }
    if fields.u32(32)? != 0 {
        return Err(HeaderError::Encrypted);
    }
    let (features, length) = if version == 2 { (0, LENGTH_V2) } else { version_3(&fields, cluster_bytes)? };
    extensions(&fields, length, cluster_bytes, features)?;
    tables(&numbers, cluster_bytes, features, file_bytes)?;
    Ok(Header {
        version,
        virtual_bytes: numbers.virtual_bytes,
        cluster_bytes,
        snapshot_count: numbers.snapshot_count,
        dirty: features & DIRTY != 0,
    })
}

/// The fields that version 3 added: feature bits and length of the header.
fn version_3(fields: &Fields<'_>, cluster_bytes: u64) -> Result<(u64, usize), HeaderError> {
    let features = fields.u64(72)?;
    let unknown = features & !(DIRTY | CORRUPT | EXTERNAL_DATA | COMPRESSION_TYPE | EXTENDED_L2);
    if unknown != 0 {
        return Err(HeaderError::UnknownFeatures { bits: unknown });
    }
    if features & CORRUPT != 0 {
        return Err(HeaderError::Corrupt);
    }
    if fields.u32(96)? > 6 {
        return Err(HeaderError::Unsound { what: "the refcount width is above 64 bits" });
    }
    let length = usize::try_from(fields.u32(100)?).unwrap_or(usize::MAX);
    if length < LENGTH_V3 || length % 8 != 0 || length as u64 > cluster_bytes {
        return Err(HeaderError::Unsound { what: "the header length is impossible" });
    }
    let compression = if length > LENGTH_V3 { fields.array::<1>(LENGTH_V3)?[0] } else { 0 };
    if compression > 1 || (compression != 0) != (features & COMPRESSION_TYPE != 0) {
        return Err(HeaderError::Unsound { what: "the compression type is impossible" });
    }
    if features & EXTENDED_L2 != 0 && cluster_bytes < 1 << 14 {
        return Err(HeaderError::Unsound { what: "extended L2 entries need clusters of 16 KiB or more" });
    }
    Ok((features, length))
}

/// Walks the header extensions, which fill the rest of the first cluster, looking for the name of a data file.
fn extensions(fields: &Fields<'_>, start: usize, cluster_bytes: u64, features: u64) -> Result<(), HeaderError> {
    let end = usize::try_from(cluster_bytes).unwrap_or(usize::MAX);
    let mut at = start;
    while at < end {
        let kind = match fields.u32(at) {
            // A version 2 image may be as short as its header, and QEMU takes that.
            Err(_) if at == start && features & EXTERNAL_DATA == 0 => break,
            other => other?,
        };
        let length = fields.u32(at + 4)?;
        if kind == EXTENSION_END {
            break;
        }
        if kind == EXTENSION_DATA_FILE {
            return Err(HeaderError::ExternalDataFile { name: fields.name(at as u64 + 8, length) });
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        at = length
            .checked_next_multiple_of(8)
            .and_then(|padded| padded.checked_add(at + 8))
            .filter(|next| *next <= end)
            .ok_or(HeaderError::Unsound { what: "a header extension is longer than the first cluster" })?;
    }
    if features & EXTERNAL_DATA != 0 {
        return Err(HeaderError::ExternalDataFile { name: String::new() });
    }
    Ok(())
}

/// Every table must be aligned, bounded, big enough for the disk and inside the file.
fn tables(numbers: &Numbers, cluster_bytes: u64, features: u64, file_bytes: u64) -> Result<(), HeaderError> {
    let unsound = |what| Err(HeaderError::Unsound { what });
    let inside = |offset: u64, bytes: u64| {
        offset != 0
            && offset.is_multiple_of(cluster_bytes)
            && offset.checked_add(bytes).is_some_and(|end| end <= file_bytes)
    };
    if numbers.virtual_bytes > MOST_VIRTUAL_BYTES {
        return Err(HeaderError::TooLarge { virtual_bytes: numbers.virtual_bytes });
    }
    let entry_bytes = if features & EXTENDED_L2 != 0 { 16 } else { 8 };
    let covered_by_l1_entry = cluster_bytes / entry_bytes * cluster_bytes;
    if u64::from(numbers.l1_entries) < numbers.virtual_bytes.div_ceil(covered_by_l1_entry) {
        return unsound("the L1 table is too small for the size of the disk");
    }
    let l1_bytes = u64::from(numbers.l1_entries) * 8;
    if l1_bytes > MOST_L1_BYTES {
        return unsound("the L1 table is larger than 32 MiB");
    }
    if numbers.l1_entries != 0 && !inside(numbers.l1_offset, l1_bytes) {
        return unsound("the L1 table lies outside the file");
    }
    let refcount_bytes = u64::from(numbers.refcount_clusters) * cluster_bytes;
    if refcount_bytes == 0 || refcount_bytes > MOST_REFCOUNT_TABLE_BYTES {
        return unsound("the refcount table is empty or larger than 8 MiB");
    }
    if !inside(numbers.refcount_offset, refcount_bytes) {
        return unsound("the refcount table lies outside the file");
    }
    if numbers.snapshot_count > MOST_SNAPSHOTS {
        return unsound("it counts more than 65536 snapshots");
    }
    let snapshot_bytes = u64::from(numbers.snapshot_count) * SNAPSHOT_ENTRY_BYTES;
    if numbers.snapshot_count != 0 && !inside(numbers.snapshot_offset, snapshot_bytes) {
        return unsound("the snapshot table lies outside the file");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
