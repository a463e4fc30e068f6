//! How large qcow2 images are that are written empty: version 3, clusters of 64 KiB, 16-bit refcounts.
//!
//! ```text
//! cluster 0          header and its end mark
//! cluster 1          refcount table: one entry, the block that follows
//! cluster 2          refcount block: 1 for each cluster written here
//! cluster 3 …        L1 table, all zero: nothing allocated
//! ```
//!
//! Follows QEMU's `docs/interop/qcow2.txt`. `garboard-storage` writes them, the planner counts with their sizes.

/// log2 of [`CLUSTER_BYTES`].
pub const CLUSTER_BITS: u32 = 16;
/// Cluster size, in bytes: QEMU's own default.
pub const CLUSTER_BYTES: u64 = 1 << CLUSTER_BITS;
/// Where the L1 table begins, in clusters.
pub const FIRST_L1_CLUSTER: u64 = 3;
/// The largest virtual disk accepted or created: 64 TiB, far beyond what a node stores and small enough that the tables
/// of an empty image stay small.
pub const MOST_VIRTUAL_BYTES: u64 = 64 << 40;
/// Bytes of disk that one L1 entry covers: a cluster of 8-byte L2 entries, each for a cluster.
const COVERED_BY_L1_ENTRY: u64 = CLUSTER_BYTES / 8 * CLUSTER_BYTES;

/// Entries of the L1 table of a disk of so many bytes.
#[must_use]
pub fn l1_entries(virtual_bytes: u64) -> u64 {
    virtual_bytes.div_ceil(COVERED_BY_L1_ENTRY)
}

/// Length of the file of an empty image of so many bytes; most of it is a hole.
#[must_use]
pub fn host_bytes_of_empty(virtual_bytes: u64) -> u64 {
    (FIRST_L1_CLUSTER + (l1_entries(virtual_bytes) * 8).div_ceil(CLUSTER_BYTES)) * CLUSTER_BYTES
}
