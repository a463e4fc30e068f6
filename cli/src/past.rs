//! What is known of runs that are over: the records, one directory each.

use std::path::PathBuf;

use garboard_common::journal;
use garboard_protocol::control::Ended;
use garboard_shim_client::places::{MachineId, Places};

/// The last run of a machine that has a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PastRun {
    /// Its record.
    pub(crate) directory: PathBuf,
    /// How it ended, if that was written down.
    pub(crate) ended: Option<Ended>,
}

/// The last recorded run.
pub(crate) fn last(places: &Places, id: &MachineId) -> Option<PastRun> {
    let runs = std::fs::read_dir(places.records(id)).ok()?.flatten().map(|entry| entry.path());
    let directory = runs.filter(|path| path.is_dir()).max()?;
    let ended = journal::read(&directory).ok().flatten().and_then(|one| one.ended);
    Some(PastRun { directory, ended })
}
