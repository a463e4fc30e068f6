//! What a supervisor counts of its machine when it is asked, once for each scrape of metrics ([`crate::control::ControlRequest::Statistics`]):
//! by QEMU's counters and the guest agent. What cannot be had in time is left out.
//!
//! Names of file systems are the guest's: escaped and bounded before they get here. Lists are bounded again where this is read: a
//! launcher that was taken over sends what it likes, and `{},` is three bytes that become a hundred.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// The longest answer that is read, bytes: the most of each kind, with the longest names.
pub const LONGEST_STATISTICS_BYTES: usize = 256 * 1024;
/// The most characters of a name that the guest has chosen.
pub const LONGEST_NAME: usize = 128;
/// The most disks, interfaces and file systems, each, that are sent and read.
pub const MOST_OF_A_KIND: usize = 256;
/// The most file systems. A guest may have as many as it likes.
pub const MOST_FILE_SYSTEMS: usize = 64;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "Sent")]
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
    /// How many entries the lists had beyond what is read of them. The reader's own count: it is never sent.
    #[serde(skip)]
    pub unread: usize,
}

/// The same as it is read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Sent {
    paused: bool,
    memory_bytes: u64,
    balloon: Option<BalloonStatistics>,
    disks: AtMost<DiskStatistics, MOST_OF_A_KIND>,
    interfaces: AtMost<TappedInterface, MOST_OF_A_KIND>,
    file_systems: AtMost<FileSystemStatistics, MOST_FILE_SYSTEMS>,
}

impl From<Sent> for Statistics {
    fn from(sent: Sent) -> Self {
        let Sent { paused, memory_bytes, balloon, disks, interfaces, file_systems } = sent;
        let unread = disks.unread + interfaces.unread + file_systems.unread;
        let (disks, interfaces, file_systems) = (disks.first, interfaces.first, file_systems.first);
        Self { paused, memory_bytes, balloon, disks, interfaces, file_systems, unread }
    }
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

/// The first ones of a list. The others take no memory, and are counted.
struct AtMost<T, const MOST: usize> {
    first: Vec<T>,
    unread: usize,
}

impl<T, const MOST: usize> Default for AtMost<T, MOST> {
    fn default() -> Self {
        Self { first: Vec::new(), unread: 0 }
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for AtMost<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements::<T, MOST>(PhantomData))
    }
}

struct Elements<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Elements<T, MOST> {
    type Value = AtMost<T, MOST>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<AtMost<T, MOST>, A::Error> {
        let mut read = AtMost::<T, MOST>::default();
        while read.first.len() < MOST {
            match list.next_element()? {
                Some(element) => read.first.push(element),
                None => return Ok(read),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            read.unread += 1;
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_list_that_is_too_long_the_first_ones_are_read_and_the_others_are_counted() {
        let file_systems = vec![FileSystemStatistics::default(); MOST_FILE_SYSTEMS + 9];
        let disks = vec![DiskStatistics::default(); MOST_OF_A_KIND + 1];
        let sent =
            serde_json::to_value(Statistics { file_systems, disks, unread: 5, ..Statistics::default() }).unwrap();
        assert!(sent.get("unread").is_none(), "what a launcher counts itself is not read");
        let read: Statistics = serde_json::from_value(sent).unwrap();
        assert_eq!((read.file_systems.len(), read.disks.len(), read.unread), (MOST_FILE_SYSTEMS, MOST_OF_A_KIND, 10));
    }

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
            // A character of four bytes; escaped ones have fewer.
            name: "𝔫".repeat(LONGEST_NAME),
            mountpoint: "𝔪".repeat(LONGEST_NAME),
            kind: "𝔢".repeat(LONGEST_NAME),
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
