//! Which control groups this process may make, and where.
//!
//! ```text
//! version 2   /sys/fs/cgroup                is cgroup2, and has the memory controller for us
//! version 1   /sys/fs/cgroup/memory, …      one mount per controller
//! hybrid      version 1 plus an (almost) empty /sys/fs/cgroup/unified: counts as version 1
//! ```
//!
//! Version 2 is preferred, but only if it can limit memory: on a hybrid host it exists and can do nothing.
//!
//! Root makes its groups below the root of the hierarchy. A user may only do so below a group that was delegated
//! (systemd: `Delegate=yes`), which is the topmost group above this process that the user can write to: a process can
//! be moved only between groups with a common ancestor that its mover can write to.
//!
//! Source followed: `Documentation/admin-guide/cgroup-v2.rst` (delegation, no internal processes) and `cgroup-v1/` of
//! Linux 6.18.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use garboard_machine::facts::CgroupVersion;
use nix::unistd::AccessFlags;

use crate::root::HostRoot;

/// The usual directory of the unified hierarchy, systemd's too.
const UNIFIED: &str = "/sys/fs/cgroup";

/// A controller we set limits with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Number of processes and threads.
    Pids,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Pids];

    /// The kernel's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|controller| controller.as_str() == name)
    }
}

/// Where groups can be made, and with which controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupHierarchy {
    /// Which kind. `Unavailable` means that no limit can be set.
    pub version: CgroupVersion,
    /// Controllers that will work there.
    pub controllers: BTreeSet<Controller>,
    /// The group below which ours go, relative to the root of the hierarchy; empty for the root itself.
    pub parent: PathBuf,
    /// The obstacle, if there is one.
    pub obstacle: Option<Obstacle>,
}

/// Why groups cannot be made, or not with all controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No cgroup file system is mounted.
    NotMounted,
    /// The hierarchy is there, but nothing in it was given to this user.
    NotDelegated,
    /// The hierarchy is mounted read-only, as in an unprivileged container.
    ReadOnly,
    /// Processes live in the group below which ours would go, so controllers cannot be switched on.
    InternalProcesses,
}

impl CgroupHierarchy {
    /// Looks at this process's place in the hierarchies.
    #[must_use]
    pub fn probe(root: &HostRoot) -> Self {
        let mounts = Mounts::read(root);
        let unified = mounts.unified.then(|| unified(root));
        match (unified, legacy(root, &mounts)) {
            (Some(unified), _) if unified.controllers.contains(&Controller::Memory) => unified,
            (_, Some(legacy)) => legacy,
            (Some(unified), None) => Self { version: CgroupVersion::Unavailable, ..unified },
            (None, None) => Self::unavailable(Obstacle::NotMounted),
        }
    }

    fn unavailable(obstacle: Obstacle) -> Self {
        Self {
            version: CgroupVersion::Unavailable,
            controllers: BTreeSet::new(),
            parent: PathBuf::new(),
            obstacle: Some(obstacle),
        }
    }

    /// Controllers that cannot be used.
    #[must_use]
    pub fn missing(&self) -> Vec<Controller> {
        Controller::ALL.into_iter().filter(|controller| !self.controllers.contains(controller)).collect()
    }
}

/// From `/proc/self/mountinfo`.
struct Mounts {
    /// `/sys/fs/cgroup` itself is version 2.
    unified: bool,
    /// Version 1 mounts of controllers we use: where, and which.
    legacy: Vec<(PathBuf, Controller)>,
}

impl Mounts {
    fn read(root: &HostRoot) -> Self {
        let text = root.read("/proc/self/mountinfo").unwrap_or_default();
        let mut mounts = Self { unified: false, legacy: Vec::new() };
        for line in text.lines() {
            // "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue"
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let Some(point) = left.split(' ').nth(4) else { continue };
            let mut right = right.split(' ');
            match right.next() {
                Some("cgroup2") if point == UNIFIED => mounts.unified = true,
                Some("cgroup") => {
                    let options = right.nth(1).unwrap_or_default();
                    mounts.legacy.extend(options.split(',').filter_map(Controller::parse).map(|c| (point.into(), c)));
                }
                _ => {}
            }
        }
        mounts
    }
}

