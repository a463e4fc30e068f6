//! What is logged while a test runs, in the form in which the controller logs.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

#[derive(Clone, Default)]
pub(crate) struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    /// Of this thread, until the guard is dropped.
    pub(crate) fn begin() -> (Self, DefaultGuard) {
        // A callsite that another test meets first is not cached as switched off: every thread has a subscriber.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let log = Self::default();
        let lines = log.clone();
        let lines = tracing_subscriber::fmt::layer().json().with_current_span(false).with_writer(move || lines.clone());
        (log, tracing::subscriber::set_default(tracing_subscriber::registry().with(lines)))
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Write for Captured {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
