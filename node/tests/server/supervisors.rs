//! Control connections of supervisors.

use garboard_agent::line_socket::LineError;
use garboard_node::budget::CONNECTIONS_PER_POD;
use garboard_protocol::agent::AgentRequest;
use garboard_tunnel::agent::{Refusal, Supervisors};

use super::{POD, Reply, Stage, VMI, ask, dial, report};

#[tokio::test]
async fn control_connections_reach_the_newest_connection_of_a_pod() {
    let stage = Stage::in_launcher_pod();
    assert_eq!(stage.supervisors.open(POD).await.err(), Some(Refusal::NoSupervisor));
    let mut before = dial(&stage.path()).await;
    assert_eq!(ask(&mut before, &AgentRequest::Serve, &[]).await, Reply::Serving);
    let mut socket = dial(&stage.path()).await;
    assert_eq!(ask(&mut socket, &AgentRequest::Serve, &[]).await, Reply::Serving);
    assert!(matches!(before.receive::<Reply>().await, Err(LineError::Closed)), "the earlier one is closed");
    // As many as a pod may have beside it.
    let mut others = Vec::new();
    for _ in 0..CONNECTIONS_PER_POD - 1 {
        let mut other = dial(&stage.path()).await;
        assert_eq!(ask(&mut other, &report(VMI, 1), &[]).await, Reply::Noted);
        others.push(other);
    }
    let (opened, received) = tokio::join!(stage.supervisors.open(POD), socket.receive::<Reply>());
    assert_eq!(received.unwrap(), Reply::Connection);
    let descriptor = socket.take_descriptors(1).unwrap().remove(0);
    let theirs = std::os::unix::net::UnixStream::from(descriptor);
    let ours = opened.unwrap().socket;
    ours.writable().await.unwrap();
    ours.try_write(b"hello").unwrap();
    theirs.set_nonblocking(false).unwrap();
    let mut read = [0; 5];
    std::io::Read::read_exact(&mut &theirs, &mut read).unwrap();
    assert_eq!(&read, b"hello");
    // Whatever it sends on this connection ends it.
    socket.send(&report(VMI, 2), &[]).await.unwrap();
    assert!(matches!(socket.receive::<Reply>().await, Err(LineError::Closed)));
    assert_eq!(stage.supervisors.open(POD).await.err(), Some(Refusal::NoSupervisor));
}
