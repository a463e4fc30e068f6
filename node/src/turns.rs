//! Whose turn it is to have its network changed: of each pod one request at a time, and not one after the other for ever.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::budget::Pace;
use crate::identity::PodUid;

/// The turns of all pods.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<PodUid, Arc<tokio::sync::Mutex<Turn>>>>);

/// How often a pod's interfaces are made: far more often than a supervisor dies before its guest runs. Whoever asks again
/// and keeps what was made for the last time holds memory of the kernel's that counts for nobody.
const MADE: u32 = 64;

/// It has been often enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the interfaces of this pod have been made {MADE} times; its machine has to start in another pod")]
pub(crate) struct OftenEnough;

/// The turn of one pod.
pub(crate) struct Turn {
    pace: Pace,
    /// How often its interfaces were made.
    made: u32,
    /// When there may be another one.
    next: Instant,
}

impl Turns {
    /// That of a pod. Pods that have rested are forgotten, unless something was made for them and they are there.
    pub(crate) fn of(&self, pod: &PodUid, is_there: impl Fn(&PodUid) -> bool) -> Arc<tokio::sync::Mutex<Turn>> {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|pod, turn| {
            let keeps = |turn: &Turn| !turn.has_rested(now) || (turn.made > 0 && is_there(pod));
            Arc::strong_count(turn) > 1 || turn.try_lock().is_ok_and(|turn| keeps(&turn))
        });
        Arc::clone(all.entry(pod.clone()).or_insert_with(|| Arc::new(tokio::sync::Mutex::new(Turn::new(now)))))
    }
}

impl Turn {
    fn new(now: Instant) -> Self {
        Self { pace: Pace::of_plumbing(now.into_std()), made: 0, next: now }
    }

    /// Waits until there may be another one, and counts it. A no would end a machine.
    ///
    /// # Errors
    /// [`OftenEnough`], which does.
    pub(crate) async fn come(&mut self, is_made: bool) -> Result<(), OftenEnough> {
        if is_made && self.made >= MADE {
            return Err(OftenEnough);
        }
        self.made += u32::from(is_made);
        if self.next > Instant::now() {
            tokio::time::sleep_until(self.next).await;
        }
        let now = Instant::now();
        self.next = now + self.pace.count(now.into_std());
        Ok(())
    }

    fn has_rested(&self, now: Instant) -> bool {
        self.pace.is_full(now.into_std())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pod(number: u8) -> PodUid {
        PodUid::parse(&format!("{number:08x}-0000-0000-0000-000000000000")).unwrap()
    }

    async fn take(turns: &Turns, number: u8) {
        let turn = turns.of(&pod(number), |_| false);
        turn.lock().await.come(false).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn interfaces_are_not_made_for_ever() {
        let turns = Turns::default();
        let make = async || {
            let turn = turns.of(&pod(1), |_| true);
            let mut turn = turn.lock().await;
            turn.come(true).await
        };
        for _ in 0..MADE {
            make().await.unwrap();
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        assert_eq!(make().await, Err(OftenEnough));
        take(&turns, 2).await;
        tokio::time::advance(Duration::from_secs(60)).await;
        take(&turns, 3).await;
        assert_eq!(turns.0.lock().unwrap().len(), 1, "the pod is gone");
        make().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_asks_all_the_time_waits_and_no_other_does() {
        let (turns, began) = (Turns::default(), Instant::now());
        for _ in 0..10 {
            take(&turns, 1).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..3 {
            take(&turns, 1).await;
        }
        let waited = began.elapsed();
        assert!(waited >= Duration::from_secs(6) && waited < Duration::from_secs(7), "{waited:?}");
        take(&turns, 2).await;
        assert_eq!(began.elapsed(), waited);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_have_rested_are_forgotten_unless_it_is_their_turn() {
        let turns = Turns::default();
        for number in 0..100 {
            take(&turns, number).await;
        }
        let held = turns.of(&pod(7), |_| false);
        let _held = held.lock().await;
        assert_eq!(turns.0.lock().unwrap().len(), 100);
        tokio::time::advance(Duration::from_secs(60)).await;
        take(&turns, 100).await;
        assert_eq!(turns.0.lock().unwrap().len(), 2);
    }
}
