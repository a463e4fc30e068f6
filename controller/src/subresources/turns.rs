//! How much each user may have under way: a user that floods takes its own turns, not those of others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests of one user at once. Each waits for the API server a few times.
const OF_A_USER: usize = 16;

/// How many requests each user has under way.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<HashMap<String, usize>>>);

impl Turns {
    /// A turn for a user, unless it has all of its own.
    pub(super) fn take(&self, user: &str) -> Option<Turn> {
        let mut taken = self.lock();
        let of_user = taken.entry(user.to_owned()).or_default();
        if *of_user >= OF_A_USER {
            return None;
        }
        *of_user += 1;
        Some(Turn { turns: self.clone(), user: user.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let turns = Turns::default();
        let mut of_ada: Vec<Turn> = (0..OF_A_USER).map(|_| turns.take("ada").unwrap()).collect();
        assert!(turns.take("ada").is_none());
        assert!(turns.take("bob").is_some());
        of_ada.pop();
        assert!(turns.take("ada").is_some());
        of_ada.clear();
        assert!(turns.lock().is_empty());
    }
}
