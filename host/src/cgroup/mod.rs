//! Control groups: what a machine's processes may use, and what they did use.
//!
//! [`CgroupHierarchy`] observes; [`Cgroup`] acts, through the crate cgroups-rs. Its types stay in here.
//!
//! ```text
//! version 2   /sys/fs/cgroup/<parent>/garboard/<name>
//! version 1   /sys/fs/cgroup/{cpu,memory,pids}/garboard/<name>
//! ```
//!
//! A group is found again by its name after a crash of its creator. Creating one that exists sets its limits anew;
//! removing one that does not exist is fine.
//!
//! What cgroups-rs does not do for us: its `Resources` drop errors of the memory controller on the floor, so limits are
//! set one by one; it does not count kills in version 2, so the counters are read here; it has no function for processes
//! left behind.

mod leftover;
mod limits;
mod usage;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cgroups_rs::CgroupPid;
use cgroups_rs::fs::hierarchies::{V1, V2};
use cgroups_rs::fs::{Hierarchy, MaxValue, cpu::CpuController, memory::MemController, pid::PidController};
use garboard_machine::facts::CgroupVersion;

pub use crate::cgroup_hierarchy::{CgroupHierarchy, Controller, Obstacle};
pub use limits::{CgroupLimits, CpuQuota};
pub use usage::Usage;

use crate::root::HostRoot;

/// The group that holds all of ours.
const OURS: &str = "garboard";

/// How long leftovers have to end: one that was killed still needs a processor to end on, and gives its memory back first.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Times making a group is tried: the removal of our last group also removes the one that holds them all,
/// maybe just now.
const ATTEMPTS: u32 = 3;

/// A group could not be made, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// Nothing to make groups in.
    #[error("control groups cannot be used here ({obstacle:?}); `garboard doctor` names the remedy")]
    Unavailable {
        /// The obstacle.
        obstacle: Option<Obstacle>,
    },
    /// A name that could leave our directory or that the kernel reserves.
    #[error(
        "`{name}` is not a name of a control group: write lower-case letters, digits, `-`, `_` and `.`, not `.` first"
    )]
    Name {
        /// What was asked for.
        name: String,
    },
    /// cgroups-rs could not do something.
    #[error("could not {step} of control group `{name}`")]
    Step {
        /// What was being done, as the end of "could not …".
        step: &'static str,
        /// The group.
        name: String,
        /// Why.
        #[source]
        source: cgroups_rs::fs::error::Error,
    },
    /// A file of the group could not be read.
    #[error("could not read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Processes would not end.
    #[error("control group `{name}` still has processes {pids:?} {limit:?} after SIGKILL")]
    StillPopulated {
        /// The group.
        name: String,
        /// Their numbers.
        pids: Vec<u32>,
        /// How long was tried.
        limit: Duration,
    },
}

/// One machine's control group. Dropping the value leaves the group: only [`Cgroup::remove`] ends it.
#[derive(Debug)]
pub struct Cgroup {
    name: String,
    group: cgroups_rs::fs::Cgroup,
    hierarchy: CgroupHierarchy,
    not_enforced: Vec<Controller>,
}

