//! The connection to one QEMU monitor.
//!
//! ```text
//!   caller ──Request──► outgoing queue ──► writer ═══socket═══► QEMU
//!      ▲                                                          │
//!      └──reply (raw JSON)── Router ◄──lines── reader ◄═══════════┘
//!                              └──► EventHub ──► subscriptions
//! ```
//!
//! One task holds both ends of the socket: a reader half and a writer half that take turns. It ends when the stream
//! ends or when the last [`Monitor`] is dropped, and in both cases every waiting caller is notified.
//!
//! Invariants:
//! - no message of QEMU ends the connection, only the end of the stream does;
//! - a caller that gives up (time limit, dropped future) leaves the connection usable, and its late reply goes nowhere;
//! - a command whose caller gave up before it was written is never written;
//! - a disconnect fails every waiting call and gives every subscription exactly one `Closed`.
//!
//! Out-of-band execution is not negotiated: QEMU then reads one command at a time, which is what makes a descriptor
//! arrive with the command it was sent with.
//!
//! Sources followed: `docs/interop/qmp-spec.rst`, `monitor/qmp.c` of QEMU 7.2 and 10.0.

mod greeting;
mod pending;
mod router;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::debug;

use crate::broker::ClientAccess;
use crate::command::Request;
use crate::error::{ConnectError, ShutdownReason};
use crate::event::{Interest, Subscription};
use crate::qmp;
use crate::text::printable_bytes;
use crate::transcript::{Transcript, TranscriptSink};
use crate::wire::{LineSplitter, MONITOR_LINE_LIMIT, Message};

pub use greeting::{Greeting, GreetingVersion};
pub(crate) use pending::Outcome;
pub(crate) use router::Router;
pub(crate) use stream::{Outgoing, read_some};

/// Commands that may wait for the writer. QEMU takes one at a time anyway; later callers wait in the queue's own
/// line.
const OUTGOING_QUEUE: usize = 16;

/// Bytes asked of the kernel at once.
pub(crate) const READ_SIZE: usize = 4 << 10;

/// Where the monitor is.
#[derive(Debug)]
pub enum Endpoint {
    /// A listening unix socket.
    Path(PathBuf),
    /// An established stream.
    Stream(std::os::unix::net::UnixStream),
}

impl From<PathBuf> for Endpoint {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<&std::path::Path> for Endpoint {
    fn from(path: &std::path::Path) -> Self {
        Self::Path(path.to_owned())
    }
}

impl From<std::os::unix::net::UnixStream> for Endpoint {
    fn from(stream: std::os::unix::net::UnixStream) -> Self {
        Self::Stream(stream)
    }
}

/// How to connect.
#[derive(Clone)]
pub struct ConnectOptions {
    /// What logs and errors call this monitor, for example the VMI's `namespace/name`.
    pub name: String,
    /// Where the transcript goes; nowhere by default.
    pub transcript: Option<Arc<dyn TranscriptSink>>,
    /// How long to wait for the greeting, that is for QEMU to start; 30 s by default. QEMU 7.2 needs 25 to 50 ms on an
    /// idle machine.
    pub greeting_limit: Duration,
    /// What to ask for where the other end is the debug broker; reading only by default. QEMU itself has no levels
    /// and refuses higher ones.
    pub access: ClientAccess,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        let greeting_limit = Duration::from_secs(30);
        Self { name: "qemu".to_owned(), transcript: None, greeting_limit, access: ClientAccess::ReadOnly }
    }
}

impl ConnectOptions {
    /// The defaults, with a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

impl std::fmt::Debug for ConnectOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, transcript, greeting_limit, access } = self;
        let mut shown = formatter.debug_struct("ConnectOptions");
        shown.field("name", name).field("transcript", &transcript.is_some());
        shown.field("greeting_limit", greeting_limit).field("access", access).finish()
    }
}

/// A connected monitor. Clones share the connection; it ends when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Monitor {
    pub(crate) link: Arc<Link>,
}

