//! The commands that wait for a reply.
//!
//! ```text
//!             begin            written                 reply
//!   (caller) ──────► unsent ───────────► sent, awaited ──────► gone, caller has it
//!                      │ caller gave up     │ caller gave up
//!                      ▼                    ▼            reply
//!                     gone,           sent, abandoned ──────► gone, debug line
//!                 never written
//! ```
//!
//! Ids are unique over connections too: the first half is made from the time of connecting, so that a reply QEMU owes a
//! previous client of the same socket is never taken for one of ours.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tracing::{Span, info_span};

/// Sent commands remembered at most. Only a QEMU that has stopped answering can get there.
const SENT_LIMIT: usize = 1_024;

/// How a command ended, as far as QEMU reported.
#[derive(Debug)]
pub(crate) enum Outcome {
    Returned(Box<RawValue>),
    Refused { class: String, desc: String },
    TooLong { length: usize, limit: usize },
}

/// One command on its way.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) command: Cow<'static, str>,
    /// What is logged of it belongs here; it is inside the span of the sender.
    pub(crate) span: Span,
    /// `None` when the caller gave up.
    waiting: Option<oneshot::Sender<Outcome>>,
}

impl Entry {
    /// Hands the outcome to the caller; false when no caller waits any more.
    pub(crate) fn finish(self, outcome: Outcome) -> bool {
        self.waiting.is_some_and(|waiting| waiting.send(outcome).is_ok())
    }
}

/// All commands on their way.
#[derive(Debug)]
pub(crate) struct Pending {
    unsent: Vec<Entry>,
    /// In the order of sending, which is the order in which QEMU answers.
    sent: VecDeque<Entry>,
    next_id: u64,
    open: bool,
}

impl Pending {
    /// `session` distinguishes this connection from earlier ones to the same QEMU; its lowest 20 bits count.
    pub(crate) fn new(session: u64) -> Self {
        Self { unsent: Vec::new(), sent: VecDeque::new(), next_id: (session & 0xf_ffff) << 32, open: true }
    }

