//! What every reconciler works with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use garboard_api::metadata::annotation;
pub use garboard_cluster::names::CONTROLLER_MANAGER as FIELD_MANAGER;
use garboard_protocol::causes::ErrorChain;
use garboard_subresources::version::Build;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::PostParams;
use kube::runtime::utils::Backoff;
use tokio::sync::watch;

use crate::durations::Reconciles;
use crate::events::{Events, NewEvent};
use crate::metrics::Measured;
use crate::settings::Settings;
use crate::stores::Unreadable;

/// Pauses between attempts to open watches again. Those of `kube` grow to half a minute and more, in which a controller
/// receives nothing although the API server has come back; there are two controllers in a cluster, not a thousand.
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
    pub events: Events,
    /// Image of both containers of a launcher pod.
    pub launcher_image: String,
    /// The cluster's settings.
    pub settings: watch::Receiver<Settings>,
    /// The namespace Garboard is installed in.
    pub namespace: String,
    /// The version of this program.
    pub version: &'static str,
    /// What else is known of its build: what `scripts/version --build` printed.
    pub of_build: &'static str,
    /// How long reconciliations took.
    pub reconciles: Arc<Reconciles>,
    /// What is counted for Prometheus.
    pub metrics: Arc<Measured>,
}

impl Context {
    /// A context whose requests are this controller's, of this version. The future writes its events.
    pub fn new(
        client: Client,
        launcher_image: String,
        settings: watch::Receiver<Settings>,
        namespace: String,
        version: &'static str,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (events, publishing) = Events::new(client.clone());
        let (of_build, reconciles, metrics) = ("", Arc::default(), Arc::default());
        let context =
            Self { client, events, launcher_image, settings, namespace, version, of_build, reconciles, metrics };
        (context, publishing)
    }

    /// What this program was built of.
    #[must_use]
    pub const fn build(&self) -> Build<'static> {
        Build { version: self.version, more: self.of_build }
    }

    /// Has an event about an object written; does not wait.
    pub fn record(&self, regarding: &ObjectReference, event: NewEvent) {
        self.events.record(regarding, event);
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
        /// The error of the client.
        #[source]
        source: Box<kube::Error>,
    },
    /// What was asked for cannot be had here.
    #[error("{message}")]
    Refused {
        /// Why, and what to do.
        message: String,
    },
    /// Another client wrote the object after it was read.
    #[error("the object was changed in the meantime; the controller tries again")]
    Overtaken,
    /// What is stored cannot be read by this release.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A fault of this program. Only the work on this object has ended.
    #[error("the controller panicked during reconcile of the object; see its log")]
    Panicked,
    /// An object of the API server without a name or namespace.
    #[error("the API server sent an object without {what}")]
    Incomplete {
        /// What is missing.
        what: &'static str,
    },
}

impl ReconcileError {
    /// How long to wait before the object is looked at again: the first time, and at most. The watches deliver what changes
    /// meanwhile.
    #[must_use]
    pub fn pauses(&self) -> (Duration, Duration) {
        const OVERTAKEN: Duration = Duration::from_millis(50);
        let seconds = Duration::from_secs;
        match self {
            Self::Overtaken => (OVERTAKEN, seconds(5)),
            // Who refuses a thing refuses it again; something else has to change first.
            Self::Api { .. } if self.is_refused() => (seconds(5), seconds(60)),
            Self::Refused { .. } => (seconds(5), seconds(60)),
            Self::Unreadable(_) | Self::Panicked => (seconds(10), seconds(600)),
            Self::Api { .. } | Self::Incomplete { .. } => (seconds(1), seconds(30)),
        }
    }

