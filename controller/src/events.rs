//! Events for people. A lost event changes nothing, and nothing waits for one.
//!
//! The same event within six minutes is counted on the first one; another message is another event, for the API server
//! does not let the note of an event be changed.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use garboard_api::conditions::Reason;
use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_protocol::exit::EndReason;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::events::EventType;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use uuid::Uuid;

use crate::context::FIELD_MANAGER;
use crate::unread;

/// How long an event is counted on before a new one is written.
const REMEMBERED: Duration = Duration::from_secs(360);
/// How many may wait to be written; more are lost.
const WAITING: usize = 1024;
/// The longest note that the API server takes, in bytes.
const LONGEST: usize = 1024;

/// The reason of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventReason {
    /// One that conditions have, too.
    Of(Reason),
    /// Why a run ended.
    Ended(EndReason),
}

impl EventReason {
    /// The name on the wire.
    fn name(self) -> &'static str {
        match self {
            Self::Of(reason) => reason.name(),
            Self::Ended(reason) => reason.as_str(),
        }
    }

    /// Whether the documents list it among the reasons of events.
    fn is_documented(self) -> bool {
        match self {
            Self::Of(reason) => reason.is_of_event(),
            Self::Ended(_) => true,
        }
    }
}

/// What happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// Whether it is a warning.
    pub kind: EventType,
    /// For programs.
    pub reason: EventReason,
    /// The message for people.
    pub note: String,
}

impl NewEvent {
    /// That something was done.
    pub fn normal(reason: Reason, note: impl Into<String>) -> Self {
        Self { kind: EventType::Normal, reason: EventReason::Of(reason), note: note.into() }
    }

    /// That something is wrong.
    pub fn warning(reason: Reason, note: impl Into<String>) -> Self {
        Self { kind: EventType::Warning, reason: EventReason::Of(reason), note: note.into() }
    }
}

/// One event on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queued {
    /// Namespace, name and UID of what it is about, and its kind.
    about: [String; 5],
    kind: &'static str,
    reason: String,
    note: String,
}

/// Where events are handed in.
#[derive(Clone, Debug)]
pub struct Events(Sender<Queued>);

impl Events {
    /// With the task that writes them, one after the other, until every handle is gone.
    pub fn new(client: Client) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = channel(WAITING);
        (Self(sender), publish(client, receiver))
    }

    /// Has an event written; does not wait.
    pub fn record(&self, regarding: &ObjectReference, event: NewEvent) {
        let is_documented = event.reason.is_documented();
        debug_assert!(is_documented, "{:?}: Reason::is_of_event says that no event has it", event.reason);
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let about = [
            text(&regarding.namespace),
            text(&regarding.name),
            text(&regarding.uid),
            text(&regarding.kind),
            text(&regarding.api_version),
        ];
        let NewEvent { kind, reason, note } = event;
        let kind = match kind {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        let reason = reason.name();
        let queued = Queued { about, kind, reason: reason.to_owned(), note: bounded(note) };
        if self.0.try_send(queued).is_err() {
            tracing::debug!(reason, "an event could not be written");
        }
    }
}

fn bounded(mut note: String) -> String {
    if note.len() > LONGEST {
        let end = (0..=LONGEST - 3).rev().find(|end| note.is_char_boundary(*end)).unwrap_or(0);
        note.truncate(end);
        note.push_str("...");
    }
    note
}

/// What was written in the last minutes, and on which event: digests, for a thousand starts have three thousand notes. Every
/// access takes the same time, however many there are.
#[derive(Debug, Default)]
struct Recent {
    digests: RandomState,
    events: HashMap<u64, (Uuid, i32)>,
    order: VecDeque<(Instant, u64)>,
}

/// What is to be written.
#[derive(Debug, PartialEq, Eq)]
enum Write {
    /// A new event of this name.
    New(String),
    /// It was counted so often, on the event of this name.
    Again(String, i32),
}

impl Recent {
    fn next(&mut self, queued: &Queued, now: Instant) -> Write {
        while let Some((since, _)) = self.order.front()
            && now.duration_since(*since) > REMEMBERED
            && let Some((_, old)) = self.order.pop_front()
        {
            self.events.remove(&old);
        }
        let digest = self.digests.hash_one(queued);
        if let Some((event, count)) = self.events.get_mut(&digest) {
            *count = count.saturating_add(1);
            return Write::Again(name(queued, *event), *count);
        }
        let event = Uuid::new_v4();
        self.events.insert(digest, (event, 1));
        self.order.push_back((now, digest));
        Write::New(name(queued, event))
    }

