//! The last word on a run, for the case that no supervisor was left to say it: what PID 1 wrote down and what the last
//! supervisor had noted are put together as a supervisor would have done it.

use std::path::Path;

use garboard_launcher::supervisor::journal;
use garboard_protocol::PROTOCOL_VERSION;
use garboard_protocol::control::Ended;
use garboard_protocol::exit::{ExitCause, ExitReport, ProcessEnd, explain, told};
use garboard_protocol::journal::Journal;
use garboard_protocol::paths;

/// PID 1 can only be killed; what it supervised dies with it.
const SIGKILL: i32 = 9;

/// Adds the end to the journal if nobody has.
pub(super) fn complete(shared: &Path) {
    let mut journal = match journal::read(shared) {
        Ok(journal) => journal.unwrap_or_default(),
        Err(error) => return tracing::error!(%error, "how the run ended is not in its journal"),
    };
    if journal.ended.is_none() {
        let report = account(shared).unwrap_or_else(|| lost_account(&journal));
        let cause = explain(&report, journal.hints);
        end(shared, &mut journal, cause, Some(report));
    }
}

/// Notes that a person ends the run by force, before there is nobody left who could tell.
pub(crate) fn note_force(shared: &Path) {
    if let Ok(journal) = journal::read(shared) {
        let mut journal = journal.unwrap_or_default();
        journal.version = PROTOCOL_VERSION;
        journal.hints.force_requested = true;
        journal::write(shared, &journal);
    }
}

/// Notes that the run could not begin.
pub(super) fn never_started(shared: &Path, message: String) {
    if let Ok(journal) = journal::read(shared) {
        end(shared, &mut journal.unwrap_or_default(), ExitCause::NotStarted { message }, None);
    }
}

fn end(shared: &Path, journal: &mut Journal, cause: ExitCause, report: Option<ExitReport>) {
    let at_ms = jiff::Timestamp::now().as_millisecond();
    journal.version = PROTOCOL_VERSION;
    journal.ended = Some(Ended { sentence: told(&cause, report.as_ref()), cause, report, at_ms });
    journal::write(shared, journal);
}

fn account(shared: &Path) -> Option<ExitReport> {
    serde_json::from_slice(&std::fs::read(shared.join(paths::EXIT)).ok()?).ok()
}

/// What is known when PID 1 left nothing.
fn lost_account(journal: &Journal) -> ExitReport {
    let end = if journal.launched { ProcessEnd::Signalled { signal: SIGKILL } } else { ProcessEnd::NeverStarted };
    ExitReport {
        end,
        oom_kills: 0,
        memory_limit_bytes: None,
        asked_by_init: false,
        killed_by_init: false,
        last_words: String::new(),
        failure: (!journal.launched).then(|| "its processes were killed before QEMU was executed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(journal: &Journal, account: Option<&ExitReport>) -> ExitCause {
        let directory = tempfile::tempdir().unwrap();
        journal::write(directory.path(), journal);
        if let Some(account) = account {
            std::fs::write(directory.path().join(paths::EXIT), serde_json::to_vec(account).unwrap()).unwrap();
        }
        complete(directory.path());
        journal::read(directory.path()).unwrap().unwrap().ended.unwrap().cause
    }

    #[test]
    fn an_end_that_no_supervisor_saw_has_its_cause() {
        let mut journal = Journal { version: PROTOCOL_VERSION, launched: true, ..Journal::default() };
        assert_eq!(ended(&journal, None), ExitCause::QemuKilled { signal: 9 });
        let account = ExitReport { end: ProcessEnd::Exited { code: 0 }, ..lost_account(&journal) };
        assert_eq!(ended(&journal, Some(&account)), ExitCause::GuestShutdown);
        journal.hints.stop_requested = true;
        assert_eq!(ended(&journal, Some(&account)), ExitCause::StoppedGracefully);
        assert!(matches!(ended(&Journal::default(), None), ExitCause::NotStarted { .. }));
    }

    #[test]
    fn what_a_supervisor_said_stands() {
        let directory = tempfile::tempdir().unwrap();
        never_started(directory.path(), "no disk".into());
        complete(directory.path());
        let ended = journal::read(directory.path()).unwrap().unwrap().ended.unwrap();
        assert_eq!(ended.cause, ExitCause::NotStarted { message: "no disk".into() });
    }
}
