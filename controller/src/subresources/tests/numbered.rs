//! Changes of a machine over connections that break: what its supervisor does, and what the client is answered. The supervisor is
//! played; that a real one does the same is tested with it (`launcher/src/supervisor/driver/tests/numbered.rs`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use garboard_protocol::control::{Asked, ControlReply, ControlRequest, Status};
use garboard_protocol::wire;
use garboard_tunnel::agent::{Opened, Refusal, Supervisors};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::instance::{BASE, running};
use super::{api, played, vm};

/// What happens to a request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The connection breaks before it arrives.
    LostBefore,
    /// It breaks once it is done, before the answer.
    LostAfter,
    /// The supervisor is replaced by one of the same run, once it is done.
    ReplacedAfter,
    /// It is replaced by one of a version before numbers.
    ReplacedByAnOlder,
    /// The pod runs the machine anew.
    StartedAnew,
}

/// A supervisor that remembers numbers.
#[derive(Clone)]
struct Played(Arc<Mutex<Machine>>);

struct Machine {
    run: String,
    uid: String,
    resets: usize,
    remembered: HashMap<String, ControlReply>,
    fates: Vec<Fate>,
}

impl Supervisors for Played {
    async fn open(&self, pod_uid: &str) -> Result<Opened, Refusal> {
        played::open(pod_uid, |socket| self.clone().answer(socket))
    }
}

impl Played {
    fn new(run: &str, fates: &[Fate]) -> Self {
        let (remembered, fates) = (HashMap::new(), fates.iter().rev().copied().collect());
        Self(Arc::new(Mutex::new(Machine {
            run: run.to_owned(),
            uid: "12345678-9".to_owned(),
            resets: 0,
            remembered,
            fates,
        })))
    }

    async fn answer(self, mut stream: UnixStream) {
        let mut line = Vec::new();
        BufReader::new(&mut stream).read_until(b'\n', &mut line).await.unwrap();
        let Ok(asked) = wire::decode::<Asked>(&line) else { return };
        if let Some(reply) = self.0.lock().unwrap().answer(asked) {
            let _ = stream.try_write(&wire::encode(&reply).unwrap());
        }
        let _ = stream.shutdown().await;
    }

    fn resets(&self) -> usize {
        self.0.lock().unwrap().resets
    }
}

impl Machine {
    /// Nothing: the connection is closed.
    fn answer(&mut self, asked: Asked) -> Option<ControlReply> {
        if asked.request == ControlRequest::Status {
            return Some(ControlReply::Status(Box::new(self.status())));
        }
        assert_eq!(asked.request, ControlRequest::Reset, "no test sends anything else");
        let fate = self.fates.pop();
        if fate == Some(Fate::LostBefore) {
            return None;
        }
        let reply = self.reset(asked);
        match fate {
            None => return Some(reply),
            Some(Fate::LostBefore | Fate::LostAfter | Fate::ReplacedAfter) => {}
            Some(Fate::ReplacedByAnOlder) => self.run.clear(),
            Some(Fate::StartedAnew) => {
                "another".clone_into(&mut self.run);
                self.remembered.clear();
            }
        }
        None
    }

    fn reset(&mut self, asked: Asked) -> ControlReply {
        let number = asked.number.filter(|_| !self.run.is_empty());
        if number.as_ref().is_some_and(|number| number.run != self.run) {
            return ControlReply::Denied { reason: "this request is for another run".to_owned() };
        }
        let before = number.as_ref().and_then(|number| self.remembered.get(&number.id));
        if let Some(before) = before {
            return before.clone();
        }
        self.resets += 1;
        if let Some(number) = number {
            self.remembered.insert(number.id, ControlReply::Queued);
        }
        ControlReply::Queued
    }

    fn status(&self) -> Status {
        let mut status = garboard_protocol::testing::running(1);
        status.uid.clone_from(&self.uid);
        status.run.clone_from(&self.run);
        status
    }
}

async fn reset(played: &Played) -> (u16, Value) {
    let api = api(true, vm("Always"), Some(running()));
    let _agent = played::connect(&api, played.clone()).await;
    api.put(&format!("{BASE}/reset"), Value::Null).await
}

#[tokio::test]
async fn a_connection_that_breaks_loses_no_request_and_repeats_none() {
    let table: &[&[Fate]] = &[
        &[],
        &[Fate::LostBefore],
        &[Fate::LostAfter],
        &[Fate::ReplacedAfter],
        &[Fate::LostBefore, Fate::LostBefore, Fate::LostAfter, Fate::LostAfter],
    ];
    for fates in table {
        let played = Played::new("run-1", fates);
        assert_eq!(reset(&played).await, (200, Value::Null), "{fates:?}");
        assert_eq!(played.resets(), 1, "{fates:?}");
    }
}

#[tokio::test]
async fn a_later_run_of_the_machine_does_not_obey_what_was_asked_of_the_one_before() {
    let played = Played::new("run-1", &[Fate::StartedAnew]);
    let (code, status) = reset(&played).await;
    assert_eq!((code, played.resets()), (409, 1), "the later run is not reset");
    assert!(status["message"].as_str().unwrap().ends_with("this request is for another run"), "{status}");
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_of_a_version_before_is_sent_a_change_once_and_the_client_learns_that_nobody_knows() {
    for (run, fate) in [("", Fate::LostBefore), ("", Fate::LostAfter), ("run-1", Fate::ReplacedByAnOlder)] {
        let played = Played::new(run, &[fate]);
        let (code, status) = reset(&played).await;
        let message = status["message"].as_str().unwrap();
        assert!(code == 500 && message.contains("it may have been done"), "{fate:?}: {code} {message}");
        assert_eq!(played.resets(), usize::from(fate != Fate::LostBefore), "{fate:?}");
    }
    let played = Played::new("", &[]);
    assert_eq!((reset(&played).await.0, played.resets()), (200, 1));
}

#[tokio::test]
async fn another_instance_in_the_pod_is_not_asked() {
    let played = Played::new("run-1", &[]);
    "another".clone_into(&mut played.0.lock().unwrap().uid);
    let (code, status) = reset(&played).await;
    assert_eq!((code, played.resets()), (500, 0), "{status}");
    assert!(status["message"].as_str().unwrap().contains("another instance"), "{status}");
}

#[tokio::test]
async fn a_change_goes_on_over_the_next_connection_of_the_agent() {
    let api = api(true, vm("Always"), Some(running()));
    let played = Played::new("run-1", &[Fate::LostAfter]);
    let first = played::connect(&api, played.clone()).await;
    let path = format!("{BASE}/reset");
    let asking = api.put(&path, Value::Null);
    let replacing = async {
        // The reset is done, its answer is lost, and then the agent is replaced.
        played::until(|| played.resets() > 0).await;
        first.abort();
        let _ = first.await;
        drop(played::connect(&api, played.clone()).await);
    };
    let (answer, ()) = tokio::join!(asking, replacing);
    assert_eq!((answer, played.resets()), ((200, json!(null)), 1));
}
