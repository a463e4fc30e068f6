//! What a log line belongs to: a span for the machine, a span for each request, and for each QMP command the one that
//! `garboard_qmp` opens, inside the request's if a request caused it.
//!
//! ```text
//! vm{namespace vmi vmi_uid} ─► request{request ask uid claimed_user audit_id} ─► qmp{command id}
//! ```
//!
//! The number of a request is also what the transcript names as the requester of its commands. A request that came by way of an API
//! server has the ID that this server's audit log and the controller's span `subresource` have.

use std::sync::atomic::{AtomicU64, Ordering};

use garboard_protocol::paths::Layout;
use tracing::Span;

use super::control::Caller;
use super::seed::MachineMetadata;
use super::{SupervisorError, journal};

/// The span of a machine. To be entered once by the thread that runs its supervisor, before the runtime: a supervisor has one
/// machine and one thread, so every line of every task is in it.
///
/// # Errors
/// What keeps a supervisor from beginning.
pub fn span(layout: &Layout) -> Result<Span, SupervisorError> {
    let journal = journal::read(&layout.supervisor())?.unwrap_or_default();
    let whose = MachineMetadata::read(layout, &journal)?;
    Ok(whose.span())
}

/// The requests of one supervisor.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// The cause of an action: a request, or the supervisor itself.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    span: Span,
    /// How the transcript calls it.
    requester: Option<String>,
}

impl Cause {
    /// A request, with the next number, and the audit ID that its client names, escaped and bounded.
    pub(crate) fn request(ask: &'static str, caller: &Caller, audit_id: Option<&str>) -> Self {
        let number = REQUESTS.fetch_add(1, Ordering::Relaxed) + 1;
        let (uid, claimed_user) = (caller.uid, caller.claimed.as_deref());
        let span = tracing::info_span!("request", request = number, ask, uid, claimed_user, audit_id);
        Self { span, requester: Some(format!("request {number} (uid {uid})")) }
    }

    /// The supervisor itself.
    pub(crate) fn supervisor() -> Self {
        Self { span: Span::none(), requester: None }
    }

    /// For what is done for it.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// A QMP command that is sent for it.
    pub(crate) fn command<C: garboard_qmp::qmp::QmpCommand>(&self, command: &C) -> garboard_qmp::Request {
        let request = garboard_qmp::Request::of(command);
        match &self.requester {
            Some(requester) => request.on_behalf_of(requester.clone()),
            None => request,
        }
    }
}

#[cfg(test)]
mod tests;
