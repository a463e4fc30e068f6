//! The supervisor's side of the launch socket: PID 1 connects, again after every restart of either.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use garboard_agent::line_socket::{LineError, LineSocket, next_client};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::journal::Journal;
use garboard_protocol::launch::{FromInit, InitState, Launch, ToInit};
use garboard_protocol::{PROTOCOL_VERSION, common_version, paths};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::driver::Input;
use super::journal;
use super::lost;
use super::run::{Context, Environment};

/// While PID 1 is not connected, how soon it is looked for its last account, and how rarely at last.
const FIRST_CHECK: Duration = Duration::from_millis(50);
const RAREST_CHECK: Duration = Duration::from_secs(1);

/// Longest line of PID 1, and its longest account, bytes: 4 KiB of QEMU's last output, escaped, are most of it.
const LONGEST_LINE: usize = 64 * 1024;
/// How long a connection may be silent; PID 1 sends at once.
const INTRODUCTION: Duration = Duration::from_secs(2);
/// So many may be silent at a time; then the one that has been for longest goes.
const NEWCOMERS: usize = 16;

/// A launch that is ready to be sent, once.
pub(crate) struct ReadyLaunch {
    /// What to execute.
    pub(crate) launch: Box<Launch>,
    /// The log, then the descriptors in the order of [`Launch::descriptors`].
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// PID 1's first message.
pub(crate) struct Handshake {
    socket: LineSocket,
    /// Whether QEMU runs already.
    pub(crate) state: InitState,
}

/// The launch socket and the messages to send on it.
pub(crate) struct InitChannel {
    /// Where PID 1 connects.
    pub(crate) socket: UnixListener,
    /// The driver's messages.
    pub(crate) outbox: mpsc::Receiver<ToInit>,
}

/// Waits for PID 1 to connect and introduce itself. `None` if it left its last account instead, or was killed together
/// with QEMU: that is reported to the driver.
pub(crate) async fn wait(socket: &UnixListener, context: &Context) -> Option<Handshake> {
    let greeting = greet(socket, context);
    tokio::pin!(greeting);
    let (away, mut pause) = (Instant::now(), FIRST_CHECK);
    loop {
        tokio::select! {
            handshake = &mut greeting => return Some(handshake),
            () = tokio::time::sleep(pause) => {
                if let Some(end) = end(context, away.elapsed()).await {
                    let _ = context.happened.send(end).await;
                    return None;
                }
                pause = RAREST_CHECK.min(pause * 2);
            }
        }
    }
}

/// How a machine ended whose PID 1 has been away for so long. On a bare host its shim sees PID 1 end, and reports it.
async fn end(context: &Context, away: Duration) -> Option<Input> {
    match context.environment {
        Environment::Pod if away >= lost::PATIENCE => lost::end(&context.layout).await,
        Environment::Pod | Environment::Host => {
            lost::account(&context.layout).map(|report| Input::Init(FromInit::Ended { report }))
        }
    }
}

/// Whether it is the PID 1 that was here first. Before the first one has connected there is no QEMU that could imitate it, so it
/// is trusted, and its secret kept. A machine that was launched by a build without secrets has a PID 1 without a secret.
fn is_known(context: &Context, secret: &str) -> bool {
    let directory = context.layout.supervisor();
    let found = std::fs::read(directory.join(paths::LAUNCH_SECRET));
    match found {
        Ok(known) => known == secret.as_bytes(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let is_first = secret.is_empty() || journal::read(&directory).is_ok_and(|journal| !was_launched(journal));
            let kept = || journal::replace(&directory, paths::LAUNCH_SECRET, secret.as_bytes());
            is_first
                && kept()
                    .inspect_err(|error| tracing::error!(%error, "could not store PID 1's secret; tried again"))
                    .is_ok()
        }
        Err(error) => {
            tracing::error!(%error, "could not read PID 1's secret; tried again");
            false
        }
    }
}

fn was_launched(journal: Option<Journal>) -> bool {
    journal.is_some_and(|journal| journal.launched)
}

/// Reads new connections, a few at the same time, so that none keeps PID 1 waiting.
async fn greet(socket: &UnixListener, context: &Context) -> Handshake {
    let mut introductions = JoinSet::new();
    let mut oldest = VecDeque::new();
    loop {
        tokio::select! {
            stream = next_client(socket) => {
                if oldest.len() == NEWCOMERS {
                    oldest.pop_front().inspect(AbortHandle::abort);
                }
                oldest.push_back(introductions.spawn(introduction(stream)));
            }
            Some(introduced) = introductions.join_next() => {
                oldest.retain(|handle| !handle.is_finished());
                let Ok(Some((socket, hello))) = introduced else { continue };
                if let Some(handshake) = admitted(socket, hello, context) {
                    return handshake;
                }
            }
        }
    }
}

/// The first line of a new peer. PID 1 sends no descriptors, and short lines; so another process cannot fill our tables or
/// our memory.
async fn introduction(stream: UnixStream) -> Option<(LineSocket, FromInit)> {
    let mut socket = LineSocket::limited(stream, 0).with_longest_line(LONGEST_LINE);
    match timeout(INTRODUCTION, socket.receive::<FromInit>()).await {
        Ok(Ok(hello)) => return Some((socket, hello)),
        Ok(Err(error)) => tracing::debug!(error = %ErrorChain(&error), "a connection to the launch socket was lost"),
        Err(_) => tracing::warn!("a connection to the launch socket sent nothing in time; closed"),
    }
    None
}

/// PID 1, if it sent this.
fn admitted(socket: LineSocket, hello: FromInit, context: &Context) -> Option<Handshake> {
    let FromInit::Hello { version, oldest, state, secret } = hello else {
        tracing::error!(?hello, "PID 1 did not send its greeting");
        return None;
    };
    // Builds that named no oldest version support one.
    let oldest = if oldest == 0 { version } else { oldest };
    if common_version(oldest, version).is_none() {
        tracing::error!(
            oldest,
            version,
            ours = PROTOCOL_VERSION,
            "PID 1 has another version of the launch protocol; its connection was closed"
        );
        return None;
    }
    if !is_known(context, &secret) {
        tracing::warn!("another process than PID 1 connected to the launch socket; its connection was closed");
        socket.put_away();
        return None;
    }
    Some(Handshake { socket, state })
}

/// Talks to PID 1 until the end: sends the launch if there is one, then messages as they come.
pub(crate) async fn serve(
    mut channel: InitChannel,
    first: Handshake,
    mut launch: Option<ReadyLaunch>,
    context: Context,
) {
    let mut current = Some(first);
    while let Some(handshake) = current {
        if let Err(error) = serve_connection(handshake, &mut launch, &mut channel.outbox, &context.happened).await {
            tracing::debug!(error = %ErrorChain(&error), "the connection to PID 1 ended");
        }
        if channel.outbox.is_closed() {
            return;
        }
        current = wait(&channel.socket, &context).await;
    }
}

async fn serve_connection(
    handshake: Handshake,
    launch: &mut Option<ReadyLaunch>,
    messages: &mut mpsc::Receiver<ToInit>,
    happened: &mpsc::Sender<Input>,
) -> Result<(), LineError> {
    let Handshake { mut socket, state } = handshake;
    if let (InitState::Waiting, Some(ready)) = (state, launch.take()) {
        if write_down(happened).await {
            let descriptors: Vec<_> = ready.descriptors.iter().map(AsFd::as_fd).collect();
            socket.send(&ToInit::Launch(ready.launch), &descriptors).await?;
        } else {
            // The next supervisor would repeat what is not in the journal.
            let message = "the journal could not be written".to_owned();
            let _ = happened.send(Input::PreparationFailed(message)).await;
        }
    }
    loop {
        tokio::select! {
            message = socket.receive::<FromInit>() => {
                if happened.send(Input::Init(message?)).await.is_err() {
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
async fn write_down(happened: &mpsc::Sender<Input>) -> bool {
    let (written, done) = oneshot::channel();
    happened.send(Input::Launching(written)).await.is_ok() && done.await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use garboard_protocol::paths::Layout;
    use garboard_protocol::wire;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::run::Environment;
    use super::*;

    async fn hello(layout: &Layout, secret: &str) -> UnixStream {
        let mut stream = UnixStream::connect(layout.init().join(paths::LAUNCH_SOCKET)).await.unwrap();
        let state = InitState::Running { pid: 2 };
        let version = PROTOCOL_VERSION;
        let hello = FromInit::Hello { version, oldest: version, state, secret: secret.to_owned() };
        stream.write_all(&wire::encode(&hello).unwrap()).await.unwrap();
        stream
    }

    /// The directories of a machine, whose launch socket listens.
    fn room() -> (tempfile::TempDir, Context, UnixListener, mpsc::Receiver<Input>) {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        for directory in [layout.supervisor(), layout.init()] {
            std::fs::create_dir(directory).unwrap();
        }
        let (happened, inbox) = mpsc::channel(4);
        let socket = UnixListener::bind(layout.init().join(paths::LAUNCH_SOCKET)).unwrap();
        (room, Context { layout, environment: Environment::Host, happened }, socket, inbox)
    }

    #[tokio::test]
    async fn a_peer_without_the_first_secret_is_not_pid_1() {
        let (_room, context, socket, _inbox) = room();
        let layout = &context.layout;
        let first = hello(layout, "first").await;
        assert!(wait(&socket, &context).await.is_some());
        drop(first);
        // QEMU, after the supervisor was started again.
        let mut other = hello(layout, "guessed").await;
        let mut silent = hello(layout, "").await;
        let _again = hello(layout, "first").await;
        assert!(wait(&socket, &context).await.is_some());
        for refused in [&mut other, &mut silent] {
            assert_eq!(refused.read(&mut [0]).await.unwrap_or(0), 0, "sent away");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_peers_do_not_keep_pid_1_waiting() {
        let (_room, context, socket, _inbox) = room();
        let path = context.layout.init().join(paths::LAUNCH_SOCKET);
        let silent = async {
            let mut silent = Vec::new();
            for _ in 0..4 * NEWCOMERS {
                silent.push(UnixStream::connect(&path).await.unwrap());
            }
            let pid1 = hello(&context.layout, "first").await;
            (silent, pid1)
        };
        let began = Instant::now();
        let (handshake, _connected) = tokio::join!(wait(&socket, &context), silent);
        assert!(handshake.is_some());
        assert!(began.elapsed() < INTRODUCTION, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn no_new_peer_is_trusted_once_qemu_was_executed() {
        let (_room, context, _socket, _inbox) = room();
        let directory = context.layout.supervisor();
        let written = Journal { version: PROTOCOL_VERSION, launched: true, ..Journal::default() };
        assert!(journal::write(&directory, &written));
        assert!(!is_known(&context, "guessed"));
        assert!(is_known(&context, ""), "a build without secrets launched it");
        assert!(!is_known(&context, "guessed"));
    }

    #[tokio::test]
    async fn a_secret_that_cannot_be_read_is_not_replaced() {
        let (_room, context, _socket, _inbox) = room();
        let secret = context.layout.supervisor().join(paths::LAUNCH_SECRET);
        std::fs::create_dir(&secret).unwrap();
        assert!(!is_known(&context, "guessed"));
        assert!(secret.is_dir());
    }
}
