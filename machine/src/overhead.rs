//! Memory a VM needs beside what its guest sees. One formula for `explain`, for limits and for pod requests; each term
//! has a name and a reason.
//!
//! The terms are KubeVirt's where they are about QEMU; their sizes are what we measured (docs/benchmarks.md, "Memory beside
//! the guest") and a margin: under KVM QEMU and the kernel's part are 18 MiB, 28 MiB with four viewers of a text screen. With
//! UEFI's larger one they are 51 MiB under TCG, of which 14 MiB are about translated code: 37 MiB, for which 59 MiB are asked.
//! What is kept of each page and the tables of qcow2 have an end that is known, so their terms are that and no more. A large guest has
//! little but the former: there they have to be all of it.
//!
//! Figures of these terms are also in docs/benchmarks.md, docs/status.md, docs/comparison.md,
//! `tests/e2e/garboard_e2e/bench/overhead.py` and `tests/e2e/cluster/kubernetes/test_life.py`.

use serde::{Deserialize, Serialize};

use crate::blockdev::L2_CACHE_BYTES;
use crate::features::Accelerator;

const MIB: u64 = 1024 * 1024;

/// What QEMU maps for translated code, MiB: value of `-accel tcg,tb-size=`. QEMU's own default of 1 GiB would be
/// more than most guests have.
pub const TCG_BUFFER_MIB: u32 = 128;
/// What QEMU keeps about translated code beside the code, MiB; 14 MiB measured.
const TCG_BOOKKEEPING_MIB: u32 = 24;

/// A page of a guest's memory, bytes, unless it is of huge pages.
const PAGE_BYTES: u64 = 4096;
/// What QEMU's page table has of each page, bytes: 2 MiB a GiB.
const TABLE_BYTES: u64 = 8;
/// What KVM has of each page, and QEMU for KVM, bytes: KVM's tables and what it notes of a slot of memory, 2.5 MiB a GiB, and
/// QEMU's bitmaps of written pages, 0.25.
const KVM_BYTES: u64 = 11;
/// What the kernel's index of a memfd has of each page, bytes: 2.4 MiB a GiB measured.
const INDEX_BYTES: u64 = 10;

/// What the overhead depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverheadInput {
    /// The guest's memory, bytes.
    pub guest_memory_bytes: u64,
    /// It is of huge pages.
    pub has_hugepages: bool,
    /// The most vCPUs the guest can get.
    pub vcpu_count: u32,
    /// I/O threads beside the main loop.
    pub io_thread_count: u32,
    /// Disks, drives without a medium included.
    pub disk_count: u32,
    /// qcow2 images, each with a cache of its own: an overlay over one is two.
    pub qcow2_count: u32,
    /// Queue pairs of all network interfaces.
    pub queue_count: u32,
    /// There is a graphics device.
    pub has_graphics: bool,
    /// Sizes of the UEFI flash images together, bytes; 0 without UEFI.
    pub flash_bytes: u64,
    /// Interfaces served by a passt process.
    pub passt_count: u32,
    /// What runs the guest's instructions.
    pub accelerator: Accelerator,
    /// `memory.reservedOverhead.addedOverhead`, bytes.
    pub added_bytes: u64,
    /// By how much everything is multiplied, in thousandths; at least 1000
    /// (`spec.configuration.additionalGuestMemoryOverheadRatio`).
    pub permille: u32,
}

/// Memory beside the guest's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overhead {
    /// In fixed order, without those that are zero.
    pub terms: Vec<OverheadTerm>,
    /// Their sum, bytes.
    pub total_bytes: u64,
}

/// One part of the overhead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OverheadTerm {
    /// Short name.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Why it is there.
    pub reason: String,
}

impl Overhead {
    /// The overhead of one VM.
    #[must_use]
    pub fn of(input: &OverheadInput) -> Self {
        let tcg_bytes = match input.accelerator {
            Accelerator::Kvm => 0,
            Accelerator::Tcg => u64::from(TCG_BUFFER_MIB + TCG_BOOKKEEPING_MIB) * MIB,
        };
        let of_each_page = match input.accelerator {
            Accelerator::Kvm => TABLE_BYTES + KVM_BYTES,
            Accelerator::Tcg => TABLE_BYTES,
        };
        let pages = input.guest_memory_bytes.div_ceil(PAGE_BYTES);
        let mut terms: Vec<_> = [
            ("qemu", 24 * MIB, "QEMU's heap, its devices and firmware; 17 MiB measured for an idle q35"),
            ("init", 2 * MIB, "PID 1; 1 MiB measured"),
            (
                "page-tables",
                pages.saturating_mul(of_each_page),
                "8 bytes of page table for each 4 KiB of guest memory, and 11 for KVM's own and QEMU's bitmaps; measured",
            ),
            (
                "page-index",
                // The kernel keeps none of each page of 4 KiB where pages are huge.
                if input.has_hugepages { 0 } else { pages.saturating_mul(INDEX_BYTES) },
                "the kernel's index of the guest's memory, which is a memfd: 2.4 MiB a GiB measured with pages of 4 KiB",
            ),
            ("disks", u64::from(input.disk_count) * MIB, "state and queues of each disk; 0.7 MiB measured with an idle image"),
            (
                "qcow2",
                u64::from(input.qcow2_count) * (L2_CACHE_BYTES + MIB / 2),
                "tables kept of each qcow2 image (l2-cache-size) and its reference counts; with the disk 5 MiB measured",
            ),
            ("queues", u64::from(input.queue_count) * MIB / 2, "rings and buffers of each network queue, in QEMU or vhost"),
            ("vcpus", u64::from(input.vcpu_count) * MIB, "stack and state of each vCPU thread; 0.4 MiB measured"),
            ("io-threads", u64::from(input.io_thread_count.max(1)) * 4 * MIB, "requests under way, for each thread that does I/O"),
            (
                "graphics",
                if input.has_graphics { 22 * MIB } else { 0 },
                "video memory, of which a guest may use 16 MiB, and pictures for VNC clients; 16 MiB measured with four",
            ),
            ("uefi", input.flash_bytes, "UEFI code and variables lie in memory"),
            ("passt", u64::from(input.passt_count) * 250 * MIB, "250 MiB for each passt process"),
            ("tcg", tcg_bytes, "translated code, because the guest runs without KVM"),
            ("added", input.added_bytes, "memory.reservedOverhead.addedOverhead"),
        ]
        .into_iter()
        .filter(|&(_, bytes, _)| bytes > 0)
        .map(|(name, bytes, reason)| OverheadTerm { name: name.to_owned(), bytes, reason: reason.to_owned() })
        .collect();
        terms.extend(margin(&terms, input.permille));
        let total_bytes = terms.iter().fold(0_u64, |sum, term| sum.saturating_add(term.bytes));
        Self { terms, total_bytes }
    }
}

