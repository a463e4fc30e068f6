//! Who controls what.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Cached, Kind, ObjectKey};

/// The objects of one kind by the UID of their controller. Those without one, of a kind that is adopted, by their namespace.
#[derive(Debug, Default)]
pub(super) struct Index(Mutex<HashMap<String, BTreeSet<ObjectKey>>>);

impl Index {
    pub(super) fn of(&self, uid: &str) -> Vec<ObjectKey> {
        self.entries().get(uid).into_iter().flatten().cloned().collect()
    }

    pub(super) fn without_controller(&self, namespace: &str) -> Vec<ObjectKey> {
        self.of(&alone(namespace))
    }

    /// Takes an object as it is now for what it was before, in one step: no reader sees it missing in between.
    pub(super) fn exchange<K: Kind>(&self, before: Option<&Cached<K>>, object: &Cached<K>) {
        let mut entries = self.entries();
        before.into_iter().for_each(|before| remove(&mut entries, before));
        insert(&mut entries, object);
    }

    pub(super) fn remove<K: Kind>(&self, object: &Cached<K>) {
        remove(&mut self.entries(), object);
    }

    pub(super) fn replace<'a, K: Kind>(&self, objects: impl Iterator<Item = &'a Cached<K>>) {
        let mut entries = HashMap::new();
        objects.for_each(|object| insert(&mut entries, object));
        *self.entries() = entries;
    }

    /// A map is whole after every statement here, so a panic elsewhere cannot have left it half-changed.
    fn entries(&self) -> MutexGuard<'_, HashMap<String, BTreeSet<ObjectKey>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn insert<K: Kind>(entries: &mut HashMap<String, BTreeSet<ObjectKey>>, object: &Cached<K>) {
    if let Some(place) = place(object) {
        entries.entry(place).or_default().insert(object.key());
    }
}

/// Where an object is found.
fn place<K: Kind>(object: &Cached<K>) -> Option<String> {
    match object.controller() {
        Some(owner) => Some(owner.uid.clone()),
        None => K::IS_ADOPTED.then(|| alone(&object.key().namespace)),
    }
}

/// The place of what nobody controls. No UID has a slash.
fn alone(namespace: &str) -> String {
    format!("/{namespace}")
}

fn remove<K: Kind>(entries: &mut HashMap<String, BTreeSet<ObjectKey>>, object: &Cached<K>) {
    let Some(place) = place(object) else { return };
    let Some(owned) = entries.get_mut(&place) else { return };
    owned.remove(&object.key());
    if owned.is_empty() {
        entries.remove(&place);
    }
}
