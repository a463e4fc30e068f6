//! Which object waits for what: for objects that concern another one only for a time.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ObjectKey;

/// Waiters by the namespace and the name of what they wait for.
#[derive(Debug)]
pub struct Waiting<W>(Mutex<Known<W>>);

/// The same pairs from both ends, so that it takes no longer because there are more of them.
#[derive(Debug)]
struct Known<W> {
    waiters: HashMap<ObjectKey, HashSet<W>>,
    wanted: HashMap<W, HashSet<ObjectKey>>,
}

impl<W> Default for Waiting<W> {
    fn default() -> Self {
        Self(Mutex::new(Known { waiters: HashMap::new(), wanted: HashMap::new() }))
    }
}

impl<W: Clone + Eq + Hash> Waiting<W> {
    /// To be called before the object is looked at: a change after that is not missed.
    pub fn waits(&self, namespace: &str, name: &str, waiter: W) {
        let (mut known, key) = (self.known(), ObjectKey::new(namespace, name));
        known.wanted.entry(waiter.clone()).or_default().insert(key.clone());
        known.waiters.entry(key).or_default().insert(waiter);
    }

    /// Those that waited, once: one that still waits registers again.
    pub fn woken(&self, key: &ObjectKey) -> HashSet<W> {
        let mut known = self.known();
        let woken = known.waiters.remove(key).unwrap_or_default();
        woken.iter().for_each(|waiter| take(&mut known.wanted, waiter, key));
        woken
    }

    /// It waits for nothing: it is looked at now and registers again, or is not there any more.
    pub fn forget(&self, waiter: &W) {
        let mut known = self.known();
        let wanted = known.wanted.remove(waiter).unwrap_or_default();
        wanted.iter().for_each(|key| take(&mut known.waiters, key, waiter));
    }

    /// Both maps agree after every statement that can panic, so a panic elsewhere cannot have left them half-changed.
    fn known(&self) -> MutexGuard<'_, Known<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes one out of a set, and the set with its last one.
fn take<K: Eq + Hash, V: Eq + Hash>(sets: &mut HashMap<K, HashSet<V>>, key: &K, value: &V) {
    let Some(set) = sets.get_mut(key) else { return };
    set.remove(value);
    if set.is_empty() {
        sets.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_object_waits_for_any_more_takes_no_memory() {
        let key = |name: &str| ObjectKey::new("ns", name);
        let waiting = Waiting::default();
        for (name, waiter) in [("a", 1), ("a", 2), ("b", 1), ("never", 3)] {
            waiting.waits("ns", name, waiter);
        }
        assert_eq!(waiting.woken(&key("a")), HashSet::from([1, 2]));
        assert_eq!(waiting.woken(&key("a")), HashSet::new(), "once");
        waiting.forget(&3);
        assert_eq!(waiting.woken(&key("never")), HashSet::new());
        waiting.waits("ns", "a", 2);
        waiting.forget(&1);
        assert_eq!(waiting.woken(&key("b")), HashSet::new());
        assert_eq!(waiting.woken(&key("a")), HashSet::from([2]), "another still waits");
        let known = waiting.known();
        assert_eq!((known.waiters.len(), known.wanted.len()), (0, 0));
    }
}
