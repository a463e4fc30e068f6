//! The control socket: users' commands. Thin: it reads one request, posts it to the task that owns its subject,
//! and writes the answer.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use garboard_agent::line_socket::next_client;
use garboard_log::Levels;
use garboard_protocol::change::ChangeRequest;
use garboard_protocol::control::{Asked, ControlReply, ControlRequest, GuestQuestion, QmpAccess, Session, Status};
use garboard_protocol::text::printable;
use garboard_protocol::wire;
use garboard_qmp::agent::Agent;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;
use tracing::{Instrument, Span};

use super::backup_hook::{self, Hooks};
use super::console::Attach;
use super::driver::{Client, Offer, Outcome};
use super::part::Parts;
use super::qmp_places::{QmpPlace, QmpPlaces};
use super::screenshot::{Pointer, Screen};
use super::session::{self, ScreenSession};
use super::statistics::Counters;
use super::trace::Cause;
use super::usb_redirection::{self, KnownSlots};
use super::{console_client, guest_probe, guest_report, numbered};
use crate::vm::Verdict;

/// A request line of a user is short; a probe's command may be a script.
const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// How long it may take to arrive; a silent client holds a descriptor.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// The same of a probe, which sends everything at once.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// Probes that are answered at the same time.
const MAX_PROBES: usize = 4;
/// The longest name of a user, and the longest audit ID, that is logged, in characters.
const MAX_NAME: usize = 128;
const NO_SCREEN: &str = "this machine has no graphics (autoattachGraphicsDevice: false)";

/// The way by which a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A socket in a directory of the machine: of whom is known what the kernel says.
    Socket,
    /// The node agent, which names the user that an API server has authenticated.
    Agent,
}

/// The peer of a control connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// User ID, from `SO_PEERCRED`.
    pub(crate) uid: u32,
    /// Process ID, if it can be seen from here.
    pub(crate) pid: Option<i32>,
    /// The person it claims to work for, escaped and bounded: for the log, and where it came by [`Way::Agent`] for its share.
    pub(crate) claimed: Option<String>,
    /// How it came.
    pub(crate) way: Way,
}

/// A QMP client for the broker.
pub(crate) struct QmpClient {
    pub(crate) stream: UnixStream,
    pub(crate) access: QmpAccess,
    pub(crate) caller: Caller,
    /// Of the request by which it came.
    pub(crate) span: Span,
    /// Its place among the clients, until it is served.
    pub(crate) place: QmpPlace,
}

/// Where the server posts what it is asked.
#[derive(Clone)]
pub(crate) struct ControlSenders {
    pub(crate) requests: mpsc::Sender<Offer>,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) console: mpsc::Sender<Attach>,
    pub(crate) vnc: mpsc::Sender<OwnedFd>,
    pub(crate) screen: ScreenSession,
    pub(crate) qmp: mpsc::Sender<QmpClient>,
    /// Places for such clients.
    pub(crate) qmp_places: QmpPlaces,
    /// The guest agent, while it answers.
    pub(crate) agent: watch::Receiver<Option<Agent>>,
    /// Its pictures.
    pub(crate) screenshot: Arc<Screen>,
    /// The slots for USB redirection.
    pub(crate) usb: KnownSlots,
    /// What is counted of it.
    pub(crate) counters: Counters,
    /// What this program logs.
    pub(crate) levels: Levels,
    /// Its record, part by part.
    pub(crate) parts: Parts,
}

/// Accepts connections for as long as the supervisor lives.
pub(crate) async fn serve(listener: UnixListener, senders: ControlSenders) {
    loop {
        tokio::spawn(client(next_client(&listener).await, senders.clone()));
    }
}

/// Answers one control connection, which came by the socket.
pub(crate) async fn client(stream: UnixStream, senders: ControlSenders) {
    client_by(Way::Socket, stream, senders).await;
}

/// Answers one that the node agent has sent.
pub(crate) async fn client_of_agent(stream: UnixStream, senders: ControlSenders) {
    client_by(Way::Agent, stream, senders).await;
}

async fn client_by(way: Way, stream: UnixStream, senders: ControlSenders) {
    if let Err(error) = serve_client(way, stream, senders).await {
        tracing::debug!(%error, "a control connection ended");
    }
}

/// Answers the probes of a kubelet and the steps of a backup tool, which run beside QEMU, and nothing else. A few at a time: the others wait in the socket.
pub(crate) async fn serve_probes(listener: UnixListener, senders: ControlSenders) {
    let (places, hooks) = (Arc::new(Semaphore::new(MAX_PROBES)), Arc::new(Hooks::default()));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let (stream, senders, hooks) = (next_client(&listener).await, senders.clone(), Arc::clone(&hooks));
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = probe(stream, &senders, &hooks).await {
                tracing::debug!(%error, "a probe's connection ended");
            }
        });
    }
}

