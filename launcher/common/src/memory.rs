//! How often the OOM killer has come to the control group of this process, and the group's memory limit.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Counts OOM kills of our cgroup from its creation on. cgroup v2 first, then v1
/// (`Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst`). It holds the files open, because
/// after isolation no path leads to them.
pub struct MemoryWitness {
    events: Option<fs::File>,
    limit: Option<fs::File>,
    kills_before: u64,
}

impl Default for MemoryWitness {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryWitness {
    /// Counts from now on, for the group that this process is in.
    #[must_use]
    pub fn new() -> Self {
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let (v2, v1) = memory_directories(&membership);
        let open = |v2_name: &str, v1_name: &str| {
            let v2_file = v2.as_ref().and_then(|directory| fs::File::open(directory.join(v2_name)).ok());
            v2_file.or_else(|| fs::File::open(v1.as_ref()?.join(v1_name)).ok())
        };
        let events = open("memory.events", "memory.oom_control");
        let limit = open("memory.max", "memory.limit_in_bytes");
        let mut witness = Self { events, limit, kills_before: 0 };
        witness.kills_before = witness.count();
        witness
    }

    /// How many processes of the group the OOM killer has ended since.
    #[must_use]
    pub fn kills(&self) -> u64 {
        self.count().saturating_sub(self.kills_before)
    }

    /// The group's limit, bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> Option<u64> {
        // v1 writes "no limit" as a number near 2^63, v2 as `max`.
        read_again(self.limit.as_ref()?)?.trim().parse::<u64>().ok().filter(|bytes| *bytes < 1 << 60)
    }

    fn count(&self) -> u64 {
        let text = self.events.as_ref().and_then(read_again);
        text.and_then(|text| keyed_number(&text, "oom_kill")).unwrap_or(0)
    }
}

fn read_again(mut file: &fs::File) -> Option<String> {
    file.seek(SeekFrom::Start(0)).ok()?;
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Where the memory controller of this process is visible: (v2, v1).
fn memory_directories(membership: &str) -> (Option<PathBuf>, Option<PathBuf>) {
    let (mut v2, mut v1) = (None, None);
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            v2 = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
                .iter()
                .map(|root| Path::new(root).join(path))
                .find(|directory| directory.join("memory.events").exists());
        } else if controllers.split(',').any(|controller| controller == "memory") {
            v1 = [format!("/sys/fs/cgroup/memory/{path}"), "/sys/fs/cgroup/memory".to_owned()]
                .map(PathBuf::from)
                .into_iter()
                .find(|directory| directory.join("memory.oom_control").exists());
        }
    }
    (v2, v1)
}

fn keyed_number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_whole_name() {
        let text = "low 0\noom 3\noom_kill 2\noom_group_kill 9\n";
        assert_eq!(keyed_number(text, "oom_kill"), Some(2));
        assert_eq!(keyed_number("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", "oom_kill"), Some(5));
        assert_eq!(keyed_number("", "oom_kill"), None);
    }
}
