//! Giving up power before QEMU is executed. What [`confine`] does holds for PID 1 itself from then on, and for QEMU; QEMU
//! begins under [`of_qemu`] as well.
//!
//! | may | PID 1 | QEMU |
//! | --- | --- | --- |
//! | read itself, its libraries, firmware and modules | yes | yes |
//! | use devices, open its kernel again | yes | yes |
//! | write to the directory it shares with the supervisor | yes | no |
//! | trace PID 1, open its descriptors | | no |
//! | open TCP connections and ports | yes | for a user's network, or a disk on iSCSI |
//! | open abstract sockets; signal others | yes | no |

use std::os::fd::OwnedFd;
use std::path::Path;

use garboard_protocol::launch::{Launch, ProcessIdentity};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetError, Scope, path_beneath_rules,
};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

use super::InitError;
use super::own::OwnDirectory;
use crate::sys::capabilities;

/// The newest Landlock interface whose rights we support; older kernels enforce what they have.
const LANDLOCK_ABI: ABI = ABI::V6;

/// Limits, identity, no_new_privs, Landlock: in this order, since each step needs what the next gives up.
///
/// # Errors
/// The step that failed, by name. Landlock missing from the kernel is not an error: `doctor` reports it.
pub(super) fn confine(launch: &Launch, descriptors: &[OwnedFd], own: &OwnDirectory) -> Result<(), InitError> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(|errno| InitError::system("forbid core dumps", errno))?;
    if let Some(bytes) = launch.memlock_bytes {
        setrlimit(Resource::RLIMIT_MEMLOCK, bytes, bytes)
            .map_err(|errno| InitError::system(format!("limit locked memory to {bytes} bytes"), errno))?;
    }
    match &launch.identity {
        // An ordinary user's PID 1 and that of a pod have the right user already, and may not choose their groups.
        Some(identity) if Uid::current().as_raw() != identity.uid => become_user(identity)?,
        Some(_) => capabilities::drop_all().map_err(|error| InitError::system("give up capabilities", error))?,
        None => {}
    }
    nix::sys::prctl::set_no_new_privs().map_err(|errno| InitError::system("set no_new_privs", errno))?;
    // QEMU runs as the same user: what is open here, and what is remembered, is not for it.
    nix::sys::prctl::set_dumpable(false).map_err(|errno| InitError::system("keep QEMU from looking inside", errno))?;
    let rules = Ruleset::default().handle_access(AccessFs::from_all(LANDLOCK_ABI));
    let restricted = rules
        .and_then(|rules| files(rules, launch, descriptors))
        .and_then(|rules| rules.add_rule(PathBeneath::new(own, own_rights())))
        .and_then(RulesetCreated::restrict_self);
    restricted.map(|_| ()).map_err(refused)
}

/// What holds for QEMU beside that.
///
/// # Errors
/// What the kernel refuses; Landlock missing from it is no error.
pub(super) fn of_qemu(launch: &Launch, descriptors: &[OwnedFd]) -> Result<RulesetCreated, InitError> {
    let rules = Ruleset::default().handle_access(AccessFs::from_all(LANDLOCK_ABI));
    let rules = rules.and_then(|rules| rules.scope(Scope::from_all(LANDLOCK_ABI)));
    let rules = rules.and_then(|rules| {
        if launch.uses_tcp { Ok(rules) } else { rules.handle_access(AccessNet::from_all(LANDLOCK_ABI)) }
    });
    rules.and_then(|rules| files(rules, launch, descriptors)).map_err(refused)
}

fn refused(error: RulesetError) -> InitError {
    InitError::system("restrict files with Landlock", std::io::Error::other(error))
}

/// Enough to read QEMU's log and to replace the account of its end.
fn own_rights() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile
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

/// What both may open.
fn files(rules: Ruleset, launch: &Launch, descriptors: &[OwnedFd]) -> Result<RulesetCreated, RulesetError> {
    // The first descriptor is the log, which is not in the launch's list.
    let numbered = launch.descriptors.iter().zip(descriptors.iter().skip(1));
    let reopened = numbered.filter(|(number, _)| launch.reopened.contains(number));
    let reopened = reopened.map(|(_, file)| Ok::<_, RulesetError>(PathBeneath::new(file, AccessFs::ReadFile)));
    let existing = |paths: &[String]| paths.iter().filter(|path| Path::new(path).exists()).cloned().collect::<Vec<_>>();
    let device = AccessFs::from_file(LANDLOCK_ABI) & !AccessFs::Execute;
    rules
        .create()?
        .add_rules(path_beneath_rules(existing(&launch.readable_paths), AccessFs::from_read(LANDLOCK_ABI)))?
        .add_rules(path_beneath_rules(existing(&launch.devices), device))?
        .add_rules(reopened)
}
