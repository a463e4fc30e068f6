//! The `kubectl proxy` of one command: its streams, or all that the dashboard asks. A proxy lends its user's rights to every process that
//! reaches it: it is reached by this user alone, lets through what the command uses, and ends with the command, whatever ends that.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
#[cfg(unix)]
use std::sync::mpsc::TryRecvError;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

#[cfg(not(unix))]
use at_port::start as start_here;
#[cfg(unix)]
use unix::start as start_here;

use super::socket::Socket;
use crate::exit::ExitError;
use crate::failure::Failure;
use crate::kubectl::{Kubectl, failed};
use crate::pause;

/// What kubectl prints before its address.
const SERVING: &str = "Starting to serve on ";
/// Paths begin with that of the kubeconfig's server, where it has one.
const SERVER_PATH: &str = "--append-server-path";
/// kubectl listens at once; a credential plugin is asked later.
const PATIENCE: Duration = Duration::from_secs(60);
/// What it may take to end.
const FAREWELL: Duration = Duration::from_secs(2);
/// Of what it writes to standard error, this much is kept.
const STDERR_BYTES: u64 = 64 * 1024;

/// Where a proxy listens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// A socket in a directory of the user alone.
    #[cfg(unix)]
    Socket(PathBuf),
    /// A port of this computer, which other users reach, and a beginning of all paths that they do not know.
    #[cfg_attr(unix, allow(dead_code, reason = "tests use it where there are unix sockets"))]
    Port { address: SocketAddr, secret: String },
}

/// What a proxy lets through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Paths: regular expressions of Go, with a comma between two of them.
    pub(crate) paths: String,
    /// Methods that it refuses: such an expression.
    pub(crate) refused_methods: String,
}

impl Bounds {
    /// One path, and methods that change nothing.
    pub(super) fn of_stream(path: &str) -> Self {
        let literal: String =
            path.chars().flat_map(|one| (one == '.').then_some('\\').into_iter().chain([one])).collect();
        Self { paths: format!("^{literal}$"), refused_methods: "^(POST|PUT|PATCH|DELETE)$".to_owned() }
    }

    /// As kubectl takes them.
    fn options(&self) -> [String; 2] {
        [format!("--accept-paths={}", self.paths), format!("--reject-methods={}", self.refused_methods)]
    }
}

/// A proxy that listens.
pub(crate) struct Proxy {
    child: Child,
    /// The proxy ends with it.
    alive: Option<ChildStdin>,
    place: Place,
    /// What kubectl printed, once it has ended.
    #[cfg_attr(not(unix), allow(dead_code, reason = "the dashboard is not there"))]
    errors: Receiver<String>,
}

impl Proxy {
    /// Starts a proxy where others reach it least.
    pub(crate) fn start(kubectl: &Kubectl, bounds: &Bounds) -> anyhow::Result<Self> {
        start_here(kubectl, bounds)
    }

    /// Waits until a proxy says where it listens.
    fn listening(mut child: Child, place: impl FnOnce(&str) -> Option<Place>) -> anyhow::Result<Self> {
        let alive = child.stdin.take();
        let (line, errors) = (first_line(&mut child), errors(&mut child));
        let answer = line.and_then(|line| line.recv_timeout(PATIENCE).ok());
        let found = answer.as_deref().and_then(|line| line.strip_prefix(SERVING)).and_then(|at| place(at.trim()));
        match (found, errors) {
            (Some(place), Some(errors)) => Ok(Self { child, alive, place, errors }),
            (_, errors) => {
                end(child, alive);
                let text = errors.and_then(|errors| errors.recv_timeout(FAREWELL).ok()).unwrap_or_default();
                Err(failed(Failure::of(&text)))
            }
        }
    }

    /// Its socket.
    ///
    /// # Errors
    /// If it is at a port.
    #[cfg(unix)]
    pub(crate) fn socket(&self) -> anyhow::Result<&Path> {
        match &self.place {
            Place::Socket(path) => Ok(path),
            Place::Port { address, .. } => anyhow::bail!("kubectl proxy is at {address} and has no socket"),
        }
    }

    /// What kubectl printed, if it has ended. A keeper outlives it: the end of kubectl's output is its own.
    #[cfg(unix)]
    pub(crate) fn ended(&self) -> Option<String> {
        match self.errors.try_recv() {
            Ok(text) => Some(text),
            Err(TryRecvError::Disconnected) => Some(String::new()),
            Err(TryRecvError::Empty) => None,
        }
    }

    /// A path as this proxy takes it.
    pub(super) fn path(&self, path: &str) -> String {
        match &self.place {
            #[cfg(unix)]
            Place::Socket(_) => path.to_owned(),
            Place::Port { secret, .. } => format!("/{secret}{path}"),
        }
    }

    /// A new connection to it.
    pub(super) fn connect(&self) -> Result<Socket, Failure> {
        let socket = match &self.place {
            #[cfg(unix)]
            Place::Socket(path) => std::os::unix::net::UnixStream::connect(path).map(Socket::Unix),
            Place::Port { address, .. } => std::net::TcpStream::connect(address).map(Socket::Tcp),
        };
        socket.map_err(|error| Failure::Interrupted(format!("kubectl proxy does not answer: {error}")))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.alive.take());
        wait_or_kill(&mut self.child);
    }
}

fn end(mut child: Child, alive: Option<ChildStdin>) {
    drop(alive);
    wait_or_kill(&mut child);
}

/// Where kubectl is a child of a shell, the shell ends it.
fn wait_or_kill(child: &mut Child) {
    let deadline = Instant::now() + if cfg!(unix) { FAREWELL } else { Duration::ZERO };
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(None) => pause::briefly(),
            Ok(Some(_)) | Err(_) => return,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The first line that kubectl prints. The rest is read and dropped: who writes to a pipe without a reader is ended.
fn first_line(child: &mut Child) -> Option<Receiver<String>> {
    let pipe = child.stdout.take()?;
    let (sender, line) = channel();
    let reader = std::thread::Builder::new().spawn(move || {
        let (mut pipe, mut text) = (BufReader::new(pipe), String::new());
        let read = pipe.by_ref().take(STDERR_BYTES).read_line(&mut text);
        if read.is_ok_and(|count| count > 0) {
            let _ = sender.send(text);
        }
        drop(sender);
        std::io::copy(&mut pipe, &mut std::io::sink())
    });
    reader.is_ok().then_some(line)
}

/// What kubectl has written when it ends.
fn errors(child: &mut Child) -> Option<Receiver<String>> {
    let mut pipe = child.stderr.take()?;
    let (sender, errors) = channel();
    let reader = std::thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.by_ref().take(STDERR_BYTES).read_to_end(&mut bytes);
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        sender.send(String::from_utf8_lossy(&bytes).into_owned())
    });
    reader.is_ok().then_some(errors)
}

fn spawn(mut command: Command, kubectl: &Kubectl) -> anyhow::Result<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command.spawn().map_err(|error| ExitError::from(kubectl.missing(&error)))?)
}

#[cfg(unix)]
mod unix;

/// The file beside a socket that the keeper removes as well.
#[cfg(unix)]
pub(crate) use unix::BESIDE;

/// Where the standard library has no unix sockets.
#[cfg(any(not(unix), test))]
mod at_port;

#[cfg(test)]
#[cfg(unix)]
mod tests;
