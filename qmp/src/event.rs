//! Events and their subscriptions.
//!
//! ```text
//!  reader ──publish──► EventHub ──► queue of subscription 1 ──next()──► its owner
//!                               └─► queue of subscription 2 …
//! ```
//!
//! Invariants: publishing never waits. A subscription's queue is bounded in events and bytes; when it overflows the
//! oldest go, and the owner gets their number *before* the next one: it must query the state again.
//! Every subscription sees [`Notice::Closed`] exactly once, as its last notice, also when it was made after the end.
//!
//! Subscribe first, then send the command that causes the event: nothing can then be missed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::error::ShutdownReason;

/// Events a subscription keeps for an owner that does not look.
const QUEUE_EVENTS: usize = 256;

/// Bytes of event data a subscription keeps.
const QUEUE_BYTES: usize = 256 << 10;

/// Something that happened in QEMU.
#[derive(Debug)]
pub struct Event {
    /// QEMU's name for it, perhaps one unknown to this program. Bounded and printable.
    pub name: String,
    /// Its data as QEMU wrote it; `None` where it has none.
    pub data: Option<Box<RawValue>>,
    /// When: by QEMU's clock, or by ours where QEMU gave no time.
    pub at: SystemTime,
}

impl Event {
    /// The data, decoded. Write a small struct with just the fields wanted: that survives a newer QEMU.
    pub fn decode<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.data.as_ref().map_or("{}", |data| data.get()))
    }

    /// The data as JSON text; `{}` where there is none.
    pub fn data_text(&self) -> &str {
        self.data.as_ref().map_or("{}", |data| data.get())
    }

    fn weight(&self) -> usize {
        self.name.len() + self.data_text().len()
    }
}

/// What a subscription sends to its owner.
#[derive(Debug, Clone)]
pub enum Notice {
    /// An event.
    Event(Arc<Event>),
    /// This many events were lost since the last notice because the owner was too slow. Query the state again.
    Lagged(u64),
    /// The connection ended. This is the last notice.
    Closed {
        /// Why QEMU ended, if it reported that.
        reason: Option<ShutdownReason>,
    },
}

/// Which events a subscription asks for.
#[derive(Debug, Clone, Copy)]
pub enum Interest {
    /// Every one.
    All,
    /// Those with one of these names.
    Named(&'static [&'static str]),
}

impl Interest {
    fn includes(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(&name),
        }
    }
}

#[derive(Debug)]
struct Queue {
    interest: Interest,
    state: Mutex<QueueState>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    lost: u64,
    ending: Ending,
}

#[derive(Debug, Default)]
enum Ending {
    #[default]
    Open,
    Closed(Option<ShutdownReason>),
    Reported,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl QueueState {
    fn add(&mut self, event: &Arc<Event>) {
        let weight = event.weight();
        while !self.events.is_empty() && (self.events.len() >= QUEUE_EVENTS || self.bytes + weight > QUEUE_BYTES) {
            if let Some(oldest) = self.events.pop_front() {
                self.bytes -= oldest.weight();
                self.lost += 1;
            }
        }
        if weight > QUEUE_BYTES {
            self.lost += 1;
            return;
        }
        self.bytes += weight;
        self.events.push_back(Arc::clone(event));
    }

    fn take(&mut self) -> Option<Notice> {
        if self.lost > 0 {
            return Some(Notice::Lagged(std::mem::take(&mut self.lost)));
        }
        if let Some(event) = self.events.pop_front() {
            self.bytes -= event.weight();
            return Some(Notice::Event(event));
        }
        match std::mem::replace(&mut self.ending, Ending::Reported) {
            Ending::Open => {
                self.ending = Ending::Open;
                None
            }
            Ending::Closed(reason) => Some(Notice::Closed { reason }),
            Ending::Reported => None,
        }
    }
}

/// One listener's queue of events. Dropping it ends the subscription.
#[derive(Debug)]
pub struct Subscription {
    queue: Arc<Queue>,
}

impl Subscription {
    /// Waits for the next notice. `None` only after [`Notice::Closed`]. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Notice> {
        loop {
            let filled = self.queue.filled.notified();
            {
                let mut state = lock(&self.queue.state);
                if let Some(notice) = state.take() {
                    return Some(notice);
                }
                if matches!(state.ending, Ending::Reported) {
                    return None;
                }
            }
            filled.await;
        }
    }

    /// The next notice if there is one already.
    pub fn try_next(&mut self) -> Option<Notice> {
        lock(&self.queue.state).take()
    }
}

/// The subscriptions of one monitor.
#[derive(Debug, Default)]
pub(crate) struct EventHub {
    state: Mutex<HubState>,
}

#[derive(Debug, Default)]
struct HubState {
    queues: Vec<Weak<Queue>>,
    closed: Option<Option<ShutdownReason>>,
}

