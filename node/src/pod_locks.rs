//! One lock for each pod: its network is changed by one request at a time, and only so often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::budget::Pace;
use crate::identity::PodUid;

/// The locks of all pods.
#[derive(Default)]
pub(crate) struct PodLocks(Mutex<HashMap<PodUid, Arc<tokio::sync::Mutex<PodLock>>>>);

/// How often a pod's interfaces are made: far more often than a supervisor dies before its guest runs. A pod that asks again
/// and keeps what was made before holds memory of the kernel that is not charged to it.
const MADE: u32 = 64;

/// The pod's limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the interfaces of this pod have been created {MADE} times, which is the limit; delete the pod to start its machine in another"
)]
pub(crate) struct LimitReached;

/// The lock of one pod, and how often it was taken.
pub(crate) struct PodLock {
    pace: Pace,
    /// How often its interfaces were made.
    made: u32,
    /// When there may be another change.
    next: Instant,
}

impl PodLocks {
    /// The lock of a pod. Idle pods are forgotten, unless something was made for them and they are there.
    pub(crate) fn of(&self, pod: &PodUid, is_there: impl Fn(&PodUid) -> bool) -> Arc<tokio::sync::Mutex<PodLock>> {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|pod, lock| {
            let keeps = |lock: &PodLock| !lock.has_rested(now) || (lock.made > 0 && is_there(pod));
            Arc::strong_count(lock) > 1 || lock.try_lock().is_ok_and(|lock| keeps(&lock))
        });
        Arc::clone(all.entry(pod.clone()).or_insert_with(|| Arc::new(tokio::sync::Mutex::new(PodLock::new(now)))))
    }
}

impl PodLock {
    fn new(now: Instant) -> Self {
        Self { pace: Pace::of_plumbing(now.into_std()), made: 0, next: now }
    }

    /// Waits until there may be another change, and counts it. A refusal would end a machine.
    ///
    /// # Errors
    /// [`LimitReached`], which ends the machine.
    pub(crate) async fn come(&mut self, is_made: bool) -> Result<(), LimitReached> {
        if is_made && self.made >= MADE {
            return Err(LimitReached);
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

    async fn take(pod_locks: &PodLocks, number: u8) {
        let lock = pod_locks.of(&pod(number), |_| false);
        lock.lock().await.come(false).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn interfaces_are_not_made_for_ever() {
        let pod_locks = PodLocks::default();
        let make = async || {
            let lock = pod_locks.of(&pod(1), |_| true);
            let mut lock = lock.lock().await;
            lock.come(true).await
        };
        for _ in 0..MADE {
            make().await.unwrap();
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        assert_eq!(make().await, Err(LimitReached));
        take(&pod_locks, 2).await;
        tokio::time::advance(Duration::from_secs(60)).await;
        take(&pod_locks, 3).await;
        assert_eq!(pod_locks.0.lock().unwrap().len(), 1, "the pod is gone");
        make().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_asks_all_the_time_waits_and_no_other_does() {
        let (pod_locks, began) = (PodLocks::default(), Instant::now());
        for _ in 0..10 {
            take(&pod_locks, 1).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..3 {
            take(&pod_locks, 1).await;
        }
        let waited = began.elapsed();
        assert!(waited >= Duration::from_secs(6) && waited < Duration::from_secs(7), "{waited:?}");
        take(&pod_locks, 2).await;
        assert_eq!(began.elapsed(), waited);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_have_rested_are_forgotten_unless_it_is_their_turn() {
        let pod_locks = PodLocks::default();
        for number in 0..100 {
            take(&pod_locks, number).await;
        }
        let held = pod_locks.of(&pod(7), |_| false);
        let _held = held.lock().await;
        assert_eq!(pod_locks.0.lock().unwrap().len(), 100);
        tokio::time::advance(Duration::from_secs(60)).await;
        take(&pod_locks, 100).await;
        assert_eq!(pod_locks.0.lock().unwrap().len(), 2);
    }
}
