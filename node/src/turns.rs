//! Whose turn it is to have its network changed: of each pod one request at a time, and not one after the other for ever.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::budget::Pace;
use crate::identity::PodUid;

/// The turns of all pods.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<PodUid, Arc<tokio::sync::Mutex<Turn>>>>);

/// The turn of one pod.
pub(crate) struct Turn {
    pace: Pace,
    /// When there may be another one.
    next: Instant,
}

impl Turns {
    /// That of a pod. Pods that have rested, and so all that are gone, are forgotten.
    pub(crate) fn of(&self, pod: &PodUid) -> Arc<tokio::sync::Mutex<Turn>> {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, turn| Arc::strong_count(turn) > 1 || turn.try_lock().is_ok_and(|turn| !turn.has_rested(now)));
        Arc::clone(all.entry(pod.clone()).or_insert_with(|| Arc::new(tokio::sync::Mutex::new(Turn::new(now)))))
    }
}

impl Turn {
    fn new(now: Instant) -> Self {
        Self { pace: Pace::of_plumbing(now.into_std()), next: now }
    }

    /// Waits until there may be another one, and counts it. A no would end a machine.
    pub(crate) async fn come(&mut self) {
        if self.next > Instant::now() {
            tokio::time::sleep_until(self.next).await;
        }
        let now = Instant::now();
        self.next = now + self.pace.count(now.into_std());
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
        let turn = turns.of(&pod(number));
        turn.lock().await.come().await;
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
        let held = turns.of(&pod(7));
        let _held = held.lock().await;
        assert_eq!(turns.0.lock().unwrap().len(), 100);
        tokio::time::advance(Duration::from_secs(60)).await;
        take(&turns, 100).await;
        assert_eq!(turns.0.lock().unwrap().len(), 2);
    }
}
