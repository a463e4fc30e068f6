//! Requests that come again: what is done to QEMU, and what each client is answered.

use std::time::Duration;

use garboard_log::Levels;
use garboard_protocol::control::ControlReply;
use garboard_protocol::journal::RequestOutcome;
use garboard_qmp::testing::{AgentBehaviour, Behaviour, GuestPower};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::*;
use super::PATIENCE;
use super::guest::{Qemu, Supervisor};
use crate::vm::numbers::{ANOTHER_REQUEST, INTERRUPTED};

impl Supervisor {
    /// Asks with a number, and gives where the answer comes.
    async fn sent(&self, id: &str, ask: &'static str, request: ChangeRequest) -> oneshot::Receiver<ControlReply> {
        let (reply, answer) = oneshot::channel();
        let client = Client::Numbered { id: id.to_owned(), ask, reply };
        self.requests.send(Offer { request, client, cause: Cause::supervisor() }).await.ok().unwrap();
        answer
    }

    async fn numbered(&self, id: &str, ask: &'static str, request: ChangeRequest) -> ControlReply {
        timeout(PATIENCE, self.sent(id, ask, request).await).await.unwrap().unwrap()
    }

    async fn reset(&self, id: &str) -> ControlReply {
        self.numbered(id, "reset", ChangeRequest::Reset).await
    }
}

fn denied(reason: &str) -> ControlReply {
    ControlReply::Denied { reason: reason.to_owned() }
}

impl Qemu {
    fn count(&self, command: &str) -> usize {
        self.fake.received().iter().filter(|received| received.command == command).count()
    }

    /// What the journal has of the first request, once it is this.
    async fn until_written(&self, outcome: RequestOutcome) {
        let writing = async {
            while self.journal().requests.first().map(|request| request.outcome) != Some(outcome) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, writing).await.unwrap_or_else(|_| panic!("{:?}", self.journal().requests));
    }
}

#[tokio::test]
async fn a_reset_that_comes_again_is_done_once_by_any_supervisor_of_the_run() {
    let qemu = Qemu::start(GuestPower::Obeys);
    let first = qemu.attach();
    first.has_attached().await;
    for _ in 0..3 {
        assert_eq!(first.reset("a").await, ControlReply::Queued);
    }
    qemu.fake.until_received("system_reset", 1).await;
    qemu.until_written(RequestOutcome::Queued).await;
    assert_eq!(first.numbered("a", "pause", ChangeRequest::Pause).await, denied(ANOTHER_REQUEST));
    drop(first);
    qemu.fake.hang_up();
    let second = qemu.attach();
    second.has_attached().await;
    assert_eq!(second.reset("a").await, ControlReply::Queued);
    assert_eq!(qemu.count("system_reset"), 1);
    assert_eq!(second.reset("b").await, ControlReply::Queued);
    qemu.fake.until_received("system_reset", 2).await;
}

#[tokio::test]
async fn a_reset_is_written_down_before_it_is_done_and_is_not_repeated_where_nobody_knows_whether_it_was() {
    let qemu = Qemu::start(GuestPower::Obeys);
    qemu.fake.script("system_reset", Behaviour::Silence);
    let first = qemu.attach();
    first.has_attached().await;
    assert_eq!(first.reset("a").await, ControlReply::Queued);
    qemu.fake.until_received("system_reset", 1).await;
    assert_eq!(qemu.journal().requests[0].outcome, RequestOutcome::Accepted);
    assert_eq!(first.reset("a").await, ControlReply::Queued, "it is under way");
    drop(first);
    qemu.fake.hang_up();
    let second = qemu.attach();
    second.has_attached().await;
    for _ in 0..2 {
        assert_eq!(second.reset("a").await, denied(INTERRUPTED));
    }
    assert_eq!(qemu.count("system_reset"), 1);
}

#[tokio::test]
async fn a_reset_for_which_there_is_no_room_is_refused_and_stays_refused() {
    let qemu = Qemu::start(GuestPower::Obeys);
    qemu.fake.script("system_reset", Behaviour::Silence);
    let supervisor = qemu.attach();
    supervisor.has_attached().await;
    assert_eq!(supervisor.reset("first").await, ControlReply::Queued);
    qemu.fake.until_received("system_reset", 1).await;
    for number in 0..command_queue::BACKLOG {
        assert_eq!(supervisor.reset(&number.to_string()).await, ControlReply::Queued);
    }
    let refused = denied(Denial::NotAnswering.message());
    for _ in 0..2 {
        assert_eq!(supervisor.reset("one more").await, refused);
    }
    assert_eq!(supervisor.numbered("p", "pause", ChangeRequest::Pause).await, refused);
    assert_eq!(supervisor.status.borrow().paused, None, "what is refused is not assumed to be done");
    assert_eq!(supervisor.reset("0").await, ControlReply::Queued, "it is under way");
    let written = qemu.journal().requests;
    let outcome = |id: &str| written.iter().find(|request| request.id == id).map(|request| request.outcome);
    assert_eq!(outcome("one more"), Some(RequestOutcome::Denied));
    assert_eq!(outcome("0"), Some(RequestOutcome::Accepted));
    let force = ChangeRequest::Stop(garboard_protocol::control::StopMode::Force);
    assert_eq!(supervisor.numbered("s", "stop", force).await, ControlReply::Queued, "a stop is always taken");
}

