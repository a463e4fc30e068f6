//! Control groups of the same path in every hierarchy the machine has, version 1, 2 or both.
//!
//! They are how a process is known to belong to a cluster: a child is born into its parent's groups and has no way out
//! that anything here would take. Follows the kernel's `cgroup-v1/freezer-subsystem.rst` and `cgroup-v2.rst`.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::files::{at, read};
use crate::wait::{Patience, until_true};

/// Controllers that the kubelet requires in version 2.
const CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "memory", "pids", "io", "hugetlb"];
/// For a group to freeze, and for its last process to leave.
const LIMIT: Duration = Duration::from_secs(60);

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    /// Version 2 has all its controllers in one.
    unified: bool,
    /// Version 1: what the mount is for.
    options: String,
}

impl Hierarchy {
    fn has(&self, controller: &str) -> bool {
        !self.unified && self.options.split(',').any(|option| option == controller)
    }
}

/// The machine's hierarchies.
#[derive(Debug, Clone)]
pub struct Cgroups(Vec<Hierarchy>);

impl Cgroups {
    /// Those that this process sees.
    ///
    /// # Errors
    /// There is no `/proc`.
    pub fn of_this_machine() -> Result<Self> {
        Ok(Self(hierarchies(&read(Path::new("/proc/self/mounts"))?)))
    }

    /// Makes a group, and those above it, ready to hold processes.
    ///
    /// # Errors
    /// No permission.
    pub fn ensure(&self, group: &str) -> Result<()> {
        for hierarchy in &self.0 {
            let mut parent = hierarchy.root.clone();
            for part in group.split('/') {
                let path = parent.join(part);
                enable_controllers(hierarchy, &parent)?;
                at("make", &path, tolerate_existing(fs::create_dir(&path)))?;
                inherit_cpuset(hierarchy, &parent, &path)?;
                parent = path;
            }
        }
        Ok(())
    }

    /// Moves this process, and every process that it starts from now on, into a group.
    ///
    /// # Errors
    /// The group is not there.
    pub fn join(&self, group: &str) -> Result<()> {
        self.0.iter().try_for_each(|hierarchy| {
            let processes = hierarchy.root.join(group).join("cgroup.procs");
            at("write", &processes, fs::write(&processes, "0"))
        })
    }

    /// The processes of a group itself.
    pub fn members(&self, group: &str) -> BTreeSet<i32> {
        self.each(group).flat_map(|(_, path)| processes(&path)).collect()
    }

    /// The processes of a group and of all below it.
    pub fn all_members(&self, group: &str) -> BTreeSet<i32> {
        self.each(group).flat_map(|(_, path)| tree(&path)).flat_map(|path| processes(&path)).collect()
    }

    /// Whether any hierarchy has the group.
    pub fn exists(&self, group: &str) -> bool {
        self.each(group).next().is_some()
    }

    /// Stops every process of a group and of those below it, and returns when they stand still.
    ///
    /// # Errors
    /// There is no such group, or one of them is in the middle of something that does not end.
    pub fn freeze(&self, group: &str) -> Result<()> {
        let (file, frozen) = self.freezer(group)?;
        at("write", &file, fs::write(&file, frozen))?;
        let patience = Patience { what: "a frozen group", limit: LIMIT, logs: &file };
        until_true(&patience, || Ok(self.is_frozen(group)))
    }

    /// Lets them go on.
    ///
    /// # Errors
    /// There is no such group.
    pub fn thaw(&self, group: &str) -> Result<()> {
        let (file, frozen) = self.freezer(group)?;
        let thawed = if frozen == "1" { "0" } else { "THAWED" };
        at("write", &file, fs::write(&file, thawed))
    }

    /// Whether a group stands still.
    pub fn is_frozen(&self, group: &str) -> bool {
        let Ok((file, frozen)) = self.freezer(group) else { return false };
        if frozen == "1" {
            let events = read(&file.with_file_name("cgroup.events")).unwrap_or_default();
            return events.lines().any(|line| line == "frozen 1");
        }
        read(&file).is_ok_and(|state| state.trim() == frozen)
    }

    /// Kills every process of a group and of those below it, and removes the groups, until there is nothing: a process that
    /// comes in meanwhile is killed too.
    ///
    /// # Errors
    /// A process that does not go.
    pub fn sweep(&self, group: &str) -> Result<()> {
        let path = PathBuf::from(group);
        let patience = Patience { what: "the end of the last process", limit: LIMIT, logs: &path };
        until_true(&patience, || {
            self.thaw_all(group);
            for member in self.all_members(group) {
                // A process that has just ended is no error.
                let _ = kill(Pid::from_raw(member), Signal::SIGKILL);
            }
            for (_, path) in self.each(group) {
                remove_empty(&path)?;
            }
            Ok(!self.exists(group))
        })
    }

    /// Frozen processes do not die: every group is thawed.
    fn thaw_all(&self, group: &str) {
        for (hierarchy, path) in self.each(group) {
            let (file, thawed) = if hierarchy.unified {
                ("cgroup.freeze", "0")
            } else if hierarchy.has("freezer") {
                ("freezer.state", "THAWED")
            } else {
                continue;
            };
            for directory in tree(&path) {
                // A group that goes at this moment needs it no more.
                let _ = fs::write(directory.join(file), thawed);
            }
        }
    }

