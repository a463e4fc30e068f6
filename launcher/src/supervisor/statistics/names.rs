//! How many names of file systems a guest may have in an hour. Each name is a series that Prometheus keeps for weeks: a guest that
//! mounts under a new name before each scrape would fill it. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use garboard_protocol::statistics::FileSystemStatistics;

/// An hour.
const PERIOD: Duration = Duration::from_secs(3600);
/// The most names in it: four times what one answer has.
const MOST: usize = 256;

/// The names of this hour.
#[derive(Debug, Default)]
pub(super) struct Names {
    since: Option<Instant>,
    seen: BTreeSet<[String; 3]>,
}

impl Names {
    /// Those whose names are known, and new ones as long as there are few.
    pub(super) fn few(&mut self, mut found: Vec<FileSystemStatistics>, now: Instant) -> Vec<FileSystemStatistics> {
        if self.since.is_none_or(|since| now.duration_since(since) >= PERIOD) {
            self.since = Some(now);
            self.seen.clear();
        }
        found.retain(|each| {
            let name = [each.name.clone(), each.mountpoint.clone(), each.kind.clone()];
            self.seen.contains(&name) || (self.seen.len() < MOST && self.seen.insert(name))
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: usize) -> FileSystemStatistics {
        FileSystemStatistics { name: name.to_string(), ..FileSystemStatistics::default() }
    }

    #[test]
    fn new_names_are_left_out_once_there_were_many_until_the_hour_is_over() {
        let (mut names, began) = (Names::default(), Instant::now());
        assert_eq!(names.few((0..MOST).map(named).collect(), began).len(), MOST);
        let later = began + PERIOD / 2;
        assert_eq!(names.few(vec![named(1), named(MOST)], later), [named(1)]);
        assert_eq!(names.few(vec![named(1), named(MOST)], began + PERIOD).len(), 2);
    }
}
