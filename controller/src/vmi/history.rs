//! What this leader remembers of pods, so that not every step of a start has to be written.
//!
//! Everything here can be lost: then more is written, or waited for, than necessary.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

/// Where a pod is, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// UID of the pod.
    pub pod_uid: String,
    /// Name of the node.
    pub node: String,
}

/// Of one instance's pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodHistory {
    /// When this leader made it.
    pub made: Option<Timestamp>,
    /// Whether it had a node when this leader saw it last; nothing if it never saw it.
    pub placed: Option<bool>,
    /// Where this leader saw it last.
    pub place: Option<Place>,
    /// Since when this leader has seen it gone.
    pub missing: Option<Timestamp>,
    /// Its kubelet rejected it, and this leader removed it: the instance gets another one.
    pub rejected: bool,
    /// How many of its pods were rejected, one after the other.
    pub refusals: u32,
    /// Since when this leader has seen it over.
    pub over: Option<Timestamp>,
}

impl PodHistory {
    /// Whether there was a pod, as far as this leader remembers: one that it made, or removed because its kubelet had rejected it.
    #[must_use]
    pub const fn had_pod(&self) -> bool {
        self.made.is_some() || self.rejected
    }
}

/// Of all instances that are on their way, by UID.
#[derive(Debug)]
pub struct PodHistories {
    since: Timestamp,
    traces: Mutex<HashMap<String, PodHistory>>,
    /// Instances that are deleted and whose end is in an event.
    recorded: Mutex<HashSet<String>>,
}

impl PodHistories {
    /// Nothing is remembered of the time before.
    #[must_use]
    pub fn beginning(now: Timestamp) -> Self {
        Self { since: now, traces: Mutex::default(), recorded: Mutex::default() }
    }

    /// Since when it remembers: pods may have been made and deleted before.
    pub const fn since(&self) -> Timestamp {
        self.since
    }

    /// A pod was made, or is there although its creation was not observed.
    pub fn made(&self, vmi_uid: &str, now: Timestamp) {
        let mut traces = self.traces();
        let history = traces.entry(vmi_uid.to_owned()).or_default();
        if history.rejected {
            *history = PodHistory { refusals: history.refusals, ..PodHistory::default() };
        }
        history.made.get_or_insert(now);
    }

    /// A pod was removed, because a kubelet would not have it.
    pub fn rejected(&self, vmi_uid: &str) {
        let mut traces = self.traces();
        let history = traces.entry(vmi_uid.to_owned()).or_default();
        if !history.rejected {
            history.refusals = history.refusals.saturating_add(1);
        }
        history.rejected = true;
    }

    /// A pod is there, on a node or not; `over` is now if its containers have ended for good.
    pub fn seen(&self, vmi_uid: &str, place: Option<Place>, over: Option<Timestamp>) -> PodHistory {
        let mut traces = self.traces();
        let history = traces.entry(vmi_uid.to_owned()).or_default();
        history.placed = Some(place.is_some() || history.placed == Some(true));
        history.place = place.or(history.place.take());
        history.missing = None;
        history.over = over.map(|now| history.over.unwrap_or(now));
        // A pod that was rejected stays over: this is the next one.
        history.rejected &= over.is_some();
        history.clone()
    }

    /// The pod of an instance that had one is not there.
    pub fn missing(&self, vmi_uid: &str, now: Timestamp) -> PodHistory {
        let mut traces = self.traces();
        let history = traces.entry(vmi_uid.to_owned()).or_default();
        history.missing.get_or_insert(now);
        history.clone()
    }

    /// What is known of an instance's pod.
    pub fn of(&self, vmi_uid: &str) -> PodHistory {
        self.traces().get(vmi_uid).cloned().unwrap_or_default()
    }

    /// The API server has it now, or the instance is gone.
    pub fn forget(&self, vmi_uid: &str) {
        self.traces().remove(vmi_uid);
    }

    /// Whether the end of an instance that is deleted is in no event yet; from now on it is.
    pub fn records_end(&self, vmi_uid: &str) -> bool {
        self.recorded().insert(vmi_uid.to_owned())
    }

    /// The instance is gone, and so is what was remembered of its end.
    pub fn forget_end(&self, vmi_uid: &str) {
        self.recorded().remove(vmi_uid);
    }

    fn recorded(&self) -> MutexGuard<'_, HashSet<String>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A map is whole after every statement here, so a panic elsewhere cannot have left it half-changed.
    fn traces(&self) -> MutexGuard<'_, HashMap<String, PodHistory>> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Option<Place> {
        Some(Place { pod_uid: "pod".to_owned(), node: "node-1".to_owned() })
    }

    #[test]
    fn the_first_time_counts_until_it_is_forgotten() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let histories = PodHistories::beginning(at(0));
        histories.made("a", at(1));
        histories.made("a", at(2));
        assert_eq!(histories.seen("a", place(), None).placed, Some(true));
        let seen = PodHistory { made: Some(at(1)), placed: Some(true), place: place(), ..PodHistory::default() };
        assert_eq!(histories.seen("a", None, None), seen);
        assert_eq!(histories.missing("a", at(3)).missing, Some(at(3)));
        assert_eq!(histories.missing("a", at(4)).missing, Some(at(3)));
        histories.rejected("a");
        assert!(histories.of("a").rejected);
        histories.made("a", at(12));
        assert_eq!(histories.of("a"), PodHistory { made: Some(at(12)), refusals: 1, ..PodHistory::default() });
        histories.forget("a");
        assert_eq!(histories.of("a"), PodHistory::default());
    }

    #[test]
    fn an_end_is_recorded_once() {
        let histories = PodHistories::beginning(Timestamp::from_second(0).unwrap());
        assert!(histories.records_end("a") && !histories.records_end("a") && histories.records_end("b"));
        histories.forget_end("a");
        assert!(histories.records_end("a"));
    }

    #[test]
    fn a_pod_that_is_there_was_not_rejected_also_if_another_client_made_it() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let histories = PodHistories::beginning(at(0));
        histories.rejected("a");
        histories.rejected("a");
        assert_eq!(histories.seen("a", place(), Some(at(1))).over, Some(at(1)));
        assert_eq!(histories.seen("a", place(), Some(at(3))).over, Some(at(1)), "since it was seen first");
        assert!(histories.missing("a", at(4)).rejected);
        let next = histories.seen("a", place(), None);
        assert_eq!(next, PodHistory { placed: Some(true), place: place(), refusals: 1, ..PodHistory::default() });
    }
}
