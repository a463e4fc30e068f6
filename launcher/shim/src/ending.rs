//! How a run ended, from what it left in its directories, and what the next one keeps of it.

use std::time::Duration;

use anyhow::Context;
use garboard_common::foreign;
use garboard_plan::{LaunchPlan, StoredMachine};
use garboard_protocol::exit::ExitCause;
use garboard_protocol::journal::Journal;
use garboard_protocol::paths::{self, Layout};
use garboard_shim_client::request::LaunchRequest;
use garboard_shim_client::stored as stored_file;

use crate::decide::{Reached, RunEnd, StopRequest};
use crate::pause;
use crate::run_journal::{self, MemoryPressure};

/// Longest plan that is read, bytes; one of a hundred disks has 200 KiB.
const MAX_PLAN_BYTES: u64 = 8 << 20;

/// Reads the end of the run of `request` from its journal, which is completed first: the next start is decided on what
/// the record of the run will contain. `outcome` and `pressure` are the shim's own observations.
pub(crate) fn of(
    request: &LaunchRequest,
    outcome: &anyhow::Result<()>,
    lasted: Duration,
    pressure: MemoryPressure,
) -> RunEnd {
    let journal = completed(&request.layout(), outcome, pressure);
    let (cause, report) = match journal.ended {
        Some(ended) => (ended.cause, ended.report),
        None => (ExitCause::NotStarted { message: failure_message(outcome) }, None),
    };
    let asked_by_init = report.is_some_and(|report| report.asked_by_init);
    let stopped = journal.hints.stop_requested || journal.hints.force_requested || asked_by_init;
    RunEnd {
        cause,
        reached: if journal.started { Reached::Running } else { Reached::NotRunning },
        stop: if stopped { StopRequest::Requested } else { pause::stop_request(&request.machine) },
        lasted,
    }
}

/// The journal with an end in it, unless there is no place to keep one.
fn completed(layout: &Layout, outcome: &anyhow::Result<()>, pressure: MemoryPressure) -> Journal {
    let read = || run_journal::read(layout).ok().flatten().unwrap_or_default();
    if !layout.supervisor().exists() {
        return Journal::default();
    }
    let before = read();
    let has_account = layout.init().join(paths::EXIT).exists();
    if outcome.is_err() && !before.launched && before.ended.is_none() && !has_account {
        run_journal::never_started(layout, failure_message(outcome));
    }
    run_journal::complete(layout, pressure);
    read()
}

fn failure_message(outcome: &anyhow::Result<()>) -> String {
    outcome.as_ref().err().map_or("its end was not recorded".to_owned(), |error| format!("{error:#}"))
}

/// What the run of `request` decided, or an earlier one if it did not get that far.
pub(crate) fn stored(request: &LaunchRequest) -> Option<StoredMachine> {
    plan(request).map(|plan| plan.stored).or_else(|| request.stored.clone())
}

/// Keeps what the run of `request` decided for another `run`, once the guest has seen it. Returns whether that is done, or
/// nothing is to be kept.
pub(crate) fn store_machine(request: &LaunchRequest) -> anyhow::Result<bool> {
    let Some(file) = &request.kept else { return Ok(true) };
    if !matches!(run_journal::read(&request.layout()), Ok(Some(journal)) if journal.started) {
        return Ok(false);
    }
    let Some(plan) = plan(request) else { return Ok(false) };
    stored_file::write(file, &plan.stored).with_context(|| format!("store the machine in {}", file.display()))?;
    Ok(true)
}

/// The plan of the run, which its supervisor wrote.
fn plan(request: &LaunchRequest) -> Option<LaunchPlan> {
    let bytes = foreign::read(&request.layout().supervisor(), paths::PLAN, MAX_PLAN_BYTES).ok()??;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use garboard_common::journal;

    use super::*;

    #[test]
    fn a_run_whose_pid_1_was_killed_ends_as_in_its_record() {
        let (_room, layout) = run_journal::testing::machine();
        journal::write(&layout.supervisor(), &Journal { launched: true, ..Journal::default() });
        let ended = completed(&layout, &Ok(()), MemoryPressure::default()).ended.unwrap();
        assert_eq!(ended.cause, ExitCause::QemuKilled { signal: 9 });
        assert_eq!(run_journal::read(&layout).unwrap().unwrap().ended, Some(ended));
    }

    #[test]
    fn a_run_that_could_not_begin_has_the_message_of_the_shim() {
        let (_room, layout) = run_journal::testing::machine();
        let ended = completed(&layout, &Err(anyhow::anyhow!("no room")), MemoryPressure::default()).ended.unwrap();
        assert_eq!(ended.cause, ExitCause::NotStarted { message: "no room".into() });
    }

    #[test]
    fn a_run_without_a_place_keeps_nothing() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(
            completed(&Layout::new(directory.path().join("gone")), &Ok(()), MemoryPressure::default()),
            Journal::default()
        );
    }
}
