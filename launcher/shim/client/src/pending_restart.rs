//! What a machine's shim and the commands write for each other while there is no supervisor: files in the machine's
//! directory, which only its owner may write.
//!
//! | file | by | means |
//! | --- | --- | --- |
//! | `between.json` | shim | the last run is over and the next one will begin; gone when it does |
//! | `stay-down` | commands | whenever the run ends, do not start another |

use std::path::Path;

use garboard_common::private;
use serde::{Deserialize, Serialize};

use crate::{ShimError, lock};

const PENDING: &str = "between.json";
const STAY_DOWN: &str = "stay-down";

/// A machine between two runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingRestart {
    /// How the last run ended, as a message.
    pub ended: String,
    /// Starts that failed since the guest last ran.
    pub failures: u32,
    /// When the next run begins, milliseconds since 1970.
    pub again_at_ms: i64,
}

impl PendingRestart {
    /// Seconds until the next run begins, rounded up.
    #[must_use]
    pub fn seconds_left(&self) -> i64 {
        (self.again_at_ms - jiff::Timestamp::now().as_millisecond() + 999).max(0) / 1000
    }

    /// One line for a user.
    #[must_use]
    pub fn summary(&self) -> String {
        let Self { ended, failures, .. } = self;
        match (failures, self.seconds_left()) {
            (0, 0) => format!("{ended}; it is started again"),
            (0, left) => format!("{ended}; it is started again in {left} s"),
            (1, left) => format!("{ended}; its start failed, the next try is in {left} s"),
            (_, left) => format!("{ended}; {failures} starts failed, the next try is in {left} s"),
        }
    }
}

/// What is pending for a machine, if it is between two runs.
#[must_use]
pub fn read(machine: &Path) -> Option<PendingRestart> {
    serde_json::from_slice(&std::fs::read(machine.join(PENDING)).ok()?).ok()
}

/// What is pending for a machine whose shim lives: only then will there be another run.
#[must_use]
pub fn awaited(machine: &Path) -> Option<PendingRestart> {
    read(machine).filter(|_| lock::is_held(machine))
}

/// The machine is between two runs from now on.
///
/// # Errors
/// [`ShimError`]: the file system's error.
pub fn announce(machine: &Path, pending: &PendingRestart) -> Result<(), ShimError> {
    let path = machine.join(PENDING);
    let bytes = serde_json::to_vec(pending).map_err(|source| ShimError::Document { path: path.clone(), source })?;
    private::replace(machine, PENDING, &bytes).map_err(ShimError::file("write", &path))
}

/// It is not any more.
pub fn withdraw(machine: &Path) {
    let _ = std::fs::remove_file(machine.join(PENDING));
}

/// From now on no run follows the present one, or the pause. To be written before a stop is asked for: then it does not
/// matter whether the run ends first.
///
/// # Errors
/// [`ShimError`]: the file system's error.
pub fn request_stop(machine: &Path) -> Result<(), ShimError> {
    let path = machine.join(STAY_DOWN);
    match std::fs::write(&path, b"") {
        // The machine is gone already.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(ShimError::file("write", &path)),
    }
}

/// Whether a command has written that.
#[must_use]
pub fn is_stop_requested(machine: &Path) -> bool {
    machine.join(STAY_DOWN).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(failures: u32, again_at_ms: i64) -> PendingRestart {
        PendingRestart { ended: "the guest powered itself off".into(), failures, again_at_ms }
    }

    #[test]
    fn what_the_shim_announces_the_commands_read_until_it_is_withdrawn() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()), None);
        announce(directory.path(), &pending(2, 5)).unwrap();
        assert_eq!(read(directory.path()), Some(pending(2, 5)));
        withdraw(directory.path());
        withdraw(directory.path());
        assert_eq!(read(directory.path()), None);
    }

    #[test]
    fn a_dead_shim_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        announce(directory.path(), &pending(2, 5)).unwrap();
        assert_eq!(awaited(directory.path()), None);
        let _held = lock::hold(directory.path()).unwrap();
        assert_eq!(awaited(directory.path()), Some(pending(2, 5)));
    }

    #[test]
    fn the_summary_contains_the_end_and_the_next_start() {
        let soon = jiff::Timestamp::now().as_millisecond() + 60_000;
        assert!(pending(0, 0).summary().ends_with("; it is started again"));
        assert!(pending(0, soon).summary().ends_with("again in 60 s"), "{}", pending(0, soon).summary());
        assert!(pending(3, soon).summary().ends_with("3 starts failed, the next try is in 60 s"));
    }

    #[test]
    fn a_stop_that_was_requested_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_stop_requested(directory.path()));
        request_stop(directory.path()).unwrap();
        assert!(is_stop_requested(directory.path()));
        // A machine that is gone is down.
        request_stop(&directory.path().join("nowhere")).unwrap();
    }
}
