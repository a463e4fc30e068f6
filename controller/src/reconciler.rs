//! Running a reconciler: how many objects at a time, what happens to one that fails, and when each is looked at again.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use garboard_api::metadata::annotation;
use garboard_log::otlp;
use garboard_protocol::causes::ErrorChain;
use kube::Resource;
use kube::runtime::applier;
use kube::runtime::controller::{self, Action, Config};
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::{Instrument, Span};

use crate::context::ReconcileError;
use crate::durations::Durations;
use crate::stores::{Cached, Kind, Known, ObjectKey};
use crate::time::spread;
use crate::workqueue::{Serving, Workqueue};

/// How many objects of a kind are worked on at the same time: each has a request under way at most.
const AT_ONCE: u16 = 32;

/// Everything is looked at again after about this long, whatever was missed.
pub const SAFETY_NET: Duration = Duration::from_secs(300);

/// A reconciler of one kind.
pub trait Reconcile: Send + Sync + 'static {
    /// The kind.
    type Kind: Kind;

    /// Brings one object closer to what it should be. Returns when it is to be looked at again although nothing happens.
    fn reconcile(
        &self,
        object: &Cached<Self::Kind>,
        attempt: u32,
    ) -> impl Future<Output = Result<Option<Pause>, ReconcileError>> + Send;

    /// There is no such object any more: nothing need be remembered of it.
    fn gone(&self, namespace: &str, name: &str);

    /// Where it is counted how long each took.
    fn durations(&self) -> &Durations;
}

/// How long until an object is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// So long: something is due then.
    Until(Duration),
    /// Nothing is due; what it waits for cannot be watched, and is asked for less and less often.
    Growing {
        /// After the first look.
        first: Duration,
        /// At most.
        longest: Duration,
    },
}

/// Objects that are to be looked at.
pub struct Queue<K: Kind> {
    sender: UnboundedSender<ObjectRef<Cached<K>>>,
    counted: Arc<Workqueue>,
}

impl<K: Kind> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), counted: Arc::clone(&self.counted) }
    }
}

/// The other end of a [`Queue`].
pub struct Queued<K: Kind> {
    receiver: UnboundedReceiver<ObjectRef<Cached<K>>>,
    serving: Serving,
}

impl<K: Kind> Queue<K> {
    /// An empty one, which is counted there. What is in it twice is looked at once.
    #[must_use]
    pub fn new(counted: &Arc<Workqueue>) -> (Self, Queued<K>) {
        let (sender, receiver) = unbounded_channel();
        let serving = Serving(Arc::clone(counted));
        (Self { sender, counted: Arc::clone(counted) }, Queued { receiver, serving })
    }

    /// Has an object looked at, if there is one of this name.
    pub fn push(&self, namespace: &str, name: &str) {
        let key = ObjectKey::new(namespace, name);
        self.counted.add(key.clone());
        // There is no receiver once this replica does not lead any more.
        if self.sender.send(ObjectRef::new(name).within(namespace)).is_err() {
            self.counted.forget(&key);
        }
    }
}

/// Reconciles until the process ends.
pub async fn run<R: Reconcile>(reconciler: R, known: Known<R::Kind>, queued: Queued<R::Kind>) {
    // Dropped last: nothing is put there any more.
    let Queued { receiver, serving } = queued;
    let queue = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|next| (Ok::<_, std::convert::Infallible>(next), receiver))
    });
    let counted = Arc::clone(&serving.0);
    let context = Arc::new(Runner { reconciler, attempts: Attempts::default(), counted });
    let config = Config::default().concurrency(AT_ONCE);
    let reconcile = |object: Arc<Cached<R::Kind>>, runner: Arc<Runner<R>>| Box::pin(one(object, runner));
    let work = applier(reconcile, failed, context.clone(), known.store(), queue, config);
    work.for_each(|outcome| {
        // Nothing is remembered of what is not there any more.
        if let Err(controller::Error::ObjectNotFound(gone)) = outcome {
            let namespace = gone.namespace.clone().unwrap_or_default();
            context.reconciler.gone(&namespace, &gone.name);
            let key = ObjectKey { namespace, name: gone.name.clone() };
            context.attempts.forget(&key);
            context.counted.forget(&key);
        }
        std::future::ready(())
    })
    .await;
}

struct Runner<R> {
    reconciler: R,
    attempts: Attempts,
    counted: Arc<Workqueue>,
}

