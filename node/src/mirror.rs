//! What the API server has, as far as this node is concerned, kept here: the last word of a watch, by UID.
//!
//! A watch that breaks is opened again by `kube`, with a list first; what the list does not have is gone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::runtime::watcher::Event;
use tokio::sync::watch;

/// Objects by UID.
pub struct Mirror<V> {
    state: Mutex<State<V>>,
    /// How often something changed.
    changes: watch::Sender<u64>,
}

struct State<V> {
    entries: HashMap<String, V>,
    /// What a list has brought so far.
    listed: Option<HashMap<String, V>>,
    /// A list was complete.
    known: bool,
    /// How often a watch said something.
    heard: u64,
}

impl<V: Clone> Default for Mirror<V> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State { entries: HashMap::new(), listed: None, known: false, heard: 0 }),
            changes: watch::Sender::new(0),
        }
    }
}

impl<V: Clone> Mirror<V> {
    /// The object of that UID.
    pub fn get(&self, uid: &str) -> Option<V> {
        self.state().entries.get(uid).cloned()
    }

    /// Every object.
    pub fn all(&self) -> Vec<V> {
        self.state().entries.values().cloned().collect()
    }

    /// Whether the API server has said everything once.
    pub fn is_known(&self) -> bool {
        self.state().known
    }

    /// Tells of every change from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Puts an object here.
    pub fn insert(&self, uid: &str, value: V) {
        self.state().entries.insert(uid.to_owned(), value);
        self.changed();
    }

    /// How often a watch has said something.
    pub fn heard(&self) -> u64 {
        self.state().heard
    }

    /// Puts an object here that was listed when a watch had said something so often; not if it has said more meanwhile, which
    /// may be that the object is gone.
    pub fn insert_listed(&self, uid: &str, value: V, heard: u64) {
        let mut state = self.state();
        if state.heard != heard {
            return;
        }
        state.entries.insert(uid.to_owned(), value);
        drop(state);
        self.changed();
    }

    /// Takes what a watch says; `read` gives UID and value of an object, or nothing where it does not belong here.
    pub fn apply<K>(&self, event: Event<K>, read: impl Fn(K) -> (String, Option<V>)) {
        let mut state = self.state();
        state.heard += 1;
        match event {
            Event::Init => state.listed = Some(HashMap::new()),
            Event::InitApply(object) => {
                if let (uid, Some(value)) = read(object) {
                    state.listed.get_or_insert_default().insert(uid, value);
                }
                return;
            }
            Event::InitDone => {
                state.entries = state.listed.take().unwrap_or_default();
                state.known = true;
            }
            Event::Apply(object) => match read(object) {
                (uid, Some(value)) => drop(state.entries.insert(uid, value)),
                (uid, None) => drop(state.entries.remove(&uid)),
            },
            Event::Delete(object) => drop(state.entries.remove(&read(object).0)),
        }
        drop(state);
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// A map is whole after every statement here, so a panic elsewhere cannot have left it half-changed.
    fn state(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(object: (&str, u8)) -> (String, Option<u8>) {
        (object.0.to_owned(), (object.1 != 0).then_some(object.1))
    }

    #[test]
    fn a_list_replaces_what_was_known() {
        let mirror = Mirror::default();
        mirror.insert("old", 9);
        mirror.apply(Event::Init, read);
        mirror.apply(Event::InitApply(("new", 1)), read);
        assert!(!mirror.is_known());
        assert_eq!((mirror.get("old"), mirror.get("new")), (Some(9), None));
        mirror.apply(Event::InitDone, read);
        assert!(mirror.is_known());
        assert_eq!((mirror.get("old"), mirror.get("new")), (None, Some(1)));
        mirror.apply(Event::Apply(("new", 2)), read);
        assert_eq!(mirror.get("new"), Some(2));
        mirror.apply(Event::Apply(("new", 0)), read);
        assert_eq!(mirror.get("new"), None);
        mirror.apply(Event::Apply(("new", 3)), read);
        mirror.apply(Event::Delete(("new", 3)), read);
        assert_eq!(mirror.get("new"), None);
    }

    #[test]
    fn what_was_listed_is_put_here_unless_a_watch_said_more() {
        let mirror = Mirror::default();
        let heard = mirror.heard();
        mirror.insert_listed("one", 1, heard);
        mirror.apply(Event::Delete(("one", 1)), read);
        mirror.insert_listed("one", 1, heard);
        assert_eq!(mirror.get("one"), None);
        mirror.insert_listed("one", 1, mirror.heard());
        assert_eq!(mirror.get("one"), Some(1));
    }
}
