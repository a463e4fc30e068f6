//! What the API server has, as far as this node is concerned, kept here: the last event of a watch, by UID.
//!
//! A watch that breaks is opened again by `kube`, with a list first; what the list does not have is gone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::runtime::watcher::Event;
use tokio::sync::watch;

/// Objects by UID.
pub struct Mirror<V> {
    state: Mutex<State<V>>,
}

struct State<V> {
    entries: HashMap<String, V>,
    /// What a list has brought so far.
    listed: Option<HashMap<String, V>>,
    /// A list was complete.
    known: bool,
    /// How often a watch reported something.
    revision: u64,
    /// For each UID that a task waits for, how often it changed.
    awaited: HashMap<String, watch::Sender<u64>>,
    /// How often anything changed.
    changed: watch::Sender<u64>,
}

impl<V: Clone> Default for Mirror<V> {
    fn default() -> Self {
        let (entries, awaited, changed) = (HashMap::new(), HashMap::new(), watch::Sender::new(0));
        Self { state: Mutex::new(State { entries, listed: None, known: false, revision: 0, awaited, changed }) }
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

    /// Whether the API server has listed everything once.
    pub fn is_known(&self) -> bool {
        self.state().known
    }

    /// Signals every change of any object from now on, and every list.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.state().changed.subscribe()
    }

    /// Signals every change of one object from now on, and every list.
    pub fn changes_of(&self, uid: &str) -> watch::Receiver<u64> {
        let mut state = self.state();
        state.awaited.retain(|_, sender| sender.receiver_count() > 0);
        state.awaited.entry(uid.to_owned()).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    /// Puts an object here.
    pub fn insert(&self, uid: &str, value: V) {
        let mut state = self.state();
        state.entries.insert(uid.to_owned(), value);
        state.changed(uid);
    }

    /// How often a watch has reported something.
    pub fn revision(&self) -> u64 {
        self.state().revision
    }

    /// Puts an object here that was listed at this revision; not if the watch has reported more meanwhile, which
    /// may be that the object is gone.
    pub fn insert_listed(&self, uid: &str, value: V, revision: u64) {
        let mut state = self.state();
        if state.revision != revision {
            return;
        }
        state.entries.insert(uid.to_owned(), value);
        state.changed(uid);
    }

    /// Takes an event of a watch; `read` gives UID and value of an object, or nothing where it does not belong here.
    pub fn apply<K>(&self, event: Event<K>, read: impl Fn(K) -> (String, Option<V>)) {
        let mut state = self.state();
        state.revision += 1;
        match event {
            Event::Init => state.listed = Some(HashMap::new()),
            Event::InitApply(object) => {
                if let (uid, Some(value)) = read(object) {
                    state.listed.get_or_insert_default().insert(uid, value);
                }
            }
            Event::InitDone => {
                state.entries = state.listed.take().unwrap_or_default();
                state.known = true;
                state
                    .awaited
                    .values()
                    .chain([&state.changed])
                    .for_each(|sender| sender.send_modify(|count| *count += 1));
            }
            Event::Apply(object) => {
                let (uid, value) = read(object);
                match value {
                    Some(value) => drop(state.entries.insert(uid.clone(), value)),
                    None => drop(state.entries.remove(&uid)),
                }
                state.changed(&uid);
            }
            Event::Delete(object) => {
                let uid = read(object).0;
                state.entries.remove(&uid);
                state.changed(&uid);
            }
        }
    }

    /// A map is whole after every statement here, so a panic elsewhere cannot have left it half-changed.
    fn state(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> State<V> {
    /// Wakes the tasks that wait for this one or for any, and no others: each of many would look at all it has.
    fn changed(&self, uid: &str) {
        self.changed.send_modify(|count| *count += 1);
        if let Some(sender) = self.awaited.get(uid) {
            sender.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_one_wakes_those_who_wait_for_it() {
        let mirror = Mirror::default();
        let (one, other, any) = (mirror.changes_of("one"), mirror.changes_of("other"), mirror.changes());
        mirror.apply(Event::Apply(("one", 1)), read);
        assert!(one.has_changed().unwrap() && any.has_changed().unwrap() && !other.has_changed().unwrap());
        for event in [Event::Init, Event::InitDone] {
            mirror.apply(event, read);
        }
        assert!(other.has_changed().unwrap());
        drop((one, other));
        drop(mirror.changes_of("third"));
        assert!(mirror.state().awaited.len() <= 1, "no task waits for the others any more");
    }

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
    fn what_was_listed_is_put_here_unless_a_watch_reported_more() {
        let mirror = Mirror::default();
        let revision = mirror.revision();
        mirror.insert_listed("one", 1, revision);
        mirror.apply(Event::Delete(("one", 1)), read);
        mirror.insert_listed("one", 1, revision);
        assert_eq!(mirror.get("one"), None);
        mirror.insert_listed("one", 1, mirror.revision());
        assert_eq!(mirror.get("one"), Some(1));
    }
}
