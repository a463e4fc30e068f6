//! Streams of a replica that ends: their clients read that they have to connect again, which another replica answers.
//!
//! A server takes a connection for ended that has become a stream. Without this the process would end at once, and its streams
//! without a word.

use std::time::Duration;

use tokio::sync::watch;

use super::relay::LINGER;
use crate::shutdown::{Stage, Stages};

/// How long clients may take for their answer to a close frame, and a little more.
const CLOSING: Duration = LINGER.saturating_add(Duration::from_secs(1));

/// What every stream knows of the replica that serves it.
#[derive(Clone)]
pub(super) struct Replica {
    stages: Stages,
    /// How many streams are open.
    open: watch::Sender<usize>,
}

impl Replica {
    pub(super) fn new(stages: Stages) -> Self {
        Self { stages, open: watch::Sender::new(0) }
    }

    /// Counts a stream.
    pub(super) fn opened(&self) -> OpenStream {
        self.open.send_modify(|open| *open += 1);
        OpenStream(self.clone())
    }

    /// Where the replica drains, waits until every stream is closed, for a while. Whether they are.
    pub(super) async fn closed(&self) -> bool {
        if self.stages.now() != Stage::Draining {
            return false;
        }
        let mut open = self.open.subscribe();
        let are_closed = tokio::time::timeout(CLOSING, open.wait_for(|open| *open == 0)).await.is_ok();
        if !are_closed {
            tracing::warn!(
                open = *self.open.borrow(),
                "streams are cut: their clients did not answer the close in time"
            );
        }
        are_closed
    }
}

/// A stream, as long as it lives.
pub(super) struct OpenStream(Replica);

impl OpenStream {
    /// Returns when the replica drains.
    pub(super) async fn is_to_end(&mut self) {
        self.0.stages.draining().await;
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}