/// What is logged while an object is reconciled belongs here; `attempt` where attempts are counted. It is in the trace of the change that
/// made the object what it is.
pub(crate) fn span<K: Kind>(object: &Cached<K>, attempt: Option<u32>) -> Span {
    let ObjectKey { namespace, name: object_name } = object.key();
    let metadata = object.meta();
    let uid = metadata.uid.as_deref();
    let span = tracing::info_span!("reconcile", kind = K::KIND, namespace, object = object_name, uid, attempt);
    if let Some(trace) = metadata.annotations.as_ref().and_then(|all| all.get(annotation::TRACE)) {
        otlp::follow(&span, trace);
    }
    span
}

/// A panic ends the work on this object, and it is put aside like one that was refused.
async fn one<R: Reconcile>(object: Arc<Cached<R::Kind>>, runner: Arc<Runner<R>>) -> Result<Action, ReconcileError> {
    let key = object.key();
    let attempt = runner.attempts.of(&key);
    let _working = runner.counted.begin(&key);
    let (began, of_object) = (Instant::now(), span(&object, Some(attempt)));
    let reconciling = runner.reconciler.reconcile(&object, attempt).instrument(of_object.clone());
    let outcome = AssertUnwindSafe(reconciling).catch_unwind().await.unwrap_or(Err(ReconcileError::Panicked));
    runner.reconciler.durations().add(began.elapsed());
    if let Err(error) = &outcome
        && error.is_abnormal()
    {
        let error = ErrorChain(error);
        otlp::failed(&of_object, &error);
        of_object.in_scope(|| {
            tracing::warn!(kind = R::Kind::KIND, namespace = key.namespace, name = key.name, %error, "reconcile failed; tried again");
        });
    }
    let pause = match outcome? {
        Some(Pause::Growing { first, longest }) => runner.attempts.next(key, first, longest),
        Some(Pause::Until(pause)) => {
            runner.attempts.forget(&key);
            pause
        }
        None => {
            runner.attempts.forget(&key);
            spread(SAFETY_NET, chance())
        }
    };
    of_object.in_scope(|| tracing::debug!(took_ms = began.elapsed().as_millis(), ?pause, "reconciled"));
    Ok(Action::requeue(pause))
}

fn failed<R: Reconcile>(object: Arc<Cached<R::Kind>>, error: &ReconcileError, runner: Arc<Runner<R>>) -> Action {
    runner.counted.retry();
    let (first, longest) = error.pauses();
    Action::requeue(runner.attempts.next(object.key(), first, longest))
}

/// Runs a part of this program that has no end, and begins it again after a panic: later each time.
pub async fn contained<F: Future<Output = ()>>(what: &'static str, begin: impl Fn() -> F) {
    for attempt in 0.. {
        if AssertUnwindSafe(begin()).catch_unwind().await.is_ok() {
            return;
        }
        tracing::error!(what, "task panicked; it is started again");
        tokio::time::sleep(grown(attempt, Duration::from_secs(1), Duration::from_secs(60))).await;
    }
}

fn chance() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

/// How often objects were looked at in vain, one time after the other.
#[derive(Debug, Default)]
struct Attempts(Mutex<HashMap<ObjectKey, u32>>);

impl Attempts {
    fn of(&self, key: &ObjectKey) -> u32 {
        self.counts().get(key).copied().unwrap_or(0)
    }

    /// The pause before the next look: twice the one before, somewhat more or less.
    fn next(&self, key: ObjectKey, first: Duration, longest: Duration) -> Duration {
        let mut counts = self.counts();
        let count = counts.entry(key).or_insert(0);
        let pause = grown(*count, first, longest);
        *count = count.saturating_add(1);
        spread(pause, chance())
    }

    fn forget(&self, key: &ObjectKey) {
        self.counts().remove(key);
    }

    /// A map is whole after every statement here, so a panic elsewhere cannot have left it half-changed.
    fn counts(&self) -> MutexGuard<'_, HashMap<ObjectKey, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn grown(count: u32, first: Duration, longest: Duration) -> Duration {
    first.saturating_mul(1_u32.checked_shl(count.min(30)).unwrap_or(u32::MAX)).min(longest)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use garboard_metrics::Exposition;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::stores::Machines;

