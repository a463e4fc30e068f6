//! The two processes of a machine as children of the shim: started, asked to end, waited for.

use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::Context;
use garboard_protocol::paths::Layout;
use garboard_shim_client::calls;
use garboard_shim_client::request::LaunchRequest;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::resources::HostResources;
use crate::run_journal;
use crate::spawn::{self, InitIsolation};

/// How long the supervisor may take to report how the run ended.
const FAREWELL: Duration = Duration::from_secs(5);

pub(crate) fn start_supervisor(request: &LaunchRequest, resources: &HostResources, log: &Path) -> anyhow::Result<Pid> {
    let supervisor = pid(spawn::supervisor(request, log)?.id())?;
    resources.confine_supervisor(supervisor);
    Ok(supervisor)
}

/// The guest runs on without one: where none can be started it is tried again.
pub(crate) fn next_supervisor(request: &LaunchRequest, resources: &HostResources, log: &Path) -> Option<Pid> {
    start_supervisor(request, resources, log)
        .inspect_err(|error| tracing::error!(error = format!("{error:#}"), "the supervisor could not be started"))
        .ok()
}

pub(crate) fn start_init(request: &LaunchRequest, resources: &HostResources, log: &Path) -> anyhow::Result<Pid> {
    if let Some(netns) = resources.namespace()? {
        return pid(start_init_apart(request, resources, InitIsolation::Shim(netns), log)?.id());
    }
    // A user's PID 1 becomes our child when the process that made its namespaces leaves.
    nix::sys::prctl::set_child_subreaper(true).context("prepare to adopt PID 1")?;
    match spawn::adopt(start_init_apart(request, resources, InitIsolation::UserNamespace, log)?)? {
        Ok(init) => Ok(init),
        Err(why) => {
            tracing::warn!(why, "the machine runs without namespaces of its own");
            pid(start_init_apart(request, resources, InitIsolation::Nothing, log)?.id())
        }
    }
}

fn start_init_apart(
    request: &LaunchRequest,
    resources: &HostResources,
    apart: InitIsolation,
    log: &Path,
) -> anyhow::Result<Child> {
    let child = spawn::init(request, apart, log)?;
    let confined = pid(child.id()).and_then(|init| resources.confine(init));
    let mut child = ended_unless(confined, child)?;
    // Closing its standard input lets PID 1 go on.
    drop(child.stdin.take());
    Ok(child)
}

/// A process that waits for its standard input to be closed would continue if it were only dropped.
fn ended_unless(outcome: anyhow::Result<()>, mut child: Child) -> anyhow::Result<Child> {
    let Err(error) = outcome else { return Ok(child) };
    child.kill().and_then(|()| child.wait()).context("end PID 1, which has no limits")?;
    Err(error)
}

/// PID 1 inside a PID namespace ignores signals it has no handler for; SIGTERM it handles.
pub(crate) fn ask_to_terminate(init: Pid) {
    let _ = kill(init, Signal::SIGTERM);
}

/// PID 1 is gone: the supervisor learns how, reports the end to all its clients, and then it may go.
pub(crate) async fn end_supervisor(supervisor: Option<Pid>, layout: &Layout) {
    let Some(supervisor) = supervisor.filter(|supervisor| !has_ended(*supervisor)) else { return };
    let deadline = Instant::now() + FAREWELL;
    while Instant::now() < deadline && !is_end_written(layout) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if has_ended(supervisor) {
            return;
        }
    }
    let _ = kill(supervisor, Signal::SIGTERM);
    while !has_ended(supervisor) {
        if Instant::now() > deadline + FAREWELL {
            let _ = kill(supervisor, Signal::SIGKILL);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether the journal holds the end.
fn is_end_written(layout: &Layout) -> bool {
    matches!(run_journal::read(layout), Ok(Some(journal)) if journal.ended.is_some())
}

/// Reports to the command, once, that both processes run: it reads until the end of the pipe.
pub(crate) fn report_started() {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{}", calls::STARTED);
    let _ = out.flush();
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(null);
    }
}

pub(crate) fn has_ended(process: Pid) -> bool {
    match waitpid(process, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(_) => true,
        Ok(
            WaitStatus::StillAlive
            | WaitStatus::Stopped(..)
            | WaitStatus::PtraceEvent(..)
            | WaitStatus::PtraceSyscall(_)
            | WaitStatus::Continued(_),
        ) => false,
    }
}

fn pid(id: u32) -> anyhow::Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(id).context("a process ID is out of range")?))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_pid_1_without_its_limits_does_not_go_on() {
        let room = tempfile::tempdir().unwrap();
        let went_on = room.path().join("went on");
        let waiting = || {
            let mut command = Command::new("sh");
            command.args(["-c", "read line; touch \"$0\""]).arg(&went_on).stdin(Stdio::piped()).spawn().unwrap()
        };
        let child = waiting();
        let process = Pid::from_raw(i32::try_from(child.id()).unwrap());
        assert!(ended_unless(Err(anyhow::anyhow!("no such group")), child).is_err());
        assert_eq!(kill(process, None), Err(nix::errno::Errno::ESRCH), "it is gone, not only asked to go");
        assert!(!went_on.exists());
        let mut child = ended_unless(Ok(()), waiting()).unwrap();
        assert!(child.wait().unwrap().success() && went_on.exists());
    }
}
