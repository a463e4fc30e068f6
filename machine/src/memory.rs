//! `-m`, the memory backend and `-numa`.

use crate::argv::{Arg, Argument, Options, Properties};
use crate::id::DeviceId;

/// What a guest's memory is rounded up to, bytes. QEMU requires 8 KiB (`vl.c`, `set_memory_options`) and every backend
/// requires whole pages; MiB keep the numbers readable.
pub const MEMORY_ALIGNMENT_BYTES: u64 = 1024 * 1024;

/// What the kernel can map at once, bytes: memory that does not begin at a multiple of it has small pages only.
const LARGE_PAGE_BYTES: u64 = 2 << 20;

/// `-m`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Memory at boot, bytes; a multiple of [`MEMORY_ALIGNMENT_BYTES`].
    pub size: u64,
    /// Address space for memory that comes later, bytes, `size` included.
    pub maxmem: Option<u64>,
}

impl Arg for Memory {
    fn argument(&self) -> Argument {
        // No slots: what comes later is virtio-mem, which needs none.
        let maxmem = self.maxmem.map(format_size);
        Argument::options("-m", Options::new().set("size", format_size(self.size)).set_some("maxmem", maxmem))
    }
}

/// Bytes in the largest binary unit that leaves no remainder.
fn format_size(bytes: u64) -> String {
    let units = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    let unit = units.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{bytes}B"), |(unit, letter)| format!("{}{letter}", bytes / unit))
}

/// `-object memory-backend-…`: the guest's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBackend {
    /// Its ID, which `-machine memory-backend=` names.
    pub id: DeviceId,
    /// Bytes, exactly those of `-m`.
    pub size: u64,
    /// Where it comes from.
    pub kind: MemoryKind,
}

/// Where memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// A memfd that we made and that other processes can map: those of vhost-user, virtiofsd, and a later QEMU that takes the
    /// guest over without a copy of its memory (`cpr-transfer`). One that QEMU makes itself (`memory-backend-memfd`) is not
    /// aligned, so the kernel can never give it large pages.
    Memfd {
        /// Its number in QEMU, which opens it again.
        fd: i32,
    },
    /// A memfd of huge pages, all taken at the start so that a lack is an error then and not a SIGBUS later.
    MemfdHuge {
        /// Size of a page, bytes.
        page_bytes: u64,
        /// Threads that take them, at least 1. QEMU's own default is one, which is minutes for a large guest; it takes
        /// no more than 16 and no more than the host has processors (`util/oslib-posix.c`).
        threads: u32,
    },
}

impl Arg for MemoryBackend {
    fn argument(&self) -> Argument {
        let object = |qom_type: &str| {
            Properties::new().set("qom-type", qom_type).set("id", &self.id).set("size", self.size).set("share", true)
        };
        let properties = match self.kind {
            MemoryKind::Memfd { fd } => object("memory-backend-file")
                .set("mem-path", format!("/proc/self/fd/{fd}"))
                .set("align", LARGE_PAGE_BYTES),
            MemoryKind::MemfdHuge { page_bytes, threads } => object("memory-backend-memfd")
                .set("hugetlb", true)
                .set("hugetlbsize", page_bytes)
                .set("prealloc", true)
                .set_some("prealloc-threads", Some(threads).filter(|&threads| threads > 1)),
        };
        Argument::json("-object", properties)
    }
}

/// `-numa node`: the only cell, which memory hot plug needs to exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub nodeid: u32,
    /// The most vCPUs; they are 0 to this, exclusive.
    pub vcpu_count: u32,
    /// The backend of its memory.
    pub memdev: DeviceId,
}

impl Arg for NumaNode {
    fn argument(&self) -> Argument {
        let cpus = match self.vcpu_count {
            0 | 1 => "0".to_owned(),
            count => format!("0-{}", count - 1),
        };
        let options = Options::led_by("node").set("nodeid", self.nodeid).set("cpus", cpus).set("memdev", &self.memdev);
        Argument::options("-numa", options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        let table = [(256 << 20, "256M"), (1 << 30, "1G"), (3 << 29, "1536M"), (1000, "1000B"), (1 << 40, "1T")];
        for (bytes, text) in table {
            assert_eq!(format_size(bytes), text);
        }
    }
}
