//! What a replica does between SIGTERM and its end, and when.
//!
//! ```text
//!   SIGTERM       /readyz fails, nothing is reconciled any more, and the Lease is let go, so that another replica leads.
//!                 All that is asked is still answered; over HTTP/1.1 with `Connection: close`
//!   5 s later     new connections are refused, idle ones are closed, and what is being answered is finished
//!   the end       when nothing is being answered any more, at the latest 28 s later; a second SIGTERM is the end at once
//! ```
//!
//! API servers do not repeat a webhook call whose connection is refused or closed: what was being applied is refused. So a
//! connection over HTTP/1.1 is closed by an answer, which the client sees; only one that was not used for 5 s is closed
//! without. HTTP/2 has a message for it (GOAWAY), and clients repeat what came after.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum_server::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How long the parts of an end last. `terminationGracePeriodSeconds` of the Deployment is longer than all together.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// From the signal until new connections are refused.
    pub answering: Duration,
    /// From then on, for what is being answered.
    pub draining: Duration,
    /// For the Lease, beginning with the signal.
    pub release: Duration,
}

impl Times {
    /// Those of the program.
    pub const USUAL: Self = Self {
        // A Pod that ends is taken out of its EndpointSlices at once, and each kube-proxy sees it by a watch and writes
        // its rules at most once a second. Until a node has done so, it sends new connections here.
        answering: Duration::from_secs(5),
        // A request of the subresource API is answered within 27 s; one to a webhook takes less.
        draining: Duration::from_secs(28),
        // An API server that does not answer leaves the Lease to expire after 15 s.
        release: Duration::from_secs(5),
    };
}

/// What a replica does now. They follow each other in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// There was no signal yet.
    #[default]
    Serving,
    /// It has the signal, and answers as before.
    Leaving,
    /// It accepts no connection any more, and finishes what it has.
    Draining,
}

/// The stage, as servers follow it.
#[derive(Clone, Debug)]
pub struct Stages(watch::Receiver<Stage>);

/// The stage of this process, and how servers follow it.
#[must_use]
pub fn stages() -> (watch::Sender<Stage>, Stages) {
    let (sender, receiver) = watch::channel(Stage::default());
    (sender, Stages(receiver))
}

impl Stages {
    /// The stage of now.
    #[must_use]
    pub fn now(&self) -> Stage {
        *self.0.borrow()
    }

    /// Returns when new connections are to be refused.
    pub async fn draining(&mut self) {
        if self.0.wait_for(|stage| *stage == Stage::Draining).await.is_err() {
            // Nothing can send a stage any more.
            pending().await
        }
    }

    /// Routes whose answers close their connection from the signal on. HTTP/2 has no such header.
    pub fn closing(&self, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self.clone(), close))
    }

    /// Has a server drained when it is time, which ends it when it has answered everything. Never returns.
    pub async fn drain(mut self, server: Handle<SocketAddr>) {
        self.draining().await;
        server.graceful_shutdown(None);
        pending().await
    }

    /// What the end of a server means: it has been drained, or has failed.
    ///
    /// # Errors
    /// It failed.
    pub fn ended(&self, what: &str, outcome: io::Result<()>) -> Result<(), String> {
        match (self.now(), outcome) {
            (Stage::Draining, Ok(())) => Ok(()),
            (_, outcome) => Err(format!("{what}: {outcome:?}")),
        }
    }
}

async fn close(State(stages): State<Stages>, request: Request, next: Next) -> Response {
    let has_header = request.version() < Version::HTTP_2;
    let mut answer = next.run(request).await;
    // A connection that is upgraded is the stream's.
    let is_upgraded = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    if has_header && !is_upgraded && stages.now() != Stage::Serving {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// The signals that ask for the end: SIGTERM of a kubelet, SIGINT of a terminal.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on they do not end the process by themselves.
    ///
    /// # Errors
    /// The signals cannot be received.
    pub fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Returns with the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Takes a replica from the signal to its end. `served` ends when all has been drained, `again` with another signal.
///
/// # Errors
/// What `served` says.
pub async fn leave(
    stages: &watch::Sender<Stage>,
    times: Times,
    release: impl Future<Output = ()>,
    served: impl Future<Output = Result<(), String>>,
    again: impl Future<Output = ()>,
) -> Result<(), String> {
    tracing::info!("the controller was asked to end: it answers for a while, and does not lead");
    stages.send_replace(Stage::Leaving);
    let in_order = async {
        let release = async {
            if timeout(times.release, release).await.is_err() {
                tracing::warn!("release of the lease timed out; it expires");
            }
        };
        tokio::join!(sleep(times.answering), release);
        tracing::info!("the controller accepts no connections any more");
        stages.send_replace(Stage::Draining);
        sleep(times.draining).await;
        tracing::warn!("the controller ends although requests are being answered");
        Ok(())
    };
    tokio::select! {
        outcome = served => outcome,
        outcome = in_order => outcome,
        () = again => {
            tracing::warn!("the controller was asked to end again, and ends at once");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
