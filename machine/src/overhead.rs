//! Memory a VM needs beside what its guest sees. One formula for `explain`, for limits and for pod requests; each term
//! has a name and a reason.
//!
//! It follows KubeVirt's terms where they speak of QEMU, and drops the 190 MiB of its management processes.
//!
//! Measured so far (docs/benchmarks.md, under TCG, one vCPU, in the pod's control group, without the guest's memory and
//! without translated code): 19 MiB idle without graphics, 32 MiB with, at most 41 MiB with four VNC clients, disk and
//! network load; 2 MiB more of the kernel's. The terms keep a wide margin until large screens, several vCPUs and KVM are
//! measured.

use serde::{Deserialize, Serialize};

use crate::features::Accelerator;

const MIB: u64 = 1024 * 1024;

/// What QEMU maps for translated code, MiB: value of `-accel tcg,tb-size=`. QEMU's own default of 1 GiB would be
/// more than most guests have.
pub const TCG_BUFFER_MIB: u32 = 128;

/// What the overhead depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverheadInput {
    /// The guest's memory, bytes.
    pub guest_memory_bytes: u64,
    /// The most vCPUs the guest can get.
    pub vcpu_count: u32,
    /// I/O threads beside the main loop.
    pub io_thread_count: u32,
    /// There is a graphics device.
    pub has_graphics: bool,
    /// Sizes of the UEFI flash images together, bytes; 0 without UEFI.
    pub flash_bytes: u64,
    /// Interfaces served by a passt process.
    pub passt_count: u32,
    /// Who runs the guest's instructions.
    pub accelerator: Accelerator,
    /// `memory.reservedOverhead.addedOverhead`, bytes.
    pub added_bytes: u64,
}

/// Memory beside the guest's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Overhead {
    /// In fixed order, without those that are zero.
    pub terms: Vec<OverheadTerm>,
    /// Their sum, bytes.
    pub total_bytes: u64,
}

/// One part of the overhead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
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
            Accelerator::Tcg => u64::from(TCG_BUFFER_MIB) * MIB,
        };
        let terms: Vec<_> = [
            ("qemu", 50 * MIB, "QEMU's code, heap and firmware; 30 to 38 MiB measured for an idle q35"),
            ("launcher", 10 * MIB, "supervisor and PID 1; 4 MiB is the goal, the rest is reserve"),
            (
                "page-tables",
                input.guest_memory_bytes.div_ceil(512),
                "8 bytes of page table for each 4 KiB of guest memory",
            ),
            ("vcpus", u64::from(input.vcpu_count) * 8 * MIB, "8 MiB of stack and state for each vCPU thread"),
            ("io-threads", u64::from(input.io_thread_count.max(1)) * 8 * MIB, "8 MiB for each thread that does I/O"),
            (
                "graphics",
                if input.has_graphics { 32 * MIB } else { 0 },
                "16 MiB of video memory, and buffers of VNC clients",
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
        let total_bytes = terms.iter().fold(0_u64, |sum, term| sum.saturating_add(term.bytes));
        Self { terms, total_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_gib() -> OverheadInput {
        OverheadInput {
            guest_memory_bytes: 1024 * MIB,
            vcpu_count: 1,
            io_thread_count: 0,
            has_graphics: true,
            flash_bytes: 0,
            passt_count: 0,
            accelerator: Accelerator::Kvm,
            added_bytes: 0,
        }
    }

    #[test]
    fn a_small_guest_needs_110_mib() {
        let overhead = Overhead::of(&one_gib());
        assert_eq!(overhead.total_bytes, 110 * MIB);
        let names: Vec<_> = overhead.terms.iter().map(|term| term.name.as_str()).collect();
        assert_eq!(names, ["qemu", "launcher", "page-tables", "vcpus", "io-threads", "graphics"]);
    }

    #[test]
    fn every_input_counts() {
        let base = Overhead::of(&one_gib()).total_bytes;
        let more = [
            (OverheadInput { vcpu_count: 3, ..one_gib() }, 16),
            (OverheadInput { io_thread_count: 4, ..one_gib() }, 24),
            (OverheadInput { flash_bytes: 4 * MIB, ..one_gib() }, 4),
            (OverheadInput { passt_count: 1, ..one_gib() }, 250),
            (OverheadInput { accelerator: Accelerator::Tcg, ..one_gib() }, u64::from(TCG_BUFFER_MIB)),
            (OverheadInput { added_bytes: MIB, ..one_gib() }, 1),
        ];
        for (input, mib) in more {
            assert_eq!(Overhead::of(&input).total_bytes - base, mib * MIB, "{input:?}");
        }
    }
}
