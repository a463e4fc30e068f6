//! From the end of a span to the collector: a bounded queue, and a task that empties it.
//!
//! Not the batch processor of `opentelemetry_sdk`, which starts a thread as soon as it is made: the layer is there before the node agent has given
//! up its privileges, and a thread of then would keep them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Spans that wait. One that finds no room is lost, and counted.
const WAITING: usize = 2048;
/// Spans of a batch.
const LARGEST_BATCH: usize = 512;
/// How long a batch that is not full is waited for.
const DELAY: Duration = Duration::from_secs(2);
/// How often a line about lost spans is logged.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the last batch may take when the program ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// The end where spans are put in.
#[derive(Debug)]
pub(super) struct Queue {
    spans: mpsc::Sender<SpanData>,
    lost: Arc<AtomicU64>,
}

/// The other end: what sends spans to a collector, once it is begun.
#[derive(Debug)]
pub struct Sending<E = opentelemetry_otlp::SpanExporter> {
    exporter: E,
    /// For the log.
    collector: String,
    waiting: mpsc::Receiver<SpanData>,
    batch: Vec<SpanData>,
    lost: Arc<AtomicU64>,
    /// When the last line about lost spans was logged.
    logged_at: Option<Instant>,
}

/// Spans are on their way, until this is dropped or [finished](Self::finish).
#[derive(Debug)]
pub struct Exporting {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Both ends.
pub(super) fn queue<E: SpanExporter>(exporter: E, collector: String) -> (Queue, Sending<E>) {
    let (spans, waiting) = mpsc::channel(WAITING);
    let lost = Arc::<AtomicU64>::default();
    let queue = Queue { spans, lost: Arc::clone(&lost) };
    (queue, Sending { exporter, collector, waiting, batch: Vec::new(), lost, logged_at: None })
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.spans.try_send(span).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl<E: SpanExporter + 'static> Sending<E> {
    /// Begins; to be called within a runtime.
    #[must_use]
    pub fn begin(self) -> Exporting {
        tracing::info!(collector = self.collector, "spans are sent to a collector");
        let (stop, stopped) = oneshot::channel();
        Exporting { stop, task: tokio::spawn(self.run(stopped)) }
    }

    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                _ = &mut stopped => break,
                () = self.fill() => {}
            }
            self.send().await;
        }
        while let Ok(span) = self.waiting.try_recv() {
            self.batch.push(span);
        }
        self.send().await;
    }

    /// Waits for a span, and for a while for more. Where this is given up, what has come stays in the batch.
    async fn fill(&mut self) {
        let Self { waiting, batch, .. } = self;
        if batch.is_empty() && waiting.recv_many(batch, LARGEST_BATCH).await == 0 {
            // None can come any more.
            return std::future::pending().await;
        }
        let filling = async {
            while batch.len() < LARGEST_BATCH {
                let room = LARGEST_BATCH - batch.len();
                if waiting.recv_many(batch, room).await == 0 {
                    return;
                }
            }
        };
        let _ = timeout(DELAY, filling).await;
    }

    async fn send(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return;
        }
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let error = self.exporter.export(batch).await.err().map(|error| error.to_string());
        if error.is_some() {
            self.lost.fetch_add(count, Ordering::Relaxed);
        }
        self.log_losses(error);
    }

    fn log_losses(&mut self, error: Option<String>) {
        let is_silent = self.logged_at.is_some_and(|at| at.elapsed() < SILENCE);
        if is_silent || self.lost.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.logged_at = Some(Instant::now());
        let lost = self.lost.swap(0, Ordering::Relaxed);
        tracing::warn!(collector = self.collector, lost, error, "spans did not reach the collector");
    }
}

impl Exporting {
    /// Sends what is there, for a moment.
    pub async fn finish(self) {
        let Self { stop, task } = self;
        drop(stop);
        let _ = timeout(FAREWELL, task).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::SystemTime;

    use opentelemetry::InstrumentationScope;
    use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
    use opentelemetry_sdk::error::OTelSdkError;
    use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};

    use super::*;

    /// A collector that takes nothing, and how large the batches were.
    #[derive(Clone, Debug, Default)]
    struct Away(Arc<Mutex<Vec<usize>>>);

    impl SpanExporter for Away {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().push(batch.len());
            Err(OTelSdkError::InternalFailure("nobody is there".to_owned()))
        }
    }

    fn span(flags: TraceFlags) -> SpanData {
        SpanData {
            span_context: SpanContext::new(TraceId::from(1), SpanId::from(1), flags, false, TraceState::default()),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: "reconcile".into(),
            start_time: SystemTime::UNIX_EPOCH,
            end_time: SystemTime::UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::builder("test").build(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_no_room_or_does_not_arrive_is_counted_and_the_last_batch_is_sent_at_the_end() {
        let away = Away::default();
        let (queue, sending) = queue(away.clone(), "collector:4318".to_owned());
        queue.on_end(span(TraceFlags::NOT_SAMPLED));
        (0..WAITING + 7).for_each(|_| queue.on_end(span(TraceFlags::SAMPLED)));
        let lost = || queue.lost.load(Ordering::Relaxed);
        assert_eq!(lost(), 7);
        let exporting = sending.begin();
        tokio::time::sleep(DELAY * 2).await;
        // The first batch and those without room have had their line; for a while there is no other.
        assert_eq!(*away.0.lock().unwrap(), [LARGEST_BATCH; WAITING / LARGEST_BATCH]);
        assert_eq!(lost(), (WAITING - LARGEST_BATCH) as u64);
        queue.on_end(span(TraceFlags::SAMPLED));
        tokio::time::sleep(DELAY / 2).await;
        exporting.finish().await;
        assert_eq!(away.0.lock().unwrap().last(), Some(&1), "what waits for more is sent when the program ends");
    }
}
