//! A step of a backup tool: a command in `compute` that has the supervisor freeze or thaw the guest, through the socket for probes.
//!
//! ```text
//!   Velero ── exec ──► garboard-launcher --backup-hook freeze|thaw  ──► supervisor ──► guest agent
//! ```
//!
//! It ends with 0 if the guest did it, or if there is nothing to do; otherwise it prints why not to standard error.

use std::path::Path;
use std::time::Duration;

use garboard_protocol::backup_hook::{self, WITHIN_SECONDS};
use garboard_protocol::control::{BackupStep, ControlReply, ControlRequest};

use crate::probe;

/// Why the guest did not do it.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The command line.
    #[error("usage: garboard-launcher --backup-hook freeze | thaw")]
    Usage,
    /// No supervisor, or none that answers in time.
    #[error("the supervisor did not answer within {} s", WITHIN_SECONDS)]
    Supervisor(#[source] std::io::Error),
    /// It could not be done.
    #[error("{reason}")]
    Refused {
        /// The supervisor's message.
        reason: String,
    },
    /// The supervisor is of another version.
    #[error("the supervisor's answer could not be parsed")]
    Nonsense,
}

/// Has the supervisor that listens in `directory` do a step, and gives a line about it for the backup's log. `arguments` come without
/// the command's first one.
///
/// # Errors
/// [`HookError`] if the copy would be worse than it could be.
pub fn run(directory: &Path, arguments: &[String]) -> Result<&'static str, HookError> {
    let [argument] = arguments else { return Err(HookError::Usage) };
    let step = backup_hook::step(argument).ok_or(HookError::Usage)?;
    let within = Duration::from_secs(u64::from(WITHIN_SECONDS));
    let reply = probe::ask(directory, &ControlRequest::BackupHook { step }, within).map_err(HookError::Supervisor)?;
    match reply {
        ControlReply::Done => Ok(match step {
            BackupStep::Freeze => "the file systems of the guest are frozen",
            BackupStep::Thaw => "the file systems of the guest are thawed",
        }),
        ControlReply::AlreadySo => Ok("nothing to do: no guest runs, or none with a guest agent, or it is so already"),
        ControlReply::Denied { reason } => Err(HookError::Refused { reason }),
        ControlReply::Status(_)
        | ControlReply::Queued
        | ControlReply::Streaming
        | ControlReply::Session
        | ControlReply::Resumed(_)
        | ControlReply::Healthy
        | ControlReply::Guest(_)
        | ControlReply::Statistics(_)
        | ControlReply::Part(_)
        | ControlReply::NoPart { .. } => Err(HookError::Nonsense),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tests::answering;

    fn answered(reply: ControlReply) -> (Result<&'static str, HookError>, ControlRequest) {
        answering(reply, |directory| run(directory, &["freeze".to_owned()]))
    }

    #[test]
    fn a_step_fails_only_where_the_guest_should_have_done_it() {
        let (outcome, asked) = answered(ControlReply::Done);
        assert!(outcome.unwrap().contains("are frozen"));
        assert_eq!(asked, ControlRequest::BackupHook { step: BackupStep::Freeze });
        assert!(answered(ControlReply::AlreadySo).0.unwrap().contains("nothing to do"));
        let refused = answered(ControlReply::Denied { reason: "a script failed".into() }).0.unwrap_err();
        assert_eq!(refused.to_string(), "a script failed");
        assert!(matches!(answered(ControlReply::Healthy).0, Err(HookError::Nonsense)));
    }

    #[test]
    fn what_is_no_step_is_explained() {
        let room = tempfile::tempdir().unwrap();
        for wrong in [&[][..], &["unfreeze"], &["freeze", "thaw"]] {
            let arguments: Vec<String> = wrong.iter().map(|argument| (*argument).to_owned()).collect();
            assert!(matches!(run(room.path(), &arguments), Err(HookError::Usage)), "{wrong:?}");
        }
        let gone = run(room.path(), &["thaw".to_owned()]);
        assert!(matches!(gone, Err(HookError::Supervisor(_))));
    }
}