#[tokio::test]
async fn what_comes_again_after_the_end_of_the_run_has_its_answer() {
    let qemu = Qemu::start(GuestPower::Obeys);
    let supervisor = qemu.attach();
    supervisor.has_attached().await;
    assert_eq!(supervisor.numbered("p", "pause", ChangeRequest::Pause).await, ControlReply::Queued);
    assert_eq!(supervisor.numbered("q", "pause", ChangeRequest::Pause).await, ControlReply::AlreadySo);
    supervisor.is_over().await;
    assert_eq!(supervisor.numbered("p", "pause", ChangeRequest::Pause).await, ControlReply::Queued);
    assert_eq!(supervisor.numbered("q", "pause", ChangeRequest::Pause).await, ControlReply::AlreadySo);
    let force = ChangeRequest::Stop(garboard_protocol::control::StopMode::Force);
    assert_eq!(supervisor.numbered("s", "stop", force).await, ControlReply::AlreadySo, "it is stopped");
    for _ in 0..2 {
        assert_eq!(supervisor.reset("r").await, denied(Denial::Ended.message()));
    }
    assert_eq!(supervisor.numbered("p", "reset", ChangeRequest::Reset).await, denied(ANOTHER_REQUEST));
    assert_eq!(qemu.count("system_reset"), 0);
}

#[tokio::test]
async fn a_pause_that_comes_again_late_does_not_undo_what_was_asked_since() {
    let qemu = Qemu::start(GuestPower::Obeys);
    let supervisor = qemu.attach();
    supervisor.has_attached().await;
    assert_eq!(supervisor.numbered("p", "pause", ChangeRequest::Pause).await, ControlReply::Queued);
    supervisor.until(|status| status.paused.is_some()).await;
    assert_eq!(supervisor.numbered("q", "pause", ChangeRequest::Pause).await, ControlReply::AlreadySo);
    assert_eq!(supervisor.numbered("u", "unpause", ChangeRequest::Unpause).await, ControlReply::Queued);
    supervisor.until(|status| status.paused.is_none()).await;
    assert_eq!(supervisor.numbered("p", "pause", ChangeRequest::Pause).await, ControlReply::Queued);
    assert_eq!(supervisor.numbered("q", "pause", ChangeRequest::Pause).await, ControlReply::AlreadySo);
    assert_eq!((qemu.count("stop"), qemu.count("cont")), (1, 1));
    assert_eq!(supervisor.status.borrow().paused, None);
}

#[tokio::test]
async fn a_freeze_that_comes_again_waits_for_the_first_and_has_its_outcome() {
    let qemu = Qemu::start(GuestPower::Obeys);
    let supervisor = qemu.attach();
    supervisor.has_attached().await;
    let freeze = ChangeRequest::Freeze { thaw_after_seconds: None };
    let refused = supervisor.numbered("no agent", "freeze", freeze).await;
    assert_eq!(refused, denied("the QEMU guest agent is not connected"));
    let agent = supervisor.has_agent().await;
    assert_eq!(supervisor.numbered("no agent", "freeze", freeze).await, refused, "a new request needs a new number");
    agent.on("guest-fsfreeze-status", AgentBehaviour::Reply(json!("thawed")));
    agent.on("guest-fsfreeze-freeze", AgentBehaviour::Reply(json!(1)));
    let first = supervisor.sent("f", "freeze", freeze).await;
    let again = supervisor.sent("f", "freeze", freeze).await;
    for answer in [first, again] {
        assert_eq!(timeout(PATIENCE, answer).await.unwrap().unwrap(), ControlReply::Done);
    }
    assert_eq!(supervisor.numbered("f", "freeze", freeze).await, ControlReply::Done);
    let asked = agent.received().iter().filter(|each| *each == "guest-fsfreeze-freeze").count();
    assert_eq!(asked, 1);
    assert_eq!(supervisor.numbered("s", "softReboot", ChangeRequest::SoftReboot).await, ControlReply::Queued);
    let outcomes: Vec<_> = qemu.journal().requests.iter().map(|request| request.outcome).collect();
    assert_eq!(outcomes, [RequestOutcome::Denied, RequestOutcome::Done, RequestOutcome::Queued]);
}

#[tokio::test]
async fn a_number_of_another_run_and_one_that_is_none_are_refused_with_what_to_do() {
    use crate::supervisor::{attach, control};
    use garboard_protocol::control::{Asked, ControlRequest};
    use garboard_protocol::number::Number;
    use garboard_protocol::paths::Layout;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let qemu = Qemu::start(GuestPower::Obeys);
    assert!(qemu.write(&Journal { run: "this".to_owned(), ..qemu.journal() }));
    let supervisor = qemu.attach();
    supervisor.has_attached().await;
    let (requests, status) = (supervisor.requests.clone(), supervisor.status.clone());
    let (senders, _receivers) = attach::open_channels(requests, status, Levels::fixed(), &Layout::new("/nowhere"));
    let ask = async |request: ControlRequest, id: &str, run: &str| {
        let (mut client, stream) = tokio::net::UnixStream::pair().unwrap();
        tokio::spawn(control::client(stream, senders.clone()));
        let number = Some(Number { id: id.to_owned(), run: run.to_owned() });
        let asked = Asked { request, claimed_user: None, audit_id: None, number };
        client.write_all(&garboard_protocol::wire::encode(&asked).unwrap()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, client.read_to_string(&mut answer)).await.unwrap().unwrap();
        answer
    };
    for (request, id, run, refusal) in [
        (ControlRequest::Reset, "a", "the one before", "for another run of the machine"),
        (ControlRequest::Reset, "", "this", "write a UUID"),
        (ControlRequest::Status, "a", "this", "`status` changes nothing"),
    ] {
        let answer = ask(request, id, run).await;
        assert!(answer.contains("denied") && answer.contains(refusal), "{answer}");
    }
    assert_eq!(qemu.count("system_reset"), 0);
    assert_eq!(ask(ControlRequest::Reset, "a", "this").await, "{\"answer\":\"queued\"}\n");
    qemu.fake.until_received("system_reset", 1).await;
}
