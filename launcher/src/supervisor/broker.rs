//! Users' QMP clients: the debug broker of the QMP crate, with our log as its audit trail. Their lines are bounded, so that they push no
//! others out of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use garboard_plan::live::{Change, Outcome};
use garboard_protocol::control::QmpAccess;
use garboard_qmp::Monitor;
use garboard_qmp::broker::{Audit, AuditSink, Broker, ClientAccess, PeerIdentity};
use tokio::sync::{mpsc, watch};
use tracing::Instrument;

use super::control::QmpClient;
use super::driver::Input;
use super::flood::{Flood, Line};
use super::live::Live;
use super::run::Context;

/// The most lines of a machine in ten seconds: of clients that come and go, of commands that change nothing, and of those that do.
const CLIENTS_LOGGED: u32 = 40;
const LOOKS_LOGGED: u32 = 50;
const CHANGES_LOGGED: u32 = 200;
/// The most of a command's arguments in a line, bytes.
const LONGEST_ARGUMENTS: usize = 2048;

/// Serves clients as they come, once the monitor is up.
pub(crate) async fn serve(
    mut station: mpsc::Receiver<QmpClient>,
    mut monitor: watch::Receiver<Option<Monitor>>,
    context: Context,
    live: Live,
) {
    let Ok(seen) = monitor.wait_for(Option::is_some).await.map(|seen| seen.clone()) else { return };
    let Some(seen) = seen else { return };
    let lines = Arc::new(Lines::default());
    let log = |claimed| {
        let (lines, happened, live) = (Arc::clone(&lines), context.happened.clone(), live.clone());
        LogSink { claimed, lines, happened, live, begun: Mutex::default() }
    };
    let unclaimed = Arc::new(log(None));
    let broker = Arc::new(Broker::new(seen, unclaimed).with_results_in(context.layout.supervisor()));
    while let Some(client) = station.recv().await {
        let (broker, lines) = (Arc::clone(&broker), Arc::clone(&lines));
        let sink = Arc::new(log(client.caller.claimed.clone()));
        let (span, place) = (client.span, client.place);
        let serving = async move {
            let _place = place;
            let caller = client.caller;
            if lines.clients.has_room() {
                let claimed_user = caller.claimed;
                tracing::info!(access = ?client.access, uid = caller.uid, claimed_user, "QMP client connected");
            }
            let peer = PeerIdentity { uid: caller.uid, pid: caller.pid };
            let ended = broker.serve_client_for(client.stream, access(client.access), peer, sink).await;
            if lines.clients.has_room() {
                tracing::info!(%ended, "QMP client disconnected");
            }
        };
        tokio::spawn(serving.instrument(span));
    }
}

fn access(asked: QmpAccess) -> ClientAccess {
    match asked {
        QmpAccess::ReadOnly => ClientAccess::ReadOnly,
        QmpAccess::ReadWrite => ClientAccess::ReadWrite,
        QmpAccess::Dangerous => ClientAccess::Dangerous,
    }
}

/// Commands that taint, and change no device: input of a user is no reason to write files.
const HOLD_NOTHING: [&str; 5] =
    ["announce-self", "chardev-send-break", "input-send-event", "ringbuf-write", "send-key"];

/// The bound on log lines of one kind.
struct Bound {
    of: &'static str,
    flood: Mutex<Flood>,
}

impl Bound {
    fn new(of: &'static str, most: u32) -> Self {
        Self { of, flood: Mutex::new(Flood::new(most)) }
    }

    /// Whether there may be one more; the number of those that were left out comes before it.
    fn has_room(&self) -> bool {
        let judged = self.flood.lock().unwrap_or_else(PoisonError::into_inner).judge(Instant::now());
        let Line::Write { left_out } = judged else { return false };
        if left_out > 0 {
            tracing::warn!(left_out, of = self.of, "log lines of QMP clients left out");
        }
        true
    }
}

/// The log lines of all clients of a machine. A flood of queries leaves out no line of a change.
struct Lines {
    clients: Bound,
    looks: Bound,
    changes: Bound,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            clients: Bound::new("clients", CLIENTS_LOGGED),
            looks: Bound::new("commands that changed nothing", LOOKS_LOGGED),
            changes: Bound::new("commands that changed the machine", CHANGES_LOGGED),
        }
    }
}

impl Lines {
    /// The arguments of a call as they are in its line, if there is one.
    fn arguments(&self, audit: &Audit) -> Option<String> {
        let bound = if audit.tainted { &self.changes } else { &self.looks };
        // They are ASCII.
        bound.has_room().then(|| match audit.arguments.get(..LONGEST_ARGUMENTS) {
            Some(kept) if kept.len() < audit.arguments.len() => format!("{kept}… ({} bytes)", audit.arguments.len()),
            Some(_) | None => audit.arguments.clone(),
        })
    }
}