    /// The file that freezes a group, and what to write.
    fn freezer(&self, group: &str) -> Result<(PathBuf, &'static str)> {
        let version_1 = self.each(group).find(|(hierarchy, _)| hierarchy.has("freezer"));
        let version_2 = self.each(group).find(|(hierarchy, _)| hierarchy.unified);
        match (version_1, version_2) {
            (Some((_, path)), _) => Ok((path.join("freezer.state"), "FROZEN")),
            (None, Some((_, path))) => Ok((path.join("cgroup.freeze"), "1")),
            (None, None) => Err(Error::Refused(format!("there is no control group {group} that could be frozen"))),
        }
    }

    /// The group's directory in each hierarchy that has it.
    fn each<'a>(&'a self, group: &'a str) -> impl Iterator<Item = (&'a Hierarchy, PathBuf)> + 'a {
        self.0.iter().map(move |hierarchy| (hierarchy, hierarchy.root.join(group))).filter(|(_, path)| path.is_dir())
    }
}

/// The control groups in `/proc/self/mounts`.
fn hierarchies(mounts: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[_, root, kind @ ("cgroup" | "cgroup2"), options, ..] = fields.as_slice() else { continue };
        let hierarchy = Hierarchy { root: root.into(), unified: kind == "cgroup2", options: options.to_owned() };
        let known = found
            .iter()
            .any(|known| known.unified == hierarchy.unified && (known.unified || known.options == hierarchy.options));
        if !known {
            found.push(hierarchy);
        }
    }
    found
}

/// Version 2 has controllers only where the parent hands them down. A parent with processes in it cannot, and the root
/// may.
fn enable_controllers(hierarchy: &Hierarchy, parent: &Path) -> Result<()> {
    if !hierarchy.unified {
        return Ok(());
    }
    let available = read(&parent.join("cgroup.controllers"))?;
    let wanted: Vec<String> = available
        .split_whitespace()
        .filter(|controller| CONTROLLERS.contains(controller))
        .map(|controller| format!("+{controller}"))
        .collect();
    let file = parent.join("cgroup.subtree_control");
    if wanted.is_empty() { Ok(()) } else { at("write", &file, fs::write(&file, wanted.join(" "))) }
}

/// In version 1 a new group has no processors and no memory until they are written.
fn inherit_cpuset(hierarchy: &Hierarchy, parent: &Path, path: &Path) -> Result<()> {
    if !hierarchy.has("cpuset") {
        return Ok(());
    }
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = path.join(file);
        if read(&own)?.trim().is_empty() {
            at("write", &own, fs::write(&own, read(&parent.join(file))?))?;
        }
    }
    Ok(())
}

/// Removes those directories of a tree that have no process, children first.
fn remove_empty(path: &Path) -> Result<()> {
    for directory in tree(path).iter().rev() {
        match fs::remove_dir(directory) {
            Err(source) if !matches!(source.kind(), ErrorKind::NotFound | ErrorKind::ResourceBusy) => {
                return Err(Error::File { action: "remove", path: directory.clone(), source });
            }
            _ => {}
        }
    }
    Ok(())
}

fn tolerate_existing(outcome: std::io::Result<()>) -> std::io::Result<()> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// The processes of one directory, by the numbers they have here; a group that is gone has none.
fn processes(path: &Path) -> Vec<i32> {
    let listed = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    // Zero stands for one of a namespace that cannot be seen from here.
    listed.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect()
}

/// A directory and all below it, parents first.
fn tree(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        next += 1;
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        found.extend(below.map(|entry| entry.path()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "tmpfs /sys/fs/cgroup tmpfs rw,relatime 0 0\n\
        cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
        cgroup /sys/fs/cgroup/freezer cgroup rw,relatime,freezer 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n\
        cgroup2 /somewhere/else cgroup2 rw,nosuid 0 0\n";

    #[test]
    fn hierarchies_are_read_from_mounts() {
        let found = hierarchies(HYBRID);
        let roots: Vec<&str> = found.iter().filter_map(|hierarchy| hierarchy.root.to_str()).collect();
        assert_eq!(roots, ["/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified"]);
        assert!(found[1].has("freezer") && !found[0].has("freezer") && found[2].unified);
    }

    #[test]
    fn a_group_is_made_frozen_thawed_ended_and_removed() {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: control groups need root");
            return;
        }
        let cgroups = Cgroups::of_this_machine().unwrap();
        let group = format!("gbk-unit-{}/below", std::process::id());
        let top = group.split('/').next().unwrap();
        cgroups.ensure(&group).unwrap();
        cgroups.ensure(&group).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        for (_, path) in cgroups.each(&group) {
            fs::write(path.join("cgroup.procs"), child.id().to_string()).unwrap();
        }
        assert_eq!(cgroups.all_members(top), BTreeSet::from([i32::try_from(child.id()).unwrap()]));
        assert!(cgroups.members(top).is_empty());
        cgroups.freeze(top).unwrap();
        assert!(cgroups.is_frozen(top));
        cgroups.thaw(top).unwrap();
        cgroups.freeze(top).unwrap();
        let reaped = std::thread::spawn(move || child.wait());
        cgroups.sweep(top).unwrap();
        assert!(!reaped.join().unwrap().unwrap().success());
        cgroups.sweep(top).unwrap();
        assert!(!cgroups.exists(top));
        assert!(cgroups.join(top).is_err(), "a process that comes too late must not start");
    }
}