    /// A new command; `None` when the connection has ended.
    pub(crate) fn begin(&mut self, command: Cow<'static, str>) -> Option<(u64, oneshot::Receiver<Outcome>)> {
        if !self.open {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.next_id += 1;
        let span = info_span!("qmp", command = %command, id = self.next_id);
        self.unsent.push(Entry { id: self.next_id, command, span, waiting: Some(sender) });
        Some((self.next_id, receiver))
    }

    /// The command is about to be written: its span. `None` when its caller gave up and it must not be.
    pub(crate) fn mark_sent(&mut self, id: u64) -> Option<Span> {
        let position = self.unsent.iter().position(|entry| entry.id == id)?;
        if self.sent.len() >= SENT_LIMIT {
            let forgotten = self.sent.iter().position(|entry| entry.waiting.is_none()).unwrap_or(0);
            self.sent.remove(forgotten);
        }
        let entry = self.unsent.swap_remove(position);
        let span = entry.span.clone();
        self.sent.push_back(entry);
        Some(span)
    }

    /// The caller of `id` no longer waits.
    pub(crate) fn abandon(&mut self, id: u64) {
        self.unsent.retain(|entry| entry.id != id);
        if let Some(entry) = self.sent.iter_mut().find(|entry| entry.id == id) {
            entry.waiting = None;
        }
    }

    /// A reply to `id` came.
    pub(crate) fn answered(&mut self, id: u64) -> Option<Entry> {
        let position = self.sent.iter().position(|entry| entry.id == id)?;
        self.sent.remove(position)
    }

    /// A reply came without the id of a command: it can only be the oldest, because QEMU answers in order.
    pub(crate) fn oldest(&mut self) -> Option<Entry> {
        self.sent.pop_front()
    }

    /// The connection ended: every caller is notified because its sender is dropped.
    pub(crate) fn close(&mut self) {
        self.open = false;
        self.unsent.clear();
        self.sent.clear();
    }

    #[cfg(test)]
    fn on_their_way(&self) -> usize {
        self.unsent.len() + self.sent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn raw(text: &str) -> Outcome {
        Outcome::Returned(RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn a_command_given_up_before_it_was_written_is_never_written() {
        let mut pending = Pending::new(1);
        let (id, _receiver) = pending.begin("quit".into()).unwrap();
        pending.abandon(id);
        assert!(pending.mark_sent(id).is_none());
        assert_eq!(pending.on_their_way(), 0);
    }

    #[test]
    fn a_late_reply_finds_its_abandoned_command_and_no_other() {
        let mut pending = Pending::new(1);
        let (late, receiver) = pending.begin("query-block".into()).unwrap();
        assert!(pending.mark_sent(late).is_some());
        drop(receiver);
        pending.abandon(late);
        let (next, mut next_receiver) = pending.begin("query-status".into()).unwrap();
        assert!(pending.mark_sent(next).is_some());
        assert!(!pending.answered(late).unwrap().finish(raw("1")));
        assert!(pending.answered(next).unwrap().finish(raw("2")));
        assert!(matches!(next_receiver.try_recv(), Ok(Outcome::Returned(body)) if body.get() == "2"));
    }

    #[test]
    fn sessions_do_not_share_ids() {
        let ids = [1, 2].map(|session| Pending::new(session).begin("stop".into()).unwrap().0);
        assert_ne!(ids[0], ids[1]);
        assert!(Pending::new(u64::MAX).begin("stop".into()).unwrap().0 < 1 << 53, "an id must survive a double");
    }

    #[test]
    fn the_end_wakes_every_caller_and_refuses_new_ones() {
        let mut pending = Pending::new(1);
        let (_, mut receiver) = pending.begin("stop".into()).unwrap();
        pending.close();
        assert!(matches!(receiver.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(pending.begin("stop".into()).is_none());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Begin,
        Send(usize),
        Abandon(usize),
        Answer(usize),
        AnswerOldest,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Begin),
            3 => (0usize..30).prop_map(Step::Send),
            1 => (0usize..30).prop_map(Step::Abandon),
            2 => (0usize..30).prop_map(Step::Answer),
            1 => Just(Step::AnswerOldest),
        ];
        proptest::collection::vec(step, 0..80)
    }

    proptest! {
        /// Each caller gets at most one outcome, the one of its own id, and nothing is remembered for ever.
        #[test]
        fn outcomes_reach_their_callers_only(steps in steps()) {
            let mut pending = Pending::new(3);
            let mut callers: Vec<(u64, Option<oneshot::Receiver<Outcome>>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Begin => {
                        let (id, receiver) = pending.begin("c".into()).unwrap();
                        callers.push((id, Some(receiver)));
                    }
                    Step::Send(at) => { if let Some((id, _)) = callers.get(at) { pending.mark_sent(*id); } }
                    Step::Abandon(at) => if let Some((id, receiver)) = callers.get_mut(at) {
                        *receiver = None;
                        pending.abandon(*id);
                    },
                    Step::Answer(at) => {
                        let id = callers.get(at).map_or(0, |(id, _)| *id);
                        if let Some(entry) = pending.answered(id) { entry.finish(raw(&id.to_string())); }
                    }
                    Step::AnswerOldest => if let Some(entry) = pending.oldest() {
                        let id = entry.id.to_string();
                        entry.finish(raw(&id));
                    },
                }
            }
            for (id, receiver) in &mut callers {
                if let Some(Ok(Outcome::Returned(body))) = receiver.as_mut().map(oneshot::Receiver::try_recv) {
                    prop_assert_eq!(body.get(), id.to_string());
                }
                pending.mark_sent(*id);
                pending.answered(*id);
            }
            prop_assert_eq!(pending.on_their_way(), 0);
        }
    }
}
