//! How many controllers the agent is connected to, for those who look at its node.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// For how long an agent may be without any before it reports so: one that has just started dials them one after the other, and
/// controllers that are replaced are dialled again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connections that are open, counted.
#[derive(Debug)]
pub struct Connections(Mutex<Counted>);

#[derive(Debug)]
struct Counted {
    open: usize,
    /// When one ended last, or since when there have been none.
    last: Instant,
}

impl Default for Connections {
    fn default() -> Self {
        Self(Mutex::new(Counted { open: 0, last: Instant::now() }))
    }
}

impl Connections {
    /// Counts one until it is dropped.
    pub fn open(self: &Arc<Self>) -> OpenConnection {
        self.counted().open += 1;
        OpenConnection(Arc::clone(self))
    }

    /// How many there are; nothing if there have been none for a short time only.
    pub fn count(&self) -> Option<usize> {
        let counted = self.counted();
        (counted.open > 0 || counted.last.elapsed() >= PATIENCE).then_some(counted.open)
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that counts.
#[derive(Debug)]
pub struct OpenConnection(Arc<Connections>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let mut counted = self.0.counted();
        counted.open = counted.open.saturating_sub(1);
        counted.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn that_there_is_none_counts_after_a_while() {
        let connections = Arc::new(Connections::default());
        assert_eq!(connections.count(), None, "it has just started");
        tokio::time::advance(PATIENCE).await;
        assert_eq!(connections.count(), Some(0));
        let (one, other) = (connections.open(), connections.open());
        assert_eq!(connections.count(), Some(2));
        drop(one);
        assert_eq!(connections.count(), Some(1));
        drop(other);
        assert_eq!(connections.count(), None, "controllers may be replaced");
        tokio::time::advance(PATIENCE).await;
        assert_eq!(connections.count(), Some(0));
    }
}
