//! People's QMP clients: the debug broker of the QMP crate, with our log as its audit trail.

use std::sync::Arc;

use garboard_protocol::control::QmpAccess;
use garboard_qmp::Monitor;
use garboard_qmp::broker::{Access, Audit, AuditSink, Broker, PeerIdentity};
use tokio::sync::{mpsc, watch};
use tracing::Instrument;

use super::control::QmpClient;
use super::driver::Input;
use super::run::Context;

/// Serves clients as they come, once the monitor is up.
pub(crate) async fn serve(
    mut station: mpsc::Receiver<QmpClient>,
    mut monitor: watch::Receiver<Option<Monitor>>,
    context: Context,
) {
    let Ok(seen) = monitor.wait_for(Option::is_some).await.map(|seen| seen.clone()) else { return };
    let Some(seen) = seen else { return };
    let log = |claimed| LogSink { claimed, happened: context.happened.clone() };
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

fn access(asked: QmpAccess) -> Access {
    match asked {
        QmpAccess::ReadOnly => Access::ReadOnly,
        QmpAccess::ReadWrite => Access::ReadWrite,
        QmpAccess::Dangerous => Access::Dangerous,
    }
}

/// One log line a call; a mutation also marks the machine.
struct LogSink {
    /// Who the client says it works for.
    claimed: Option<String>,
    happened: mpsc::Sender<Input>,
}

impl AuditSink for LogSink {
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
        if audit.tainted {
            let _ = self.happened.try_send(Input::Tainted(audit.command.to_string()));
        }
    }
}