impl EventHub {
    pub(crate) fn subscribe(&self, interest: Interest) -> Subscription {
        let mut hub = lock(&self.state);
        let ending = hub.closed.clone().map_or(Ending::Open, Ending::Closed);
        let state = Mutex::new(QueueState { ending, ..QueueState::default() });
        let queue = Arc::new(Queue { interest, state, filled: Notify::new() });
        hub.queues.retain(|known| known.strong_count() > 0);
        hub.queues.push(Arc::downgrade(&queue));
        Subscription { queue }
    }

    pub(crate) fn publish(&self, event: Event) {
        let event = Arc::new(event);
        self.each_queue(|queue, state| {
            if queue.interest.includes(&event.name) {
                state.add(&event);
            }
        });
    }

    /// Ends all subscriptions; only the first call counts.
    pub(crate) fn close(&self, reason: Option<ShutdownReason>) {
        {
            let mut hub = lock(&self.state);
            if hub.closed.is_some() {
                return;
            }
            hub.closed = Some(reason.clone());
        }
        self.each_queue(|_, state| {
            if matches!(state.ending, Ending::Open) {
                state.ending = Ending::Closed(reason.clone());
            }
        });
    }

    fn each_queue(&self, mut visit: impl FnMut(&Queue, &mut QueueState)) {
        for queue in lock(&self.state).queues.iter().filter_map(Weak::upgrade) {
            visit(&queue, &mut lock(&queue.state));
            queue.filled.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: Option<String>) -> Event {
        let data = data.map(|text| RawValue::from_string(text).unwrap());
        Event { name: name.to_owned(), data, at: SystemTime::UNIX_EPOCH }
    }

    #[tokio::test]
    async fn a_subscription_gets_what_it_asked_for_in_order() {
        let hub = EventHub::default();
        let mut all = hub.subscribe(Interest::All);
        let mut some = hub.subscribe(Interest::Named(&["STOP"]));
        for name in ["RESUME", "STOP"] {
            hub.publish(event(name, None));
        }
        assert!(matches!(all.next().await, Some(Notice::Event(event)) if event.name == "RESUME"));
        assert!(matches!(all.next().await, Some(Notice::Event(event)) if event.name == "STOP"));
        assert!(matches!(some.next().await, Some(Notice::Event(event)) if event.name == "STOP"));
        assert!(some.try_next().is_none());
    }

    #[tokio::test]
    async fn a_slow_owner_gets_the_number_of_lost_events_before_the_rest() {
        let hub = EventHub::default();
        let mut slow = hub.subscribe(Interest::All);
        for number in 0..QUEUE_EVENTS + 10 {
            hub.publish(event(&format!("E{number}"), None));
        }
        assert!(matches!(slow.next().await, Some(Notice::Lagged(10))));
        assert!(matches!(slow.next().await, Some(Notice::Event(event)) if event.name == "E10"));
    }

    #[tokio::test]
    async fn bytes_are_bounded_too() {
        let hub = EventHub::default();
        let mut slow = hub.subscribe(Interest::All);
        for _ in 0..20 {
            hub.publish(event("BIG", Some(format!("\"{}\"", "x".repeat(100_000)))));
        }
        hub.publish(event("HUGE", Some(format!("\"{}\"", "x".repeat(QUEUE_BYTES)))));
        hub.publish(event("SMALL", None));
        assert!(matches!(slow.next().await, Some(Notice::Lagged(21))));
        assert!(matches!(slow.next().await, Some(Notice::Event(event)) if event.name == "SMALL"));
    }

    #[tokio::test]
    async fn closed_comes_once_and_last_also_to_late_subscriptions() {
        let hub = EventHub::default();
        let mut early = hub.subscribe(Interest::Named(&["STOP"]));
        hub.publish(event("STOP", None));
        let reason = ShutdownReason::from_event_data(r#"{"guest":true,"reason":"guest-shutdown"}"#);
        hub.close(Some(reason.clone()));
        hub.close(None);
        let mut late = hub.subscribe(Interest::All);
        assert!(matches!(early.next().await, Some(Notice::Event(_))));
        for subscription in [&mut early, &mut late] {
            assert!(matches!(subscription.next().await, Some(Notice::Closed { reason: Some(r) }) if r == reason));
            assert!(subscription.next().await.is_none());
            assert!(subscription.next().await.is_none());
        }
    }

    #[tokio::test]
    async fn a_waiting_owner_wakes_up() {
        let hub = Arc::new(EventHub::default());
        let mut subscription = hub.subscribe(Interest::All);
        let publisher = Arc::clone(&hub);
        let waiting = tokio::spawn(async move { subscription.next().await });
        tokio::task::yield_now().await;
        publisher.publish(event("WAKEUP", None));
        assert!(matches!(waiting.await.unwrap(), Some(Notice::Event(event)) if event.name == "WAKEUP"));
    }

    #[test]
    fn dropped_subscriptions_are_removed() {
        let hub = EventHub::default();
        for _ in 0..100 {
            drop(hub.subscribe(Interest::All));
        }
        assert!(lock(&hub.state).queues.len() <= 1);
    }
}
