//! How much of the agent one pod, and all pods, may use. Pure: time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::identity::PodUid;

/// The most connections of one pod (also in docs/operators.md and `tests/e2e/cluster/hostile/test_crowd.py`). A supervisor has three: one to ask, one to report, one for control connections; and those of one that died may linger.
pub const CONNECTIONS_PER_POD: usize = 8;
/// The connections that a pod gets as long as any are free: what its supervisor needs.
const NEEDED_PER_POD: usize = 3;
/// The most connections in all (also in deploy/base/node.yaml, docs/operators.md and `tests/e2e/cluster/hostile/test_crowd.py`); with the longest request on each they fit into the memory of the agent's container.
pub const CONNECTIONS: usize = 768;
/// The part of these that is kept for pods that have fewer than they need.
const RESERVED: usize = CONNECTIONS / 2;
/// Writes of all pods of the node that may follow each other at once: a node that starts many machines at a time …
const NODE_WRITES_BURST: u32 = 200;
/// … and then one in this time, in the order in which pods have something to write.
const NODE_WRITE_PERIOD: Duration = Duration::from_millis(50);
/// Refusals that are answered and logged at once …
const REFUSALS_BURST: u32 = 20;
/// … and then one in this time; others are closed without an answer.
const REFUSAL_PERIOD: Duration = Duration::from_millis(200);
/// Pods whose refusals are counted separately …
const PODS_COUNTED: usize = 256;
/// Writes of one pod's status that may follow each other at once …
const WRITES_BURST: u32 = 20;
/// … and then one in this time.
const WRITE_PERIOD: Duration = Duration::from_secs(1);
/// Changes of one pod's network that may follow each other at once: a supervisor that dies over and over needs fewer …
const PLUMBING_BURST: u32 = 10;
/// … and then one in this time.
const PLUMBING_PERIOD: Duration = Duration::from_secs(2);
/// Spans of one pod's requests that a collector gets at once: a start has fewer …
const SPANS_BURST: u32 = 64;
/// … and then one in this time.
const SPAN_PERIOD: Duration = Duration::from_secs(1);

/// The open connections.
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
    /// For any caller.
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
        let most = if held < NEEDED_PER_POD { CONNECTIONS } else { CONNECTIONS - RESERVED };
        if self.total >= most {
            return Err(Exhausted::Node);
        }
        self.pods.insert(pod.clone(), held + 1);
        self.total += 1;
        Ok(())
    }

    /// Gives the room of one connection back.
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

/// When the pods of a node may write: one place in a queue for each write, of any pod.
#[derive(Debug, Default)]
pub struct NodePace {
    /// When all that has a place will have been written at the even pace.
    written: Option<Instant>,
}

impl NodePace {
    /// Takes a place; returns the time until the write.
    pub fn place(&mut self, now: Instant) -> Duration {
        let written = self.written.map_or(now, |written| written.max(now)) + NODE_WRITE_PERIOD;
        self.written = Some(written);
        (written - now).saturating_sub(NODE_WRITE_PERIOD * NODE_WRITES_BURST)
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

    /// Whether no caller was refused for long.
    fn is_full(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.filled) >= REFUSAL_PERIOD * REFUSALS_BURST
    }

    /// Whether this refusal is answered and logged; then, how many before it were not.
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

/// The refusals of all pods. Each pod has a bucket of its own, so that one with many refusals does not keep those of another
/// out of the log.
#[derive(Debug, Default)]
pub struct RefusalsByPod {
    /// `None` is the bucket of callers in no pod, and of pods beyond [`PODS_COUNTED`].
    buckets: HashMap<Option<PodUid>, Refusals>,
}

impl RefusalsByPod {
    /// Whether a refusal of this pod is answered and logged; then, how many before it were not.
    pub fn answered(&mut self, pod: Option<&PodUid>, now: Instant) -> Option<u64> {
        let mut key = pod.cloned();
        if !self.buckets.contains_key(&key) && self.buckets.len() >= PODS_COUNTED {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
            if self.buckets.len() >= PODS_COUNTED {
                key = None;
            }
        }
        self.buckets.entry(key).or_insert_with(|| Refusals::new(now)).answered(now)
    }
}

/// How often something is done for one pod: a bucket that fills with time.
#[derive(Debug)]
pub struct Pace {
    burst: u32,
    period: Duration,
    left: u32,
    filled: Instant,
}

impl Pace {
    /// A full bucket for writes of its reports: a launcher that changes its report all the time does not load the API
    /// server as often.
    #[must_use]
    pub fn of_writes(now: Instant) -> Self {
        Self { burst: WRITES_BURST, period: WRITE_PERIOD, left: WRITES_BURST, filled: now }
    }

    /// A full bucket for changes of its network.
    #[must_use]
    pub fn of_plumbing(now: Instant) -> Self {
        Self { burst: PLUMBING_BURST, period: PLUMBING_PERIOD, left: PLUMBING_BURST, filled: now }
    }

    /// A full bucket for spans of its requests.
    #[must_use]
    pub fn of_spans(now: Instant) -> Self {
        Self { burst: SPANS_BURST, period: SPAN_PERIOD, left: SPANS_BURST, filled: now }
    }

