//! Control connections that come through the node agent: requests and streams of the subresource API. The supervisor dials,
//! because nothing listens where another container or the node could reach it; the agent sends a socket for each.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use garboard_agent::client::{AgentClient, NetworkPlace, NodeAgentError};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::paths;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

/// Pause before an agent that did not answer is dialled again, and the longest it grows to: an agent of a version before
/// closes the connection each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Connections at once; one more is closed.
const MOST: usize = 64;

/// Takes connections from the node agent for as long as there is a supervisor. `serve` answers one, until it ends.
pub(crate) fn start<S, F>(order: &Path, serve: S)
where
    S: Fn(UnixStream) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(keep(order.join(paths::AGENT_SOCKET), serve));
}

async fn keep<S, F>(socket: PathBuf, serve: S)
where
    S: Fn(UnixStream) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(MOST));
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match AgentClient::connect(&socket, NetworkPlace::Ours).await {
            Ok(agent) => take(agent, &places, &serve, &mut pause).await,
            Err(error) => error,
        };
        tracing::debug!(error = %ErrorChain(&error), ?pause, "no control connections come from the node agent; tried again");
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Takes connections until this one to the agent breaks, and why.
async fn take<S, F>(mut agent: AgentClient, places: &Arc<Semaphore>, serve: &S, pause: &mut Duration) -> NodeAgentError
where
    S: Fn(UnixStream) -> F + Send + Sync,
    F: Future<Output = ()> + Send + 'static,
{
    if let Err(error) = agent.serve().await {
        return error;
    }
    *pause = FIRST_PAUSE;
    loop {
        let stream = match agent.connection().await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            tracing::warn!(most = MOST, "a control connection is closed: there are too many");
            continue;
        };
        let answering = serve(stream);
        tokio::spawn(async move {
            answering.await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use garboard_agent::line_socket::LineSocket;
    use garboard_net::GuestAddresses;
    use garboard_protocol::agent::{AgentReply, AgentRequest};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;

    type Reply = AgentReply<GuestAddresses>;

    #[tokio::test]
    async fn connections_come_from_the_agent_and_from_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join(paths::AGENT_SOCKET)).unwrap();
        start(directory.path(), |mut stream| async move {
            let byte = stream.read_u8().await.unwrap();
            stream.write_u8(byte + 1).await.unwrap();
        });
        for _ in 0..2 {
            let accepted = tokio::time::timeout(Duration::from_secs(60), listener.accept()).await;
            let mut agent = LineSocket::new(accepted.expect("it is dialled").unwrap().0);
            assert_eq!(agent.receive::<AgentRequest>().await.unwrap(), AgentRequest::Serve);
            agent.send(&Reply::Serving, &[]).await.unwrap();
            for number in 0..3 {
                let (mut ours, theirs) = UnixStream::pair().unwrap();
                agent.send(&Reply::Connection, &[theirs.as_fd()]).await.unwrap();
                drop(theirs);
                ours.write_u8(number).await.unwrap();
                assert_eq!(ours.read_u8().await.unwrap(), number + 1);
            }
        }
    }

    #[tokio::test]
    async fn too_many_connections_are_closed() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join(paths::AGENT_SOCKET)).unwrap();
        start(directory.path(), |mut stream| async move {
            let _ = stream.write_u8(0).await;
            let _ = stream.read_u8().await;
        });
        let mut agent = LineSocket::new(listener.accept().await.unwrap().0);
        assert_eq!(agent.receive::<AgentRequest>().await.unwrap(), AgentRequest::Serve);
        agent.send(&Reply::Serving, &[]).await.unwrap();
        let mut open = Vec::new();
        for _ in 0..MOST {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            agent.send(&Reply::Connection, &[theirs.as_fd()]).await.unwrap();
            drop(theirs);
            assert_eq!(ours.read_u8().await.unwrap(), 0);
            open.push(ours);
        }
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        agent.send(&Reply::Connection, &[theirs.as_fd()]).await.unwrap();
        drop(theirs);
        assert!(ours.read_u8().await.is_err(), "it is closed");
    }
}
