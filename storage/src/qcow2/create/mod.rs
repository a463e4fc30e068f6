//! Writes an empty qcow2 image: version 3, clusters of 64 KiB, 16-bit refcounts, no backing file stored.
//!
//! An overlay needs no name of its base inside: QEMU gets the base as an explicit `backing` node, so a name would only be
//! something that can be wrong, or followed by another tool later. The layout of an empty image is in
//! [`garboard_machine::qcow2`].

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use garboard_machine::qcow2::{
    CLUSTER_BITS, CLUSTER_BYTES, FIRST_L1_CLUSTER, MOST_VIRTUAL_BYTES, host_bytes_of_empty, l1_entries,
};

use super::MAGIC;

/// log2 of the width of a refcount in bits: 16.
const REFCOUNT_ORDER: u32 = 4;
const HEADER_BYTES: u32 = 112;

/// Why an empty image could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// Zero, beyond the limit, or no whole number of sectors.
    #[error("a disk of {virtual_bytes} bytes cannot be made; choose a multiple of 512 between 512 bytes and 64 TiB")]
    Size {
        /// The size asked for.
        virtual_bytes: u64,
    },
    /// The file system is full.
    #[error("no space is left for the new image; free some, or choose another directory")]
    NoSpace,
    /// Writing failed.
    #[error("could not write the new image; see the cause")]
    Write {
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// Makes `file` an empty qcow2 image of `virtual_bytes`, whatever it held before.
///
/// # Errors
/// [`CreateError::Size`] for an impossible size; otherwise what writing gave.
pub fn create_empty(file: &File, virtual_bytes: u64) -> Result<(), CreateError> {
    if virtual_bytes == 0 || virtual_bytes > MOST_VIRTUAL_BYTES || !virtual_bytes.is_multiple_of(512) {
        return Err(CreateError::Size { virtual_bytes });
    }
    let l1_entries = u32::try_from(l1_entries(virtual_bytes)).map_err(|_| CreateError::Size { virtual_bytes })?;
    let clusters = host_bytes_of_empty(virtual_bytes) / CLUSTER_BYTES;
    let mut refcounts = Vec::new();
    for _ in 0..clusters {
        refcounts.extend_from_slice(&1_u16.to_be_bytes());
    }
    let refcount_table = (2 * CLUSTER_BYTES).to_be_bytes();
    let write = || {
        // To nothing first: bytes of an earlier life must not shine through the zeros of the tables.
        file.set_len(0)?;
        file.set_len(clusters * CLUSTER_BYTES)?;
        file.write_all_at(&header(virtual_bytes, l1_entries), 0)?;
        file.write_all_at(&refcount_table, CLUSTER_BYTES)?;
        file.write_all_at(&refcounts, 2 * CLUSTER_BYTES)
    };
    let full = |kind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    write().map_err(|source| if full(source.kind()) { CreateError::NoSpace } else { CreateError::Write { source } })
}

fn header(virtual_bytes: u64, l1_entries: u32) -> Vec<u8> {
    let mut header = BigEndian(Vec::with_capacity(HEADER_BYTES as usize + 8));
    header.u32(u32::from_be_bytes(MAGIC));
    header.u32(3);
    header.u64(0); // backing file: none
    header.u32(0);
    header.u32(CLUSTER_BITS);
    header.u64(virtual_bytes);
    header.u32(0); // encryption: none
    header.u32(l1_entries);
    header.u64(FIRST_L1_CLUSTER * CLUSTER_BYTES);
    header.u64(CLUSTER_BYTES); // refcount table
    header.u32(1); // its clusters
    header.u32(0); // snapshots: none
    header.u64(0);
    header.u64(0); // incompatible features
    header.u64(0); // compatible features
    header.u64(0); // autoclear features
    header.u32(REFCOUNT_ORDER);
    header.u32(HEADER_BYTES);
    header.u64(0); // compression type zlib, padding
    header.u64(0); // end of the header extensions
    header.0
}

struct BigEndian(Vec<u8>);

impl BigEndian {
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
