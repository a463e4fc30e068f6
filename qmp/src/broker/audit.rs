//! The commands through the broker, their clients and their outcomes.

use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use crate::error::CallError;
use crate::redact::to_ascii_json;
use crate::transcript::rfc3339;

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditOutcome {
    /// QEMU did it.
    Done,
    /// The policy did not let it through.
    Denied {
        /// What was at stake.
        why: String,
    },
    /// QEMU refused; nothing was changed.
    Refused {
        /// QEMU's message, escaped and bounded.
        desc: String,
    },
    /// Unknown: no usable reply.
    Unknown {
        /// Why not.
        why: String,
    },
}

/// One call through the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// When it was decided or answered.
    pub at: SystemTime,
    /// The user who connected, as reported by the kernel.
    pub uid: u32,
    /// The process that connected, as reported by the kernel, where it gave one.
    pub pid: Option<i32>,
    /// Number of the connection, counted from 1 per broker.
    pub client: u64,
    /// The command, escaped and bounded.
    pub command: String,
    /// The arguments as one line of ASCII JSON, redacted and bounded.
    pub arguments: String,
    /// What became of it.
    pub outcome: AuditOutcome,
    /// Whether the machine may no longer be what the supervisor made. Remember it until the guest ends.
    pub tainted: bool,
}

impl Audit {
    /// The audit as one line of ASCII JSON.
    pub fn to_line(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            at: String,
            uid: u32,
            pid: Option<i32>,
            client: u64,
            command: &'a str,
            arguments: Box<serde_json::value::RawValue>,
            outcome: &'a AuditOutcome,
            tainted: bool,
        }
        let arguments = serde_json::value::RawValue::from_string(self.arguments.clone()).unwrap_or_default();
        let Self { uid, pid, client, command, outcome, tainted, .. } = self;
        let at = rfc3339(self.at);
        let (uid, pid, client, tainted) = (*uid, *pid, *client, *tainted);
        to_ascii_json(&Line { at, uid, pid, client, command, arguments, outcome, tainted })
    }
}

/// Takes audits. Called from the client's task: return quickly.
pub trait AuditSink: Send + Sync {
    /// A command that taints is about to be sent, with the arguments that QEMU gets. What must be on disk before is written
    /// before this returns. Its audit follows, and no other of this client comes between.
    fn intent(&self, _command: &str, _arguments: &serde_json::Value) {}

    /// Keeps one audit, and the taint if it has one.
    fn record(&self, audit: &Audit);
}

/// An audit that is recorded exactly once: with the outcome given, or as unknown when the call is dropped half-way.
pub(super) struct OpenAudit {
    audit: Option<Audit>,
    sink: Arc<dyn AuditSink>,
}

impl OpenAudit {
    /// `audit` as it is to be recorded if it is not closed.
    pub(super) fn new(audit: Audit, sink: Arc<dyn AuditSink>) -> Self {
        Self { audit: Some(audit), sink }
    }

    /// Records how QEMU took the command.
    pub(super) fn close<T>(mut self, result: &Result<T, CallError>) {
        if let Some(mut audit) = self.audit.take() {
            audit.outcome = match result {
                Ok(_) => AuditOutcome::Done,
                Err(CallError::Refused { desc, .. }) => AuditOutcome::Refused { desc: desc.clone() },
                Err(error) => AuditOutcome::Unknown { why: error.to_string() },
            };
            audit.tainted &= result.as_ref().err().is_none_or(CallError::may_have_taken_effect);
            audit.at = SystemTime::now();
            self.sink.record(&audit);
        }
    }
}

impl Drop for OpenAudit {
    fn drop(&mut self) {
        if let Some(audit) = self.audit.take() {
            self.sink.record(&audit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_is_one_line_of_json() {
        let audit = Audit {
            at: SystemTime::UNIX_EPOCH,
            uid: 1000,
            pid: Some(42),
            client: 3,
            command: "quit".to_owned(),
            arguments: r#"{"a":"<redacted>"}"#.to_owned(),
            outcome: AuditOutcome::Denied { why: "it ends the guest".to_owned() },
            tainted: false,
        };
        assert_eq!(
            audit.to_line(),
            r#"{"at":"1970-01-01T00:00:00.000000Z","uid":1000,"pid":42,"client":3,"command":"quit","arguments":{"a":"<redacted>"},"outcome":{"denied":{"why":"it ends the guest"}},"tainted":false}"#
        );
    }
}