async fn probe(mut stream: UnixStream, senders: &ControlSenders, hooks: &Hooks) -> io::Result<()> {
    let line = timeout(PROBE_LIMIT, read_line(&mut stream)).await.map_err(io::Error::other)??;
    match wire::decode::<Asked>(&line).map(|asked| asked.request) {
        Ok(ControlRequest::Probe { question, within_seconds }) => {
            ask_guest(&mut stream, senders, question, within_seconds).await
        }
        Ok(ControlRequest::BackupHook { .. }) if !hooks.may_ask() => {
            answer(&mut stream, &denied("too many steps of a backup; ask again in ten seconds")).await
        }
        Ok(request @ ControlRequest::BackupHook { step }) => {
            let credentials = stream.peer_cred()?;
            let caller = Caller { uid: credentials.uid(), pid: credentials.pid(), claimed: None, way: Way::Socket };
            let cause = Cause::request(request.name(), &caller, None);
            let span = cause.span();
            let reply = backup_hook::run(step, senders, Asker { caller, cause }).instrument(span).await;
            answer(&mut stream, &reply).await
        }
        Ok(_) => answer(&mut stream, &denied("only probes are answered here; use the control socket")).await,
        Err(error) => answer(&mut stream, &denied(error.to_string())).await,
    }
}

async fn ask_guest(
    stream: &mut UnixStream,
    senders: &ControlSenders,
    question: GuestQuestion,
    seconds: u32,
) -> io::Result<()> {
    let within = Duration::from_secs(seconds.into());
    let reply = match guest_probe::ask(question, within, &senders.agent, &senders.status).await {
        Ok(()) => ControlReply::Healthy,
        Err(reason) => denied(reason),
    };
    answer(stream, &reply).await
}

async fn serve_client(way: Way, mut stream: UnixStream, senders: ControlSenders) -> io::Result<()> {
    let credentials = stream.peer_cred()?;
    let line = timeout(REQUEST_LIMIT, read_line(&mut stream)).await.map_err(io::Error::other)??;
    let asked = match wire::decode::<Asked>(&line) {
        Ok(asked) => asked,
        Err(error) => return answer(&mut stream, &denied(error.to_string())).await,
    };
    let claimed = asked.claimed_user.as_deref().map(|name| printable(name, MAX_NAME));
    let caller = Caller { uid: credentials.uid(), pid: credentials.pid(), claimed, way };
    let audit_id = asked.audit_id.as_deref().map(|id| printable(id, MAX_NAME));
    let cause = Cause::request(asked.request.name(), &caller, audit_id.as_deref());
    let span = cause.span();
    let serving = async move {
        match asked.number {
            Some(number) => {
                let reply = numbered::ask(&senders, &asked.request, number, cause).await;
                tracing::info!(?reply, uid = caller.uid, claimed_user = caller.claimed, "numbered request answered");
                answer(&mut stream, &reply).await
            }
            None => serve_request(stream, senders, asked.request, Asker { caller, cause }).await,
        }
    };
    serving.instrument(span).await
}

/// The caller, and the cause of what is done for it.
pub(super) struct Asker {
    caller: Caller,
    cause: Cause,
}

async fn serve_request(
    mut stream: UnixStream,
    senders: ControlSenders,
    request: ControlRequest,
    asker: Asker,
) -> io::Result<()> {
    match request {
        ControlRequest::Status => {
            let status = senders.status.borrow().clone();
            answer(&mut stream, &ControlReply::Status(Box::new(status))).await
        }
        ControlRequest::Watch => watch_status(stream, senders.status).await,
        request @ (ControlRequest::Stop { .. }
        | ControlRequest::Prolong { .. }
        | ControlRequest::Pause
        | ControlRequest::Unpause
        | ControlRequest::Reset
        | ControlRequest::SoftReboot
        | ControlRequest::Freeze { .. }
        | ControlRequest::Unfreeze) => carry_out(&mut stream, &senders, &request, asker).await,
        ControlRequest::Guest { about } => {
            let found = guest_report::ask(about, &senders.agent, &senders.status).await;
            answer(&mut stream, &found.unwrap_or_else(denied)).await
        }
        ControlRequest::Statistics => answer(&mut stream, &senders.counters.reply().await).await,
        ControlRequest::LogVerbosity { verbosity } => {
            answer(&mut stream, &set_verbosity(&senders.levels, verbosity)).await
        }
        ControlRequest::Show { part } => senders.parts.send(&mut stream, part).await,
        ControlRequest::Console { access, session, resume } => {
            tracing::info!(
                ?access,
                ?session,
                uid = asker.caller.uid,
                claimed_user = asker.caller.claimed,
                "console requested"
            );
            console_client::console(stream, &senders, access, session, resume).await
        }
        ControlRequest::Vnc { session } => vnc(stream, &senders, session).await,
        ControlRequest::UsbRedir => usb_redir(stream, senders.usb).await,
        ControlRequest::Screenshot { .. } if senders.vnc.is_closed() => answer(&mut stream, &denied(NO_SCREEN)).await,
        ControlRequest::Screenshot { move_cursor } => {
            let pointer = if move_cursor { Pointer::Moves } else { Pointer::Stays };
            senders.screenshot.send(&mut stream, pointer).await
        }
        ControlRequest::Qmp { access } => qmp(stream, &senders, access, asker.caller).await,
        ControlRequest::Probe { question, within_seconds } => {
            ask_guest(&mut stream, &senders, question, within_seconds).await
        }
        ControlRequest::BackupHook { step } => {
            let reply = backup_hook::run(step, &senders, asker).await;
            answer(&mut stream, &reply).await
        }
    }
}

