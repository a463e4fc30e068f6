//! Where a line of QEMU goes: to the caller that waits for it, to the subscribers, or nowhere.
//!
//! No sockets here: the reader task feeds it, the fuzz target does as well. No message of QEMU (or of a process in its place)
//! can end the reader; only the end of the stream can.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::oneshot;
use tracing::{Span, debug, warn};

use super::pending::{Entry, Outcome, Pending};
use crate::error::ShutdownReason;
use crate::event::{Event, EventHub};
use crate::text::{printable, printable_bytes};
use crate::transcript::Transcript;
use crate::wire::{EventTime, Message, Overlong};

/// Characters of a line shown in a log when it makes no sense.
const SHOWN_GARBAGE: usize = 200;

/// Characters of an event's name that are kept. The longest of QEMU 10.0 has 27.
const EVENT_NAME_LIMIT: usize = 64;

#[derive(Debug)]
pub(crate) struct Router {
    /// For logs: which monitor this is.
    name: String,
    pending: Mutex<Pending>,
    pub(crate) hub: EventHub,
    pub(crate) transcript: Transcript,
    last_shutdown: Mutex<Option<ShutdownReason>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Router {
    pub(crate) fn new(name: String, session: u64, transcript: Transcript) -> Self {
        Self {
            name,
            pending: Mutex::new(Pending::new(session)),
            hub: EventHub::default(),
            transcript,
            last_shutdown: Mutex::new(None),
        }
    }

    pub(crate) fn begin(&self, command: Cow<'static, str>) -> Option<(u64, oneshot::Receiver<Outcome>)> {
        lock(&self.pending).begin(command)
    }

    pub(crate) fn mark_sent(&self, id: u64) -> Option<Span> {
        lock(&self.pending).mark_sent(id)
    }

    pub(crate) fn abandon(&self, id: u64) {
        lock(&self.pending).abandon(id);
    }

    /// Why QEMU is about to end, if it reported that and nothing since has shown that it goes on.
    pub(crate) fn shutdown_reason(&self) -> Option<ShutdownReason> {
        lock(&self.last_shutdown).clone()
    }

    /// The connection ended: fails what waits and notifies the subscribers. Only the first call counts.
    pub(crate) fn close(&self) {
        lock(&self.pending).close();
        self.hub.close(self.shutdown_reason());
    }

    /// One line, or its replacement.
    pub(crate) fn accept(&self, line: Result<&[u8], Overlong>) {
        let line = match line {
            Ok(line) => line,
            Err(overlong) => return self.accept_overlong(overlong),
        };
        match Message::parse(line) {
            Ok(Message::Reply { id, returned }) => {
                self.finish(id, Outcome::Returned(returned.to_owned()));
            }
            Ok(Message::Refusal { id, class, desc }) => {
                self.finish(id, Outcome::Refused { class: class.into_owned(), desc: desc.into_owned() });
            }
            Ok(Message::Event { name, data, at }) => {
                let name = printable(&name, EVENT_NAME_LIMIT);
                let at = at.and_then(EventTime::to_system_time).unwrap_or_else(SystemTime::now);
                self.accept_event(Event { name, data: data.map(ToOwned::to_owned), at });
            }
            Ok(Message::Greeting(_)) => warn!(monitor = %self.name, "QEMU greeted again; ignored"),
            Err(error) => {
                let shown = printable_bytes(line, SHOWN_GARBAGE);
                warn!(monitor = %self.name, %error, line = %shown, "QEMU sent a line that is not a QMP message; ignored");
                self.transcript.garbage(&shown);
            }
        }
    }

    fn accept_overlong(&self, overlong: Overlong) {
        warn!(monitor = %self.name, error = %overlong, "QEMU sent a message that is too long; dropped");
        self.transcript.garbage(&overlong.to_string());
        // Replies come in the order of the commands, and nothing but a reply is ever this long.
        if let Some(entry) = lock(&self.pending).oldest() {
            entry.finish(Outcome::TooLong { length: overlong.length, limit: overlong.limit });
        }
    }

    fn finish(&self, id: Option<u64>, outcome: Outcome) {
        let entry = {
            let mut pending = lock(&self.pending);
            match (id, &outcome) {
                (Some(id), _) => pending.answered(id),
                // QEMU answers without id what it could not even read as JSON.
                (None, Outcome::Refused { .. }) => pending.oldest(),
                (None, Outcome::Returned(_) | Outcome::TooLong { .. }) => None,
            }
        };
        let Some(entry) = entry else {
            debug!(monitor = %self.name, id, "QEMU answered an unknown command ID; dropped");
            return;
        };
        entry.span.in_scope(|| self.write_down(&entry, &outcome));
        let (id, command) = (entry.id, entry.command.clone());
        if !entry.finish(outcome) {
            debug!(monitor = %self.name, id, %command, "late reply to a command that was given up; dropped");
        }
    }

    fn write_down(&self, entry: &Entry, outcome: &Outcome) {
        match outcome {
            Outcome::Returned(body) => self.transcript.reply(&entry.command, entry.id, body.get()),
            Outcome::Refused { class, desc } => self.transcript.refusal(&entry.command, entry.id, class, desc),
            Outcome::TooLong { .. } => {}
        }
    }

    fn accept_event(&self, event: Event) {
        match &*event.name {
            "SHUTDOWN" => {
                *lock(&self.last_shutdown) = Some(ShutdownReason::from_event_data(event.data_text()));
            }
            // With `-no-shutdown` a QEMU that announced its end can be reset and resumed.
            "RESET" | "RESUME" => *lock(&self.last_shutdown) = None,
            _ => {}
        }
        self.transcript.event(&event.name, event.data_text());
        self.hub.publish(event);
    }
}
