//! The way to a supervisor in a pod: `kubectl exec`, whose standard input and output are the connection, so that everything
//! that connects to a supervisor on this host connects to one in a pod.
//!
//! ```text
//!   plugin ═ pipes ═ kubectl exec ═ API server ═ kubelet ═ garboard-launcher --connect ═ control.sock ═ supervisor
//! ```

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use garboard_protocol::pod::LAUNCHER_PROGRAM;

use crate::exit::{ExitError, exit_error};
use crate::failure::Failure;
use crate::find::{CONTAINER, Place};
use crate::kubectl::Kubectl;
use crate::line::{Incoming, Line};
use crate::pause;

/// The API server, the kubelet and a container runtime need time before the supervisor is asked.
const PATIENCE: Duration = Duration::from_secs(60);
/// What kubectl may take to end once its connection is closed.
const FAREWELL: Duration = Duration::from_secs(2);
/// Of what kubectl writes to standard error, this much is kept.
const STDERR_BYTES: u64 = 64 * 1024;

/// An open way.
pub(crate) struct Link {
    /// The line to the supervisor. The way ends with it.
    pub(crate) line: Line,
    /// What carries it.
    pub(crate) exec: Exec,
}

/// The `kubectl exec` that carries a connection.
pub(crate) struct Exec {
    child: Child,
    /// What kubectl wrote to standard error, once all processes that have it have ended: a credential plugin may outlive kubectl.
    stderr: Option<Receiver<String>>,
}

impl Link {
    /// Opens the way to a machine's supervisor. Whether it leads anywhere shows with the first answer.
    pub(crate) fn open(kubectl: &Kubectl, place: &Place) -> anyhow::Result<Self> {
        let mut command = kubectl.within(&place.namespace).command(&["exec", "-i", &place.pod, "-c", CONTAINER]);
        command.args(["--", LAUNCHER_PROGRAM, "--connect"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        out_of_our_terminal(&mut command);
        let claimed_user = kubectl.who_am_i();
        let mut child = command.spawn().map_err(|error| ExitError::from(kubectl.missing(&error)))?;
        let outgoing = child.stdin.take().context("kubectl has no standard input")?;
        let mut incoming = Incoming::of(child.stdout.take().context("kubectl has no standard output")?);
        incoming.set_patience(Some(PATIENCE));
        let line = Line { incoming, outgoing: Box::new(outgoing), machine: place.machine.clone(), claimed_user };
        Ok(Self { line, exec: Exec::of(child) })
    }
}

impl Exec {
    /// Of a kubectl that was started; its standard error is read meanwhile.
    fn of(mut child: Child) -> Self {
        let stderr = child.stderr.take().map(|pipe| {
            let (sender, stderr) = channel();
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = pipe.take(STDERR_BYTES).read_to_end(&mut bytes);
                sender.send(String::from_utf8_lossy(&bytes).into_owned())
            });
            stderr
        });
        Self { child, stderr }
    }

    /// Ends the way, whose line is gone. An error of the exchange is replaced by kubectl's own, if it was kubectl that failed.
    pub(crate) fn close<T>(mut self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        let ended_by_itself = self.wait(FAREWELL);
        if !ended_by_itself {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let of_kubectl = self.stderr();
        match outcome {
            // The supervisor has answered, so it was not the way.
            Err(error) if error.downcast_ref::<ExitError>().is_some() => Err(error),
            Err(_) if ended_by_itself && !of_kubectl.trim().is_empty() => {
                let failure = Failure::of(&of_kubectl);
                Err(exit_error(failure.code(), failure.to_string()))
            }
            other => other,
        }
    }

    /// What ended the way, if it was not the other end.
    pub(crate) fn broken(&mut self) -> Option<Failure> {
        if !self.wait(FAREWELL) {
            return None;
        }
        let succeeded = self.child.try_wait().ok().flatten().is_some_and(|status| status.success());
        if succeeded {
            return None;
        }
        let failure = Failure::of(&self.stderr());
        Some(if let Failure::Other(text) = failure { Failure::Lost(text) } else { failure })
    }

    fn stderr(&mut self) -> String {
        self.stderr.take().and_then(|stderr| stderr.recv_timeout(FAREWELL).ok()).unwrap_or_default()
    }

    /// Whether kubectl has ended within this time.
    fn wait(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(_)) | Err(_) => return true,
                Ok(None) if Instant::now() >= deadline => return false,
                Ok(None) => pause::briefly(),
            }
        }
    }
}

/// Ctrl-C and Ctrl-Z at this terminal are the guest's, or the plugin's, and never kubectl's.
#[cfg(unix)]
fn out_of_our_terminal(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

/// Ctrl-C at this console is the guest's, or the plugin's, and never kubectl's.
#[cfg(windows)]
fn out_of_our_terminal(command: &mut Command) {
    use std::os::windows::process::CommandExt;
    const CREATE_NEW_PROCESS_GROUP: u32 = 0x0000_0200;
    command.creation_flags(CREATE_NEW_PROCESS_GROUP);
}

#[cfg(not(any(unix, windows)))]
fn out_of_our_terminal(_: &mut Command) {}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    /// Longer than the way waits for anything, shorter than what would hold its end.
    const LIMIT: Duration = Duration::from_secs(120);

    fn kubectl(script: &str) -> Child {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    #[test]
    fn a_credential_plugin_that_keeps_standard_error_open_does_not_hold_the_end() {
        let mut child = kubectl("sleep 1000 >/dev/null & echo $!");
        let mut plugin = String::new();
        child.stdout.take().unwrap().read_to_string(&mut plugin).unwrap();
        let begun = Instant::now();
        let closed = Exec::of(child).close(Ok(()));
        let took = begun.elapsed();
        assert!(Command::new("kill").arg(plugin.trim()).status().unwrap().success(), "the plugin had ended already");
        assert!(closed.is_ok() && took < LIMIT, "{closed:?} after {took:?}");
    }

    #[test]
    fn a_kubectl_that_goes_on_is_ended_with_its_way() {
        let child = kubectl("exec sleep 1000");
        let process = child.id().to_string();
        assert!(Exec::of(child).close(Ok(())).is_ok());
        assert!(!Command::new("kill").args(["-0", &process]).stderr(Stdio::null()).status().unwrap().success());
    }
}
