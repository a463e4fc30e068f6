//! Physical memory and huge pages.

use garboard_machine::facts::HugepagePool;

use crate::root::{HostRoot, ReadError};

const POOLS: &str = "/sys/kernel/mm/hugepages";

/// The host's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal`, bytes.
    pub total_bytes: u64,
    /// `MemAvailable`, bytes: what can be used without swapping, by the kernel's estimate.
    pub available_bytes: u64,
    /// Huge pages, smallest first.
    pub hugepages: Vec<HugepagePool>,
}

impl Memory {
    /// Reads `/proc/meminfo` and `/sys/kernel/mm/hugepages`.
    ///
    /// # Errors
    /// `/proc/meminfo` cannot be read.
    pub fn read(root: &HostRoot) -> Result<Self, ReadError> {
        let text = root.read("/proc/meminfo")?;
        let mut memory = Self { hugepages: hugepages(root), ..Self::default() };
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let kibibytes = value.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
            match key {
                "MemTotal" => memory.total_bytes = kibibytes.saturating_mul(1024),
                "MemAvailable" => memory.available_bytes = kibibytes.saturating_mul(1024),
                _ => {}
            }
        }
        Ok(memory)
    }
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
        let memory = Memory::read(&root).unwrap();
        assert_eq!((memory.total_bytes, memory.available_bytes), (1 << 20, 1 << 19));
        let small = HugepagePool { page_bytes: 2 << 20, total: 16, free: 16 };
        let large = HugepagePool { page_bytes: 1 << 30, total: 4, free: 3 };
        assert_eq!(memory.hugepages, [small, large]);
    }

    #[test]
    fn this_host_has_memory() {
        let memory = Memory::read(&HostRoot::real()).unwrap();
        assert!(memory.total_bytes > memory.available_bytes && memory.available_bytes > 0, "{memory:?}");
    }
}
