//! Both ends over a pair of sockets, without TLS.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use garboard_tunnel::NOTICED_WITHIN;
use garboard_tunnel::agent::{self, Opened, Refusal, Supervisors};
use garboard_tunnel::controller::{Nodes, OpenError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const POD: &str = "6f1d9f7c-0b0e-4d0c-8a3f-0d6f2b7f1a11";

/// One pod, whose supervisor answers what it reads, and ends when it has read everything.
struct Echo;

impl Supervisors for Echo {
    async fn open(&self, pod_uid: &str) -> Result<Opened, Refusal> {
        if pod_uid != POD {
            return Err(Refusal::NoSupervisor);
        }
        let (ours, theirs) = UnixStream::pair().map_err(|_| Refusal::Busy)?;
        tokio::spawn(async move {
            let (mut from, mut to) = theirs.into_split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
        });
        Ok(Opened { socket: ours, place: None })
    }
}

/// No pod at all.
struct Nobody;

impl Supervisors for Nobody {
    async fn open(&self, _pod_uid: &str) -> Result<Opened, Refusal> {
        Err(Refusal::NoSupervisor)
    }
}

/// No pod, and the traces that were asked in.
#[derive(Default)]
struct Traced(Mutex<Vec<String>>);

impl Supervisors for Traced {
    async fn open(&self, _pod_uid: &str) -> Result<Opened, Refusal> {
        Err(Refusal::Busy)
    }

    fn follow(&self, _span: &tracing::Span, trace: &str) {
        self.0.lock().unwrap().push(trace.to_owned());
    }
}

/// A node that is connected.
async fn connected(nodes: &Nodes, node: &'static str) -> tokio::task::JoinHandle<hyper::Result<()>> {
    let (above, below) = UnixStream::pair().unwrap();
    let agent = tokio::spawn(agent::serve(below, Arc::new(Echo)));
    let nodes_of_it = nodes.clone();
    tokio::spawn(async move { nodes_of_it.serve(node, above).await });
    until(|| nodes.has(node)).await;
    agent
}

async fn until(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap();
}

#[tokio::test]
async fn bytes_go_both_ways_and_an_end_is_seen() {
    let nodes = Nodes::default();
    let _agent = connected(&nodes, "one").await;
    let mut stream = nodes.open("one", POD, None).await.unwrap();
    // More than both windows hold.
    let sent: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let (mut from, mut to) = tokio::io::split(&mut stream);
    let mut read = Vec::new();
    let write = async {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    };
    let (_, count) = tokio::join!(write, from.read_to_end(&mut read));
    assert_eq!(count.unwrap(), sent.len());
    assert!(read == sent, "other bytes came back");
}

#[tokio::test]
async fn streams_that_are_not_read_hold_back_no_other() {
    let nodes = Nodes::default();
    let _agent = connected(&nodes, "one").await;
    let block = vec![0; 64 * 1024];
    let mut unread = Vec::new();
    for _ in 0..40 {
        let mut slow = nodes.open("one", POD, None).await.unwrap();
        // Until nothing more fits on the way.
        while tokio::time::timeout(Duration::from_millis(100), slow.write_all(&block)).await.is_ok() {}
        unread.push(slow);
    }
    for _ in 0..3 {
        let mut other = nodes.open("one", POD, None).await.unwrap();
        other.write_all(b"hello").await.unwrap();
        let mut answer = [0; 5];
        tokio::time::timeout(Duration::from_secs(60), other.read_exact(&mut answer)).await.expect("an answer").unwrap();
        assert_eq!(&answer, b"hello");
    }
}

#[tokio::test]
async fn what_is_not_there_is_an_error() {
    let nodes = Nodes::default();
    let missing = nodes.open("one", POD, None).await.unwrap_err();
    assert!(matches!(missing, OpenError::NoAgent { .. }), "{missing}");
    let agent = connected(&nodes, "one").await;
    let refused = nodes.open("one", "other", None).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the agent of node one answered 404 Not Found: no supervisor of this pod is connected"
    );
    for strange in ["", "a/b", "a b", "a@b:c:d"] {
        assert!(nodes.open("one", strange, None).await.is_err(), "{strange:?}");
    }
    agent.abort();
    until(|| nodes.is_empty()).await;
}

#[tokio::test]
async fn a_connection_is_in_the_trace_that_it_is_opened_in() {
    let (nodes, traced) = (Nodes::default(), Arc::new(Traced::default()));
    let (above, below) = UnixStream::pair().unwrap();
    let agent = tokio::spawn(agent::serve(below, Arc::clone(&traced)));
    let nodes_of_it = nodes.clone();
    tokio::spawn(async move { nodes_of_it.serve("one", above).await });
    until(|| nodes.has("one")).await;
    for trace in [None, Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), None] {
        assert!(nodes.open("one", POD, trace).await.is_err());
    }
    assert_eq!(*traced.0.lock().unwrap(), ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]);
    agent.abort();
}

