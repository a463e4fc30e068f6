//! Places for connections, of which there are so many. Those whose token the API server has not taken yet are strangers, of whom there are
//! fewer: however many they are, the connections of who is in go on. A new connection is a stranger's until its first token was taken, also
//! that of a user who has others: strangers that hold all their places keep it out.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All of them.
#[derive(Clone, Debug)]
pub struct Places {
    connections: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

/// One, for as long as this lives.
#[derive(Debug)]
pub struct Place {
    _connection: OwnedSemaphorePermit,
    stranger: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Places {
    /// So many connections, and so many of them of strangers.
    #[must_use]
    pub fn new(connections: usize, strangers: usize) -> Self {
        Self { connections: Arc::new(Semaphore::new(connections)), strangers: Arc::new(Semaphore::new(strangers)) }
    }

    /// One of them, as a stranger; nothing if all are taken.
    #[must_use]
    pub fn take(&self) -> Option<Place> {
        let connection = Arc::clone(&self.connections).try_acquire_owned().ok()?;
        let stranger = Arc::clone(&self.strangers).try_acquire_owned().ok()?;
        Some(Place { _connection: connection, stranger: Mutex::new(Some(stranger)) })
    }
}

impl Place {
    /// The API server has taken the token of a request of this connection.
    pub fn becomes_known(&self) {
        drop(self.stranger.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_have_few_places_and_who_is_known_gives_one_back() {
        let places = Places::new(3, 1);
        let first = places.take().unwrap();
        assert!(places.take().is_none(), "a second stranger has a place");
        first.becomes_known();
        let second = places.take().unwrap();
        second.becomes_known();
        let third = places.take().unwrap();
        third.becomes_known();
        assert!(places.take().is_none(), "there are three at most");
        drop(first);
        assert!(places.take().is_some());
    }
}
