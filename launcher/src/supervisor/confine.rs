//! What a supervisor on a bare host may open: the files of its order, and its own directories. In a pod its container limits
//! this; here it runs among the host's files, and a guest's bytes reach it by many ways.
//!
//! Set before the first thread is made, because Landlock holds for a thread and those that it makes. What it needs power
//! for comes as a descriptor from the shim, which no rule concerns.

use std::path::{Path, PathBuf};

use garboard_protocol::agent::VolumePlace;
use garboard_protocol::paths::Layout;
use garboard_protocol::volumes::SCRATCH_VOLUME;
use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
    path_beneath_rules,
};

use super::prepare::Order;

/// The newest Landlock interface whose rights we support; older kernels enforce what they have.
const LANDLOCK_ABI: ABI = ABI::V6;
/// Libraries, what the host reports of itself, sources of random numbers.
const SYSTEM: [&str; 9] =
    ["/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/dev/null", "/dev/urandom", "/dev/random"];

/// Restricts this process, which must have one thread, to what its order names.
///
/// # Errors
/// The order cannot be read, or the kernel refuses; Landlock missing from it is no error.
pub fn confine(layout: &Layout) -> Result<(), super::SupervisorError> {
    let order = Order::read(&layout.order())?;
    restrict(&readable(layout, &order), &writable(layout, &order)).map_err(super::SupervisorError::Landlock)
}

fn readable(layout: &Layout, order: &Order) -> Vec<PathBuf> {
    let qemu = &order.facts.qemu;
    let own = [layout.order()].into_iter().chain(SYSTEM.map(PathBuf::from));
    let firmware = qemu.firmware_dirs.iter().map(PathBuf::from);
    // A host's descriptions of UEFI images name them anywhere.
    let uefi = order.facts.uefi.iter().flat_map(|pair| [&pair.code, &pair.vars_template]).map(PathBuf::from);
    own.chain(firmware).chain(uefi).chain(order.volumes.places.values().filter_map(path_of)).collect()
}

fn writable(layout: &Layout, order: &Order) -> Vec<PathBuf> {
    let scratch = order.volumes.places.get(SCRATCH_VOLUME).and_then(path_of);
    [layout.supervisor(), layout.init()].into_iter().chain(scratch).collect()
}

fn path_of(place: &VolumePlace) -> Option<PathBuf> {
    match place {
        VolumePlace::Directory { path } | VolumePlace::File { path } => Some(path.into()),
        VolumePlace::Descriptor | VolumePlace::Handed { .. } => None,
    }
}

fn restrict(readable: &[PathBuf], writable: &[PathBuf]) -> Result<(), RulesetError> {
    let existing =
        |paths: &[PathBuf]| paths.iter().filter(|path| Path::new(path).exists()).cloned().collect::<Vec<_>>();
    Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK_ABI))?
        .handle_access(AccessNet::from_all(LANDLOCK_ABI))?
        .scope(Scope::from_all(LANDLOCK_ABI))?
        .create()?
        .add_rules(path_beneath_rules(existing(readable), AccessFs::from_read(LANDLOCK_ABI) & !AccessFs::Execute))?
        .add_rules(path_beneath_rules(existing(writable), AccessFs::from_all(LANDLOCK_ABI) & !AccessFs::Execute))
        .and_then(RulesetCreated::restrict_self)
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_ordered_cannot_be_opened() {
        let room = tempfile::tempdir().unwrap();
        let (own, order, other) = (room.path().join("own"), room.path().join("order"), room.path().join("other"));
        for directory in [&own, &order, &other] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("file"), "x").unwrap();
        }
        // A thread of its own: the restriction cannot be taken back.
        let tried = std::thread::spawn(move || {
            restrict(std::slice::from_ref(&order), std::slice::from_ref(&own)).unwrap();
            let write = |directory: &Path| std::fs::write(directory.join("new"), "x").is_ok();
            let read = |directory: &Path| std::fs::read(directory.join("file")).is_ok();
            let link = std::os::unix::fs::symlink("/etc/passwd", other.join("link")).is_ok();
            let tcp = std::net::TcpListener::bind("127.0.0.1:0").is_ok();
            ([write(&own), read(&order)], [write(&order), read(&other), write(&other), link, tcp])
        });
        let (allowed, refused) = tried.join().unwrap();
        assert_eq!(allowed, [true; 2]);
        // All or none: a kernel without Landlock, or of before its network rules, is not what is tested here.
        if refused[4] {
            let _ =
                std::io::Write::write_all(&mut std::io::stderr(), b"skipped: this kernel's Landlock has no network\n");
        } else {
            assert_eq!(refused, [false; 5]);
        }
    }
}
