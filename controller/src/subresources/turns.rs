//! How much each user may have under way: a user that floods takes its own turns, not those of others. A namespace has turns too:
//! who may make service accounts in it is as many users as they like.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much each user has under way; or each namespace, each instance.
#[derive(Clone)]
pub(super) struct Turns {
    /// The most of one.
    most: usize,
    taken: Arc<Mutex<HashMap<String, usize>>>,
}

impl Turns {
    /// At most so many of each user.
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// A turn for a user, unless it has all of its own.
    pub(super) fn take(&self, user: &str) -> Option<Turn> {
        let mut taken = self.lock();
        let of_user = taken.entry(user.to_owned()).or_default();
        if *of_user >= self.most {
            return None;
        }
        *of_user += 1;
        Some(Turn { turns: self.clone(), user: user.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn; it ends when it is dropped.
pub(super) struct Turn {
    turns: Turns,
    user: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut taken = self.turns.lock();
        if let Some(of_user) = taken.get_mut(&self.user) {
            *of_user -= 1;
            if *of_user == 0 {
                taken.remove(&self.user);
            }
        }
    }
}

/// The streams that are open: so many of each user, and so many of each namespace.
#[derive(Clone)]
pub(super) struct Streams {
    of_users: Turns,
    of_namespaces: Turns,
}

impl Streams {
    /// At most so many of each.
    pub(super) fn new(of_a_user: usize, of_a_namespace: usize) -> Self {
        Self { of_users: Turns::new(of_a_user), of_namespaces: Turns::new(of_a_namespace) }
    }

    /// A stream of a user to a machine of a namespace, unless one of both has all of its own.
    pub(super) fn take(&self, user: &str, namespace: &str) -> Option<StreamTurn> {
        Some(StreamTurn { _of_user: self.of_users.take(user)?, _of_namespace: self.of_namespaces.take(namespace)? })
    }
}

/// The turns of a stream; they end when this is dropped.
pub(super) struct StreamTurn {
    _of_user: Turn,
    _of_namespace: Turn,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_of_a_namespace_share_its_streams_and_take_none_of_another() {
        let streams = Streams::new(2, 3);
        let mut open: Vec<StreamTurn> =
            ["ada", "ada", "bob"].map(|user| streams.take(user, "one").unwrap()).into_iter().collect();
        assert!(streams.take("eve", "one").is_none(), "another account of the same namespace");
        assert!(streams.take("ada", "two").is_none(), "a user has so many in all namespaces together");
        let _of_another = streams.take("eve", "two").unwrap();
        open.pop();
        assert!(streams.take("eve", "one").is_some());
    }

    #[test]
    fn a_user_has_its_own_turns_and_leaves_no_trace() {
        let turns = Turns::new(16);
        let mut of_ada: Vec<Turn> = (0..16).map(|_| turns.take("ada").unwrap()).collect();
        assert!(turns.take("ada").is_none());
        assert!(turns.take("bob").is_some());
        of_ada.pop();
        assert!(turns.take("ada").is_some());
        of_ada.clear();
        assert!(turns.lock().is_empty());
    }
}
