//! Physical memory, huge pages, and what the kernel does with shared memory: a guest's memory is a memfd.

use garboard_machine::facts::HugepagePool;

use crate::root::{HostRoot, ReadError};

const POOLS: &str = "/sys/kernel/mm/hugepages";
/// Whether shared memory gets huge pages, the value in brackets (`admin-guide/mm/transhuge.rst`). It is for memfds, too, which
/// lie on no mount of /dev/shm: neither its size nor its options matter for them.
const SHARED_HUGE: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";
/// `vm.overcommit_memory` of a host that commits no more memory than it has.
const STRICT: &str = "2";

/// The host's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// `MemTotal`, bytes.
    pub total_bytes: u64,
    /// `MemAvailable`, bytes: what can be used without swapping, by the kernel's estimate.
    pub available_bytes: u64,
    /// Huge pages, smallest first.
    pub hugepages: Vec<HugepagePool>,
    /// The kernel's mode of huge pages of shared memory; `None` if it has none.
    pub shared_huge: Option<String>,
    /// Where no more memory is committed than there is (`vm.overcommit_memory=2`).
    pub strict: Option<Commitment>,
}

/// The committed memory of a host without overcommitment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commitment {
    /// `CommitLimit`, bytes.
    pub limit_bytes: u64,
    /// `Committed_AS`, bytes.
    pub promised_bytes: u64,
}

impl HostMemory {
    /// Reads `/proc/meminfo` and what the kernel reports of huge pages and of overcommitment.
    ///
    /// # Errors
    /// `/proc/meminfo` cannot be read.
    pub fn read(root: &HostRoot) -> Result<Self, ReadError> {
        let text = root.read("/proc/meminfo")?;
        let mut memory = Self { hugepages: hugepages(root), shared_huge: shared_huge(root), ..Self::default() };
        let mut promised = Commitment::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let kibibytes = value.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
            match key {
                "MemTotal" => memory.total_bytes = kibibytes.saturating_mul(1024),
                "MemAvailable" => memory.available_bytes = kibibytes.saturating_mul(1024),
                "CommitLimit" => promised.limit_bytes = kibibytes.saturating_mul(1024),
                "Committed_AS" => promised.promised_bytes = kibibytes.saturating_mul(1024),
                _ => {}
            }
        }
        memory.strict = root.read_trimmed(OVERCOMMIT).filter(|mode| mode == STRICT).map(|_| promised);
        Ok(memory)
    }
}

/// The value in brackets.
fn shared_huge(root: &HostRoot) -> Option<String> {
    let values = root.read_trimmed(SHARED_HUGE)?;
    values.split_whitespace().find_map(|value| Some(value.strip_prefix('[')?.strip_suffix(']')?.to_owned()))
}

fn hugepages(root: &HostRoot) -> Vec<HugepagePool> {
    let mut pools: Vec<HugepagePool> = root.names_in(POOLS).iter().filter_map(|name| pool(root, name)).collect();
    pools.sort_by_key(|pool| pool.page_bytes);
    pools
}

fn pool(root: &HostRoot, name: &str) -> Option<HugepagePool> {
    let kibibytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    let count = |file: &str| root.read_trimmed(format!("{POOLS}/{name}/{file}"))?.parse::<u64>().ok();
    Some(HugepagePool {
        page_bytes: kibibytes.checked_mul(1024)?,
        total: count("nr_hugepages")?,
        free: count("free_hugepages")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::host_of;

    #[test]
    fn sizes_become_bytes_and_pools_are_sorted() {
        let (_directory, root) = host_of(&[
            ("/proc/meminfo", "MemTotal:       1024 kB\nMemFree: 1 kB\nMemAvailable:    512 kB\nHugePages_Total: 0\n"),
            ("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "4\n"),
            ("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "3\n"),
            ("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "16\n"),
            ("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "16\n"),
            ("/sys/kernel/mm/hugepages/hugepages-strange/nr_hugepages", "1\n"),
        ]);
        let memory = HostMemory::read(&root).unwrap();
        assert_eq!((memory.total_bytes, memory.available_bytes), (1 << 20, 1 << 19));
        let small = HugepagePool { page_bytes: 2 << 20, total: 16, free: 16 };
        let large = HugepagePool { page_bytes: 1 << 30, total: 4, free: 3 };
        assert_eq!(memory.hugepages, [small, large]);
    }

    #[test]
    fn what_the_kernel_does_with_shared_memory_is_read() {
        let (_directory, root) = host_of(&[
            ("/proc/meminfo", "MemTotal: 1024 kB\nCommitLimit: 512 kB\nCommitted_AS: 256 kB\n"),
            (SHARED_HUGE, "always within_size [advise] never deny force\n"),
            (OVERCOMMIT, "2\n"),
        ]);
        let memory = HostMemory::read(&root).unwrap();
        assert_eq!(memory.shared_huge.as_deref(), Some("advise"));
        assert_eq!(memory.strict, Some(Commitment { limit_bytes: 512 << 10, promised_bytes: 256 << 10 }));
        let (_directory, root) = host_of(&[("/proc/meminfo", "MemTotal: 1024 kB\n"), (OVERCOMMIT, "0\n")]);
        let memory = HostMemory::read(&root).unwrap();
        assert_eq!((memory.shared_huge, memory.strict), (None, None));
    }

    #[test]
    fn this_host_has_memory() {
        let memory = HostMemory::read(&HostRoot::real()).unwrap();
        assert!(memory.total_bytes > memory.available_bytes && memory.available_bytes > 0, "{memory:?}");
    }
}
