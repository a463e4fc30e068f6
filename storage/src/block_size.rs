//! What a disk is made of: for `blockSize.matchVolume`, and for choosing QEMU's way of asynchronous I/O.

use std::os::fd::AsFd;
use std::path::PathBuf;

use nix::sys::stat::{SFlag, fstat, major, minor};

use crate::open::{DiskKind, OpenedDisk};

/// Sizes to report to a guest so that it works as the storage below does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredBlockSizes {
    /// The smallest unit that can be addressed, in bytes.
    pub logical_bytes: u32,
    /// The unit that is written without reading first, in bytes; at least the logical one.
    pub physical_bytes: u32,
    /// The unit of discarding, in bytes; 0 where the device cannot.
    pub discard_bytes: u32,
}

/// Why they are not known.
#[derive(Debug, thiserror::Error)]
#[error("the block sizes of the disk are unknown; write `blockSize.custom` instead of `matchVolume`")]
pub struct BlockSizeError(#[source] pub std::io::Error);

/// Sizes of the device, or of the file system's blocks for a file.
///
/// # Errors
/// [`BlockSizeError`], for example when /sys is not mounted.
pub fn block_sizes(disk: impl AsFd) -> Result<MeasuredBlockSizes, BlockSizeError> {
    let stat = fstat(disk).map_err(|errno| BlockSizeError(errno.into()))?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFBLK {
        let block = u32::try_from(stat.st_blksize).unwrap_or(4096).clamp(512, 2 << 20);
        return Ok(MeasuredBlockSizes { logical_bytes: block, physical_bytes: block, discard_bytes: block });
    }
    let limit = |name| queue(major(stat.st_rdev), minor(stat.st_rdev), name);
    let logical_bytes = limit("logical_block_size")?;
    Ok(MeasuredBlockSizes {
        logical_bytes,
        physical_bytes: limit("physical_block_size")?.max(logical_bytes),
        discard_bytes: limit("discard_granularity")?,
    })
}

/// Reads a limit of the device's queue; a partition has that of its disk, one directory up.
fn queue(major: u64, minor: u64, name: &str) -> Result<u32, BlockSizeError> {
    let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let text = std::fs::read_to_string(device.join("queue").join(name))
        .or_else(|_| std::fs::read_to_string(device.join("../queue").join(name)))
        .map_err(BlockSizeError)?;
    text.trim().parse().map_err(|error| BlockSizeError(std::io::Error::other(error)))
}

/// Whether a file has all its blocks, so that writing allocates nothing; a device always has.
pub fn fully_allocated(disk: &OpenedDisk) -> bool {
    match disk.kind {
        DiskKind::Block { .. } => true,
        DiskKind::File => fstat(&disk.fd).is_ok_and(|stat| {
            let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
            disk.size_bytes > 0 && allocated >= disk.size_bytes
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::{Opening, open_disk};

    #[test]
    fn files_have_the_block_size_of_their_file_system() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 8192]).unwrap();
        file.as_file().sync_all().unwrap();
        let disk = open_disk(file.path(), Opening::BASE).unwrap();
        let sizes = block_sizes(&disk).unwrap();
        assert!(sizes.logical_bytes.is_power_of_two() && sizes.physical_bytes >= sizes.logical_bytes);
        assert!(fully_allocated(&disk));
        file.as_file().set_len(1 << 30).unwrap();
        assert!(!fully_allocated(&open_disk(file.path(), Opening::BASE).unwrap()));
    }

    #[test]
    fn devices_are_asked_in_sys() {
        let Ok(entries) = std::fs::read_dir("/sys/dev/block") else {
            eprintln!("skipped: no /sys");
            return;
        };
        let Some(name) = entries.flatten().find_map(|entry| entry.file_name().into_string().ok()) else {
            eprintln!("skipped: no block device");
            return;
        };
        let (major, minor) = name.split_once(':').unwrap();
        let logical = queue(major.parse().unwrap(), minor.parse().unwrap(), "logical_block_size").unwrap();
        assert!(logical >= 512);
        assert!(queue(4095, 0, "logical_block_size").is_err());
    }
}
