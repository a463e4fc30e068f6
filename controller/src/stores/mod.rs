//! The leader's copy of the cluster's objects: one watch per kind, whose store both reconcilers read.
//!
//! An object is kept as text, without what no decision needs, and read when it is decided about. So one that cannot be read
//! is a problem of its own and stops no list; and a few thousand of them take little memory. What an object owns is found by an
//! index: nothing here takes longer because there are more objects.
//!
//! A store may lag behind the API server. Before a step that starts, adopts or deletes, the reconcilers therefore ask for the
//! object that they decide about (`docs/adr/0016-stores.md`).

mod cached;
mod index;
mod kind;
mod sieve;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use garboard_protocol::causes::ErrorChain;
use kube::Api;
use kube::core::Status;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event};

pub use cached::{Cached, ObjectKey, Unreadable};
use index::Index;
pub use kind::{
    DataVolumes, Installations, Instances, Kind, Machines, PREALLOCATED, Pods, Pools, Presets, ReplicaSets,
    VolumeClaims,
};
pub use waiting::Waiting;

use crate::context::WatchPause;

/// The objects of one kind, as far as the watch has delivered them.
pub struct Known<K: Kind> {
    store: Store<Cached<K>>,
    owners: Arc<Index>,
}

impl<K: Kind> Clone for Known<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), owners: self.owners.clone() }
    }
}

impl<K: Kind> Known<K> {
    /// Nothing yet, and what fills it.
    #[must_use]
    pub fn new() -> (Self, StoreWriter<K>) {
        let writer = Writer::new(());
        let known = Self { store: writer.as_reader(), owners: Arc::default() };
        (known.clone(), StoreWriter { writer, known })
    }

    /// The store, for what schedules reconciliations.
    #[must_use]
    pub fn store(&self) -> Store<Cached<K>> {
        self.store.clone()
    }

    /// Returns when everything was listed once.
    pub async fn is_listed(&self) {
        // An error means that the watch has ended, and with it the task that waits here.
        if self.store.wait_until_ready().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The object of this name.
    #[must_use]
    pub fn named(&self, namespace: &str, name: &str) -> Option<Arc<Cached<K>>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// What the object of this UID controls.
    #[must_use]
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<Cached<K>>> {
        self.all(self.owners.of(uid))
    }

    /// The objects of a namespace that nobody controls, of a kind that [is adopted](Kind::IS_ADOPTED).
    #[must_use]
    pub fn uncontrolled(&self, namespace: &str) -> Vec<Arc<Cached<K>>> {
        self.all(self.owners.without_controller(namespace))
    }

    fn all(&self, keys: Vec<ObjectKey>) -> Vec<Arc<Cached<K>>> {
        keys.iter().filter_map(|key| self.named(&key.namespace, &key.name)).collect()
    }
}

/// Fills a store.
pub struct StoreWriter<K: Kind> {
    writer: Writer<Cached<K>>,
    known: Known<K>,
}

impl<K: Kind> StoreWriter<K> {
    /// Watches until the process ends; `changed` is called for every object that is new, different or gone, and once more, as it was
    /// before, for one that has another controller than before.
    pub async fn follow(self, api: Api<Cached<K>>, config: watcher::Config, changed: impl Fn(&Cached<K>)) {
        let what = K::KIND;
        let events = watcher::watcher(api, config).backoff(WatchPause::default());
        self.take(events, changed, |error| {
            tracing::warn!(kind = what, error = %ErrorChain(error), "watch failed; tried again");
            None
        })
        .await;
    }

    /// As [`Self::follow`], for a kind that the cluster may not have: returns when it has none.
    pub async fn follow_if_served(self, api: Api<Cached<K>>, changed: impl Fn(&Cached<K>)) {
        let events = watcher::watcher(api, watcher::Config::default()).backoff(WatchPause::default());
        self.take(events, changed, |error| {
            let is_unserved = is_unserved(error);
            if !is_unserved {
                tracing::warn!(kind = K::KIND, error = %ErrorChain(error), "watch failed; tried again");
            }
            is_unserved.then_some(())
        })
        .await;
    }

    async fn take(
        mut self,
        events: impl futures::Stream<Item = watcher::Result<Event<Cached<K>>>>,
        changed: impl Fn(&Cached<K>),
        ends: impl Fn(&watcher::Error) -> Option<()>,
    ) {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.note(event, &changed),
                Err(error) if ends(&error).is_some() => return,
                Err(_) => {}
            }
        }
    }

    /// Takes one event into the store, and reports what it changes.
    pub(crate) fn note(&mut self, event: Event<Cached<K>>, changed: &impl Fn(&Cached<K>)) {
        match &event {
            Event::Apply(object) => {
                let before = self.before(object);
                let is_different = before.as_ref().is_none_or(|before| !before.is_the_same(object));
                self.known.owners.exchange(before.as_deref(), object);
                self.writer.apply_watcher_event(&event);
                if is_different {
                    // Who controlled it until now has to look, too.
                    let others = before.filter(|before| uid_of_controller(before) != uid_of_controller(object));
                    others.iter().for_each(|before| changed(before));
                    changed(object);
                }
            }
            Event::Delete(object) => {
                self.before(object).iter().for_each(|before| self.known.owners.remove(before));
                self.writer.apply_watcher_event(&event);
                changed(object);
            }
            Event::Init | Event::InitApply(_) => self.writer.apply_watcher_event(&event),
            Event::InitDone => {
                let before = self.known.store.state();
                self.writer.apply_watcher_event(&event);
                let now = self.known.store.state();
                self.known.owners.replace(now.iter().map(AsRef::as_ref));
                // The owner of what was deleted while no watch was open is notified.
                let is_there = |object: &Cached<K>| self.known.store.get(&ObjectRef::from_obj(object)).is_some();
                before.iter().filter(|object| !is_there(object)).for_each(|object| changed(object));
                now.iter().for_each(|object| changed(object));
            }
        }
    }

    fn before(&self, object: &Cached<K>) -> Option<Arc<Cached<K>>> {
        self.known.store.get(&ObjectRef::from_obj(object))
    }
}

fn uid_of_controller<K: Kind>(object: &Cached<K>) -> Option<&str> {
    object.controller().map(|owner| owner.uid.as_str())
}

/// Whether there is no such object, or no such kind: for that the API server answers with a plain text, which the client takes
/// for no answer of Kubernetes' own.
pub(crate) fn is_absent(status: &Status) -> bool {
    status.code == 404
}

/// Whether the API server has no such kind.
fn is_unserved(error: &watcher::Error) -> bool {
    let source = match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => source,
        watcher::Error::WatchError(status) => return is_absent(status),
        watcher::Error::NoResourceVersion => return false,
    };
    matches!(source, kube::Error::Api(status) if is_absent(status))
}

/// How often a kind that the cluster does not have is asked for again.
pub const UNSERVED: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
