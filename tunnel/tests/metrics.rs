//! Metrics of a node come through the connection that its agent opened.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use std::sync::Arc;
use std::time::Duration;

use garboard_tunnel::agent::{self, Opened, Refusal, Supervisors};
use garboard_tunnel::controller::{MetricsError, Nodes};
use garboard_tunnel::{LONGEST_METRICS, METRICS_WITHIN};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

/// An agent without machines, which sends so many bytes of metrics; of none it never answers.
struct Counting(Option<usize>);

impl Supervisors for Counting {
    async fn open(&self, _pod_uid: &str) -> Result<Opened, Refusal> {
        Err(Refusal::NoSupervisor)
    }

    async fn metrics(&self) -> Option<String> {
        match self.0 {
            Some(length) => Some("x".repeat(length)),
            None => std::future::pending().await,
        }
    }
}

/// An agent that collects no metrics.
struct Bare;

impl Supervisors for Bare {
    async fn open(&self, _pod_uid: &str) -> Result<Opened, Refusal> {
        Err(Refusal::NoSupervisor)
    }
}

fn turn() -> Semaphore {
    Semaphore::new(1)
}

async fn connected(supervisors: impl Supervisors) -> Nodes {
    let (above, below) = UnixStream::pair().unwrap();
    tokio::spawn(agent::serve(below, Arc::new(supervisors)));
    let nodes = Nodes::default();
    let serving = nodes.clone();
    tokio::spawn(async move { serving.serve("one", above).await });
    while !nodes.has("one") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    nodes
}

#[tokio::test]
async fn the_metrics_of_a_node_are_read_through_its_agents_connection() {
    let nodes = connected(Counting(Some(3_000_000))).await;
    assert_eq!(nodes.metrics("one", &turn()).await.unwrap().len(), 3_000_000);
    assert_eq!(nodes.connected(), 1);
    let other = nodes.metrics("two", &turn()).await;
    assert!(matches!(other, Err(MetricsError::NoAgent { node }) if node == "two"));
}

#[tokio::test]
async fn an_agent_without_metrics_refuses_and_more_than_the_most_is_not_read() {
    let refused = connected(Bare).await.metrics("one", &turn()).await;
    assert!(matches!(refused, Err(MetricsError::Refused { status, .. }) if status == 404), "{refused:?}");
    let broken = connected(Counting(Some(LONGEST_METRICS + 1))).await.metrics("one", &turn()).await;
    assert!(matches!(broken, Err(MetricsError::Broken { .. })), "{broken:?}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_answer_is_given_up() {
    let nodes = connected(Counting(None)).await;
    let began = tokio::time::Instant::now();
    let turn = turn();
    let (found, free) = tokio::join!(nodes.metrics("one", &turn), async {
        tokio::time::sleep(METRICS_WITHIN / 2).await;
        turn.available_permits()
    });
    assert!(matches!(found, Err(MetricsError::Slow { .. })));
    assert_eq!(free, 1, "it keeps no other node's from being read");
    assert!(began.elapsed() >= METRICS_WITHIN);
}