#[tokio::test]
async fn the_newest_connection_of_a_node_is_used_and_streams_of_the_one_before_go_on() {
    let nodes = Nodes::default();
    let first = connected(&nodes, "one").await;
    let mut before = nodes.open("one", POD, None).await.unwrap();
    let (above, below) = UnixStream::pair().unwrap();
    let newest = tokio::spawn(agent::serve(below, Arc::new(Echo)));
    let nodes_of_it = nodes.clone();
    let serving = tokio::spawn(async move { nodes_of_it.serve("one", above).await });
    before.write_all(b"x").await.unwrap();
    assert_eq!(before.read_u8().await.unwrap(), b'x');
    // The one before ends: the node stays connected.
    first.abort();
    assert!(before.read_u8().await.is_err());
    assert!(nodes.open("one", POD, None).await.is_ok());
    newest.abort();
    let _ = serving.await;
    assert!(nodes.is_empty());
}

#[tokio::test]
async fn where_the_newest_connection_of_a_node_ends_first_the_one_before_is_used_again() {
    let nodes = Nodes::default();
    let _agent = connected(&nodes, "one").await;
    // Another one that shows the node's token, and leaves: who has taken over an agent, or a second agent that ends.
    let (above, below) = UnixStream::pair().unwrap();
    let passing = tokio::spawn(agent::serve(below, Arc::new(Nobody)));
    let nodes_of_it = nodes.clone();
    let serving = tokio::spawn(async move { nodes_of_it.serve("one", above).await });
    let overtaken = async { while nodes.open("one", POD, None).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(60), overtaken).await.expect("the newest one is asked");
    passing.abort();
    let _ = serving.await;
    let mut stream = nodes.open("one", POD, None).await.expect("the agent is still connected");
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    assert_eq!(nodes.known(), 1);
}

#[tokio::test]
async fn a_replica_knows_of_the_nodes_that_it_had_and_of_those_that_are_to_come() {
    let nodes = Nodes::default();
    assert_eq!(nodes.known(), 0);
    let agents = [connected(&nodes, "one").await, connected(&nodes, "two").await];
    assert_eq!(nodes.known(), 2);
    agents.iter().for_each(tokio::task::JoinHandle::abort);
    until(|| nodes.is_empty()).await;
    assert_eq!(nodes.known(), 2, "all of them dial again");
    for (expected, known) in [(8000, 8000), (1, 2)] {
        nodes.expect(expected);
        assert_eq!(nodes.known(), known);
    }
}

/// A way between two ends that can be cut, so that nothing arrives any more and neither end reads an end.
async fn way() -> (UnixStream, UnixStream, tokio::task::JoinHandle<()>) {
    let ((above, mut upper), (below, mut lower)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let (cut, is_cut) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut upper, &mut lower) => {}
            _ = is_cut => std::future::pending().await,
        }
    });
    let holds = tokio::spawn(async move {
        std::future::pending::<()>().await;
        drop(cut);
    });
    (above, below, holds)
}

#[tokio::test(start_paused = true)]
async fn both_ends_notice_a_connection_that_is_half_open_in_time() {
    let (above, below, holds) = way().await;
    let nodes = Nodes::default();
    let agent = tokio::spawn(agent::serve(below, Arc::new(Echo)));
    let nodes_of_it = nodes.clone();
    let serving = tokio::spawn(async move { nodes_of_it.serve("one", above).await });
    until(|| nodes.has("one")).await;
    let mut stream = nodes.open("one", POD, None).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    // Longer than it takes to notice: a connection without a stream goes on.
    tokio::time::sleep(NOTICED_WITHIN * 3).await;
    assert!(nodes.has("one") && nodes.open("one", POD, None).await.is_ok());
    holds.abort();
    let begun = tokio::time::Instant::now();
    let margin = Duration::from_secs(1);
    for (end, outcome) in [("controller", serving), ("agent", agent)] {
        let noticed = tokio::time::timeout(NOTICED_WITHIN + margin, outcome).await;
        assert!(noticed.is_ok_and(|ended| ended.is_ok()), "{end} after {:?}", begun.elapsed());
    }
    assert!(nodes.is_empty() && stream.read_u8().await.is_err());
}

#[tokio::test]
async fn an_agent_shows_the_token_that_it_would_show_now_and_one_of_before_none() {
    for (renewed, expected) in [(Some("renewed"), Some("renewed".to_owned())), (None, None)] {
        let (above, below) = UnixStream::pair().unwrap();
        let token = move || renewed.map(str::to_owned);
        let agent = tokio::spawn(agent::serve_with_token(below, Arc::new(Echo), token));
        let nodes = Nodes::default();
        let (shown, seen) = tokio::sync::oneshot::channel();
        let holds = |mut agent: garboard_tunnel::controller::Agent| async move {
            let _ = shown.send(agent.token().await);
        };
        // It ends when this does.
        nodes.serve_while("one", above, holds).await.unwrap();
        assert_eq!(seen.await.unwrap(), expected);
        assert!(nodes.is_empty());
        let _ = tokio::time::timeout(Duration::from_secs(60), agent).await.expect("the agent's end has ended");
    }
}
