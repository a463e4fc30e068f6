//! How much each of many may have under way: each user, each namespace, each instance. One that floods takes its own turns, not those
//! of others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// The turns of each.
#[derive(Clone)]
pub(super) struct Turns {
    /// The most turns of one.
    most: usize,
    /// How many may wait for one of them.
    waiting: usize,
    holders: Arc<Mutex<HashMap<String, Holder>>>,
}

/// One that has turns, or waits for some.
struct Holder {
    turns: Arc<Semaphore>,
    /// How many turns it has, and how many it waits for.
    count: usize,
}

impl Turns {
    /// At most so many of each, and so many that wait.
    pub(super) fn new(most: usize, waiting: usize) -> Self {
        Self { most, waiting, holders: Arc::default() }
    }

    /// A turn, unless all of this one's own are taken.
    pub(super) fn take(&self, whose: &str) -> Option<Turn> {
        let entry = self.enter(whose)?;
        let permit = Arc::clone(&entry.turns).try_acquire_owned().ok()?;
        Some(Turn { _permit: permit, _entry: entry })
    }

    /// A turn, once there is one: who comes first has it first. None where it does not come in time, or too many wait.
    pub(super) async fn wait(&self, whose: &str, until: Instant) -> Option<Turn> {
        let entry = self.enter(whose)?;
        let permit = timeout_at(until, Arc::clone(&entry.turns).acquire_owned()).await.ok()?.ok()?;
        Some(Turn { _permit: permit, _entry: entry })
    }

    fn enter(&self, whose: &str) -> Option<Entry> {
        let mut holders = self.lock();
        let fresh = || Holder { turns: Arc::new(Semaphore::new(self.most)), count: 0 };
        let holder = holders.entry(whose.to_owned()).or_insert_with(fresh);
        // Who is new here is below it.
        if holder.count >= self.most + self.waiting {
            return None;
        }
        holder.count += 1;
        Some(Entry { turns: Arc::clone(&holder.turns), all: self.clone(), whose: whose.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Holder>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn; it ends when it is dropped.
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
    _entry: Entry,
}

/// One of those that are counted, with a turn or without one yet.
struct Entry {
    turns: Arc<Semaphore>,
    all: Turns,
    whose: String,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut holders = self.all.lock();
        if let Some(holder) = holders.get_mut(&self.whose) {
            holder.count -= 1;
            if holder.count == 0 {
                holders.remove(&self.whose);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[test]
    fn a_user_has_its_own_turns_and_leaves_no_trace() {
        let turns = Turns::new(16, 0);
        let mut of_ada: Vec<Turn> = (0..16).map(|_| turns.take("ada").unwrap()).collect();
        assert!(turns.take("ada").is_none());
        assert!(turns.take("bob").is_some());
        of_ada.pop();
        assert!(turns.take("ada").is_some());
        of_ada.clear();
        assert!(turns.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_has_the_turn_that_becomes_free_and_not_for_ever() {
        let turns = Turns::new(1, 2);
        let first = turns.take("ada").unwrap();
        let begun = Instant::now();
        let second = async { turns.wait("ada", begun + SOON).await.expect("it becomes free") };
        let free = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(second, free);
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        let begun = Instant::now();
        assert!(turns.wait("ada", begun + SOON).await.is_none());
        assert!(begun.elapsed() >= SOON && begun.elapsed() < SOON * 2, "{:?}", begun.elapsed());
        assert!(turns.wait("bob", Instant::now()).await.is_some(), "another one does not wait");
        drop(second);
        assert!(turns.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn few_wait_and_one_that_gives_up_makes_room() {
        let turns = Turns::new(1, 1);
        let first = turns.take("ada").unwrap();
        let until = Instant::now() + SOON;
        let waiting = tokio::spawn({
            let turns = turns.clone();
            async move { turns.wait("ada", until).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(turns.wait("ada", until).await.is_none());
        assert!(Instant::now() < until, "it did not wait at all");
        waiting.abort();
        let _ = waiting.await;
        drop(first);
        assert!(turns.lock().is_empty());
        assert!(turns.wait("ada", until).await.is_some());
    }
}