/// What the clones of a monitor share.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) router: Arc<Router>,
    pub(crate) outgoing: mpsc::Sender<Outgoing>,
    greeting: Greeting,
    driver: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Monitor {
    /// Connects, waits for the greeting and negotiates. Must be called inside a tokio runtime with I/O and time
    /// enabled; a `current_thread` one will do.
    pub async fn connect(
        endpoint: impl Into<Endpoint>,
        options: ConnectOptions,
    ) -> Result<(Self, Greeting), ConnectError> {
        let ConnectOptions { name, transcript, greeting_limit, access } = options;
        let stream = open(endpoint.into(), &name).await?;
        let transcript = Transcript::new(transcript);
        let mut splitter = LineSplitter::new(MONITOR_LINE_LIMIT);
        let greeting = tokio::time::timeout(greeting_limit, read_greeting(&stream, &mut splitter, &name))
            .await
            .map_err(|_| ConnectError::NoGreeting { monitor: name.clone(), after: greeting_limit })??;
        transcript.note("connected", &greeting.version.to_string());
        debug!(monitor = %name, version = %greeting.version, "connected to QEMU");

        let router = Arc::new(Router::new(name.clone(), session_number(), transcript));
        let (outgoing, queue) = mpsc::channel(OUTGOING_QUEUE);
        let driver = tokio::spawn(stream::drive(stream, splitter, queue, Arc::clone(&router))).abort_handle();
        let monitor = Self { link: Arc::new(Link { router, outgoing, greeting: greeting.clone(), driver }) };
        let negotiation = negotiation(access).within(greeting_limit);
        monitor.send(negotiation).await.map_err(|source| ConnectError::Negotiation { monitor: name, source })?;
        Ok((monitor, greeting))
    }

    /// QEMU's greeting.
    pub fn greeting(&self) -> &Greeting {
        &self.link.greeting
    }

    /// Listens to events. Subscribe before sending the command that causes them.
    pub fn subscribe(&self, interest: Interest) -> Subscription {
        self.link.router.hub.subscribe(interest)
    }

    /// Why QEMU is about to end or has ended, if it reported that.
    pub fn shutdown_reason(&self) -> Option<ShutdownReason> {
        self.link.router.shutdown_reason()
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.link.outgoing.is_closed()
    }
}

/// The capability by which a broker is asked for a level is not one of QEMU's, which the generated type lists.
fn negotiation(access: ClientAccess) -> Request {
    let negotiation = Request::of(&qmp::qmp_capabilities { enable: None });
    match access.capability() {
        None => negotiation,
        Some(capability) => negotiation.arguments(&serde_json::json!({ "enable": [capability] })),
    }
}

async fn open(endpoint: Endpoint, name: &str) -> Result<UnixStream, ConnectError> {
    match endpoint {
        Endpoint::Path(path) => UnixStream::connect(&path).await.map_err(|source| ConnectError::Open { path, source }),
        Endpoint::Stream(stream) => stream
            .set_nonblocking(true)
            .and_then(|()| UnixStream::from_std(stream))
            .map_err(|source| ConnectError::Prepare { monitor: name.to_owned(), source }),
    }
}

/// Reads up to the greeting. A reply or event before it belongs to the client before us and is skipped.
async fn read_greeting(stream: &UnixStream, splitter: &mut LineSplitter, name: &str) -> Result<Greeting, ConnectError> {
    let mut chunk = [0; READ_SIZE];
    loop {
        while let Some(line) = splitter.next_line() {
            let not_qmp = |first_line: String| ConnectError::NotQmp { monitor: name.to_owned(), first_line };
            let line = line.map_err(|overlong| not_qmp(overlong.to_string()))?;
            match Message::parse(line) {
                Ok(Message::Greeting(body)) => {
                    return Greeting::parse(body).ok_or_else(|| not_qmp(printable_bytes(line, 200)));
                }
                Ok(_) => debug!(monitor = %name, "message before the greeting skipped"),
                Err(_) => return Err(not_qmp(printable_bytes(line, 200))),
            }
        }
        let read = stream::read_some(stream, &mut chunk).await;
        match read.map_err(|source| ConnectError::Read { monitor: name.to_owned(), source })? {
            0 => return Err(ConnectError::Closed { monitor: name.to_owned() }),
            count => splitter.push(&chunk[..count]),
        }
    }
}

/// Differs between connections made one after the other to the same QEMU.
fn session_number() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::from(since_epoch.subsec_millis()) + since_epoch.as_secs().wrapping_mul(1_000)
}
