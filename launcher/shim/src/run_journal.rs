//! The journal of a run, completed where no supervisor was left to do it: PID 1's account and what the last supervisor had
//! noted are put together as a supervisor would have done it.

use garboard_common::journal::{self, JournalError};
use garboard_common::{foreign, private};
use garboard_protocol::PROTOCOL_VERSION;
use garboard_protocol::control::Ended;
use garboard_protocol::exit::{ExitCause, ExitReport, ProcessEnd, explain, full_message};
use garboard_protocol::journal::Journal;
use garboard_protocol::paths::{self, Layout};

/// PID 1 can only be killed; what it supervised dies with it.
const SIGKILL: i32 = 9;
/// Longest account of PID 1 that is read, bytes.
const MAX_ACCOUNT_BYTES: u64 = 64 * 1024;

/// What is known of the run: what a shim wrote in the machine's directory, which is its own alone, or the
/// supervisor's journal, in a directory where only the machine's user writes.
///
/// # Errors
/// [`JournalError`]: there is one, and it is none.
pub(crate) fn read(layout: &Layout) -> Result<Option<Journal>, JournalError> {
    let ours = journal::read(layout.machine())?;
    if ours.as_ref().is_some_and(|journal| journal.ended.is_some()) {
        return Ok(ours);
    }
    let theirs = match journal::read(&layout.supervisor()) {
        // The machine's user put something else there: our own record is kept.
        Err(_) if ours.is_some() => return Ok(ours),
        other => other?,
    };
    if theirs.as_ref().is_some_and(|journal| journal.ended.is_some()) { Ok(theirs) } else { Ok(ours.or(theirs)) }
}

/// What the kernel did to processes of the control group that the machine's are in, during a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryPressure {
    /// How many of them the OOM killer ended.
    pub(crate) kills: u64,
    /// The group's limit, bytes.
    pub(crate) limit_bytes: Option<u64>,
}

/// Adds the end to the journal if it has none.
pub(crate) fn complete(layout: &Layout, pressure: MemoryPressure) {
    let mut journal = believed(layout);
    if journal.ended.is_none() {
        let report = account(layout).unwrap_or_else(|| lost_account(&journal, pressure));
        let cause = explain(&report, journal.hints);
        end(layout, &mut journal, cause, Some(report));
    }
}

/// The journal to go on with. One that cannot be read was made so by the machine's user, and its run ends all the same.
fn believed(layout: &Layout) -> Journal {
    read(layout).map(Option::unwrap_or_default).unwrap_or_else(|error| {
        tracing::error!(%error, "the supervisor's journal could not be read; the run is ended without it");
        Journal { launched: true, ..Journal::default() }
    })
}

/// Notes that a user ends the run by force, before its processes are killed.
pub(crate) fn note_force(layout: &Layout) {
    let mut journal = believed(layout);
    journal.version = PROTOCOL_VERSION;
    journal.hints.force_requested = true;
    write(layout, &journal);
}

/// Notes that the run could not begin.
pub(crate) fn never_started(layout: &Layout, message: String) {
    end(layout, &mut believed(layout), ExitCause::NotStarted { message }, None);
}

fn end(layout: &Layout, journal: &mut Journal, cause: ExitCause, report: Option<ExitReport>) {
    let at_ms = jiff::Timestamp::now().as_millisecond();
    journal.version = PROTOCOL_VERSION;
    journal.ended = Some(Ended { message: full_message(&cause, report.as_ref()), cause, report, at_ms });
    write(layout, journal);
}

fn write(layout: &Layout, journal: &Journal) {
    let written = serde_json::to_vec(journal)
        .map_err(std::io::Error::from)
        .and_then(|bytes| private::replace(layout.machine(), paths::JOURNAL, &bytes));
    if let Err(error) = written {
        tracing::error!(%error, "the end of the run could not be recorded");
    }
}

fn account(layout: &Layout) -> Option<ExitReport> {
    let bytes = foreign::read(&layout.init(), paths::EXIT, MAX_ACCOUNT_BYTES).ok()??;
    serde_json::from_slice(&bytes).ok()
}

