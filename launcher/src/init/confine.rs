//! Giving up power before QEMU is executed. Everything here holds for PID 1 itself too, from then on.

use std::os::fd::OwnedFd;
use std::path::Path;

use garboard_protocol::launch::{Launch, ProcessIdentity};
use landlock::{
    ABI, Access, AccessFs, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, path_beneath_rules,
};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

use super::InitError;
use crate::sys::capabilities;

/// The newest Landlock interface whose rights we know; older kernels enforce what they have.
const LANDLOCK_ABI: ABI = ABI::V5;

/// Limits, identity, no_new_privs, Landlock: in this order, since each step needs what the next gives up.
///
/// # Errors
/// The step that failed, by name. Landlock missing from the kernel is not an error: `doctor` reports it.
pub(super) fn confine(launch: &Launch, descriptors: &[OwnedFd]) -> Result<(), InitError> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(|errno| InitError::system("forbid core dumps", errno))?;
    if let Some(bytes) = launch.memlock_bytes {
        setrlimit(Resource::RLIMIT_MEMLOCK, bytes, bytes)
            .map_err(|errno| InitError::system(format!("limit locked memory to {bytes} bytes"), errno))?;
    }
    match &launch.identity {
        // An ordinary user's PID 1 and that of a pod are who they shall be, and may not choose their groups.
        Some(identity) if Uid::current().as_raw() != identity.uid => become_user(identity)?,
        Some(_) => capabilities::drop_all().map_err(|error| InitError::system("give up capabilities", error))?,
        None => {}
    }
    nix::sys::prctl::set_no_new_privs().map_err(|errno| InitError::system("set no_new_privs", errno))?;
    restrict_files(launch, descriptors)
}

fn become_user(identity: &ProcessIdentity) -> Result<(), InitError> {
    let groups: Vec<Gid> = identity.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).map_err(|errno| InitError::system("set the supplementary groups", errno))?;
    setgid(Gid::from_raw(identity.gid))
        .map_err(|errno| InitError::system(format!("become group {}", identity.gid), errno))?;
    // From root, setuid also drops every capability from the permitted and effective sets.
    setuid(Uid::from_raw(identity.uid))
        .map_err(|errno| InitError::system(format!("become user {}", identity.uid), errno))
}

fn restrict_files(launch: &Launch, descriptors: &[OwnedFd]) -> Result<(), InitError> {
    // The first descriptor is the log, which is not in the launch's list.
    let numbered = launch.descriptors.iter().zip(descriptors.iter().skip(1));
    let reopened = numbered.filter(|(number, _)| launch.reopened.contains(number));
    let files = reopened.map(|(_, file)| Ok::<_, RulesetError>(PathBeneath::new(file, AccessFs::ReadFile)));
    let all = AccessFs::from_all(LANDLOCK_ABI);
    let read = AccessFs::from_read(LANDLOCK_ABI);
    let existing = |paths: &[String]| paths.iter().filter(|path| Path::new(path).exists()).cloned().collect::<Vec<_>>();
    let restricted = Ruleset::default()
        .handle_access(all)
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(existing(&launch.readable_paths), read)))
        .and_then(|rules| rules.add_rules(path_beneath_rules(existing(&launch.writable_paths), all)))
        .and_then(|rules| rules.add_rules(files))
        .and_then(|rules| rules.restrict_self());
    restricted
        .map(|_| ())
        .map_err(|error| InitError::system("restrict files with Landlock", std::io::Error::other(error)))
}