fn legacy(root: &HostRoot, mounts: &Mounts) -> Option<CgroupHierarchy> {
    if mounts.legacy.is_empty() {
        return None;
    }
    let usable = |(point, _): &&(PathBuf, Controller)| may_write(root, point).is_ok();
    let controllers: BTreeSet<Controller> = mounts.legacy.iter().filter(usable).map(|(_, each)| *each).collect();
    let refusal = mounts.legacy.iter().find_map(|(point, _)| may_write(root, point).err());
    Some(if controllers.contains(&Controller::Memory) {
        CgroupHierarchy { version: CgroupVersion::V1, controllers, parent: PathBuf::new(), obstacle: refusal }
    } else {
        CgroupHierarchy::unavailable(refusal.unwrap_or(Obstacle::NotMounted))
    })
}

fn unified(root: &HostRoot) -> CgroupHierarchy {
    let (parent, obstacle) = match unified_parent(root) {
        Ok(parent) => (parent, None),
        Err(obstacle) => return CgroupHierarchy::unavailable(obstacle),
    };
    let directory = Path::new(UNIFIED).join(&parent);
    let list = |file: &str| -> BTreeSet<Controller> {
        let text = root.read_trimmed(directory.join(file)).unwrap_or_default();
        text.split_whitespace().filter_map(Controller::parse).collect()
    };
    let enabled = list("cgroup.subtree_control");
    // Only the real root, which has no cgroup.type, may have processes of its own beside groups with controllers.
    let crowded = root.exists(directory.join("cgroup.type"))
        && root.read_trimmed(directory.join("cgroup.procs")).is_some_and(|processes| !processes.is_empty());
    let available = list("cgroup.controllers");
    let (controllers, obstacle) = if crowded && enabled != available {
        (enabled, Some(Obstacle::InternalProcesses))
    } else {
        (available, obstacle)
    };
    CgroupHierarchy { version: CgroupVersion::V2, controllers, parent, obstacle }
}

/// The topmost group above this process (or its own) that we may write to.
fn unified_parent(root: &HostRoot) -> Result<PathBuf, Obstacle> {
    may_write_group(root, Path::new("")).map(|()| PathBuf::new()).or_else(|refusal| {
        if refusal == Obstacle::ReadOnly {
            return Err(refusal);
        }
        let text = root.read("/proc/self/cgroup").unwrap_or_default();
        let own = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let mut ancestors: Vec<&Path> = Path::new(own).ancestors().collect();
        ancestors.reverse();
        let writable = ancestors.into_iter().find(|group| may_write_group(root, group).is_ok());
        writable.map(Path::to_path_buf).ok_or(refusal)
    })
}

fn may_write_group(root: &HostRoot, group: &Path) -> Result<(), Obstacle> {
    let directory = Path::new(UNIFIED).join(group);
    may_write(root, &directory)?;
    may_write(root, &directory.join("cgroup.procs"))?;
    may_write(root, &directory.join("cgroup.subtree_control"))
}

