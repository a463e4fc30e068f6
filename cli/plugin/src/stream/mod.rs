//! Streams of a machine, as KubeVirt's clients open them: websockets with binary frames of bytes, to the controller and through it to
//! the supervisor. The user's kubectl is the way to the API server (`kubectl proxy`), so that no TLS and no credentials are here.
//!
//! ```text
//!   plugin ═ socket in a private directory ═ kubectl proxy ═ API server ═ controller ═ node agent ═ supervisor
//! ```
//!
//! That of a stream lets one path through and no method but those that read, and lives as long as the command that uses it
//! ([ADR 39](../../../../docs/adr/0039-streams-of-the-plugin.md)).

mod answer;
mod ending;
mod process;
mod progress;
mod socket;
mod websocket;

use std::sync::Arc;

pub(crate) use ending::Ending;

use crate::exit::exit_error;
use crate::failure::Failure;
use crate::kubectl::{Kubectl, failed};
use crate::line::{Incoming, Outgoing};
use crate::subresource::Subresource;
#[cfg(unix)]
pub(crate) use process::{BESIDE, Bounds, Proxy};
#[cfg(not(unix))]
use process::{Bounds, Proxy};
use progress::Progress;

/// KubeVirt's parameter: a session that is there is not ended, and the stream is refused.
pub(crate) const PRESERVE_SESSION: &str = "preserveSession=true";

/// Ours: a console is opened to look on, beside the session of it. A controller of a version before reads only the other parameter.
pub(crate) const LOOK_ON: &str = "view=true&preserveSession=true";

/// A way to one stream of a machine, which can be opened more than once.
pub(crate) struct Streams {
    proxy: Proxy,
    subresource: Subresource,
    /// Of a console: each time it is opened it goes on where it was.
    progress: Option<Arc<Progress>>,
}

/// An open stream.
pub(crate) struct Stream {
    /// What the machine sends.
    pub(crate) incoming: Incoming,
    /// What it is sent. Dropping it closes the stream, once that has arrived.
    pub(crate) outgoing: Outgoing,
    /// How it ended.
    pub(crate) ending: Arc<Ending>,
}

impl Streams {
    /// Starts the proxy.
    pub(crate) fn start(kubectl: &Kubectl, subresource: Subresource) -> anyhow::Result<Self> {
        let proxy = Proxy::start(kubectl, &Bounds::of_stream(&subresource.path()))?;
        Ok(Self { proxy, subresource, progress: None })
    }

    /// The same for a console.
    pub(crate) fn of_console(kubectl: &Kubectl, subresource: Subresource) -> anyhow::Result<Self> {
        Ok(Self { progress: Some(Arc::default()), ..Self::start(kubectl, subresource)? })
    }

    /// Opens the stream, with these parameters of KubeVirt's. What refuses it is an error that says so.
    pub(crate) fn open(&self, parameters: &str) -> Result<Stream, Failure> {
        let socket = self.proxy.connect()?;
        let place = self.progress.as_ref().map(|progress| progress.parameter());
        let all: Vec<&str> =
            [Some(parameters), place.as_deref()].into_iter().flatten().filter(|each| !each.is_empty()).collect();
        let path = self.proxy.path(&self.subresource.path());
        let path = if all.is_empty() { path } else { format!("{path}?{}", all.join("&")) };
        let (reading, writing, ending) = websocket::open(socket, &path, &self.subresource, self.progress.clone())?;
        Ok(Stream { incoming: Incoming::of(reading), outgoing: Box::new(writing), ending })
    }
}

/// An error if a stream did not end because the machine's side of it did.
pub(crate) fn judge(ending: &Ending, machine: &str) -> anyhow::Result<()> {
    match ending.now().and_then(|end| end.failure(machine)) {
        None => Ok(()),
        Some(failure @ Failure::Refused(_)) => Err(exit_error(crate::exit::FAILED, failure.to_string())),
        Some(failure) => Err(failed(failure)),
    }
}
