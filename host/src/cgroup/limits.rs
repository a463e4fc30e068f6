//! What a group of processes may use.

/// Limits of one machine. `None` leaves the kernel's default, which is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupLimits {
    /// Memory of all processes together, page cache included, bytes. Swap is not allowed on top of it, as in a pod.
    pub memory_bytes: Option<u64>,
    /// CPU time.
    pub cpu_quota: Option<CpuQuota>,
    /// Share of the CPU when others use it too, 2 to 262144, in version 1's measure: 1024 is what a group has by
    /// default, and what Kubernetes gives for one CPU requested.
    pub cpu_shares: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u32>,
}

/// CPU time per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    /// Microseconds all processes together may run in each period; more than the period means more than one CPU. At
    /// least 1000.
    pub quota_us: u64,
    /// Length of a period, microseconds, 1000 to 1 000 000.
    pub period_us: u64,
}

impl CpuQuota {
    /// The usual period.
    pub const PERIOD_US: u64 = 100_000;

    /// A quota in thousandths of a CPU, as Kubernetes counts. Less than ten of them cannot be expressed and become ten.
    #[must_use]
    pub fn of_millicpu(millicpu: u64) -> Self {
        Self { quota_us: millicpu.max(10).saturating_mul(Self::PERIOD_US / 1000), period_us: Self::PERIOD_US }
    }
}

/// Version 2's `cpu.weight` (1 to 10000) for version 1's `cpu.shares` (2 to 262144): the line through the ends of both
/// ranges, as runc and the kubelet compute it, so that a machine competes with pods on equal terms.
pub(super) fn weight_of_shares(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn millicpu_become_microseconds_per_tenth_of_a_second() {
        assert_eq!(CpuQuota::of_millicpu(1500), CpuQuota { quota_us: 150_000, period_us: 100_000 });
        assert_eq!(CpuQuota::of_millicpu(1).quota_us, 1000);
    }

    #[test]
    fn shares_map_onto_the_whole_range_of_weights() {
        assert_eq!([0, 2, 1024, 262_144, u64::MAX].map(weight_of_shares), [1, 1, 39, 10_000, 10_000]);
    }
}
