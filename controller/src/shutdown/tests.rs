//! What happens when after the signal, and what a client with a connection of its own sees.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::routing::post;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::subresources::limits::{ANSWERED_WITHIN, LIMITS};
use crate::webhook::bounds::Limits;
use crate::webhook::testing::{PATIENCE, begin, rest, status};

/// A replica that has been asked to end, and its clients' view.
struct Replica {
    address: SocketAddr,
    stages: Stages,
    /// Tells of each request of `/slow` that is being answered.
    begun: mpsc::UnboundedReceiver<()>,
    /// Lets them be answered.
    answer: Arc<Notify>,
    /// What a second signal is.
    again: oneshot::Sender<()>,
    /// Ends with the process.
    leaving: JoinHandle<Result<(), String>>,
}

impl Replica {
    /// It answers for `PATIENCE`, which is over when `wait` was called, and drains as long as it takes.
    async fn asked_to_end() -> Self {
        let (tell, begun) = mpsc::unbounded_channel();
        let answer = Arc::new(Notify::new());
        let let_go = answer.clone();
        let slow = async move || {
            let _ = tell.send(());
            let_go.notified().await;
        };
        let routes = Router::new()
            .route("/read", post(|body: Bytes| async move { body.len().to_string() }))
            .route("/slow", post(slow));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, stages) = stages();
        let seen = stages.clone();
        let (again, asked) = oneshot::channel::<()>();
        let leaving = tokio::spawn(async move {
            let handle = Handle::new();
            let server = axum_server::from_tcp(listener).unwrap().handle(handle.clone());
            let served = async {
                tokio::select! {
                    outcome = server.serve(stages.closing(routes).into_make_service()) => stages.ended("it", outcome),
                    () = stages.clone().drain(handle) => panic!("it returned"),
                }
            };
            let again = async {
                if asked.await.is_err() {
                    pending().await
                }
            };
            let times = Times { answering: PATIENCE, draining: PATIENCE, release: PATIENCE };
            leave(&sender, times, async {}, served, again).await
        });
        let mut replica = Self { address, stages: seen, begun, answer, again, leaving };
        replica.reaches(Stage::Leaving).await;
        replica
    }

    async fn reaches(&mut self, stage: Stage) {
        let reached = self.stages.0.wait_for(|now| *now == stage);
        tokio::time::timeout(PATIENCE, reached).await.expect("the stage is reached").unwrap();
    }

    /// Waits until it has answered for as long as it does, and accepts no more.
    async fn wait(&mut self) {
        tokio::time::pause();
        tokio::time::advance(PATIENCE).await;
        tokio::time::resume();
        self.reaches(Stage::Draining).await;
        let refused = async { while TcpStream::connect(self.address).await.is_ok() {} };
        tokio::time::timeout(PATIENCE, refused).await.expect("connections are refused");
    }

    async fn ends(self) -> Result<(), String> {
        tokio::time::timeout(PATIENCE, self.leaving).await.expect("it ends").unwrap()
    }
}

#[tokio::test]
async fn a_connection_that_is_new_after_the_signal_is_answered_and_one_that_comes_too_late_is_refused() {
    let mut replica = Replica::asked_to_end().await;
    let mut new = begin(replica.address, "/read", 1, 1).await;
    assert_eq!(status(&mut new).await, Some(200));
    assert_eq!(rest(&mut new).await, Some(0), "its answer did not close it");
    replica.wait().await;
    assert_eq!(replica.ends().await, Ok(()));
}

#[tokio::test]
async fn a_request_that_is_being_answered_is_finished() {
    let mut replica = Replica::asked_to_end().await;
    let mut slow = begin(replica.address, "/slow", 0, 0).await;
    replica.begun.recv().await.unwrap();
    let mut idle = TcpStream::connect(replica.address).await.unwrap();
    replica.wait().await;
    assert_eq!(rest(&mut idle).await, Some(0), "it is not used");
    assert!(!replica.leaving.is_finished());
    replica.answer.notify_waiters();
    assert_eq!(status(&mut slow).await, Some(200));
    assert_eq!(replica.ends().await, Ok(()));
}

