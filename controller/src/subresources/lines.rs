//! A bound on the log lines that each user can cause by requests: so many are written, the others are counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use super::limits::RATE_OF_LINES;
use super::rates::Buckets;

/// The bound on lines of one kind, shared by its clones.
#[derive(Clone)]
pub(super) struct Lines(Arc<State>);

struct State {
    users: Mutex<Buckets>,
    /// Lines of all users that were not written since the last one that was.
    left_out: AtomicU64,
}

impl Lines {
    /// That of [`super::limits`].
    pub(super) fn usual() -> Self {
        let users = Mutex::new(Buckets::new(RATE_OF_LINES));
        Self(Arc::new(State { users, left_out: AtomicU64::new(0) }))
    }

    /// How many lines of all users were left out before this one; nothing if this one is left out, too.
    pub(super) fn judge(&self, user: &str, now: Instant) -> Option<u64> {
        let taken = self.0.users.lock().unwrap_or_else(PoisonError::into_inner).take(user, now.into_std());
        if taken.is_err() {
            self.0.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.0.left_out.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_user_that_floods_fills_no_log_and_hides_nobody_else() {
        let (lines, begun) = (Lines::usual(), Instant::now());
        let of_ada = (0..1000).filter(|_| lines.judge("ada", begun).is_some()).count();
        assert_eq!(of_ada, RATE_OF_LINES.burst as usize);
        let left_out = 1000 - u64::from(RATE_OF_LINES.burst);
        assert_eq!(lines.judge("bob", begun), Some(left_out), "the next line says how many there were");
        assert_eq!(lines.judge("bob", begun), Some(0));
        assert_eq!(lines.judge("ada", begun), None);
        assert_eq!(lines.judge("ada", begun + Duration::from_secs(1)), Some(1));
    }
}
