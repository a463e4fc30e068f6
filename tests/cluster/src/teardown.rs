//! `down`: by the cluster's name alone, whatever state the machine is in. Nothing it needs was kept by the processes
//! that made the things.

use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::mount::{MntFlags, umount2};

use crate::cgroups::Cgroups;
use crate::cluster::lock;
use crate::error::{Error, Result};
use crate::files::{read, remove_if_empty, remove_tree};
use crate::layout::{BULK_ROOT, Layout, STATE_ROOT};
use crate::links;
use crate::report::step;

/// Ends every process, then removes links, control groups, mounts and files.
///
/// # Errors
/// A process that does not go, a file that cannot be removed. What comes after is left for the next `down`.
pub fn down(layout: &Layout) -> Result<()> {
    let began = Instant::now();
    let cgroups = Cgroups::of_this_machine()?;
    if !is_anything_left(layout, &cgroups)? {
        step(&format!("there is no cluster `{}`", layout.name));
        return Ok(());
    }
    // A helper of an `up` that was killed may still add something.
    while is_anything_left(layout, &cgroups)? {
        let _lock = lock(layout)?;
        cgroups.sweep(&layout.cgroup())?;
        for link in links::of_cluster(layout)? {
            links::remove(&link)?;
        }
        remove_files(layout)?;
    }
    step(&format!("cluster `{}` is gone, {:.1} s", layout.name, began.elapsed().as_secs_f64()));
    Ok(())
}

/// All clusters have the same addresses, so there is one at a time. One of which nothing runs any more
/// is removed.
///
/// # Errors
/// Another cluster is up, or what is left of a dead one does not go.
pub fn make_room(layout: &Layout) -> Result<()> {
    let Some(name) = links::other_cluster(layout)? else { return Ok(()) };
    let other = Layout::new(name, None)?;
    if runs(&other)? {
        let name = &other.name;
        return Err(Error::Refused(format!(
            "another cluster, `{name}`, is there: `cluster down --name {name}` takes it away"
        )));
    }
    step(&format!("nothing of cluster `{}` runs any more", other.name));
    down(&other)
}

fn runs(layout: &Layout) -> Result<bool> {
    // One that is being made has no process at first, but a command that holds its lock.
    let _lock = lock(layout)?;
    Ok(!Cgroups::of_this_machine()?.all_members(&layout.cgroup()).is_empty())
}

fn is_anything_left(layout: &Layout, cgroups: &Cgroups) -> Result<bool> {
    let files = layout.state.exists() || layout.bulk.exists();
    Ok(files || cgroups.exists(&layout.cgroup()) || !links::of_cluster(layout)?.is_empty())
}

fn remove_files(layout: &Layout) -> Result<()> {
    for directory in [&layout.bulk, &layout.state] {
        unmount_below(directory)?;
        remove_tree(directory)?;
    }
    for root in [STATE_ROOT, BULK_ROOT] {
        remove_if_empty(Path::new(root))?;
    }
    Ok(())
}

/// Nodes mount in namespaces of their own. What is found here was mounted by hand, and its content must not be removed.
fn unmount_below(directory: &Path) -> Result<()> {
    for point in mounts_below(&read(Path::new("/proc/self/mountinfo"))?, directory).iter().rev() {
        let failed = |source| Error::Kernel { action: format!("unmount {}", point.display()), source };
        umount2(point, MntFlags::MNT_DETACH).map_err(failed)?;
    }
    Ok(())
}

/// Mount points at and below a directory, as `/proc/PID/mountinfo` lists them: later ones lie upon earlier ones.
fn mounts_below(mountinfo: &str, directory: &Path) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .map(|point| PathBuf::from(point.replace("\\040", " ")))
        .filter(|point| point.starts_with(directory))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_below_a_directory_only() {
        let mountinfo = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /run/x/main rw - tmpfs t rw\n\
             3 2 0:6 / /run/x/main/a\\040b rw - tmpfs t rw\n4 1 0:7 / /run/x/mainly rw - tmpfs t rw\n";
        let found = mounts_below(mountinfo, Path::new("/run/x/main"));
        assert_eq!(found, [PathBuf::from("/run/x/main"), PathBuf::from("/run/x/main/a b")]);
    }
}
