//! Requests that have a number: each is written down before it is done, and done once.

use garboard_protocol::change::ChangeRequest;
use garboard_protocol::control::ControlReply;
use garboard_protocol::journal::{NumberedRequest, RequestOutcome};
use tokio::sync::{mpsc, oneshot};

use super::{Client, Driver, Offer};
use crate::clock::boot_ms;
use crate::supervisor::trace::Cause;
use crate::vm::numbers::{self, Begun};
use crate::vm::{RequestQueue, Verdict, View};

/// The answer to a client that waits for the guest agent, and the machine ends.
const OVER: &str = "the machine was stopped, or its supervisor is shutting down";

/// A request that may come again.
pub(super) struct Repeatable {
    pub(super) id: String,
    pub(super) ask: &'static str,
    pub(super) reply: oneshot::Sender<ControlReply>,
}

/// What became of one.
pub(super) struct Settled {
    id: String,
    outcome: RequestOutcome,
    reason: String,
}

/// What is to be settled by who does it.
pub(super) struct Ticket {
    id: String,
    to: mpsc::UnboundedSender<Settled>,
}

impl Ticket {
    /// QEMU has answered, or cannot be asked any more.
    pub(super) fn settle(self) {
        self.note(RequestOutcome::Queued, String::new());
    }

    /// Nobody has asked QEMU.
    pub(super) fn deny(self, reason: &str) {
        self.note(RequestOutcome::Denied, reason.to_owned());
    }

    fn note(self, outcome: RequestOutcome, reason: String) {
        // The driver may have ended.
        let _ = self.to.send(Settled { id: self.id, outcome, reason });
    }
}

/// Those that are under way.
pub(super) struct Numbers {
    report: mpsc::UnboundedSender<Settled>,
    settled: mpsc::UnboundedReceiver<Settled>,
    /// Of the request that is being done, until a command takes it.
    ticket: Option<Ticket>,
    /// Clients that wait for the guest agent.
    waiting: Vec<(String, oneshot::Sender<ControlReply>)>,
}

impl Default for Numbers {
    fn default() -> Self {
        let (report, settled) = mpsc::unbounded_channel();
        Self { report, settled, ticket: None, waiting: Vec::new() }
    }
}

impl Numbers {
    /// The next one that is settled.
    pub(super) async fn settled(&mut self) -> Option<Settled> {
        self.settled.recv().await
    }

    /// The ticket of the request that is being done, if it has one.
    pub(super) fn take(&mut self) -> Option<Ticket> {
        self.ticket.take()
    }
}

impl Driver {
    /// Does a request, unless it was done before, and answers it.
    pub(super) async fn serve_numbered(&mut self, request: ChangeRequest, client: Repeatable, cause: Cause) {
        let Repeatable { id, ask, reply } = client;
        let is_the_guests = is_the_guests(request);
        match numbers::begin(&mut self.seed.journal.requests, &id, ask, boot_ms()) {
            Begun::New => {}
            Begun::UnderWay if is_the_guests => return self.numbers.waiting.push((id, reply)),
            Begun::UnderWay => return drop(reply.send(ControlReply::Queued)),
            Begun::Answered(answer) => {
                tracing::info!(?answer, "this request came before and is not done again");
                return drop(reply.send(answer));
            }
        }
        if is_the_guests {
            return self.have_the_guest_do(request, (id, reply), cause).await;
        }
        // What the journal has another line of, a stop and a soft reboot, the next supervisor goes on with.
        let is_one_command = matches!(request, ChangeRequest::Pause | ChangeRequest::Unpause | ChangeRequest::Reset);
        self.numbers.ticket = is_one_command.then(|| Ticket { id: id.clone(), to: self.numbers.report.clone() });
        let verdict = self.judge(request, None, cause).await;
        // QEMU is being asked: it is settled when QEMU has answered.
        let is_taken = self.numbers.take().is_none() && is_one_command;
        if !is_taken {
            self.note_verdict(&id, verdict);
        }
        let _ = reply.send(answer_of(verdict));
    }