/// One log line a call, within bounds; a mutation also marks the machine, and is in `live.json` before and after.
struct LogSink {
    /// For whom the client works, by its own claim.
    claimed: Option<String>,
    lines: Arc<Lines>,
    happened: mpsc::Sender<Input>,
    live: Live,
    /// What this client has QEMU change just now.
    begun: Mutex<Option<Change>>,
}

impl LogSink {
    fn begun(&self) -> MutexGuard<'_, Option<Change>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditSink for LogSink {
    fn intent(&self, command: &str, arguments: &serde_json::Value) {
        if HOLD_NOTHING.contains(&command) {
            return;
        }
        let change = Change::of(command, arguments);
        self.live.intend(change.clone());
        *self.begun() = Some(change);
    }

    fn record(&self, audit: &Audit) {
        if let Some(arguments) = self.lines.arguments(audit) {
            tracing::info!(
                uid = audit.uid,
                pid = audit.pid,
                claimed_user = self.claimed,
                command = audit.command,
                arguments,
                outcome = ?audit.outcome,
                "qmp audit"
            );
        }
        if let Some(change) = self.begun().take() {
            // What may have been done counts as done, until QEMU reports what it holds.
            let outcome = if audit.tainted { Outcome::Done } else { Outcome::Refused };
            self.live.settle(&change, outcome);
        }
        if audit.tainted {
            let _ = self.happened.try_send(Input::Tainted(audit.command.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use garboard_log::Levels;
    use garboard_protocol::control::{ControlReply, ControlRequest};
    use garboard_protocol::paths::Layout;
    use garboard_protocol::testing::running;
    use garboard_protocol::wire;
    use garboard_qmp::broker::AuditOutcome;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::super::attach::open_channels;
    use super::super::control::{ControlSenders, client, read_line};
    use super::super::qmp_places::OF_A_USER;
    use super::*;

    /// The answer to who wants to use QMP, and the connection.
    async fn asked(senders: &ControlSenders, access: QmpAccess) -> (ControlReply, UnixStream) {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(client(theirs, senders.clone()));
        let request = ControlRequest::Qmp { access };
        ours.write_all(&wire::encode(&request).unwrap()).await.unwrap();
        let reply = wire::decode(&read_line(&mut ours).await.unwrap()).unwrap();
        (reply, ours)
    }

    #[tokio::test]
    async fn a_user_has_places_for_so_many_clients_and_the_next_one_reads_why_not() {
        let (requests, status) = (mpsc::channel(1).0, watch::channel(running(1)).1);
        let layout = Layout::new("/nowhere");
        let (senders, receivers) = open_channels(requests, status, Levels::fixed(), &layout);
        let mut connected = Vec::new();
        for _ in 0..OF_A_USER {
            let (reply, stream) = asked(&senders, QmpAccess::ReadWrite).await;
            assert_eq!(reply, ControlReply::Streaming);
            connected.push(stream);
        }
        let (reply, _) = asked(&senders, QmpAccess::Dangerous).await;
        let ControlReply::Denied { reason } = reply else { panic!("{reply:?}") };
        assert!(reason.starts_with("4 read-write QMP clients are connected"), "{reason}");
        let (reply, reader) = asked(&senders, QmpAccess::ReadOnly).await;
        assert_eq!(reply, ControlReply::Streaming, "those that read have places of their own");
        drop((receivers, connected, reader));
    }

    fn audit(arguments: String, tainted: bool) -> Audit {
        let at = std::time::SystemTime::UNIX_EPOCH;
        let (command, outcome) = ("query-status".to_owned(), AuditOutcome::Done);
        Audit { at, uid: 0, pid: None, client: 1, command, arguments, outcome, tainted }
    }

    #[test]
    fn a_flood_of_queries_fills_no_log_and_hides_no_change() {
        let lines = Lines::default();
        let written =
            |tainted: bool| (0..1000).filter(|_| lines.arguments(&audit("{}".to_owned(), tainted)).is_some()).count();
        assert_eq!(written(false), LOOKS_LOGGED as usize);
        assert_eq!(written(true), CHANGES_LOGGED as usize);
    }

    #[test]
    fn a_line_has_the_beginning_of_long_arguments() {
        let lines = Lines::default();
        let whole = "x".repeat(LONGEST_ARGUMENTS);
        assert_eq!(lines.arguments(&audit(whole.clone(), false)), Some(whole.clone()));
        let cut = lines.arguments(&audit(format!("{whole}xy"), false)).unwrap();
        assert_eq!(cut, format!("{whole}… (2050 bytes)"));
    }
}