/// What is known when PID 1 left nothing. It counts what the OOM killer does; where that has ended it, too, the shim did.
fn lost_account(journal: &Journal, pressure: MemoryPressure) -> ExitReport {
    let end = if journal.launched { ProcessEnd::Signalled { signal: SIGKILL } } else { ProcessEnd::NeverStarted };
    ExitReport {
        end,
        oom_kills: pressure.kills,
        memory_limit_bytes: pressure.limit_bytes,
        asked_by_init: false,
        killed_by_init: false,
        last_output: String::new(),
        failure: (!journal.launched).then(|| "its processes were killed before QEMU was executed".to_owned()),
    }
}

/// Machines for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::Layout;

    /// A machine's directories.
    pub(crate) fn machine() -> (tempfile::TempDir, Layout) {
        let room = tempfile::tempdir().unwrap();
        let layout = Layout::new(room.path());
        for directory in [layout.order(), layout.supervisor(), layout.init()] {
            std::fs::create_dir(directory).unwrap();
        }
        (room, layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(journal: &Journal, report: Option<&ExitReport>) -> ExitCause {
        let (_room, layout) = testing::machine();
        journal::write(&layout.supervisor(), journal);
        if let Some(report) = report {
            std::fs::write(layout.init().join(paths::EXIT), serde_json::to_vec(report).unwrap()).unwrap();
        }
        complete(&layout, MemoryPressure::default());
        super::read(&layout).unwrap().unwrap().ended.unwrap().cause
    }

    #[test]
    fn an_end_that_no_supervisor_saw_has_its_cause() {
        let mut journal = Journal { version: PROTOCOL_VERSION, launched: true, ..Journal::default() };
        assert_eq!(ended(&journal, None), ExitCause::QemuKilled { signal: 9 });
        let account =
            ExitReport { end: ProcessEnd::Exited { code: 0 }, ..lost_account(&journal, MemoryPressure::default()) };
        assert_eq!(ended(&journal, Some(&account)), ExitCause::GuestShutdown);
        journal.hints.stop_requested = true;
        assert_eq!(ended(&journal, Some(&account)), ExitCause::StoppedGracefully);
        assert!(matches!(ended(&Journal::default(), None), ExitCause::NotStarted { .. }));
    }

    #[test]
    fn a_machine_whose_pid_1_the_oom_killer_ended_was_out_of_memory() {
        let (_room, layout) = testing::machine();
        journal::write(&layout.supervisor(), &Journal { launched: true, ..Journal::default() });
        complete(&layout, MemoryPressure { kills: 1, limit_bytes: Some(1 << 20) });
        let ended = super::read(&layout).unwrap().unwrap().ended.unwrap();
        assert_eq!(ended.cause, ExitCause::OutOfMemory { limit_bytes: Some(1 << 20) });
        assert!(ended.message.contains("1048576"), "{}", ended.message);
    }

    #[test]
    fn the_end_that_a_supervisor_recorded_stays() {
        let (_room, layout) = testing::machine();
        never_started(&layout, "no disk".into());
        complete(&layout, MemoryPressure::default());
        let ended = read(&layout).unwrap().unwrap().ended.unwrap();
        assert_eq!(ended.cause, ExitCause::NotStarted { message: "no disk".into() });
    }

    #[test]
    fn nothing_is_written_where_the_machines_user_writes() {
        let (room, layout) = testing::machine();
        let victim = room.path().join("victim");
        std::fs::write(&victim, "untouched").unwrap();
        for name in ["journal.json.new", "journal.json"] {
            std::os::unix::fs::symlink(&victim, layout.supervisor().join(name)).unwrap();
        }
        note_force(&layout);
        complete(&layout, MemoryPressure::default());
        let ended = journal::read(layout.machine()).unwrap().unwrap().ended.unwrap();
        assert_eq!(ended.cause, ExitCause::ForceStopped);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
        assert!(journal::read(layout.machine()).unwrap().unwrap().ended.is_some());
    }
}
