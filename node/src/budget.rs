//! How much of the agent one pod, and all of them, may use. Pure: time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::identity::PodUid;

/// The most connections of one pod. A supervisor has two: one to ask, one to report; and one that died may linger.
pub const CONNECTIONS_PER_POD: usize = 8;
/// The most connections in all: more pods than a node takes, with four each.
pub const CONNECTIONS: usize = 1024;
/// So many refusals are answered and logged at once …
const REFUSALS_BURST: u32 = 20;
/// … and then one in this time; others are closed without a word.
const REFUSAL_PERIOD: Duration = Duration::from_millis(200);

/// Connections there are.
#[derive(Debug, Default)]
pub struct Budget {
    pods: HashMap<PodUid, usize>,
    total: usize,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// For this pod.
    #[error("this pod has {CONNECTIONS_PER_POD} connections already")]
    Pod,
    /// For anybody.
    #[error("the agent has {CONNECTIONS} connections already")]
    Node,
}

impl Budget {
    /// Takes room for one more connection of a pod.
    ///
    /// # Errors
    /// [`Exhausted`].
    pub fn take(&mut self, pod: &PodUid) -> Result<(), Exhausted> {
        let held = self.pods.get(pod).copied().unwrap_or(0);
        if held >= CONNECTIONS_PER_POD {
            return Err(Exhausted::Pod);
        }
        if self.total >= CONNECTIONS {
            return Err(Exhausted::Node);
        }
        self.pods.insert(pod.clone(), held + 1);
        self.total += 1;
        Ok(())
    }

    /// Gives it back.
    pub fn give_back(&mut self, pod: &PodUid) {
        let Some(held) = self.pods.get_mut(pod) else { return };
        *held -= 1;
        self.total -= 1;
        if *held == 0 {
            self.pods.remove(pod);
        }
    }

    /// Whether a pod has any connection.
    #[must_use]
    pub fn has(&self, pod: &PodUid) -> bool {
        self.pods.contains_key(pod)
    }
}

/// How often a refusal is answered: a bucket that fills with time.
#[derive(Debug)]
pub struct Refusals {
    left: u32,
    filled: Instant,
    silent: u64,
}

impl Refusals {
    /// A full bucket.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { left: REFUSALS_BURST, filled: now, silent: 0 }
    }

    /// Whether this one is answered and logged; then, how many before it were not.
    pub fn answered(&mut self, now: Instant) -> Option<u64> {
        let periods = now.saturating_duration_since(self.filled).as_millis() / REFUSAL_PERIOD.as_millis();
        let grown = u32::try_from(periods).unwrap_or(u32::MAX);
        if grown > 0 {
            self.left = self.left.saturating_add(grown).min(REFUSALS_BURST);
            self.filled = now;
        }
        if self.left == 0 {
            self.silent += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(number: usize) -> PodUid {
        PodUid::parse(&format!("{number:08x}-0000-0000-0000-000000000000")).unwrap()
    }

    #[test]
    fn a_pod_gets_its_share_and_no_more() {
        let mut budget = Budget::default();
        for _ in 0..CONNECTIONS_PER_POD {
            budget.take(&pod(1)).unwrap();
        }
        assert_eq!(budget.take(&pod(1)), Err(Exhausted::Pod));
        budget.take(&pod(2)).unwrap();
        budget.give_back(&pod(1));
        budget.take(&pod(1)).unwrap();
        budget.give_back(&pod(3));
        assert!(budget.has(&pod(2)) && !budget.has(&pod(3)));
    }

    #[test]
    fn all_pods_together_have_a_share_too() {
        let mut budget = Budget::default();
        for number in 0..CONNECTIONS {
            budget.take(&pod(number)).unwrap();
        }
        assert_eq!(budget.take(&pod(CONNECTIONS)), Err(Exhausted::Node));
        for number in 0..CONNECTIONS {
            budget.give_back(&pod(number));
        }
        assert_eq!((budget.total, budget.pods.len()), (0, 0));
    }

    #[test]
    fn a_flood_is_answered_now_and_then() {
        let start = Instant::now();
        let mut refusals = Refusals::new(start);
        let answered = (0..1000).filter(|_| refusals.answered(start).is_some()).count();
        assert_eq!(answered, 20);
        assert_eq!(refusals.answered(start + REFUSAL_PERIOD), Some(980));
        assert_eq!(refusals.answered(start + REFUSAL_PERIOD), None);
        let later = start + REFUSAL_PERIOD * 1_000_000;
        assert_eq!((0..1000).filter(|_| refusals.answered(later).is_some()).count(), 20);
    }
}
