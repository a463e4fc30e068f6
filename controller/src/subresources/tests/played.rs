//! What tests play alike of a node: the socket of the one supervisor that it has, and its agent.

use std::sync::Arc;
use std::time::Duration;

use garboard_tunnel::agent::{self, Opened, Refusal, Supervisors};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::Api;
use super::instance::{NODE, POD};
use crate::webhook::testing::PATIENCE;

/// Waits until this holds.
pub(super) async fn until(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

/// A connection to the supervisor in [`POD`], which answers at its other end.
pub(super) fn open<F: Future<Output = ()> + Send + 'static>(
    pod_uid: &str,
    answer: impl FnOnce(UnixStream) -> F,
) -> Result<Opened, Refusal> {
    if pod_uid != POD {
        return Err(Refusal::NoSupervisor);
    }
    let (ours, theirs) = UnixStream::pair().map_err(|_| Refusal::Busy)?;
    tokio::spawn(answer(theirs));
    Ok(Opened { socket: ours, place: None })
}

/// The agent of [`NODE`] connects; its connection ends with the task.
pub(super) async fn connect(api: &Api, supervisors: impl Supervisors) -> JoinHandle<()> {
    let (above, below) = UnixStream::pair().unwrap();
    let agent = tokio::spawn(agent::serve(below, Arc::new(supervisors)));
    let nodes = api.nodes.clone();
    let serving = tokio::spawn(async move {
        let _ = nodes.serve(NODE, above).await;
        agent.abort();
    });
    until(|| api.nodes.has(NODE)).await;
    serving
}
