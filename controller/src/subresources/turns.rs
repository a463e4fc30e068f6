//! How much each user may have under way: a user that floods takes its own turns, not those of others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many requests each user has under way.
#[derive(Clone)]
pub(super) struct Turns {
    /// The most of one user.
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

#[cfg(test)]
mod tests {
    use super::*;

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