    fn forget(&mut self, queued: &Queued) {
        let digest = self.digests.hash_one(queued);
        self.events.remove(&digest);
        self.order.retain(|(_, known)| *known != digest);
    }
}

/// The name of an event: that of what it is about, and what makes it unique.
fn name(queued: &Queued, event: Uuid) -> String {
    format!("{}.{}", queued.about[1], event.simple())
}

async fn publish(client: Client, mut waiting: Receiver<Queued>) {
    let mut recent = Recent::default();
    while let Some(queued) = waiting.recv().await {
        let namespace = if queued.about[0].is_empty() { DEFAULT_NAMESPACE } else { &queued.about[0] };
        let now = Timestamp::now();
        let written = match recent.next(&queued, Instant::now()) {
            Write::New(name) => {
                unread::create(&client, namespace, &PostParams::default(), &event(&queued, name, now)).await
            }
            Write::Again(name, count) => {
                let events: Api<Event> = Api::namespaced(client.clone(), namespace);
                let series = json!({"series": {"count": count, "lastObservedTime": MicroTime(now)}});
                events.patch(&name, &PatchParams::default(), &Patch::Merge(series)).await.map(|_| ())
            }
        };
        if let Err(error) = written {
            tracing::debug!(%error, "an event could not be written");
            // The next one of this kind is a new one.
            recent.forget(&queued);
        }
    }
}

fn event(queued: &Queued, name: String, now: Timestamp) -> Event {
    let [namespace, about, uid, kind, api_version] = queued.about.clone();
    Event {
        action: Some("Reconcile".to_owned()),
        event_time: Some(MicroTime(now)),
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace.clone()).filter(|namespace| !namespace.is_empty()),
            ..ObjectMeta::default()
        },
        note: Some(queued.note.clone()),
        reason: Some(queued.reason.clone()),
        regarding: Some(ObjectReference {
            api_version: Some(api_version),
            kind: Some(kind),
            name: Some(about),
            namespace: Some(namespace),
            uid: Some(uid),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(FIELD_MANAGER.to_owned()),
        reporting_instance: Some(FIELD_MANAGER.to_owned()),
        type_: Some(queued.kind.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(note: &str) -> Queued {
        let about = ["ns", "vm", "uid", "VirtualMachine", "kubevirt.io/v1"].map(str::to_owned);
        Queued { about, kind: "Warning", reason: "FailedCreate".to_owned(), note: note.to_owned() }
    }

    #[test]
    fn the_same_note_is_counted_and_another_one_is_written() {
        let (mut recent, begun) = (Recent::default(), Instant::now());
        let Write::New(first) = recent.next(&queued("exceeded quota"), begun) else { panic!("it was never written") };
        assert_eq!(recent.next(&queued("exceeded quota"), begun), Write::Again(first.clone(), 2));
        let Write::New(second) = recent.next(&queued("the webhook does not answer"), begun) else {
            panic!("the old note would be shown")
        };
        assert_ne!(first, second);
        let later = begun + REMEMBERED + Duration::from_secs(1);
        assert!(matches!(recent.next(&queued("exceeded quota"), later), Write::New(_)));
        assert_eq!((recent.events.len(), recent.order.len()), (1, 1), "what is forgotten takes no memory");
        recent.forget(&queued("exceeded quota"));
        assert_eq!((recent.events.len(), recent.order.len()), (0, 0));
    }

    #[test]
    fn recent_events_are_remembered_without_their_notes() {
        fn is_of_numbers_alone<K: Copy, V: Copy>(_: &HashMap<K, V>) {}
        let mut recent = Recent::default();
        let wrote = recent.next(&queued(&"x".repeat(LONGEST)), Instant::now());
        assert!(
            matches!(&wrote, Write::New(name) if name.starts_with("vm.") && name.len() == "vm.".len() + 32),
            "{wrote:?}"
        );
        is_of_numbers_alone(&recent.events);
    }

    #[tokio::test]
    async fn nothing_waits_for_an_event_and_what_is_too_much_is_lost() {
        let serve = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, tower::BoxError>>()
        });
        let (events, _never_run) = Events::new(Client::new(serve, "default"));
        for number in 0..2 * WAITING {
            events.record(&ObjectReference::default(), NewEvent::normal(Reason::Started, number.to_string()));
        }
    }

    #[test]
    fn a_long_note_is_cut() {
        assert_eq!(bounded("é".repeat(LONGEST)).len(), LONGEST - 1);
        assert_eq!(bounded("short".to_owned()), "short");
    }
}
