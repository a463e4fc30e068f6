//! The supervisor's side of the launch socket: PID 1 connects, again after every restart of either.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use garboard_protocol::PROTOCOL_VERSION;
use garboard_protocol::exit::ExitReport;
use garboard_protocol::launch::{FromInit, InitState, Launch, ToInit};
use garboard_protocol::paths;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::line_socket::{LineError, LineSocket};
use super::run::Bench;
use crate::vm::{Chain, Input};

/// While PID 1 is not connected, how often is it checked whether it left its last account.
const ACCOUNT_CHECK: Duration = Duration::from_millis(50);

/// How long a connection may be silent before somebody else is heard; PID 1 speaks at once.
const INTRODUCTION: Duration = Duration::from_secs(2);

/// A launch that is ready to be sent, once.
pub(crate) struct ReadyLaunch {
    /// What to execute.
    pub(crate) launch: Box<Launch>,
    /// The log, then the descriptors in the order of [`Launch::descriptors`].
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// What PID 1 said when it connected first.
pub(crate) struct Greeted {
    socket: LineSocket,
    /// Whether QEMU runs already.
    pub(crate) state: InitState,
}

/// The launch socket and what is to be said on it.
pub(crate) struct Line {
    /// Where PID 1 connects.
    pub(crate) socket: UnixListener,
    /// What the driver wants said.
    pub(crate) outbox: mpsc::Receiver<ToInit>,
}

/// Waits for PID 1 to connect and introduce itself. `None` if it left its last account instead: that is
/// told to the driver.
pub(crate) async fn wait(socket: &UnixListener, bench: &Bench) -> Option<Greeted> {
    loop {
        tokio::select! {
            greeted = greet(socket) => match greeted {
                Ok(greeted) => return Some(greeted),
                Err(error) => {
                    tracing::error!(error = %Chain(&error), "the launch socket failed; PID 1 acts on its own from here");
                    return None;
                }
            },
            () = tokio::time::sleep(ACCOUNT_CHECK) => if let Some(report) = last_account(bench) {
                let _ = bench.happened.send(Input::Init(FromInit::Ended { report })).await;
                return None;
            }
        }
    }
}

fn last_account(bench: &Bench) -> Option<ExitReport> {
    let bytes = std::fs::read(bench.shared.join(paths::EXIT)).ok()?;
    serde_json::from_slice(&bytes).ok()
}

async fn greet(socket: &UnixListener) -> Result<Greeted, LineError> {
    loop {
        let (stream, _) = socket.accept().await?;
        let mut socket = LineSocket::new(stream);
        let Ok(heard) = timeout(INTRODUCTION, socket.receive::<FromInit>()).await else {
            tracing::warn!("somebody connected to the launch socket and said nothing; sent away");
            continue;
        };
        match heard {
            Ok(FromInit::Hello { version, state }) if version == PROTOCOL_VERSION => {
                return Ok(Greeted { socket, state });
            }
            Ok(FromInit::Hello { version, .. }) => {
                tracing::error!(version, ours = PROTOCOL_VERSION, "PID 1 speaks another protocol; it was sent away");
            }
            Ok(other) => tracing::error!(?other, "PID 1 did not introduce itself"),
            Err(error) => tracing::debug!(error = %Chain(&error), "a connection to the launch socket was lost"),
        }
    }
}

/// Talks to PID 1 until the end: sends the launch if there is one, then messages as they come.
pub(crate) async fn serve(mut line: Line, first: Greeted, mut launch: Option<ReadyLaunch>, bench: Bench) {
    let mut current = Some(first);
    while let Some(greeted) = current {
        if let Err(error) = converse(greeted, &mut launch, &mut line.outbox, &bench.happened).await {
            tracing::debug!(error = %Chain(&error), "the connection to PID 1 ended");
        }
        if line.outbox.is_closed() {
            return;
        }
        current = wait(&line.socket, &bench).await;
    }
}

async fn converse(
    greeted: Greeted,
    launch: &mut Option<ReadyLaunch>,
    messages: &mut mpsc::Receiver<ToInit>,
    happened: &mpsc::Sender<Input>,
) -> Result<(), LineError> {
    let Greeted { mut socket, state } = greeted;
    if let (InitState::Waiting, Some(ready)) = (state, launch.take()) {
        write_down(happened).await;
        let descriptors: Vec<_> = ready.descriptors.iter().map(AsFd::as_fd).collect();
        socket.send(&ToInit::Launch(ready.launch), &descriptors).await?;
    }
    loop {
        tokio::select! {
            heard = socket.receive::<FromInit>() => {
                if happened.send(Input::Init(heard?)).await.is_err() {
                    return Ok(());
                }
            }
            message = messages.recv() => match message {
                Some(message) => socket.send(&message, &[]).await?,
                None => return Ok(()),
            }
        }
    }
}

/// A supervisor that is killed after this attaches to what may run, instead of preparing it a second time.
async fn write_down(happened: &mpsc::Sender<Input>) {
    let (written, done) = oneshot::channel();
    if happened.send(Input::Launching(written)).await.is_ok() {
        let _ = done.await;
    }
}
