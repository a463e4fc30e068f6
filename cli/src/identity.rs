//! The user that a machine's processes run as when its shim is root: one of its own, so that a machine whose QEMU was
//! taken over has no rights over another machine, nor those of an account of the host.
//!
//! It is taken from a range that neither distributions nor systemd give out (systemd's "Users, Groups, UIDs and GIDs"), and
//! remembered below the state directory. The group has the same number.

use std::fs::{DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Context;
use garboard_shim_client::places::{MachineId, Places};
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{Gid, Group, Uid, User};

use crate::exit::{FAILED, exit_error};

/// Unused by convention. Inside a user namespace it is usually not mapped; then systemd's range for services without an
/// account is used, where an ID in use is found by its account or its processes.
const RANGES: [Range<u32>; 2] = [2_000_000_000..2_000_065_536, 61_184..65_520];
/// The lock that is held while an ID is looked for.
const LOCK: &str = "lock";

/// The user ID of a machine, the same at each of its starts.
///
/// # Errors
/// An account has the ID, or there is none left.
pub(crate) fn of(places: &Places, id: &MachineId) -> anyhow::Result<u32> {
    let directory = places.state.join("identities");
    remembered(&directory, &id.to_string()).with_context(|| {
        let directory = directory.display();
        format!("no user ID could be chosen and stored in {directory}; choose another place with --state-dir")
    })
}

fn remembered(directory: &Path, machine: &str) -> anyhow::Result<u32> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let lock = File::create(directory.join(LOCK))?;
    let _held = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
    let range = mapped_range(&std::fs::read_to_string("/proc/self/uid_map")?).context("no user IDs are free here")?;
    if let Some(uid) = find(directory, machine)?.filter(|uid| range.contains(uid)) {
        return if has_account(uid)? { Err(taken(uid, directory)) } else { Ok(uid) };
    }
    let running = running_users();
    let length = range.end - range.start;
    let start = u32::try_from(hash(directory, machine) % u64::from(length)).unwrap_or(0);
    for offset in 0..length {
        let uid = range.start + (start + offset) % length;
        if !running.contains(&uid) && !has_account(uid)? && claim(directory, uid, machine)? {
            return Ok(uid);
        }
    }
    anyhow::bail!("all of them are in use; remove the files of deleted machines")
}

fn taken(uid: u32, directory: &Path) -> anyhow::Error {
    let text = format!(
        "user ID {uid}, which this machine has, belongs to an account of this host by now; remove {} and start it again",
        directory.join(uid.to_string()).display()
    );
    exit_error(FAILED, text)
}

/// The first range of which everything exists in this user namespace.
fn mapped_range(map: &str) -> Option<Range<u32>> {
    let mapped: Vec<Range<u64>> = map
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let (start, length): (u64, u64) = (fields.next()?.parse().ok()?, fields.nth(1)?.parse().ok()?);
            Some(start..start + length)
        })
        .collect();
    let exists = |range: &Range<u32>| {
        mapped.iter().any(|part| part.start <= u64::from(range.start) && u64::from(range.end) <= part.end)
    };
    RANGES.into_iter().find(exists)
}

/// The ID of a machine that was started before.
fn find(directory: &Path, machine: &str) -> std::io::Result<Option<u32>> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let Some(uid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if std::fs::read_to_string(entry.path())? == machine {
            return Ok(Some(uid));
        }
    }
    Ok(None)
}

/// Whether the ID was free. The lock is held: a file without a machine is what a killed process has left.
fn claim(directory: &Path, uid: u32, machine: &str) -> std::io::Result<bool> {
    let path = directory.join(uid.to_string());
    match std::fs::metadata(&path) {
        Ok(found) if found.len() > 0 => return Ok(false),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(machine.as_bytes()).map(|()| true)
}

fn has_account(uid: u32) -> anyhow::Result<bool> {
    Ok(User::from_uid(Uid::from_raw(uid))?.is_some() || Group::from_gid(Gid::from_raw(uid))?.is_some())
}

/// Users of what runs here: machines of another state directory are among them.
fn running_users() -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| process.metadata().ok().map(|metadata| metadata.uid())).collect()
}

/// Spreads the machines of several state directories.
fn hash(directory: &Path, machine: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (directory, machine).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_has_its_own_and_keeps_it() {
        let room = tempfile::tempdir().unwrap();
        let one = remembered(room.path(), "default/one").unwrap();
        let two = remembered(room.path(), "default/two").unwrap();
        assert_ne!(one, two);
        assert_eq!(remembered(room.path(), "default/one").unwrap(), one);
        assert!(!has_account(one).unwrap() && RANGES.iter().any(|range| range.contains(&one)));
    }

    #[test]
    fn one_that_a_killed_process_was_about_to_give_is_given_again() {
        let room = tempfile::tempdir().unwrap();
        let one = remembered(room.path(), "default/one").unwrap();
        std::fs::write(room.path().join(one.to_string()), "").unwrap();
        assert_eq!(remembered(room.path(), "default/one").unwrap(), one);
        assert_eq!(std::fs::read_to_string(room.path().join(one.to_string())).unwrap(), "default/one");
    }

    #[test]
    fn one_that_an_account_has_is_refused() {
        let room = tempfile::tempdir().unwrap();
        let error = taken(2_000_000_007, room.path()).to_string();
        assert!(error.contains("belongs to an account") && error.contains("2000000007"), "{error}");
        assert!(has_account(0).unwrap());
    }

    #[test]
    fn only_what_exists_in_this_user_namespace_is_taken() {
        assert_eq!(mapped_range("         0          0 4294967295\n"), Some(RANGES[0].clone()));
        assert_eq!(mapped_range("0 100000 65536\n"), Some(RANGES[1].clone()));
        assert_eq!(mapped_range("0 1000 1\n"), None);
    }
}
