//! What a supervisor counts of its machine when it is asked, once for each scrape of metrics ([`crate::control::ControlRequest::Statistics`]):
//! by QEMU's counters and the guest agent. What cannot be had in time is left out.
//!
//! Names of file systems are the guest's: escaped and bounded before they get here. What reads this bounds it again: a launcher that
//! was taken over sends what it likes.

use serde::{Deserialize, Serialize};

/// The longest answer that is read, bytes: a guest with 256 disks and 64 file systems has less than half of it.
pub const LONGEST_STATISTICS_BYTES: usize = 128 * 1024;
/// The most disks, interfaces and file systems, each, that are sent and read.
pub const MOST_OF_A_KIND: usize = 256;
/// The most file systems. A guest may have as many as it likes.
pub const MOST_FILE_SYSTEMS: usize = 64;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Statistics {
    /// Whether vCPUs are stopped.
    pub paused: bool,
    /// Guest memory at its start, bytes.
    pub memory_bytes: u64,
    /// What the balloon says.
    pub balloon: Option<BalloonStatistics>,
    /// The disks, in QEMU's order.
    pub disks: Vec<DiskStatistics>,
    /// The interfaces that have a tap, in the order of the manifest.
    pub interfaces: Vec<TappedInterface>,
    /// The guest's file systems, by its agent.
    pub file_systems: Vec<FileSystemStatistics>,
}

/// The balloon (`query-balloon`), and what the guest's driver for it reports (`guest-stats`), bytes. A driver does not report all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BalloonStatistics {
    /// What it leaves to the guest.
    pub actual_bytes: Option<u64>,
    /// Memory that the guest's kernel manages.
    pub total_bytes: Option<u64>,
    /// Memory that nothing uses.
    pub free_bytes: Option<u64>,
    /// Memory that could be used without swapping.
    pub available_bytes: Option<u64>,
    /// Caches of files.
    pub cached_bytes: Option<u64>,
    /// Read from swap space since the guest started.
    pub swap_in_bytes: Option<u64>,
    /// Written to swap space since the guest started.
    pub swap_out_bytes: Option<u64>,
    /// Page faults that read a disk.
    pub major_faults: Option<u64>,
    /// Page faults that did not.
    pub minor_faults: Option<u64>,
}

/// One disk (`query-blockstats`), since QEMU was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskStatistics {
    /// The name of disk and volume in the VMI.
    pub volume: String,
    /// Reads.
    pub read: OperationStatistics,
    /// Writes.
    pub write: OperationStatistics,
    /// Flushes, which have no bytes.
    pub flush: OperationStatistics,
}

/// One kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationStatistics {
    /// How many.
    pub operations: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Time of all of them, nanoseconds.
    pub nanoseconds: u64,
}

/// An interface of the guest that has a tap. Its counters are the kernel's, which the node agent reads itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TappedInterface {
    /// The interface's name in the VMI.
    pub name: String,
    /// The name of its tap.
    pub tap: String,
}

/// One file system of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileSystemStatistics {
    /// `vda1`.
    pub name: String,
    /// `/`.
    pub mountpoint: String,
    /// `ext4`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bytes it has.
    pub total_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_nothing_and_the_largest_answer_is_read() {
        let least: Statistics = serde_json::from_str("{}").unwrap();
        assert_eq!(least, Statistics::default());
        let most = u64::MAX;
        let operation = OperationStatistics { operations: most, bytes: most, nanoseconds: most };
        let disk = |_| DiskStatistics {
            volume: "v".repeat(63),
            read: operation.clone(),
            write: operation.clone(),
            flush: operation.clone(),
        };
        let interface = |_| TappedInterface { name: "i".repeat(63), tap: "t".repeat(15) };
        let file_system = |_| FileSystemStatistics {
            name: "n".repeat(128),
            mountpoint: "m".repeat(128),
            kind: "ext4".to_owned(),
            total_bytes: most,
            used_bytes: most,
        };
        let largest = Statistics {
            disks: (0..MOST_OF_A_KIND).map(disk).collect(),
            interfaces: (0..MOST_OF_A_KIND).map(interface).collect(),
            file_systems: (0..MOST_FILE_SYSTEMS).map(file_system).collect(),
            ..Statistics::default()
        };
        let length = serde_json::to_vec(&largest).unwrap().len();
        assert!(length < LONGEST_STATISTICS_BYTES, "{length}");
    }
}
