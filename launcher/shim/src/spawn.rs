//! Starting the two processes of a machine the way a kubelet starts its containers.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use garboard_machine::facts::HostFacts;
use garboard_protocol::launch::{KVM_DEVICE, LOADER_FILES, NOT_BOUND_IN_OWN_ROOT, RESOLVER, SYSTEM_DIRECTORIES};
use garboard_protocol::namespaces::{NamespaceReport, ReportError};
use garboard_shim_client::request::LaunchRequest;
use garboard_shim_client::{logs, program};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// Starts the supervisor; its log is appended to `log`. One of its own user has no network, and nothing of the host's System
/// V and POSIX message queues: what it works with are sockets that have paths, and descriptors that it is handed.
pub(crate) fn supervisor(request: &LaunchRequest, log: &Path) -> anyhow::Result<Child> {
    let mut command = Command::new(program::find(program::SUPERVISOR)?);
    command
        .arg(&request.machine)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(append(log)?);
    if let Some(uid) = request.machine_uid {
        // As root, setting a user also drops every supplementary group.
        command.uid(uid).gid(uid);
    }
    let flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    let flags = if request.machine_uid.is_some() { flags } else { CloneFlags::empty() };
    start_apart(command, None, flags).context("start the supervisor")
}

/// Starts a command in this network namespace, if one is given, and in new namespaces of these kinds. setns(2) and
/// unshare(2) act on the calling thread only, and what it starts inherits them: a thread of its own keeps the shim where
/// it is.
fn start_apart(mut command: Command, netns: Option<OwnedFd>, flags: CloneFlags) -> anyhow::Result<Child> {
    let thread = std::thread::Builder::new().spawn(move || -> anyhow::Result<Child> {
        if let Some(netns) = netns {
            setns(netns.as_fd(), CloneFlags::CLONE_NEWNET).context("enter the machine's network namespace")?;
        }
        if !flags.is_empty() {
            unshare(flags).context("make namespaces")?;
        }
        command.spawn().context("execute it")
    });
    thread.context("start a thread")?.join().map_err(|_| anyhow::anyhow!("the thread that starts it died"))?
}

/// What keeps PID 1 apart from the host.
pub(crate) enum InitIsolation {
    /// Namespaces that the shim makes, this one for the network.
    Shim(OwnedFd),
    /// Namespaces that PID 1 makes in a user namespace of its own.
    UserNamespace,
    /// None: only what QEMU's own process is denied.
    Nothing,
}

/// Starts PID 1. It waits until its standard input is closed, so that it can be put into its cgroup first. With
/// [`InitIsolation::UserNamespace`] the process that is returned is not PID 1 yet: [`adopt`] waits for that.
pub(crate) fn init(request: &LaunchRequest, apart: InitIsolation, log: &Path) -> anyhow::Result<Child> {
    let facts = &request.facts;
    let mut command = Command::new(program::find(program::INIT)?);
    command
        .arg(request.layout().init())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(append(log)?);
    let netns = match apart {
        InitIsolation::Nothing => return command.spawn().context("start PID 1"),
        InitIsolation::UserNamespace => {
            own_root(command.arg("--user-namespace").stdout(Stdio::piped()), facts);
            return command.spawn().context("start PID 1");
        }
        InitIsolation::Shim(netns) => netns,
    };
    own_root(command.arg("--own-root"), facts);
    if let Some(uid) = request.machine_uid {
        command.args(["--device-owner", &uid.to_string()]);
    }
    let flags =
        CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    start_apart(command, Some(netns), flags).context("start PID 1")
}

fn own_root<'a>(command: &'a mut Command, facts: &HostFacts) -> &'a mut Command {
    for path in readable_paths(facts) {
        command.arg("--readable").arg(path);
    }
    command.args(["--device", KVM_DEVICE])
}

/// Waits until PID 1 is in its user namespace. `Err` in the answer is the kernel's refusal; then there is no process.
pub(crate) fn adopt(mut child: Child) -> anyhow::Result<Result<Pid, String>> {
    let mut report = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut report).context("read what PID 1 reports")?;
    }
    // Only once its parent is gone is PID 1 ours.
    child.wait().context("wait for the parent of PID 1")?;
    match outcome(&report)? {
        Outcome::Ready(pid) => Ok(Ok(pid)),
        Outcome::Refused { why, pid } => {
            if let Some(pid) = pid {
                let _ = waitpid(pid, None);
            }
            Ok(Err(why))
        }
    }
}

/// What became of a PID 1 that made its namespaces.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It is there.
    Ready(Pid),
    /// The kernel refused, and the process, if it was born, has ended.
    Refused { why: String, pid: Option<Pid> },
}

/// What its reports come to. A later PID 1 may have more of them, which are not needed.
fn outcome(report: &str) -> anyhow::Result<Outcome> {
    let (mut pid, mut is_ready) = (None, false);
    for line in report.lines() {
        match line.parse::<NamespaceReport>() {
            Ok(NamespaceReport::Pid(number)) => pid = Some(Pid::from_raw(number)),
            Ok(NamespaceReport::Ready) => is_ready = true,
            Ok(NamespaceReport::Refused(why)) => return Ok(Outcome::Refused { why, pid }),
            Err(ReportError::Unknown { line }) => {
                tracing::warn!(line, "PID 1 reports what this version of the shim does not know; ignored");
            }
            Err(error @ ReportError::NoProcess { .. }) => return Err(error.into()),
        }
    }
    match pid {
        Some(pid) if is_ready => Ok(Outcome::Ready(pid)),
        _ => anyhow::bail!("PID 1 ended without a report while it made its namespaces"),
    }
}

/// What QEMU must be able to read: itself, its libraries, modules and firmware.
pub(crate) fn readable_paths(facts: &HostFacts) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = LOADER_FILES.iter().map(PathBuf::from).collect();
    if !facts.network.tap {
        paths.push(RESOLVER.into());
    }
    let system: Vec<_> = SYSTEM_DIRECTORIES.into_iter().filter(|path| !NOT_BOUND_IN_OWN_ROOT.contains(path)).collect();
    let binary = PathBuf::from(&facts.qemu.binary);
    let others = binary.parent().map(Path::to_owned).into_iter();
    let others = others.chain(facts.qemu.firmware_dirs.iter().map(PathBuf::from));
    let others = others.chain(facts.qemu.module_dir.iter().map(PathBuf::from));
    paths.extend(others.filter(|path| !system.iter().any(|each| path.starts_with(each))));
    paths.extend(system.iter().map(PathBuf::from));
    paths.sort();
    paths.dedup();
    paths
}

fn append(path: &Path) -> anyhow::Result<File> {
    logs::append().create(true).open(path).with_context(|| format!("open {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_a_later_pid_1_are_ignored() {
        let pid = Pid::from_raw(7);
        assert_eq!(outcome("pid 7\nready\n").unwrap(), Outcome::Ready(pid));
        assert_eq!(outcome("version 9\nready\ncgroup /x\npid 7 of 9\n").unwrap(), Outcome::Ready(pid));
        let refused = Outcome::Refused { why: "no".to_owned(), pid: Some(pid) };
        assert_eq!(outcome("pid 7\nversion 9\nrefused no\n").unwrap(), refused);
        for without in ["", "version 9\n", "pid 7\nversion 9\n", "ready\n", "pid x\nready\n"] {
            assert!(outcome(without).is_err(), "{without:?}");
        }
    }
}