    /// The first of its pauses, for what is looked at one by one.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.pauses().0
    }

    fn is_refused(&self) -> bool {
        matches!(self, Self::Api { source, .. }
            if matches!(source.as_ref(), kube::Error::Api(status) if (400..500).contains(&status.code)))
    }

    /// Why a thing could not be had, for the object and its events: the API server's message, whether it refused or could not
    /// answer, or our own. Nothing if another writer was faster.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        match self {
            Self::Refused { message } => Some(message.clone()),
            Self::Api { source, .. } => {
                let kube::Error::Api(status) = source.as_ref() else {
                    return Some(ErrorChain(source.as_ref()).to_string());
                };
                let message =
                    if status.message.is_empty() { format!("status {}", status.code) } else { status.message.clone() };
                Some(message).filter(|_| !status.is_conflict())
            }
            Self::Overtaken | Self::Unreadable(_) | Self::Panicked | Self::Incomplete { .. } => None,
        }
    }

    /// Whether it is refused again whenever it is asked for again, or cannot be had here.
    #[must_use]
    pub fn is_refused_for_good(&self) -> bool {
        match self {
            Self::Refused { .. } => true,
            Self::Api { source, .. } => {
                matches!(source.as_ref(), kube::Error::Api(status) if is_refusal(status.code))
            }
            Self::Overtaken | Self::Unreadable(_) | Self::Panicked | Self::Incomplete { .. } => false,
        }
    }

    /// Whether it is worth a line in the log.
    #[must_use]
    pub fn is_abnormal(&self) -> bool {
        !matches!(self, Self::Overtaken)
    }
}

/// Whether a request is refused again whenever it is sent again: not one that comes too often, or without a token that is valid now. A
/// webhook that names no code refuses with 400.
pub(crate) fn is_refusal(code: u16) -> bool {
    const UNAUTHORIZED: u16 = 401;
    const TIMED_OUT: u16 = 408;
    const CONFLICT: u16 = 409;
    const TOO_MANY: u16 = 429;
    (400..500).contains(&code) && ![UNAUTHORIZED, TIMED_OUT, CONFLICT, TOO_MANY].contains(&code)
}

/// The annotations that KubeVirt's controllers write with the first change of a VirtualMachine and an instance. They are part of changes
/// that are made anyway.
pub(crate) fn observed_versions() -> BTreeMap<&'static str, &'static str> {
    annotation::OBSERVED_API_VERSIONS.map(|key| (key, annotation::OBSERVED_API_VERSION)).into()
}

/// For objects that this controller makes: their fields are its own.
#[must_use]
pub fn made_by_us() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// For `map_err`: adds what was being attempted.
pub fn while_trying(action: &'static str) -> impl FnOnce(kube::Error) -> ReconcileError {
    move |source| ReconcileError::Api { action, source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16, message: &str) -> ReconcileError {
        let status = kube::core::Status { code, message: message.to_owned(), ..kube::core::Status::default() };
        while_trying("create the pod")(kube::Error::Api(status.boxed()))
    }

    #[test]
    fn every_error_of_the_api_server_has_a_message_but_a_conflict() {
        let unavailable = "Internal error occurred: failed calling webhook \"istio\"";
        assert_eq!(api(500, unavailable).message().as_deref(), Some(unavailable));
        assert_eq!(api(403, "exceeded quota").message().as_deref(), Some("exceeded quota"));
        assert_eq!(api(503, "").message().as_deref(), Some("status 503"));
        let conflict = kube::core::Status { code: 409, reason: "Conflict".to_owned(), ..kube::core::Status::default() };
        assert_eq!(while_trying("write")(kube::Error::Api(conflict.boxed())).message(), None);
    }

    #[test]
    fn only_what_is_refused_for_good_is_a_refusal() {
        for code in [400, 403, 404, 405, 413, 422] {
            assert!(is_refusal(code) && api(code, "denied").is_refused_for_good(), "{code}");
        }
        for code in [401, 408, 409, 429, 500, 503] {
            assert!(!is_refusal(code) && !api(code, "later").is_refused_for_good(), "{code}");
        }
        assert!(ReconcileError::Refused { message: "no importer".to_owned() }.is_refused_for_good());
        assert!(!ReconcileError::Overtaken.is_refused_for_good());
    }

    #[test]
    fn a_broken_watch_is_tried_again_soon_however_long_it_was_broken() {
        let mut pauses = WatchPause::default();
        let first: Vec<_> = pauses.by_ref().take(5).map(|pause| pause.as_millis()).collect();
        assert_eq!(first, [500, 1000, 2000, 4000, 4000]);
        pauses.reset();
        assert_eq!(pauses.next(), Some(Duration::from_millis(500)));
    }
}
