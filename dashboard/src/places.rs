//! Places for connections. Those whose token the API server has not taken yet are strangers, and have few places. Where all of these are
//! taken, a new connection has that of the stranger who came first, whose connection ends: who asks at once is answered, however many
//! others hold connections on which they ask nothing. A kubelet that asks whether this server serves is such a stranger too.
//!
//! One whose token was taken keeps its connection, as long as there are places for those. Beyond them it stays a stranger.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// All of them.
#[derive(Clone, Debug)]
pub struct Places {
    known: Arc<Semaphore>,
    strangers: Arc<Mutex<Strangers>>,
}

#[derive(Debug)]
struct Strangers {
    most: usize,
    /// How many have come.
    count: u64,
    /// Those that are here, in the order in which they came, and how each learns that its place is another's.
    here: BTreeMap<u64, watch::Sender<bool>>,
}

/// One, for as long as this lives.
#[derive(Debug)]
pub struct Place {
    places: Places,
    number: u64,
    /// Whether another one has it.
    gone: watch::Receiver<bool>,
    /// Once its token was taken.
    known: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Places {
    /// So many for connections that are known, and so many for strangers.
    #[must_use]
    pub fn new(known: usize, strangers: usize) -> Self {
        let strangers = Strangers { most: strangers, count: 0, here: BTreeMap::new() };
        Self { known: Arc::new(Semaphore::new(known)), strangers: Arc::new(Mutex::new(strangers)) }
    }

    /// One of a stranger.
    #[must_use]
    pub fn take(&self) -> Place {
        let (here, gone) = watch::channel(false);
        let mut strangers = self.lock();
        if strangers.here.len() >= strangers.most
            && let Some((_, first)) = strangers.here.pop_first()
        {
            first.send_replace(true);
        }
        let number = strangers.count;
        strangers.count += 1;
        strangers.here.insert(number, here);
        Place { places: self.clone(), number, gone, known: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The API server has taken the token of a request of this connection: no stranger has its place any more, if there is one for it.
    pub fn becomes_known(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some() {
            return;
        }
        if let Ok(permit) = Arc::clone(&self.places.known).try_acquire_owned() {
            *known = Some(permit);
            self.places.lock().here.remove(&self.number);
        }
    }

    /// Returns once another connection has it: this one is to end.
    pub async fn is_gone(&self) {
        let mut gone = self.gone.clone();
        let is_kept = gone.wait_for(|gone| *gone).await.is_err();
        if is_kept {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().here.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_gone(place: &Place) -> bool {
        tokio::select! {
            biased;
            () = place.is_gone() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn where_strangers_have_all_their_places_a_new_one_has_that_of_the_first() {
        let places = Places::new(2, 2);
        let (first, second) = (places.take(), places.take());
        assert!(!is_gone(&first).await);
        let third = places.take();
        assert!(is_gone(&first).await && !is_gone(&second).await && !is_gone(&third).await);
        drop(second);
        let fourth = places.take();
        assert!(!is_gone(&third).await, "there was a place");
        drop((first, third, fourth));
        assert!(places.lock().here.is_empty());
    }

    #[tokio::test]
    async fn who_is_known_keeps_its_place_as_long_as_there_are_some_for_those() {
        let places = Places::new(1, 2);
        let (first, second) = (places.take(), places.take());
        first.becomes_known();
        second.becomes_known();
        let (_third, _fourth) = (places.take(), places.take());
        assert!(!is_gone(&first).await && is_gone(&second).await, "there is one place for who is known");
        drop(first);
        let third = places.take();
        third.becomes_known();
        third.becomes_known();
        let _more = [places.take(), places.take(), places.take()];
        assert!(!is_gone(&third).await, "it was free again");
    }
}
