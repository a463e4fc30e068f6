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
        let span = client.span;
        let serving = async move {
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
