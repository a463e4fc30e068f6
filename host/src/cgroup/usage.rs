//! What a group used, from the kernel's counters.

use std::fs;
use std::path::Path;

use crate::root::ReadError;

/// Counters of a group. Those of a controller that is not there are zero or `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processes the kernel killed because the group was at its memory limit. It counts processes, not occasions.
    pub oom_kills: u64,
    /// Memory in use now, bytes.
    pub memory_bytes: Option<u64>,
    /// The most that was in use at once, bytes; `None` before Linux 5.19 in version 2.
    pub memory_peak_bytes: Option<u64>,
    /// Processes or threads that could not be started because of the limit.
    pub pids_refused: u64,
}

impl Usage {
    /// Reads the counters below the directories of two controllers.
    pub(super) fn read(memory: Option<&Path>, pids: Option<&Path>) -> Result<Self, ReadError> {
        let mut usage = Self::default();
        if let Some(memory) = memory {
            // Version 2 first: the file does not exist in version 1.
            let v2 = memory.join("memory.events");
            let counters = if v2.exists() { read(&v2)? } else { read(&memory.join("memory.oom_control"))? };
            usage.oom_kills = keyed(&counters, "oom_kill").unwrap_or(0);
            usage.memory_bytes = number(memory, &["memory.current", "memory.usage_in_bytes"]);
            usage.memory_peak_bytes = number(memory, &["memory.peak", "memory.max_usage_in_bytes"]);
        }
        if let Some(pids) = pids {
            usage.pids_refused = keyed(&read(&pids.join("pids.events"))?, "max").unwrap_or(0);
        }
        Ok(usage)
    }
}

fn read(path: &Path) -> Result<String, ReadError> {
    fs::read_to_string(path).map_err(|source| ReadError { path: path.to_path_buf(), source })
}

fn number(directory: &Path, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok())
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::host_of;

    #[test]
    fn version_2_counters_are_read() {
        let (_directory, root) = host_of(&[
            ("/memory.events", "low 0\nhigh 0\nmax 12\noom 2\noom_kill 3\noom_group_kill 0\n"),
            ("/memory.current", "4096\n"),
            ("/memory.peak", "8192\n"),
            ("/pids.events", "max 7\n"),
        ]);
        let directory = root.path("/");
        let usage = Usage::read(Some(&directory), Some(&directory)).unwrap();
        let expected = Usage { oom_kills: 3, memory_bytes: Some(4096), memory_peak_bytes: Some(8192), pids_refused: 7 };
        assert_eq!(usage, expected);
    }

    #[test]
    fn version_1_counters_are_read() {
        let (_directory, root) = host_of(&[
            ("/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
            ("/memory.usage_in_bytes", "1\n"),
            ("/memory.max_usage_in_bytes", "2\n"),
        ]);
        let usage = Usage::read(Some(&root.path("/")), None).unwrap();
        assert_eq!((usage.oom_kills, usage.memory_bytes, usage.memory_peak_bytes), (1, Some(1), Some(2)));
    }

    #[test]
    fn a_group_that_is_gone_is_an_error_not_zero() {
        let (_directory, root) = host_of(&[]);
        assert!(Usage::read(Some(&root.path("/")), None).is_err());
        assert!(Usage::read(None, Some(&root.path("/"))).is_err());
    }
}
