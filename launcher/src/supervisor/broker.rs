//! Users' QMP clients: the debug broker of the QMP crate, with our log as its audit trail.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use garboard_plan::live::{Change, Outcome};
use garboard_protocol::control::QmpAccess;
use garboard_qmp::Monitor;
use garboard_qmp::broker::{Audit, AuditSink, Broker, ClientAccess, PeerIdentity};
use tokio::sync::{mpsc, watch};
use tracing::Instrument;

use super::control::QmpClient;
use super::driver::Input;
use super::live::Live;
use super::run::Context;

/// Serves clients as they come, once the monitor is up.
pub(crate) async fn serve(
    mut station: mpsc::Receiver<QmpClient>,
    mut monitor: watch::Receiver<Option<Monitor>>,
    context: Context,
    live: Live,
) {
    let Ok(seen) = monitor.wait_for(Option::is_some).await.map(|seen| seen.clone()) else { return };
    let Some(seen) = seen else { return };
    let log =
        |claimed| LogSink { claimed, happened: context.happened.clone(), live: live.clone(), begun: Mutex::default() };
    let unclaimed = Arc::new(log(None));
    let broker = Arc::new(Broker::new(seen, unclaimed).with_results_in(context.layout.supervisor()));
    while let Some(client) = station.recv().await {
        let broker = Arc::clone(&broker);
        let sink = Arc::new(log(client.caller.claimed));
        let (span, place) = (client.span, client.place);
        let serving = async move {
            let _place = place;
            let peer = PeerIdentity { uid: client.caller.uid, pid: client.caller.pid };
            broker.serve_client_for(client.stream, access(client.access), peer, sink).await;
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

/// One log line a call; a mutation also marks the machine, and is in `live.json` before and after.
struct LogSink {
    /// For whom the client works, by its own claim.
    claimed: Option<String>,
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
        tracing::info!(
            uid = audit.uid,
            pid = audit.pid,
            claimed_user = self.claimed,
            command = audit.command,
            arguments = audit.arguments,
            outcome = ?audit.outcome,
            "qmp audit"
        );
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
    use garboard_protocol::testing::running;
    use garboard_protocol::wire;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::super::attach::open_channels;
    use super::super::control::{MAX_QMP_CLIENTS, client, read_line};
    use super::*;

    /// The answer to who wants to use QMP, and the connection.
    async fn asked(senders: &super::super::control::ControlSenders) -> (ControlReply, UnixStream) {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(client(theirs, senders.clone()));
        let request = ControlRequest::Qmp { access: QmpAccess::ReadOnly };
        ours.write_all(&wire::encode(&request).unwrap()).await.unwrap();
        let reply = wire::decode(&read_line(&mut ours).await.unwrap()).unwrap();
        (reply, ours)
    }

    #[tokio::test]
    async fn a_machine_has_places_for_so_many_clients_and_the_next_one_reads_why_not() {
        let (senders, receivers) = open_channels(mpsc::channel(1).0, watch::channel(running(1)).1, Levels::fixed());
        let mut connected = Vec::new();
        for _ in 0..MAX_QMP_CLIENTS {
            let (reply, stream) = asked(&senders).await;
            assert_eq!(reply, ControlReply::Streaming);
            connected.push(stream);
        }
        let (reply, _) = asked(&senders).await;
        let ControlReply::Denied { reason } = reply else { panic!("{reply:?}") };
        assert!(reason.contains("16 QMP clients"), "{reason}");
        drop((receivers, connected));
    }
}
