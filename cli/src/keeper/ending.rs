//! How a run ended, from what it left in its shared directory, and what the next one keeps of it.

use std::path::Path;
use std::time::Duration;

use garboard_launcher::plan::{LaunchPlan, StoredMachine};
use garboard_launcher::supervisor::journal;
use garboard_protocol::exit::{ExitCause, ExitReport, explain};
use garboard_protocol::paths;
use serde::de::DeserializeOwned;

use super::between;
use super::decide::{Reached, RunEnd, Wish};
use super::order::Order;

/// Reads the end of the run of `order`; `outcome` is what the keeper itself has to say.
pub(super) fn of(order: &Order, outcome: &anyhow::Result<()>, lasted: Duration) -> RunEnd {
    let shared = order.shared();
    let journal = journal::read(&shared).ok().flatten().unwrap_or_default();
    let report: Option<ExitReport> = read(&shared, paths::EXIT);
    let asked_by_init = report.as_ref().is_some_and(|report| report.asked_by_init);
    let stopped = journal.hints.stop_requested || journal.hints.force_requested || asked_by_init;
    let told = journal.ended.map(|ended| ended.cause);
    let cause = told.or_else(|| report.map(|report| explain(&report, journal.hints))).unwrap_or_else(|| {
        let message = outcome.as_ref().err().map_or("nobody wrote down why".to_owned(), |error| format!("{error:#}"));
        ExitCause::NotStarted { message }
    });
    RunEnd {
        cause,
        reached: if journal.started { Reached::Running } else { Reached::NotRunning },
        wish: if stopped { Wish::StayDown } else { between::wish(&order.machine) },
        lasted,
    }
}

/// What the run of `order` decided, or an earlier one if it did not get that far.
pub(super) fn stored(order: &Order) -> Option<StoredMachine> {
    read::<LaunchPlan>(&order.shared(), paths::PLAN).map(|plan| plan.stored).or_else(|| order.stored.clone())
}

fn read<T: DeserializeOwned>(shared: &Path, name: &str) -> Option<T> {
    serde_json::from_slice(&std::fs::read(shared.join(name)).ok()?).ok()
}
