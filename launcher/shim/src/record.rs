//! Keeping what a run left behind: bounded copies of a fixed list of files, readable after the machine is
//! gone, by its owner alone: a guest prints what it likes. Secrets of the manifest do not get into them: the transcript
//! and the logs are redacted where they are written, the manifest here.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use garboard_common::foreign;
use garboard_protocol::paths::{self, Layout};
use garboard_qmp::redact::without_secrets;
use garboard_shim_client::logs::{SHIM_LOG, SUPERVISOR_LOG};
use garboard_shim_client::places::RECORDS;

use crate::run_journal;

/// The end of each file is kept, at most this much.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// From a record up to the directory of all records: the machine's, its namespace's.
const LEVELS: usize = 3;
/// Runs kept for each machine.
const MAX_RUNS: usize = 10;

/// Copies the record of a run and lets the oldest ones go. A run whose journal has no end gets one first.
pub(crate) fn keep(layout: &Layout, record: &Path) -> anyhow::Result<()> {
    run_journal::complete(layout, run_journal::MemoryPressure::default());
    make_directory(record).with_context(|| format!("create {}", record.display()))?;
    let serial = paths::serial_log(0);
    let names = [
        paths::PLAN,
        paths::LIVE,
        paths::EXIT,
        paths::QEMU_LOG,
        &serial,
        // With the manifest they are what `explain` makes the same plan of.
        paths::FACTS,
        paths::OPTIONS,
        paths::STORED,
        paths::TRANSCRIPT,
    ];
    let sources = names.map(|name| (layout.directory_of(name), name));
    let logs = [SUPERVISOR_LOG, SHIM_LOG].map(|name| (layout.machine().to_owned(), name));
    for (directory, name) in sources.into_iter().chain(logs) {
        match foreign::open_file(&directory, name) {
            Ok(Some(file)) => copy_end(file, &record.join(name)).with_context(|| format!("keep {name}"))?,
            Ok(None) => {}
            // The machine's user put something else there; the rest of the record is kept all the same.
            Err(error) => tracing::warn!(%error, name, "a file of the run could not be copied to its record"),
        }
    }
    if let Some(journal) = run_journal::read(layout).ok().flatten() {
        std::fs::write(record.join(paths::JOURNAL), serde_json::to_vec(&journal)?).context("keep the journal")?;
    }
    keep_manifest(layout, record)?;
    forget_oldest(record.parent().unwrap_or(record))
}

fn copy_end(mut from: File, target: &Path) -> std::io::Result<()> {
    let length = from.metadata()?.len();
    from.seek(SeekFrom::Start(length.saturating_sub(MAX_FILE_BYTES)))?;
    let mut to = File::create(target)?;
    std::io::copy(&mut from.take(MAX_FILE_BYTES), &mut to).map(|_| ())
}

/// The directory of all records is closed to others, also where an earlier version of this program made it.
fn make_directory(record: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(record)?;
    let records = record.ancestors().nth(LEVELS);
    match records.filter(|records| records.file_name().is_some_and(|name| name == RECORDS)) {
        Some(records) => std::fs::set_permissions(records, std::fs::Permissions::from_mode(0o700)),
        None => Ok(()),
    }
}

/// The manifest without what is secret in it.
fn keep_manifest(layout: &Layout, record: &Path) -> anyhow::Result<()> {
    let Ok(bytes) = std::fs::read(layout.order().join(paths::VMI)) else { return Ok(()) };
    let Ok(manifest) = serde_json::from_slice(&bytes) else { return Ok(()) };
    let bytes = serde_json::to_vec(&without_secrets(manifest))?;
    std::fs::write(record.join(paths::VMI), bytes).with_context(|| format!("keep {}", paths::VMI))
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
        let (room, layout) = run_journal::testing::machine();
        std::fs::write(layout.init().join(paths::EXIT), b"{}").unwrap();
        for run in 0..15 {
            keep(&layout, &room.path().join(format!("runs/{run:02}"))).unwrap();
        }
        let left = std::fs::read_dir(room.path().join("runs")).unwrap().count();
        assert_eq!(left, MAX_RUNS);
        assert!(room.path().join("runs/14").join(paths::EXIT).exists());
    }

    #[test]
    fn a_record_is_its_owners_alone_and_holds_no_secret() {
        let (room, layout) = run_journal::testing::machine();
        let records = room.path().join(RECORDS);
        std::fs::create_dir(&records).unwrap();
        std::fs::set_permissions(&records, std::fs::Permissions::from_mode(0o755)).unwrap();
        let record = records.join("default/hello/1");
        let manifest = r#"{"spec":{"volumes":[{"cloudInitNoCloud":{"userData":"hunter2"},"name":"seed"}]}}"#;
        std::fs::write(layout.order().join(paths::VMI), manifest).unwrap();
        keep(&layout, &record).unwrap();
        let kept = std::fs::read_to_string(record.join(paths::VMI)).unwrap();
        assert_eq!(kept, manifest.replace("hunter2", "<redacted>"));
        for closed in [&records, &record] {
            assert_eq!(closed.metadata().unwrap().permissions().mode() & 0o077, 0, "{}", closed.display());
        }
    }

    #[test]
    fn what_the_plan_was_made_of_is_stored() {
        let (room, layout) = run_journal::testing::machine();
        let input = [paths::FACTS, paths::OPTIONS, paths::STORED];
        for name in input {
            std::fs::write(layout.directory_of(name).join(name), name).unwrap();
        }
        let record = room.path().join("runs/1");
        keep(&layout, &record).unwrap();
        for name in input {
            assert_eq!(std::fs::read_to_string(record.join(name)).unwrap(), name);
        }
    }

    #[test]
    fn a_link_is_not_kept() {
        let (room, layout) = run_journal::testing::machine();
        let secret = room.path().join("shadow");
        std::fs::write(&secret, "root:*").unwrap();
        for name in [paths::PLAN, paths::QEMU_LOG, paths::EXIT] {
            std::os::unix::fs::symlink(&secret, layout.directory_of(name).join(name)).unwrap();
        }
        let record = room.path().join("runs/1");
        keep(&layout, &record).unwrap();
        for name in [paths::PLAN, paths::QEMU_LOG, paths::EXIT] {
            assert!(!record.join(name).exists(), "{name}");
        }
    }
}