fn may_write(root: &HostRoot, path: &Path) -> Result<(), Obstacle> {
    match nix::unistd::access(&root.path(path), AccessFlags::W_OK) {
        Ok(()) => Ok(()),
        Err(nix::errno::Errno::EROFS) => Err(Obstacle::ReadOnly),
        Err(_) => Err(Obstacle::NotDelegated),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::host_of;

    const LEGACY: &str = "30 20 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n\
        31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
        34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const UNIFIED_ONLY: &str = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";

    fn with_group<'a>(files: &mut Vec<(String, &'a str)>, group: &str, controllers: &'a str, enabled: &'a str) {
        let directory = format!("/sys/fs/cgroup{group}");
        files.push((format!("{directory}/cgroup.controllers"), controllers));
        files.push((format!("{directory}/cgroup.subtree_control"), enabled));
        files.push((format!("{directory}/cgroup.procs"), ""));
    }

    fn probe(files: &[(String, &str)]) -> (tempfile::TempDir, HostRoot, CgroupHierarchy) {
        let borrowed: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (directory, root) = host_of(&borrowed);
        let hierarchy = CgroupHierarchy::probe(&root);
        (directory, root, hierarchy)
    }

    #[test]
    fn a_hybrid_host_counts_as_version_1() {
        let (_directory, _root, found) = probe(&[
            ("/proc/self/mountinfo".into(), LEGACY),
            ("/sys/fs/cgroup/memory/cgroup.procs".into(), ""),
            ("/sys/fs/cgroup/cpu,cpuacct/cgroup.procs".into(), ""),
            ("/sys/fs/cgroup/pids/cgroup.procs".into(), ""),
            ("/sys/fs/cgroup/unified/cgroup.controllers".into(), "hugetlb"),
        ]);
        assert_eq!(found.version, CgroupVersion::V1);
        assert_eq!(found.missing(), []);
        assert_eq!(found.obstacle, None);
    }

    #[test]
    fn version_2_is_used_if_it_limits_memory() {
        let mut files = vec![("/proc/self/mountinfo".to_owned(), UNIFIED_ONLY)];
        with_group(&mut files, "", "cpuset cpu io memory pids", "memory");
        let (_directory, _root, found) = probe(&files);
        assert_eq!((found.version, found.missing(), found.obstacle), (CgroupVersion::V2, vec![], None));
        assert_eq!(found.parent, Path::new(""));
    }

    #[test]
    fn processes_in_the_parent_leave_only_what_is_switched_on() {
        let mut files = vec![("/proc/self/mountinfo".to_owned(), UNIFIED_ONLY)];
        with_group(&mut files, "", "cpu memory pids", "memory");
        files.retain(|(path, _)| !path.ends_with("cgroup.procs"));
        files.push(("/sys/fs/cgroup/cgroup.procs".into(), "1\n17\n"));
        files.push(("/sys/fs/cgroup/cgroup.type".into(), "domain\n"));
        let (_directory, _root, found) = probe(&files);
        assert_eq!(found.obstacle, Some(Obstacle::InternalProcesses));
        assert_eq!(found.missing(), [Controller::Cpu, Controller::Pids]);
    }

    #[test]
    fn nothing_mounted_is_reported() {
        let (_directory, _root, found) = probe(&[("/proc/self/mountinfo".into(), "")]);
        assert_eq!((found.version, found.obstacle), (CgroupVersion::Unavailable, Some(Obstacle::NotMounted)));
    }

    #[test]
    fn a_user_gets_the_topmost_delegated_group() {
        let mut files = vec![
            ("/proc/self/mountinfo".to_owned(), UNIFIED_ONLY),
            ("/proc/self/cgroup".to_owned(), "0::/user.slice/user@1000.service/app.slice/run-1.scope\n"),
        ];
        let manager = "/user.slice/user@1000.service";
        with_group(&mut files, &format!("{manager}/app.slice/run-1.scope"), "memory pids", "");
        with_group(&mut files, &format!("{manager}/app.slice"), "memory pids", "memory pids");
        with_group(&mut files, manager, "memory pids", "memory pids");
        let (_directory, _root, found) = probe(&files);
        // The root and user.slice have no control files here, which has the same effect as missing permission.
        assert_eq!(found.parent, Path::new("user.slice/user@1000.service"));
        assert_eq!(found.missing(), [Controller::Cpu]);
    }

    #[test]
    fn nothing_delegated_is_reported() {
        let (_directory, _root, found) = probe(&[
            ("/proc/self/mountinfo".into(), UNIFIED_ONLY),
            ("/proc/self/cgroup".into(), "0::/user.slice/session-1.scope\n"),
        ]);
        assert_eq!((found.version, found.obstacle), (CgroupVersion::Unavailable, Some(Obstacle::NotDelegated)));
    }
}
