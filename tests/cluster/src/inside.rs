//! What this program does on behalf of others: it starts a daemon, or it is a node's first process. Users do not type these
//! commands.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{sethostname, setsid};

use crate::cgroups::Cgroups;
use crate::error::{Error, Result};
use crate::files::{at, ensure_directory, write};
use crate::layout::{Layout, NodeNumber};
use crate::node::KERNEL_SETTINGS;

/// A program to start in the background.
#[derive(Debug)]
pub struct Daemon {
    /// Its control group, which is there.
    pub group: String,
    /// Where its output goes; appended to.
    pub log: PathBuf,
    /// First on its path.
    pub programs: PathBuf,
    /// Program and arguments.
    pub command: Vec<OsString>,
}

impl Daemon {
    /// Moves into the group, leaves the session, starts the program and is done: the first process here adopts it.
    ///
    /// # Errors
    /// There is no such group or program.
    pub fn start(&self) -> Result<()> {
        Cgroups::of_this_machine()?.join(&self.group)?;
        setsid().map_err(|source| Error::Kernel { action: "leave the session".to_owned(), source })?;
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Error::Refused("there is no program to start".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/").env_clear();
        command.env("PATH", search_path(&self.programs)).env("HOME", "/root");
        let log = open_log(&self.log)?;
        let errors = at("use", &self.log, log.try_clone())?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let shown = program.to_string_lossy().into_owned();
        command.spawn().map(drop).map_err(|source| Error::Start { command: shown, source })
    }
}

/// Where daemons, and what they start, look for programs.
pub fn search_path(programs: &Path) -> String {
    format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", programs.display())
}

fn open_log(path: &Path) -> Result<File> {
    if let Some(parent) = path.parent() {
        ensure_directory(parent)?;
    }
    at("open", path, OpenOptions::new().append(true).create(true).open(path))
}

/// Makes a node of fresh namespaces, creates the file `ready`, and then reaps processes for ever.
///
/// # Errors
/// Something could not be mounted.
pub fn be_first(layout: &Layout, node: NodeNumber) -> Result<()> {
    sethostname(node.to_string()).map_err(|source| Error::Kernel { action: "set the host name".to_owned(), source })?;
    mount_at("proc", "/proc", Some("proc"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC)?;
    show_identity(layout, node)?;
    // Before /run and /var/lib go, for both may hold what is mounted.
    mount_run(layout, node)?;
    bind(&layout.node_bulk(node, "log"), "/var/log")?;
    bind(&layout.node_bulk(node, "lib"), "/var/lib")?;
    // Volumes that a container mounts are visible on the node, and not outside of it.
    mount_at("none", "/", None, MsFlags::MS_REC | MsFlags::MS_SHARED)?;
    let forward = Path::new("/proc/sys/net/ipv4/ip_forward");
    at("write", forward, std::fs::write(forward, "1"))?;
    write(&layout.node_file(node, "ready"), "")?;
    reap_for_ever()
}

/// What makes this node another than the machine it is on.
fn show_identity(layout: &Layout, node: NodeNumber) -> Result<()> {
    for setting in KERNEL_SETTINGS {
        bind(&layout.node_file(node, "kernel").join(setting), &format!("/proc/sys/{setting}"))?;
    }
    bind(&layout.node_file(node, "boot-id"), "/proc/sys/kernel/random/boot_id")?;
    if Path::new("/etc/machine-id").exists() {
        bind(&layout.node_file(node, "machine-id"), "/etc/machine-id")?;
    }
    Ok(())
}

/// An own /run in which the cluster's state is where it was.
fn mount_run(layout: &Layout, node: NodeNumber) -> Result<()> {
    let run = layout.node_bulk(node, "run");
    let shown = run.display().to_string();
    mount_at("tmpfs", &shown, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV)?;
    if let (true, Ok(below)) = (layout.state_is_below_run(), layout.state.strip_prefix("/run")) {
        let place = run.join(below);
        ensure_directory(&place)?;
        bind(&layout.state, &place.display().to_string())?;
    }
    bind(&run, "/run")
}

fn bind(source: &Path, target: &str) -> Result<()> {
    mount_at(&source.display().to_string(), target, None, MsFlags::MS_BIND | MsFlags::MS_REC)
}

fn mount_at(source: &str, target: &str, kind: Option<&str>, flags: MsFlags) -> Result<()> {
    let options = (kind == Some("tmpfs")).then_some("mode=755");
    let failed = |error| Error::Kernel { action: format!("mount {source} on {target}"), source: error };
    mount(Some(source), target, kind, flags, options).map_err(failed)
}

/// Reaps processes that end, and ends itself only by SIGKILL: it ignores SIGTERM as the first process of its namespace.
fn reap_for_ever() -> Result<()> {
    let mut awaited = SigSet::empty();
    awaited.add(Signal::SIGCHLD);
    let failed = |action: &str| {
        let action = action.to_owned();
        move |source| Error::Kernel { action, source }
    };
    awaited.thread_block().map_err(failed("block SIGCHLD"))?;
    loop {
        while !matches!(
            waitpid(None::<nix::unistd::Pid>, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD)
        ) {}
        awaited.wait().map_err(failed("wait for SIGCHLD"))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_programs_come_first() {
        assert!(search_path(Path::new("/opt/programs")).starts_with("/opt/programs:/"));
    }
}