fn set_verbosity(levels: &Levels, verbosity: u32) -> ControlReply {
    match levels.set(garboard_log::targets(verbosity)) {
        garboard_log::Outcome::Set => {
            tracing::info!(verbosity, "log levels changed");
            ControlReply::Done
        }
        garboard_log::Outcome::AlreadySo => ControlReply::AlreadySo,
        garboard_log::Outcome::Fixed => {
            denied(format!("{} is set for this supervisor, and decides what it logs", garboard_log::VARIABLE))
        }
    }
}

/// Byte by byte, because what follows the line belongs to the stream it may become.
pub(super) async fn read_line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while line.len() < MAX_REQUEST_BYTES {
        match stream.read_u8().await? {
            b'\n' => return Ok(line),
            byte => line.push(byte),
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the request is too long"))
}

pub(super) fn denied(reason: impl Into<String>) -> ControlReply {
    ControlReply::Denied { reason: reason.into() }
}

pub(super) async fn answer(stream: &mut UnixStream, reply: &ControlReply) -> io::Result<()> {
    stream.write_all(&wire::encode(reply)?).await
}

/// A change without a number. What the guest agent does is answered when it has done it, the rest once it is decided.
async fn carry_out(
    stream: &mut UnixStream,
    senders: &ControlSenders,
    request: &ControlRequest,
    asker: Asker,
) -> io::Result<()> {
    let reply = match request.change() {
        Some(change @ (ChangeRequest::Freeze { .. } | ChangeRequest::Unfreeze)) => {
            outcome(senders, change, asker).await
        }
        Some(
            change @ (ChangeRequest::Stop(_)
            | ChangeRequest::Prolong { .. }
            | ChangeRequest::Pause
            | ChangeRequest::Unpause
            | ChangeRequest::Reset
            | ChangeRequest::SoftReboot),
        ) => verdict(senders, change, asker, None).await,
        None => denied(format!("`{}` changes nothing", request.name())),
    };
    answer(stream, &reply).await
}

/// The answer when the guest agent has done it.
pub(super) async fn outcome(senders: &ControlSenders, request: ChangeRequest, asker: Asker) -> ControlReply {
    let (done, outcome) = oneshot::channel();
    let reply = verdict(senders, request, asker, Some(done)).await;
    if reply != ControlReply::Queued {
        return reply;
    }
    match outcome.await {
        Ok(Ok(())) => ControlReply::Done,
        Ok(Err(reason)) => denied(reason),
        Err(_) => denied("the machine was stopped, or its supervisor is shutting down"),
    }
}

async fn verdict(
    senders: &ControlSenders,
    request: ChangeRequest,
    asker: Asker,
    done: Option<Outcome>,
) -> ControlReply {
    let (reply, verdict) = oneshot::channel();
    let posted = senders
        .requests
        .send(Offer { request, client: Client::Once { reply, done }, cause: asker.cause })
        .await
        .is_ok();
    let verdict = if posted { verdict.await.ok() } else { None };
    let Caller { uid, pid, claimed, .. } = asker.caller;
    tracing::info!(?request, ?verdict, uid, pid, claimed_user = claimed, "request decided");
    match verdict {
        Some(Verdict::Queued) => ControlReply::Queued,
        Some(Verdict::AlreadySo) => ControlReply::AlreadySo,
        Some(Verdict::Denied(denial)) => denied(denial.message()),
        None => denied("the supervisor is shutting down"),
    }
}

async fn watch_status(mut stream: UnixStream, mut status: watch::Receiver<Status>) -> io::Result<()> {
    loop {
        let current = status.borrow_and_update().clone();
        let is_over = current.ended.is_some();
        answer(&mut stream, &ControlReply::Status(Box::new(current))).await?;
        if is_over {
            return Ok(());
        }
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return Ok(()) },
            // A client sends nothing after its request: it has ended.
            _ = stream.read_u8() => return Ok(()),
        }
    }
}

