//! The debug broker: standard QMP for many clients at once, beside the supervisor and under a policy.
//!
//! For: `garboard qmp`, `qmp-shell`, `socat`, support scripts. Not for: the supervisor itself, which holds the monitor.
//!
//! ```text
//!  client 1 ═╗                        ┌─ Policy (table) ─ CommandVerdict
//!  client 2 ═╬═ commands ─► judge ────┤
//!  client 3 ═╝      ▲                 └─ allowed ─► Monitor ─► QEMU
//!                   │ answers, events        │
//!                   └────────────────────────┘    each call: one Audit to the sink, tainted where it changed something
//! ```
//!
//! Each client greets, negotiates and numbers its commands as with QEMU; ids are private to it. It is read-only unless
//! its [`Grant`] allows more, and may then still have to ask: the greeting offers the levels as capabilities.
//!
//! Invariants: a client has one command in flight; whatever it does or leaves undone, the monitor and the other clients
//! do not wait for it: events it does not read in time are dropped, and it receives their number
//! (`__dev.garboard_EVENTS_LOST`); one that takes nothing for half a minute is cut off. Descriptors sent by a client are
//! never received. Files that a command writes are named and opened by the broker.

mod audit;
mod client;
mod message;
mod policy;
mod result_file;
mod table;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tracing::{Instrument as _, debug, info_span, warn};

use crate::connection::Monitor;

pub use audit::{Audit, AuditOutcome, AuditSink};
pub use client::Ended;
pub use policy::{ClientAccess, CommandRisk, CommandVerdict, Policy, Rule};

/// Clients served at once. The next one gets an error and is cut off.
const CLIENT_LIMIT: usize = 16;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Name of the event that reports dropped events to a slow client.
pub const EVENTS_LOST: &str = "__dev.garboard_EVENTS_LOST";

/// How much a connection may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// What it may do without asking.
    pub start: ClientAccess,
    /// What it may ask for in `qmp_capabilities`.
    pub ceiling: ClientAccess,
}

impl From<ClientAccess> for Grant {
    /// This much, without asking and with no more to be had.
    fn from(access: ClientAccess) -> Self {
        Self { start: access, ceiling: access }
    }
}

/// The peer, as reported by the kernel and not by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The user.
    pub uid: u32,
    /// The process, where the kernel gives one.
    pub pid: Option<i32>,
}

impl PeerIdentity {
    /// Reads the credentials of a connected stream (`SO_PEERCRED`).
    pub fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = stream.peer_cred()?;
        Ok(Self { uid: credentials.uid(), pid: credentials.pid() })
    }
}

/// Serves clients of one machine. Holds a clone of its monitor: drop the broker when the supervisor disconnects from QEMU.
pub struct Broker {
    monitor: Monitor,
    sink: Arc<dyn AuditSink>,
    policy: Policy,
    /// Where commands that write a file have it written.
    results: Option<PathBuf>,
    clients: AtomicU64,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Broker").field("clients_so_far", &self.clients).finish_non_exhaustive()
    }
}

impl Broker {
    /// A broker with the standard policy, and without a place for files.
    pub fn new(monitor: Monitor, sink: Arc<dyn AuditSink>) -> Self {
        Self { monitor, sink, policy: Policy::default(), results: None, clients: AtomicU64::new(0) }
    }

    /// The same with another policy.
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// The same with a directory for the files that commands write (`screendump`). The broker names them and opens
    /// them, QEMU gets descriptors. Without one such commands are refused.
    pub fn with_results_in(self, directory: PathBuf) -> Self {
        Self { results: Some(directory), ..self }
    }

    /// Serves one client until it leaves, is cut off, or QEMU ends.
    pub async fn serve_client(&self, stream: UnixStream, grant: impl Into<Grant>, peer: PeerIdentity) {
        self.serve_client_for(stream, grant, peer, Arc::clone(&self.sink)).await;
    }

    /// The same for a client whose calls are reported to a sink of its own; why it is no longer served.
    pub async fn serve_client_for(
        &self,
        stream: UnixStream,
        grant: impl Into<Grant>,
        peer: PeerIdentity,
        sink: Arc<dyn AuditSink>,
    ) -> Ended {
        let number = self.clients.fetch_add(1, Ordering::Relaxed) + 1;
        let grant = grant.into();
        let (monitor, results) = (self.monitor.clone(), self.results.clone());
        let client = client::Client { number, grant, peer, policy: self.policy, monitor, results, sink };
        let serving = async {
            debug!(uid = peer.uid, pid = peer.pid, ceiling = ?grant.ceiling, "QMP client is served");
            let ended = client.serve(&stream).await;
            debug!(%ended, "QMP client is no longer served");
            ended
        };
        serving.instrument(info_span!("qmp_client", client = number)).await
    }

    /// Accepts clients for ever. `admit` returns what a peer may do; `None` refuses it. Dropping the future cuts all
    /// clients off.
    pub async fn listen(
        self: Arc<Self>,
        listener: std::os::unix::net::UnixListener,
        admit: impl Fn(&PeerIdentity) -> Option<Grant> + Send,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let mut clients = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = clients.join_next() => continue,
            };
            match accepted {
                Ok((stream, _)) => self.admit_client(stream, &admit, &mut clients),
                Err(error) => {
                    // Out of descriptors, for instance: it passes, and must not turn into a busy loop.
                    warn!(%error, "could not accept a QMP client");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit_client(
        self: &Arc<Self>,
        stream: UnixStream,
        admit: impl Fn(&PeerIdentity) -> Option<Grant>,
        clients: &mut JoinSet<()>,
    ) {
        let peer = match PeerIdentity::of(&stream) {
            Ok(peer) => peer,
            Err(error) => return warn!(%error, "could not read the peer credentials of a QMP client; rejected"),
        };
        let refusal = match admit(&peer) {
            None => "this user may not use this socket",
            Some(_) if clients.len() >= CLIENT_LIMIT => "too many clients; close one and try again",
            Some(grant) => {
                let broker = Arc::clone(self);
                clients.spawn(async move { broker.serve_client(stream, grant, peer).await });
                return;
            }
        };
        warn!(uid = peer.uid, pid = peer.pid, reason = refusal, "QMP client rejected");
        // The socket is empty, so this fits; a client that is gone already needs no answer.
        let _ = stream.try_write(&message::failure("GenericError", refusal, None));
    }
}

/// Everything the broker does with the bytes of a client before it reaches QEMU. For the fuzz target.
#[cfg(feature = "testing")]
pub fn read_client_bytes(chunks: &[&[u8]]) {
    let mut splitter = crate::wire::ObjectSplitter::new(4 << 10);
    for chunk in chunks {
        splitter.push(chunk);
        while let Some(object) = splitter.next_object() {
            let Ok(Ok(command)) = object.map(message::ClientCommand::parse) else { continue };
            for access in ClientAccess::ALL {
                let verdict = Policy::default().judge(access, &command.name, &command.arguments);
                let rule = Policy::default().rule_for(&command.name, &command.arguments);
                let is_allowed = matches!(verdict, CommandVerdict::Allowed { .. });
                assert!(!is_allowed || rule.risk != CommandRisk::Forbidden, "{}", command.name);
                assert!(
                    !is_allowed || access != ClientAccess::ReadOnly || rule.risk == CommandRisk::Query,
                    "{}",
                    command.name
                );
            }
        }
    }
}