impl Cgroup {
    /// Makes the group `name`, or takes the one that exists, and sets its limits.
    ///
    /// # Errors
    /// No usable hierarchy, a bad name, or the kernel refuses.
    pub fn create(name: &str, limits: &CgroupLimits) -> Result<Self, CgroupError> {
        let mut cgroup = Self::named(name, CgroupHierarchy::probe(&HostRoot::real()))?;
        let mut tried = 0;
        loop {
            tried += 1;
            let made = cgroup.group.create().map_err(cgroup.failed("make the directories"));
            match made.and_then(|()| cgroup.set(limits)) {
                Ok(()) => return Ok(cgroup),
                Err(error) if tried == ATTEMPTS => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// The group `name` if it exists: after a crash of its creator.
    ///
    /// # Errors
    /// A bad name. A host without control groups has no group, which is not an error.
    pub fn find(name: &str) -> Result<Option<Self>, CgroupError> {
        match Self::named(name, CgroupHierarchy::probe(&HostRoot::real())) {
            Ok(cgroup) => Ok(cgroup.group.exists().then_some(cgroup)),
            Err(CgroupError::Unavailable { .. }) => {
                check_name(name)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Names of all groups of ours, sorted.
    #[must_use]
    pub fn list() -> Vec<String> {
        let hierarchy = CgroupHierarchy::probe(&HostRoot::real());
        let Some(kind) = kind_of(&hierarchy) else { return Vec::new() };
        let Some(directory) = directory_of(kind.as_ref(), Controller::Memory, &hierarchy.parent.join(OURS)) else {
            return Vec::new();
        };
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    fn named(name: &str, hierarchy: CgroupHierarchy) -> Result<Self, CgroupError> {
        check_name(name)?;
        let kind = kind_of(&hierarchy).ok_or(CgroupError::Unavailable { obstacle: hierarchy.obstacle })?;
        let path = hierarchy.parent.join(OURS).join(name);
        let controllers = hierarchy.controllers.iter().map(|each| each.as_str().to_owned()).collect();
        let group = cgroups_rs::fs::Cgroup::load_with_specified_controllers(kind, path, controllers);
        Ok(Self { name: name.to_owned(), group, hierarchy, not_enforced: Vec::new() })
    }

    fn failed(&self, step: &'static str) -> impl Fn(cgroups_rs::fs::error::Error) -> CgroupError + use<> {
        let name = self.name.clone();
        move |source| CgroupError::Step { step, name: name.clone(), source }
    }

    fn set(&mut self, limits: &CgroupLimits) -> Result<(), CgroupError> {
        self.not_enforced.clear();
        let wanted = [
            (Controller::Cpu, limits.cpu_quota.is_some() || limits.cpu_shares.is_some()),
            (Controller::Memory, limits.memory_bytes.is_some()),
            (Controller::Pids, limits.pids.is_some()),
        ];
        for (controller, asked) in wanted {
            if asked && !self.hierarchy.controllers.contains(&controller) {
                self.not_enforced.push(controller);
            }
        }
        self.set_memory(limits)?;
        self.set_cpu(limits)?;
        if let (Some(pids), Some(count)) = (self.group.controller_of::<PidController>(), limits.pids) {
            pids.set_pid_max(MaxValue::Value(i64::from(count))).map_err(self.failed("limit the processes"))?;
        }
        Ok(())
    }

    fn set_memory(&self, limits: &CgroupLimits) -> Result<(), CgroupError> {
        let (Some(memory), Some(bytes)) = (self.group.controller_of::<MemController>(), limits.memory_bytes) else {
            return Ok(());
        };
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        // Version 1 refuses a limit above that of memory and swap together, which a group made anew does not have and
        // an existing one has from last time: lift it first.
        if !memory_is_v2(memory) {
            let _ = memory.set_memswap_limit(-1);
        }
        memory.set_limit(bytes).map_err(self.failed("limit the memory"))?;
        let swap = if memory_is_v2(memory) { 0 } else { bytes };
        // The file is missing where the kernel does not count swap; then there is nothing to forbid.
        if let Err(error) = memory.set_memswap_limit(swap) {
            tracing::debug!(name = self.name, %error, "swap of the control group is not limited");
        }
        Ok(())
    }

    fn set_cpu(&self, limits: &CgroupLimits) -> Result<(), CgroupError> {
        let Some(cpu) = self.group.controller_of::<CpuController>() else { return Ok(()) };
        if let Some(CpuQuota { quota_us, period_us }) = limits.cpu_quota {
            let failed = self.failed("limit the CPU time");
            cpu.set_cfs_period(period_us).map_err(&failed)?;
            cpu.set_cfs_quota(i64::try_from(quota_us).unwrap_or(i64::MAX)).map_err(&failed)?;
        }
        if let Some(shares) = limits.cpu_shares {
            let value = if self.group.v2() { limits::weight_of_shares(shares) } else { shares };
            cpu.set_shares(value).map_err(self.failed("set the CPU shares"))?;
        }
        Ok(())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Controllers that limits were asked of and that this host does not have for us: the caller warns.
    #[must_use]
    pub fn not_enforced(&self) -> &[Controller] {
        &self.not_enforced
    }

    /// Moves a process with all its threads into the group. What it starts afterwards is born there; what it started
    /// before stays where it is.
    ///
    /// # Errors
    /// There is no such process, or we may not move it.
    pub fn add(&self, pid: u32) -> Result<(), CgroupError> {
        self.group.add_task_by_tgid(CgroupPid::from(u64::from(pid))).map_err(self.failed("move a process into"))
    }

    /// Processes in the group, sorted. One that has ended is no longer there, even if no process waited for it.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.group.procs().into_iter().filter_map(|process| u32::try_from(process.pid).ok()).collect()
    }

    /// What the group used and how often it hit a limit. Read it before [`Cgroup::remove`].
    ///
    /// # Errors
    /// The group is gone.
    pub fn usage(&self) -> Result<Usage, CgroupError> {
        let memory = self.group.controller_of::<MemController>().map(directory);
        let pids = self.group.controller_of::<PidController>().map(directory);
        Usage::read(memory.as_deref(), pids.as_deref())
            .map_err(|error| CgroupError::Read { path: error.path, source: error.source })
    }

    /// The directory of a controller: for a process that must write into a file of the group while it still has the right to.
    #[must_use]
    pub fn directory(&self, controller: Controller) -> Option<PathBuf> {
        match controller {
            Controller::Cpu => self.group.controller_of::<CpuController>().map(directory),
            Controller::Memory => self.group.controller_of::<MemController>().map(directory),
            Controller::Pids => self.group.controller_of::<PidController>().map(directory),
        }
    }

    /// Ends whatever is left in the group and removes it. A group that is gone already is fine. Blocks, usually for a
    /// few milliseconds, at most twice twenty seconds.
    ///
    /// # Errors
    /// Processes that will not end, or the kernel refuses.
    pub fn remove(self) -> Result<(), CgroupError> {
        let left = leftover::end_all(|| self.processes(), END_LIMIT);
        if !left.is_empty() {
            return Err(CgroupError::StillPopulated { name: self.name, pids: left, limit: END_LIMIT });
        }
        if self.group.exists() {
            self.delete().map_err(self.failed("remove the directories"))?;
        }
        for directory in Controller::ALL.into_iter().filter_map(|controller| self.directory(controller)) {
            // The group that holds all of ours; it stays as long as there are others in it.
            let _ = directory.parent().map(fs::remove_dir);
        }
        Ok(())
    }

    /// The kernel lets a group go only once its last process has quite ended, a moment after it was seen to. (For version 1
    /// cgroups-rs waits by itself, for a sixth of a second: on a busy host a process may need longer to be given a processor.)
    fn delete(&self) -> Result<(), cgroups_rs::fs::error::Error> {
        let events = self.directory(Controller::Memory).map(|directory| directory.join("cgroup.events"));
        let deadline = Instant::now() + END_LIMIT;
        loop {
            match self.group.delete() {
                Err(_) if self.group.exists() && Instant::now() < deadline => {
                    events.as_deref().map(leftover::wait_for_change);
                }
                other => return other,
            }
        }
    }
}

/// Removes the group `name` if there is one: cleaning up after a crash.
///
/// # Errors
/// As [`Cgroup::find`] and [`Cgroup::remove`].
pub fn remove(name: &str) -> Result<(), CgroupError> {
    Cgroup::find(name)?.map_or(Ok(()), Cgroup::remove)
}

fn check_name(name: &str) -> Result<(), CgroupError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > 200 || name.starts_with('.') || !name.bytes().all(allowed) {
        return Err(CgroupError::Name { name: name.to_owned() });
    }
    Ok(())
}

fn kind_of(hierarchy: &CgroupHierarchy) -> Option<Box<dyn Hierarchy>> {
    match hierarchy.version {
        CgroupVersion::V1 => Some(Box::new(V1::new())),
        CgroupVersion::V2 => Some(Box::new(V2::new())),
        CgroupVersion::Unavailable => None,
    }
}

fn directory_of(kind: &dyn Hierarchy, controller: Controller, group: &Path) -> Option<PathBuf> {
    let subsystems = kind.subsystems();
    let subsystem = subsystems.iter().find(|each| each.controller_name() == controller.as_str())?;
    Some(subsystem.to_controller().path().join(group))
}

fn directory(controller: &impl cgroups_rs::fs::Controller) -> PathBuf {
    controller.path().to_path_buf()
}

fn memory_is_v2(memory: &MemController) -> bool {
    use cgroups_rs::fs::Controller;
    memory.v2()
}

#[cfg(test)]
mod tests;