async fn vnc(mut stream: UnixStream, senders: &ControlSenders, session: Session) -> io::Result<()> {
    if senders.vnc.is_closed() {
        return answer(&mut stream, &denied(NO_SCREEN)).await;
    }
    if session == Session::None {
        answer(&mut stream, &ControlReply::Streaming).await?;
        return screen(senders, stream).await;
    }
    // The message of KubeVirt's node agent, and in brackets what its API server makes of that: clients look for either.
    let Some(over) = senders.screen.begin(session) else {
        return answer(&mut stream, &denied("Active VNC connection. Request denied (websocket: bad handshake).")).await;
    };
    answer(&mut stream, &ControlReply::Session).await?;
    let (ours, theirs) = UnixStream::pair()?;
    screen(senders, theirs).await?;
    session::relay_screen(stream, ours, over).await
}

/// Hands a client's socket to QEMU.
async fn screen(senders: &ControlSenders, client: UnixStream) -> io::Result<()> {
    let descriptor = client.into_std().map(OwnedFd::from)?;
    senders.vnc.send(descriptor).await.map_err(|_| io::Error::other("the machine has just ended"))
}

async fn usb_redir(mut stream: UnixStream, slots: KnownSlots) -> io::Result<()> {
    match usb_redirection::take(slots).await {
        Ok(slot) => {
            answer(&mut stream, &ControlReply::Streaming).await?;
            slot.relay(stream).await
        }
        Err(reason) => answer(&mut stream, &denied(reason)).await,
    }
}

async fn qmp(mut stream: UnixStream, senders: &ControlSenders, access: QmpAccess, caller: Caller) -> io::Result<()> {
    if senders.qmp.is_closed() {
        return answer(&mut stream, &denied("QEMU's monitor is not connected")).await;
    }
    let place = match senders.qmp_places.take(access, &caller) {
        Ok(place) => place,
        Err(refused) => return answer(&mut stream, &denied(refused.to_string())).await,
    };
    answer(&mut stream, &ControlReply::Streaming).await?;
    let client = QmpClient { stream, access, caller, span: Span::current(), place };
    senders.qmp.send(client).await.map_err(|_| io::Error::other("the machine has just ended"))
}

#[cfg(test)]
mod tests {
    use garboard_protocol::paths::Layout;
    use garboard_protocol::testing::running;

    use super::super::attach::{ControlReceivers, open_channels};
    use super::*;

    fn channels(levels: Levels) -> (ControlSenders, ControlReceivers) {
        open_channels(mpsc::channel(1).0, watch::channel(running(1)).1, levels, &Layout::new("/nowhere"))
    }

    /// The answer to a line.
    async fn answered(senders: &ControlSenders, line: &str) -> ControlReply {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(client(theirs, senders.clone()));
        ours.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        wire::decode(&read_line(&mut ours).await.unwrap()).unwrap()
    }

    #[tokio::test]
    async fn what_is_logged_is_changed_by_a_request_unless_the_environment_decides() {
        let (_filter, levels) = garboard_log::filter::<tracing_subscriber::Registry>(None);
        let (senders, _receivers) = channels(levels);
        for (verbosity, expected) in
            [(6, ControlReply::Done), (6, ControlReply::AlreadySo), (garboard_log::USUAL, ControlReply::Done)]
        {
            let line = format!(r#"{{"ask":"logVerbosity","verbosity":{verbosity}}}"#);
            assert_eq!(answered(&senders, &line).await, expected, "{verbosity}");
        }
        let (senders, _receivers) = channels(Levels::fixed());
        let reply = answered(&senders, r#"{"ask":"logVerbosity","verbosity":6}"#).await;
        let ControlReply::Denied { reason } = reply else { panic!("{reply:?}") };
        assert!(reason.starts_with("GARBOARD_LOG is set"), "{reason}");
    }

    /// As a supervisor of a version before answers what this one has.
    #[tokio::test]
    async fn a_request_of_a_later_version_is_denied_and_changes_nothing() {
        let (senders, _receivers) = channels(Levels::fixed());
        let reply = answered(&senders, r#"{"ask":"whatComesLater","verbosity":6}"#).await;
        assert!(matches!(reply, ControlReply::Denied { .. }), "{reply:?}");
        assert!(matches!(answered(&senders, r#"{"ask":"status"}"#).await, ControlReply::Status(_)));
    }
}