/// What the cluster adds to all that, if anything.
fn margin(terms: &[OverheadTerm], permille: u32) -> Option<OverheadTerm> {
    let bytes = terms.iter().fold(0_u64, |sum, term| sum.saturating_add(term.bytes));
    let more = u128::from(bytes) * u128::from(permille.saturating_sub(1000)) / 1000;
    (more > 0).then(|| OverheadTerm {
        name: "margin".to_owned(),
        bytes: u64::try_from(more).unwrap_or(u64::MAX),
        reason: "additionalGuestMemoryOverheadRatio of the cluster".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_gib() -> OverheadInput {
        OverheadInput {
            guest_memory_bytes: 1024 * MIB,
            has_hugepages: true,
            vcpu_count: 1,
            io_thread_count: 0,
            disk_count: 0,
            qcow2_count: 0,
            queue_count: 0,
            has_graphics: true,
            flash_bytes: 0,
            passt_count: 0,
            accelerator: Accelerator::Kvm,
            added_bytes: 0,
            permille: 1000,
        }
    }

    #[test]
    fn a_small_guest_needs_58_mib() {
        let overhead = Overhead::of(&one_gib());
        assert_eq!(overhead.total_bytes, 57 * MIB + 3 * MIB / 4);
        let names: Vec<_> = overhead.terms.iter().map(|term| term.name.as_str()).collect();
        assert_eq!(names, ["qemu", "init", "page-tables", "vcpus", "io-threads", "graphics"]);
    }

    /// Measured: 4.36 MiB of the kernel's memory for each GiB of a memfd in pages of 4 KiB, page table and index together.
    #[test]
    fn memory_in_small_pages_has_an_index() {
        let small = OverheadInput { has_hugepages: false, accelerator: Accelerator::Tcg, ..one_gib() };
        let overhead = Overhead::of(&small);
        let kernel: Vec<_> = overhead.terms.iter().filter(|term| term.name.starts_with("page-")).collect();
        assert_eq!(kernel.iter().map(|term| term.bytes).sum::<u64>(), 4 * MIB + MIB / 2);
        let large = Overhead::of(&OverheadInput { has_hugepages: true, ..small });
        assert!(large.terms.iter().all(|term| term.name != "page-index"));
    }

    /// Measured under KVM, all of it written in pages of 4 KiB: 6.9 MiB of the kernel's for each GiB, and 0.24 of QEMU's own.
    #[test]
    fn a_large_guest_has_what_the_kernel_keeps_of_its_pages() {
        let of = |gib: u64| {
            let input = OverheadInput { guest_memory_bytes: gib << 30, has_hugepages: false, ..one_gib() };
            Overhead::of(&input).total_bytes
        };
        let slope = (of(256) - of(1)) / 255;
        assert!(slope >= 715 * MIB / 100, "{slope}");
    }

    #[test]
    fn every_input_counts() {
        let base = Overhead::of(&one_gib()).total_bytes;
        let more = [
            (OverheadInput { vcpu_count: 3, ..one_gib() }, 8),
            (OverheadInput { io_thread_count: 4, ..one_gib() }, 48),
            (OverheadInput { flash_bytes: 4 * MIB, ..one_gib() }, 16),
            (OverheadInput { passt_count: 1, ..one_gib() }, 1000),
            (OverheadInput { accelerator: Accelerator::Tcg, ..one_gib() }, 597),
            (OverheadInput { added_bytes: MIB, ..one_gib() }, 4),
            (OverheadInput { permille: 2000, ..one_gib() }, 231),
            (OverheadInput { disk_count: 3, ..one_gib() }, 12),
            (OverheadInput { qcow2_count: 2, ..one_gib() }, 36),
            (OverheadInput { queue_count: 4, ..one_gib() }, 8),
        ];
        for (input, quarters) in more {
            assert_eq!(Overhead::of(&input).total_bytes - base, quarters * MIB / 4, "{input:?}");
        }
    }
}