    fn machine(name: &str) -> Cached<Machines> {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {}})).unwrap()
    }

    #[test]
    fn pauses_grow_and_end_somewhere() {
        let (first, longest) = (Duration::from_millis(50), Duration::from_secs(5));
        let grown = |count| grown(count, first, longest).as_millis();
        assert_eq!([grown(0), grown(1), grown(2), grown(7), grown(4_000_000_000)], [50, 100, 200, 5000, 5000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_panics_begins_again() {
        let begun = AtomicU32::new(0);
        let part = || async {
            assert!(begun.fetch_add(1, Ordering::SeqCst) == 2, "on purpose");
        };
        contained("a part", part).await;
        assert_eq!(begun.load(Ordering::SeqCst), 3);
    }

    /// Panics about one machine, and counts the others.
    struct Careless {
        panics: Arc<AtomicU32>,
        others: tokio::sync::mpsc::UnboundedSender<String>,
        durations: Arc<Durations>,
        gone: Arc<AtomicU32>,
    }

    impl Reconcile for Careless {
        type Kind = Machines;

        async fn reconcile(&self, object: &Cached<Machines>, attempt: u32) -> Result<Option<Pause>, ReconcileError> {
            let ObjectKey { name, .. } = object.key();
            if name == "bad" {
                self.panics.fetch_max(attempt + 1, Ordering::SeqCst);
                panic!("on purpose");
            }
            let _ = self.others.send(name);
            Ok(None)
        }

        fn gone(&self, namespace: &str, name: &str) {
            assert_eq!((namespace, name), ("ns", "good"));
            self.gone.fetch_add(1, Ordering::SeqCst);
        }

        fn durations(&self) -> &Durations {
            &self.durations
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_the_work_on_its_object_only_and_comes_back_less_and_less_often() {
        let (known, mut filler) = Known::<Machines>::new();
        let counted = Arc::<Workqueue>::default();
        let (queue, queued) = Queue::new(&counted);
        let changed = |object: &Cached<Machines>| {
            let ObjectKey { namespace, name } = object.key();
            queue.push(&namespace, &name);
        };
        filler.note(Event::Init, &changed);
        ["bad", "good"].into_iter().for_each(|name| filler.note(Event::InitApply(machine(name)), &changed));
        filler.note(Event::InitDone, &changed);
        let (others, mut seen) = unbounded_channel();
        let panics = Arc::new(AtomicU32::new(0));
        let durations = Arc::<Durations>::default();
        let gone = Arc::new(AtomicU32::new(0));
        let careless = Careless { panics: panics.clone(), others, durations: durations.clone(), gone: gone.clone() };
        let work = tokio::spawn(run(careless, known, queued));
        assert_eq!(seen.recv().await.as_deref(), Some("good"));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let tried = panics.load(Ordering::SeqCst);
        assert!((5..40).contains(&tried), "tried {tried} times in an hour");
        filler.note(Event::Delete(machine("good")), &changed);
        filler.note(Event::Apply(machine("later")), &changed);
        let mut names = Vec::new();
        while names.last().map(String::as_str) != Some("later") {
            names.push(seen.recv().await.unwrap());
        }
        assert!(!work.is_finished());
        assert_eq!(gone.load(Ordering::SeqCst), 1, "nothing is remembered of what is not there any more");
        let mut exposed = Exposition::default();
        counted.expose(&mut exposed, "machines");
        let text = exposed.text();
        assert!(text.contains("kubevirt_workqueue_depth{name=\"machines\"} 0\n"), "{text}");
        work.abort();
        // Those that panicked took their time, too.
        let took: u64 = durations.seen().iter().map(|(_, count)| count).sum();
        assert!(took >= u64::from(tried) + 2, "{took} were counted");
    }

    /// Logs, and fails.
    struct Failing(Durations);

    impl Reconcile for Failing {
        type Kind = Machines;

        async fn reconcile(&self, _: &Cached<Machines>, _: u32) -> Result<Option<Pause>, ReconcileError> {
            tracing::info!("a step");
            Err(ReconcileError::Panicked)
        }

        fn gone(&self, _: &str, _: &str) {}

        fn durations(&self) -> &Durations {
            &self.0
        }
    }

    #[tokio::test]
    async fn what_is_logged_of_a_reconcile_names_its_object() {
        let (log, _guard) = crate::captured::Captured::begin();
        let object = json!({"metadata": {"name": "vm", "namespace": "ns", "uid": "u-1"}, "spec": {}});
        let object: Arc<Cached<Machines>> = Arc::new(serde_json::from_value(object).unwrap());
        let (reconciler, attempts) = (Failing(Durations::default()), Attempts::default());
        let runner = Arc::new(Runner { reconciler, attempts, counted: Arc::default() });
        let error = one(object.clone(), runner.clone()).await.unwrap_err();
        failed(object, &error, runner);
        let lines = log.lines();
        let messages: Vec<_> = lines.iter().map(|line| line["fields"]["message"].as_str().unwrap()).collect();
        assert_eq!(messages, ["a step", "reconcile failed; tried again"]);
        for line in lines {
            let expected = json!([{"name": "reconcile", "kind": "VirtualMachine", "namespace": "ns", "object": "vm",
                "uid": "u-1", "attempt": 0}]);
            assert_eq!(line["spans"], expected, "{line}");
        }
    }
}