#[tokio::test]
async fn a_second_signal_is_the_end_at_once() {
    let mut replica = Replica::asked_to_end().await;
    let slow = begin(replica.address, "/slow", 0, 0).await;
    replica.begun.recv().await.unwrap();
    replica.again.send(()).unwrap();
    let ended = tokio::time::timeout(PATIENCE, &mut replica.leaving).await.expect("it ends");
    assert_eq!(ended.unwrap(), Ok(()));
    assert!(TcpStream::connect(replica.address).await.is_err(), "it listens still");
    drop(slow);
}

/// What happened, and after how many seconds.
async fn history(release: Duration, served: Duration, again: Duration) -> (Vec<(&'static str, u64)>, bool) {
    let began = Instant::now();
    let (sender, mut stages) = stages();
    let (note, mut noted) = mpsc::unbounded_channel();
    let at = |what: &'static str| {
        let note = note.clone();
        move || note.send((what, began.elapsed().as_secs())).unwrap()
    };
    let (released, closed, ended) = (at("released"), at("closed"), at("the end"));
    let watching = stages.clone();
    let release = async {
        assert_eq!(watching.now(), Stage::Leaving);
        sleep(release).await;
        released();
    };
    let served = async {
        stages.draining().await;
        closed();
        sleep(served).await;
        Ok(())
    };
    let outcome = leave(&sender, Times::USUAL, release, served, sleep(again)).await;
    ended();
    let mut seen = Vec::new();
    while let Ok(next) = noted.try_recv() {
        seen.push(next);
    }
    (seen, outcome.is_ok())
}

const NEVER: Duration = Duration::from_secs(100_000);

#[tokio::test(start_paused = true)]
async fn the_lease_goes_at_once_connections_after_five_seconds_and_the_process_when_all_is_answered() {
    let (seen, well) = history(Duration::ZERO, Duration::from_secs(2), NEVER).await;
    assert_eq!(seen, [("released", 0), ("closed", 5), ("the end", 7)]);
    assert!(well);
}

#[tokio::test(start_paused = true)]
async fn neither_a_lease_nor_a_client_holds_the_process_for_ever() {
    let (seen, well) = history(NEVER, NEVER, NEVER).await;
    assert_eq!(seen, [("closed", 5), ("the end", 33)]);
    assert!(well);
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_waits_for_nothing() {
    let (seen, well) = history(NEVER, NEVER, Duration::from_secs(1)).await;
    assert_eq!(seen, [("the end", 1)]);
    assert!(well);
}

#[test]
fn only_a_server_that_was_drained_has_ended_well() {
    let (sender, stages) = stages();
    for (stage, well) in [(Stage::Serving, false), (Stage::Leaving, false), (Stage::Draining, true)] {
        sender.send_replace(stage);
        assert_eq!(stages.ended("it", Ok(())).is_ok(), well, "{stage:?}");
        assert!(stages.ended("it", Err(io::Error::other("no"))).is_err());
    }
}

#[test]
fn what_is_being_answered_may_take_its_time_and_a_kubelet_waits_for_all_of_it() {
    let Times { answering, draining, release } = Times::USUAL;
    for limits in [Limits::USUAL, Limits::EVICTIONS, LIMITS] {
        assert!(draining > limits.reading + limits.judging, "{limits:?}");
    }
    assert!(draining > ANSWERED_WITHIN && ANSWERED_WITHIN >= LIMITS.reading + LIMITS.judging);
    assert!(release <= answering);
    let deployment = include_str!("../../../deploy/base/controller.yaml");
    let mut found = deployment.lines().filter_map(|line| line.trim().strip_prefix("terminationGracePeriodSeconds: "));
    let period = found.next().expect("a period").parse().map(Duration::from_secs).unwrap();
    assert!(period >= answering + draining + Duration::from_secs(5), "{period:?}");
}
