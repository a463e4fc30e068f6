//! What the queue of a reconciler has to do, in the measures that client-go has of its own queues and dashboards ask for: how many objects
//! wait, how many were put there, how long they waited, what is being worked on, and how often that failed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use garboard_metrics::catalogue::controller as catalogue;
use garboard_metrics::{Exposition, Histogram, Labels, as_float};

use crate::stores::ObjectKey;

/// The queues of all reconcilers.
#[derive(Debug, Default)]
pub struct Workqueues {
    /// Of VirtualMachines.
    pub machines: Arc<Workqueue>,
    /// Of VirtualMachineInstances.
    pub instances: Arc<Workqueue>,
    /// Of VirtualMachineInstanceReplicaSets.
    pub replica_sets: Arc<Workqueue>,
    /// Of VirtualMachinePools.
    pub pools: Arc<Workqueue>,
}

/// One queue. What was counted stays when this replica does not lead any more.
#[derive(Debug, Default)]
pub struct Workqueue {
    objects: Mutex<Objects>,
    adds: AtomicU64,
    retries: AtomicU64,
    waited: Histogram,
}

/// Objects, and since when.
#[derive(Debug, Default)]
struct Objects {
    waiting: HashMap<ObjectKey, Instant>,
    working: HashMap<ObjectKey, Instant>,
}

impl Workqueue {
    /// An object is put there. One that waits already is not counted again.
    pub(crate) fn add(&self, key: ObjectKey) {
        if let Entry::Vacant(place) = self.lock().waiting.entry(key) {
            place.insert(Instant::now());
            self.adds.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Nothing is done about an object: there is none of this name.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.lock().waiting.remove(key);
    }

    /// The work on an object begins, and lasts until the answer is dropped. One that did not wait was due by its time: it has been added
    /// now, and how long it waited is not known.
    pub(crate) fn begin(self: &Arc<Self>, key: &ObjectKey) -> Working {
        let now = Instant::now();
        let since = {
            let mut objects = self.lock();
            objects.working.insert(key.clone(), now);
            objects.waiting.remove(key)
        };
        match since {
            Some(since) => self.waited.observe(now.duration_since(since).as_secs_f64()),
            None => {
                self.adds.fetch_add(1, Ordering::Relaxed);
            }
        }
        Working { queue: Arc::clone(self), key: key.clone() }
    }

    /// An object is put back, because the work on it failed.
    pub(crate) fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Nothing waits any more, and nothing is worked on.
    pub(crate) fn clear(&self) {
        *self.lock() = Objects::default();
    }

    /// Adds what there is now, and what was counted, under the name that KubeVirt has for the queue.
    pub(crate) fn expose(&self, to: &mut Exposition, name: &str) {
        let now = Instant::now();
        let (depth, working): (usize, Vec<f64>) = {
            let objects = self.lock();
            let working = objects.working.values().map(|since| now.duration_since(*since).as_secs_f64());
            (objects.waiting.len(), working.collect())
        };
        let labels = Labels::of(&[("name", name)]);
        to.add(&catalogue::WORKQUEUE_DEPTH, &labels, as_float(depth as u64));
        to.add(&catalogue::WORKQUEUE_ADDS, &labels, as_float(self.adds.load(Ordering::Relaxed)));
        to.add(&catalogue::WORKQUEUE_RETRIES, &labels, as_float(self.retries.load(Ordering::Relaxed)));
        to.add(&catalogue::WORKQUEUE_UNFINISHED_SECONDS, &labels, working.iter().sum());
        to.add(&catalogue::WORKQUEUE_LONGEST_SECONDS, &labels, working.iter().copied().fold(0.0, f64::max));
        to.add_histogram(&catalogue::WORKQUEUE_QUEUE_SECONDS, &labels, &self.waited.seen());
    }

    /// A map is whole after every statement here, so a panic elsewhere cannot have left it half-changed.
    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The work on one object.
pub(crate) struct Working {
    queue: Arc<Workqueue>,
    key: ObjectKey,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.queue.lock().working.remove(&self.key);
    }
}

/// A queue that is served until this is dropped.
pub(crate) struct Serving(pub(crate) Arc<Workqueue>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    fn value(queue: &Workqueue, metric: &str) -> f64 {
        let mut to = Exposition::default();
        queue.expose(&mut to, "virt-controller-vm");
        let (text, start) = (to.text(), format!("kubevirt_workqueue_{metric}{{name=\"virt-controller-vm\"}} "));
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start} in {text}")).parse().unwrap()
    }

    #[test]
    fn what_waits_and_what_is_worked_on_is_counted_once_each() {
        let queue = Arc::<Workqueue>::default();
        for name in ["a", "a", "b", "gone"] {
            queue.add(key(name));
        }
        queue.forget(&key("gone"));
        assert_eq!((value(&queue, "depth"), value(&queue, "adds_total")), (2.0, 3.0));
        assert_eq!(value(&queue, "unfinished_work_seconds"), 0.0);
        let working = queue.begin(&key("a"));
        // It changes while it is worked on, and is to be looked at again.
        queue.add(key("a"));
        assert_eq!((value(&queue, "depth"), value(&queue, "adds_total")), (2.0, 4.0));
        let (unfinished, longest) =
            (value(&queue, "unfinished_work_seconds"), value(&queue, "longest_running_processor_seconds"));
        assert!(unfinished > 0.0 && longest >= unfinished, "{unfinished} {longest}");
        drop(working);
        assert_eq!(value(&queue, "longest_running_processor_seconds"), 0.0);
        assert_eq!(value(&queue, "queue_duration_seconds_count"), 1.0);
    }

    #[test]
    fn what_was_due_by_its_time_is_added_when_it_begins() {
        let queue = Arc::<Workqueue>::default();
        drop(queue.begin(&key("a")));
        assert_eq!((value(&queue, "adds_total"), value(&queue, "queue_duration_seconds_count")), (1.0, 0.0));
        queue.retry();
        assert_eq!(value(&queue, "retries_total"), 1.0);
    }

    #[test]
    fn nothing_waits_for_a_replica_that_does_not_lead_and_what_was_counted_stays() {
        let queue = Arc::<Workqueue>::default();
        let serving = Serving(Arc::clone(&queue));
        queue.add(key("a"));
        drop(serving);
        assert_eq!((value(&queue, "depth"), value(&queue, "adds_total")), (0.0, 1.0));
    }
}
