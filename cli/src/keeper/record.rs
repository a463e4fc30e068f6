//! Keeping what a run left behind: bounded copies of a fixed list of files, readable after the machine is
//! gone. Secrets never get into them: the transcript and the logs are redacted where they are written.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Context;
use garboard_protocol::paths;

use crate::logs::SUPERVISOR_LOG;

/// The end of each file is kept, at most this much.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// Runs kept for each machine.
const MAX_RUNS: usize = 10;

/// Copies the record of a run and lets the oldest ones go. A run whose end nobody has told is explained first.
pub(crate) fn keep(shared: &Path, record: &Path) -> anyhow::Result<()> {
    super::last_word::complete(shared);
    std::fs::create_dir_all(record).with_context(|| format!("create {}", record.display()))?;
    let serial = paths::serial_log(0);
    let names = [
        paths::PLAN,
        paths::JOURNAL,
        paths::EXIT,
        paths::QEMU_LOG,
        &serial,
        paths::VMI,
        // With the manifest they are what `explain` makes the same plan of.
        paths::FACTS,
        paths::OPTIONS,
        paths::STORED,
        SUPERVISOR_LOG,
        paths::TRANSCRIPT,
    ];
    for name in names {
        let source = shared.join(name);
        if source.exists() {
            copy_end(&source, &record.join(name)).with_context(|| format!("keep {name}"))?;
        }
    }
    forget_oldest(record.parent().unwrap_or(record))
}

fn copy_end(source: &Path, target: &Path) -> std::io::Result<()> {
    let mut from = File::open(source)?;
    let length = from.metadata()?.len();
    from.seek(SeekFrom::Start(length.saturating_sub(MAX_FILE_BYTES)))?;
    let mut to = File::create(target)?;
    std::io::copy(&mut from.take(MAX_FILE_BYTES), &mut to).map(|_| ())
}

fn forget_oldest(runs: &Path) -> anyhow::Result<()> {
    let mut directories: Vec<PathBuf> =
        std::fs::read_dir(runs)?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    directories.sort();
    let excess = directories.len().saturating_sub(MAX_RUNS);
    for old in &directories[..excess] {
        std::fs::remove_dir_all(old).with_context(|| format!("remove the old record {}", old.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_runs_are_kept_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let shared = directory.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        std::fs::write(shared.join(paths::EXIT), b"{}").unwrap();
        for run in 0..15 {
            keep(&shared, &directory.path().join(format!("runs/{run:02}"))).unwrap();
        }
        let left = std::fs::read_dir(directory.path().join("runs")).unwrap().count();
        assert_eq!(left, MAX_RUNS);
        assert!(directory.path().join("runs/14").join(paths::EXIT).exists());
    }

    #[test]
    fn what_the_plan_was_made_of_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (shared, record) = (directory.path().join("shared"), directory.path().join("runs/1"));
        std::fs::create_dir(&shared).unwrap();
        let input = [paths::VMI, paths::FACTS, paths::OPTIONS, paths::STORED];
        for name in input {
            std::fs::write(shared.join(name), name).unwrap();
        }
        keep(&shared, &record).unwrap();
        for name in input {
            assert_eq!(std::fs::read_to_string(record.join(name)).unwrap(), name);
        }
    }
}
