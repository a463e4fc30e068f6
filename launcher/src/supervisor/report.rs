//! Reports to the node agent: the newest status, whenever it changes, for as long as there is a
//! supervisor. An agent that is away is dialled again. Each gets the newest status: the one before may have ended between
//! taking a report and writing it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use garboard_agent::client::{AgentClient, NetworkPlace, NodeAgentError};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::Status;
use garboard_protocol::paths;
use tokio::sync::watch;

/// Pause before an agent that did not answer is dialled again, and the longest it grows to.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long the last report may take when the pod is going.
const FAREWELL: Duration = Duration::from_secs(2);

/// The task that reports.
pub(crate) struct Reporter {
    status: watch::Receiver<Status>,
    /// The last generation the agent has.
    noted: watch::Receiver<u64>,
}

/// Reports from now on.
pub(crate) fn start(order: &Path, status: watch::Receiver<Status>) -> Reporter {
    let (note, noted) = watch::channel(0);
    tokio::spawn(report(order.join(paths::AGENT_SOCKET), status.clone(), note));
    Reporter { status, noted }
}

impl Reporter {
    /// Waits until the agent has the last status, for a moment.
    pub(crate) async fn finish(mut self) {
        let last = self.status.borrow().generation;
        let noted = self.noted.wait_for(|noted| *noted >= last);
        if tokio::time::timeout(FAREWELL, noted).await.is_err() {
            tracing::warn!(
                "the node agent did not accept the last report; the pod's termination message has the cause"
            );
        }
    }
}

async fn report(socket: PathBuf, mut status: watch::Receiver<Status>, note: watch::Sender<u64>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let failure = match AgentClient::connect(&socket, NetworkPlace::Ours).await {
            Ok(agent) => send_reports(agent, &mut status, &note, &mut pause).await,
            Err(error) => Err(error),
        };
        match failure {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), ?pause, "the node agent does not accept reports; tried again")
            }
        }
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Until the connection breaks, or the publisher is gone.
async fn send_reports(
    mut agent: AgentClient,
    status: &mut watch::Receiver<Status>,
    note: &watch::Sender<u64>,
    pause: &mut Duration,
) -> Result<(), NodeAgentError> {
    loop {
        // A supervisor that was started again has not observed yet whether its guest is paused, and must not report `false`.
        let Ok(newest) = status.wait_for(|status| status.observed).await.map(|newest| newest.clone()) else {
            return Ok(());
        };
        agent.report(&newest).await?;
        note.send_replace(newest.generation);
        *pause = FIRST_PAUSE;
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return Ok(()) },
            error = agent.broken() => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garboard_agent::line_socket::LineSocket;
    use garboard_net::GuestAddresses;
    use garboard_protocol::agent::{AgentReply, AgentRequest};
    use garboard_protocol::control::PauseReason;

    fn status(generation: u64, observed: bool, paused: Option<PauseReason>) -> Status {
        let status: Status = serde_json::from_value(serde_json::json!({
            "generation": generation, "namespace": "default", "name": "vm", "uid": "u", "phase": "Running",
            "phaseSinceMs": 0, "paused": null, "stopping": false, "softwareEmulation": false, "machine": "pc-q35-7.2",
            "memoryBytes": 1, "vcpus": 1, "interfaces": [], "guest": null, "taints": [], "supervisorPid": 1,
            "resets": 0, "ended": null,
        }))
        .unwrap();
        Status { observed, paused, ..status }
    }

    #[tokio::test]
    async fn what_is_not_known_yet_is_not_reported() {
        let directory = tempfile::tempdir().unwrap();
        let agent = tokio::net::UnixListener::bind(directory.path().join(paths::AGENT_SOCKET)).unwrap();
        let (publish, published) = watch::channel(status(1, false, None));
        let reporter = start(directory.path(), published);
        let (stream, _) = agent.accept().await.unwrap();
        publish.send_replace(status(2, false, None));
        publish.send_replace(status(3, true, Some(PauseReason::PausedByUser)));
        let mut socket = LineSocket::new(stream);
        let status = note(&mut socket).await;
        assert_eq!((status.generation, status.paused), (3, Some(PauseReason::PausedByUser)));
        reporter.finish().await;
    }

    /// Takes a report.
    async fn note(socket: &mut LineSocket) -> Status {
        let AgentRequest::Report { status } = socket.receive().await.unwrap() else { panic!("no report") };
        socket.send(&AgentReply::<GuestAddresses>::Noted, &[]).await.unwrap();
        *status
    }

    #[tokio::test]
    async fn an_agent_that_comes_after_another_receives_the_same_status() {
        let directory = tempfile::tempdir().unwrap();
        let agent = tokio::net::UnixListener::bind(directory.path().join(paths::AGENT_SOCKET)).unwrap();
        let (_publish, published) = watch::channel(status(1, true, None));
        let _reporter = start(directory.path(), published);
        for _ in 0..2 {
            let connected = tokio::time::timeout(Duration::from_secs(60), agent.accept()).await;
            let mut socket = LineSocket::new(connected.expect("it is not dialled").unwrap().0);
            assert_eq!(note(&mut socket).await.generation, 1);
            // It ends without having written the report.
        }
    }
}
