//! `kubectl proxy` on a socket in a directory of the user alone. It has the user's credentials, and gives them to nobody.

use std::fs::{File, Permissions};
#[cfg(unix)]
use std::os::unix::{fs::PermissionsExt, net::UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::exit::exit_error;
use crate::failure::Failure;
use crate::kubectl::{Kubectl, failed};
use crate::pause;

/// How long kubectl may take until it serves: plug-ins for credentials may ask the user something.
const PATIENCE: Duration = Duration::from_secs(120);
/// A second list, in kubectl itself, of what the page uses (`routes` has the first and narrower one).
const PATHS: &str = "^/(apis/(kubevirt|subresources\\.kubevirt)\\.io/v1/|api/v1/namespaces)";
const REFUSED_METHODS: &str = "^(POST|PATCH|DELETE|CONNECT|OPTIONS|TRACE|HEAD)$";

/// A kubectl that runs for as long as this lives.
#[derive(Debug)]
pub(super) struct Proxy {
    child: Child,
    socket: PathBuf,
    errors: PathBuf,
    /// Removed at the end.
    _directory: tempfile::TempDir,
}

impl Proxy {
    /// Starts it, and waits until it serves.
    pub(super) fn start(kubectl: &Kubectl) -> anyhow::Result<Self> {
        // Only its owner may enter it.
        let directory =
            tempfile::Builder::new().prefix("garboard-").permissions(Permissions::from_mode(0o700)).tempdir();
        let directory = directory.context("make a private directory")?;
        let (socket, errors) = (directory.path().join("api"), directory.path().join("errors"));
        let log = File::create(&errors).context("make a file for the messages of kubectl")?;
        let option = format!("--unix-socket={}", socket.display());
        let (paths, methods) = (format!("--accept-paths={PATHS}"), format!("--reject-methods={REFUSED_METHODS}"));
        let mut command = kubectl.command(&["proxy", &option, &paths, &methods]);
        command.stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|error| failed(kubectl.missing(&error)))?;
        let mut proxy = Self { child, socket, errors, _directory: directory };
        let end = Instant::now() + PATIENCE;
        while UnixStream::connect(&proxy.socket).is_err() {
            if let Some(reason) = proxy.ended() {
                return Err(failed(Failure::of(&reason)));
            }
            if Instant::now() > end {
                let text = format!("kubectl proxy does not serve after {} s", PATIENCE.as_secs());
                return Err(exit_error(crate::exit::FAILED, text));
            }
            pause::briefly();
        }
        Ok(proxy)
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What it printed, if it has ended.
    pub(super) fn ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(_)) | Err(_) => Some(std::fs::read_to_string(&self.errors).unwrap_or_default()),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
