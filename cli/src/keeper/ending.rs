//! How a run ended, from what it left in its shared directory, and what the next one keeps of it.

use std::path::Path;
use std::time::Duration;

use garboard_launcher::plan::{LaunchPlan, StoredMachine};
use garboard_launcher::supervisor::journal;
use garboard_protocol::exit::ExitCause;
use garboard_protocol::journal::Journal;
use garboard_protocol::paths;
use serde::de::DeserializeOwned;

use super::between;
use super::decide::{Reached, RunEnd, Wish};
use super::last_word;
use super::order::Order;
use crate::kept;

/// Reads the end of the run of `order` from its journal, which is completed first: what the record of the run will say is
/// what the next start is decided on. `outcome` is what the keeper itself has to say.
pub(super) fn of(order: &Order, outcome: &anyhow::Result<()>, lasted: Duration) -> RunEnd {
    let shared = order.shared();
    let journal = completed(&shared, outcome);
    let (cause, report) = match journal.ended {
        Some(ended) => (ended.cause, ended.report),
        None => (ExitCause::NotStarted { message: complaint(outcome) }, None),
    };
    let asked_by_init = report.is_some_and(|report| report.asked_by_init);
    let stopped = journal.hints.stop_requested || journal.hints.force_requested || asked_by_init;
    RunEnd {
        cause,
        reached: if journal.started { Reached::Running } else { Reached::NotRunning },
        wish: if stopped { Wish::StayDown } else { between::wish(&order.machine) },
        lasted,
    }
}

/// The journal with an end in it, unless there is no place to keep one.
fn completed(shared: &Path, outcome: &anyhow::Result<()>) -> Journal {
    let read = || journal::read(shared).ok().flatten().unwrap_or_default();
    if !shared.exists() {
        return Journal::default();
    }
    let before = read();
    if outcome.is_err() && !before.launched && before.ended.is_none() && !shared.join(paths::EXIT).exists() {
        last_word::never_started(shared, complaint(outcome));
    }
    last_word::complete(shared);
    read()
}

fn complaint(outcome: &anyhow::Result<()>) -> String {
    outcome.as_ref().err().map_or("nobody wrote down why".to_owned(), |error| format!("{error:#}"))
}

/// What the run of `order` decided, or an earlier one if it did not get that far.
pub(super) fn stored(order: &Order) -> Option<StoredMachine> {
    read::<LaunchPlan>(&order.shared(), paths::PLAN).map(|plan| plan.stored).or_else(|| order.stored.clone())
}

/// Keeps what the run of `order` decided for another `run`, once the guest has seen it. Says whether that is done, or
/// nothing is to be kept.
pub(super) fn keep_machine(order: &Order) -> anyhow::Result<bool> {
    let Some(file) = &order.kept else { return Ok(true) };
    let shared = order.shared();
    if !matches!(journal::read(&shared), Ok(Some(journal)) if journal.started) {
        return Ok(false);
    }
    let Some(plan) = read::<LaunchPlan>(&shared, paths::PLAN) else { return Ok(false) };
    kept::write(file, &plan.stored).map(|()| true)
}

fn read<T: DeserializeOwned>(shared: &Path, name: &str) -> Option<T> {
    serde_json::from_slice(&std::fs::read(shared.join(name)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_pid_1_was_killed_ends_as_its_record_says() {
        let directory = tempfile::tempdir().unwrap();
        journal::write(directory.path(), &Journal { launched: true, ..Journal::default() });
        let ended = completed(directory.path(), &Ok(())).ended.unwrap();
        assert_eq!(ended.cause, ExitCause::QemuKilled { signal: 9 });
        assert_eq!(journal::read(directory.path()).unwrap().unwrap().ended, Some(ended));
    }

    #[test]
    fn a_run_that_could_not_begin_says_what_the_keeper_says() {
        let directory = tempfile::tempdir().unwrap();
        let ended = completed(directory.path(), &Err(anyhow::anyhow!("no room"))).ended.unwrap();
        assert_eq!(ended.cause, ExitCause::NotStarted { message: "no room".into() });
    }

    #[test]
    fn a_run_without_a_place_keeps_nothing() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(completed(&directory.path().join("gone"), &Ok(())), Journal::default());
    }
}