    /// Answers when the guest agent has done it.
    async fn have_the_guest_do(
        &mut self,
        request: ChangeRequest,
        client: (String, oneshot::Sender<ControlReply>),
        cause: Cause,
    ) {
        let (done, outcome) = oneshot::channel();
        let verdict = self.judge(request, Some(done), cause).await;
        let (id, reply) = client;
        if verdict != Verdict::Queued {
            self.note_verdict(&id, verdict);
            return drop(reply.send(answer_of(verdict)));
        }
        let ticket = Ticket { id: id.clone(), to: self.numbers.report.clone() };
        self.numbers.waiting.push((id, reply));
        tokio::spawn(async move {
            match outcome.await {
                Ok(Ok(())) => ticket.note(RequestOutcome::Done, String::new()),
                Ok(Err(reason)) => ticket.deny(&reason),
                Err(_) => ticket.deny(OVER),
            }
        });
    }

    fn note_verdict(&mut self, id: &str, verdict: Verdict) {
        settle(&mut self.seed.journal.requests, id, verdict);
        self.write_journal();
    }

    /// The requests at the end of the run, with what became of them.
    pub(super) fn last_requests(&mut self) -> Vec<NumberedRequest> {
        while let Ok(settled) = self.numbers.settled.try_recv() {
            self.note_settled(settled);
        }
        self.seed.journal.requests.clone()
    }

    /// One is settled: its clients learn it, those too that have sent it again.
    pub(super) fn note_settled(&mut self, settled: Settled) {
        let Settled { id, outcome, reason } = settled;
        numbers::settle(&mut self.seed.journal.requests, &id, outcome, &reason);
        self.write_journal();
        let answer = match outcome {
            RequestOutcome::Done => ControlReply::Done,
            RequestOutcome::Denied => ControlReply::Denied { reason },
            RequestOutcome::AlreadySo => ControlReply::AlreadySo,
            RequestOutcome::Queued | RequestOutcome::Accepted | RequestOutcome::Unknown => ControlReply::Queued,
        };
        let (of_it, others) =
            std::mem::take(&mut self.numbers.waiting).into_iter().partition(|(other, _)| *other == id);
        self.numbers.waiting = others;
        let of_it: Vec<(String, oneshot::Sender<ControlReply>)> = of_it;
        for (_, client) in of_it {
            let _ = client.send(answer.clone());
        }
    }
}

/// Answers what is asked after the end of a run, until the supervisor leaves: what comes again has the answer that it had.
pub(super) async fn answer_after_end(mut offers: mpsc::Receiver<Offer>, mut requests: Vec<NumberedRequest>) {
    while let Some(Offer { request, client, cause: _ }) = offers.recv().await {
        let verdict = RequestQueue::default().offer(request, View::Ended);
        match client {
            Client::Once { reply, done: _ } => drop(reply.send(verdict)),
            Client::Numbered { id, ask, reply } => {
                let answer = match numbers::begin(&mut requests, &id, ask, boot_ms()) {
                    Begun::Answered(answer) => answer,
                    Begun::UnderWay if is_the_guests(request) => ControlReply::Denied { reason: OVER.to_owned() },
                    Begun::UnderWay => ControlReply::Queued,
                    Begun::New => {
                        settle(&mut requests, &id, verdict);
                        answer_of(verdict)
                    }
                };
                let _ = reply.send(answer);
            }
        }
    }
}

/// Whether the guest agent does it.
fn is_the_guests(request: ChangeRequest) -> bool {
    matches!(request, ChangeRequest::Freeze { .. } | ChangeRequest::Unfreeze)
}

fn settle(requests: &mut [NumberedRequest], id: &str, verdict: Verdict) {
    let (outcome, reason) = match verdict {
        Verdict::Queued => (RequestOutcome::Queued, ""),
        Verdict::AlreadySo => (RequestOutcome::AlreadySo, ""),
        Verdict::Denied(denial) => (RequestOutcome::Denied, denial.message()),
    };
    numbers::settle(requests, id, outcome, reason);
}

fn answer_of(verdict: Verdict) -> ControlReply {
    match verdict {
        Verdict::Queued => ControlReply::Queued,
        Verdict::AlreadySo => ControlReply::AlreadySo,
        Verdict::Denied(denial) => ControlReply::Denied { reason: denial.message().to_owned() },
    }
}
