//! The way to a supervisor in a pod: `kubectl exec` with a socket for its standard input and output, so that everything that
//! talks to a supervisor on this host talks to one in a pod.
//!
//! ```text
//!   we ═ socket pair ═ kubectl exec ═ API server ═ kubelet ═ garboard-launcher --connect ═ control.sock ═ supervisor
//! ```

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use garboard_protocol::pod::LAUNCHER_PROGRAM;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::failure::Failure;
use super::find::{CONTAINER, Place};
use super::kubectl::Kubectl;
use crate::client::Line;
use crate::exit::{Complaint, complaint};

/// The API server, the kubelet and a container runtime take their time before the supervisor is asked.
const PATIENCE: Duration = Duration::from_secs(60);
/// What kubectl may take to leave when nobody needs it any more.
const FAREWELL: Duration = Duration::from_secs(2);
/// Of what kubectl complains, this much is kept.
const COMPLAINT_BYTES: u64 = 64 * 1024;

/// An open way.
pub(super) struct Link {
    /// To be talked over.
    pub(super) line: Line,
    child: Child,
    complaints: Option<JoinHandle<String>>,
}

impl Link {
    /// Opens the way to a machine's supervisor. Whether it leads anywhere shows with the first answer.
    pub(super) fn open(kubectl: &Kubectl, place: &Place) -> anyhow::Result<Self> {
        let (ours, theirs) = UnixStream::pair().context("make a pair of sockets")?;
        let theirs = OwnedFd::from(theirs);
        let mut command = kubectl.within(&place.namespace).command(&["exec", "-i", &place.pod, "-c", CONTAINER]);
        command.args(["--", LAUNCHER_PROGRAM, "--connect"]);
        command.stdin(Stdio::from(theirs.try_clone()?)).stdout(Stdio::from(theirs)).stderr(Stdio::piped());
        out_of_our_terminal(&mut command);
        let claimed_user = kubectl.who_am_i();
        let mut child = command.spawn().map_err(|error| Complaint::from(kubectl.missing(&error)))?;
        let complaints = child.stderr.take().map(|pipe| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = pipe.take(COMPLAINT_BYTES).read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        });
        drop(command);
        ours.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            line: Line { stream: ours, machine: place.machine.clone(), claimed_user, may_half_close: false },
            child,
            complaints,
        })
    }

    /// Ends the way. An error of the talk is replaced by the way's own, if it was the way that failed.
    pub(super) fn close<T>(mut self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        let _ = self.line.stream.shutdown(std::net::Shutdown::Both);
        let left_by_itself = self.wait(FAREWELL);
        if !left_by_itself {
            if let Ok(pid) = i32::try_from(self.child.id()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
            let _ = self.child.wait();
        }
        let complaint_of_kubectl = self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        match outcome {
            // The supervisor has answered, so it was not the way.
            Err(error) if error.downcast_ref::<Complaint>().is_some() => Err(error),
            Err(_) if left_by_itself && !complaint_of_kubectl.trim().is_empty() => {
                let failure = Failure::of(&complaint_of_kubectl);
                Err(complaint(failure.code(), failure.to_string()))
            }
            other => other,
        }
    }

    /// What ended the way, if it was not the other end.
    pub(super) fn broken(&mut self) -> Option<Failure> {
        if !self.wait(FAREWELL) {
            return None;
        }
        let succeeded = self.child.try_wait().ok().flatten().is_some_and(|status| status.success());
        if succeeded {
            return None;
        }
        let text = self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let failure = Failure::of(&text);
        Some(if let Failure::Other(text) = failure { Failure::Lost(text) } else { failure })
    }

    /// Whether kubectl has left within this time.
    fn wait(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(_)) | Err(_) => return true,
                Ok(None) if Instant::now() >= deadline => return false,
                Ok(None) => garboard_shim_client::pause_briefly(),
            }
        }
    }
}

/// Ctrl-C and Ctrl-Z at our terminal are the guest's, or ours; kubectl is not to hear of them.
fn out_of_our_terminal(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}