    /// Whether the bucket is full: nothing was counted for as long as filling it takes.
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.filled) >= self.period * self.burst
    }

    /// Takes one, unless none is left.
    pub fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let is_there = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_there
    }

    /// Counts one; returns how long the next one has to wait.
    pub fn count(&mut self, now: Instant) -> Duration {
        self.fill(now);
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { self.period } else { Duration::ZERO }
    }

    fn fill(&mut self, now: Instant) {
        let periods = now.saturating_duration_since(self.filled).as_millis() / self.period.as_millis();
        if periods > 0 {
            self.left = self.left.saturating_add(u32::try_from(periods).unwrap_or(u32::MAX)).min(self.burst);
            self.filled = now;
        }
    }
}

/// Which requests a collector gets a span of. A launcher that a guest has taken over may ask as fast as it can: the collector would keep it all,
/// and spans of other machines would find no room.
#[derive(Debug, Default)]
pub struct SpansByPod(HashMap<PodUid, Pace>);

impl SpansByPod {
    /// Takes one of this pod, unless none is left: then nothing more of it is sent for a while.
    pub fn take(&mut self, pod: &PodUid, now: Instant) -> bool {
        if !self.0.contains_key(pod) {
            // Those that were quiet are as good as new.
            self.0.retain(|_, pace| !pace.is_full(now));
        }
        self.0.entry(pod.clone()).or_insert_with(|| Pace::of_spans(now)).take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_asks_all_the_time_has_a_span_a_second_and_others_have_theirs() {
        let (start, mut spans) = (Instant::now(), SpansByPod::default());
        assert_eq!((0..1000).filter(|_| spans.take(&pod(1), start)).count(), 64);
        assert!(spans.take(&pod(2), start));
        let of_a_minute = (1..=60).map(|second| start + SPAN_PERIOD * second);
        let sent = of_a_minute.flat_map(|now| [now; 100]).filter(|now| spans.take(&pod(1), *now));
        assert_eq!(sent.count(), 60);
        assert!(spans.take(&pod(3), start + SPAN_PERIOD * 200));
        assert_eq!(spans.0.len(), 1, "those that were quiet are forgotten");
    }

    #[test]
    fn a_loud_pod_does_not_silence_another() {
        let now = Instant::now();
        let mut refusals = RefusalsByPod::default();
        while refusals.answered(Some(&pod(1)), now).is_some() {}
        assert_eq!(refusals.answered(Some(&pod(2)), now), Some(0));
        assert_eq!(refusals.answered(None, now), Some(0));
    }

    #[test]
    fn more_pods_than_are_counted_share_a_bucket() {
        let now = Instant::now();
        let mut refusals = RefusalsByPod::default();
        for number in 0..10_000 {
            refusals.answered(Some(&pod(number)), now);
        }
        assert!(refusals.buckets.len() <= PODS_COUNTED + 1, "{}", refusals.buckets.len());
        assert_eq!(refusals.answered(Some(&pod(10_000)), now), None);
        let later = now + REFUSAL_PERIOD * 20;
        assert!(refusals.answered(Some(&pod(10_000)), later).is_some());
        assert_eq!(refusals.buckets.len(), 1, "those that were quiet are forgotten");
    }

    #[test]
    fn a_machine_that_never_rests_is_written_once_a_second() {
        let start = Instant::now();
        let mut pace = Pace::of_writes(start);
        let at_once = (0..100).filter(|_| pace.count(start).is_zero()).count();
        assert_eq!(at_once, 19);
        assert_eq!(pace.count(start + WRITE_PERIOD), WRITE_PERIOD);
        assert!(!pace.is_full(start + WRITE_PERIOD * 20) && pace.is_full(start + WRITE_PERIOD * 21));
        assert!(pace.count(start + WRITE_PERIOD * 30).is_zero());
    }

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
    fn pods_with_many_leave_room_for_those_with_few() {
        let mut budget = Budget::default();
        let greedy =
            (0..CONNECTIONS).map(|number| budget.take(&pod(number / CONNECTIONS_PER_POD))).filter(Result::is_ok);
        assert!(greedy.count() <= CONNECTIONS - RESERVED + NEEDED_PER_POD * CONNECTIONS / CONNECTIONS_PER_POD);
        for number in 0..30 {
            for _ in 0..NEEDED_PER_POD {
                budget.take(&pod(1000 + number)).unwrap();
            }
        }
    }

    #[test]
    fn a_node_writes_at_its_pace_however_many_pods_there_are() {
        let (start, mut pace) = (Instant::now(), NodePace::default());
        assert!((0..NODE_WRITES_BURST).all(|_| pace.place(start).is_zero()));
        assert_eq!(pace.place(start), NODE_WRITE_PERIOD);
        assert_eq!(pace.place(start + NODE_WRITE_PERIOD), NODE_WRITE_PERIOD);
        assert_eq!((0..100).map(|_| pace.place(start)).max(), Some(NODE_WRITE_PERIOD * 102));
        assert!(pace.place(start + Duration::from_secs(60)).is_zero());
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
