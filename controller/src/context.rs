//! What every reconciler works with.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::PostParams;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::utils::Backoff;
use tokio::sync::watch;

use crate::settings::Settings;

/// The name under which the controller writes fields: server-side apply keeps each writer's fields apart.
pub const FIELD_MANAGER: &str = "garboard-controller";

/// Everything is looked at again after this long, whatever was missed.
pub const SAFETY_NET: Duration = Duration::from_secs(300);

/// Pauses between attempts to open watches again. Those of `kube` grow to half a minute and more, in which a controller
/// hears nothing although the API server has come back; there are two controllers in a cluster, not a thousand.
#[derive(Clone, Copy, Debug)]
pub struct WatchPause(Duration);

impl WatchPause {
    const FIRST: Duration = Duration::from_millis(500);
    const LONGEST: Duration = Duration::from_secs(4);
}

impl Default for WatchPause {
    fn default() -> Self {
        Self(Self::FIRST)
    }
}

impl Iterator for WatchPause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.0;
        self.0 = (pause * 2).min(Self::LONGEST);
        Some(pause)
    }
}

impl Backoff for WatchPause {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Shared by all reconcilers.
#[derive(Clone)]
pub struct Context {
    /// The API server.
    pub client: Client,
    /// Events for people.
    pub recorder: Recorder,
    /// Image of both containers of a launcher pod.
    pub launcher_image: String,
    /// The cluster's settings.
    pub settings: watch::Receiver<Settings>,
    /// The namespace Garboard is installed in.
    pub namespace: String,
}

impl Context {
    /// A context that speaks as this controller.
    #[must_use]
    pub fn new(client: Client, launcher_image: String, settings: watch::Receiver<Settings>, namespace: String) -> Self {
        let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: None };
        Self { recorder: Recorder::new(client.clone(), reporter), client, launcher_image, settings, namespace }
    }

    /// Tells people what was done about an object. An event is a courtesy: one that is lost changes nothing.
    pub async fn tell(&self, regarding: &ObjectReference, kind: EventType, (reason, note): (&str, String)) {
        let event = Event {
            type_: kind,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, regarding).await {
            tracing::debug!(%error, "an event was lost");
        }
    }
}

/// Why a reconciliation failed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API server refused or could not be reached.
    #[error("could not {action}")]
    Api {
        /// What was being attempted.
        action: &'static str,
        /// What the client says.
        #[source]
        source: Box<kube::Error>,
    },
    /// What was asked for cannot be had here.
    #[error("{sentence}")]
    Refused {
        /// Why, and what to do.
        sentence: String,
    },
    /// Somebody wrote the object after it was looked at.
    #[error("the object has changed meanwhile")]
    Overtaken,
    /// An object of the API server without a name or namespace.
    #[error("an object came without {what}")]
    Incomplete {
        /// What is missing.
        what: &'static str,
    },
}

impl ReconcileError {
    /// How long to wait before the object is looked at again.
    #[must_use]
    pub fn pause(&self) -> Duration {
        match self {
            Self::Overtaken => Duration::from_millis(50),
            // Who refuses a thing refuses it again; something else has to change first.
            Self::Api { .. } if self.refusal().is_some() => Duration::from_secs(10),
            Self::Refused { .. } => Duration::from_secs(10),
            Self::Api { .. } | Self::Incomplete { .. } => Duration::from_secs(2),
        }
    }

    /// Why a thing cannot be had: the API server's words, if it was asked and refused, or our own.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        if let Self::Refused { sentence } = self {
            return Some(sentence);
        }
        let Self::Api { source, .. } = self else { return None };
        let kube::Error::Api(status) = source.as_ref() else { return None };
        // 409: somebody was faster.
        let is_refused = (400..500).contains(&status.code) && !status.is_conflict();
        is_refused.then_some(status.message.as_str())
    }

    /// Whether it is worth a line in the log.
    #[must_use]
    pub fn is_abnormal(&self) -> bool {
        !matches!(self, Self::Overtaken)
    }
}

/// For objects that this controller makes: their fields are its own.
#[must_use]
pub fn made_by_us() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// For `map_err`: says what was being attempted.
pub fn while_trying(action: &'static str) -> impl FnOnce(kube::Error) -> ReconcileError {
    move |source| ReconcileError::Api { action, source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_watch_is_tried_again_soon_however_long_it_was_broken() {
        let mut pauses = WatchPause::default();
        let first: Vec<_> = pauses.by_ref().take(5).map(|pause| pause.as_millis()).collect();
        assert_eq!(first, [500, 1000, 2000, 4000, 4000]);
        pauses.reset();
        assert_eq!(pauses.next(), Some(Duration::from_millis(500)));
    }
}
