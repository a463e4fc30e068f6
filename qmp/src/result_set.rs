//! Files that QEMU is given to write a result into, as descriptor sets (`add-fd`): none stays behind, as far as QEMU lets it.
//!
//! Sources followed: `ui/console.c` (`qmp_screendump` opens with `qemu_open`, which supports `/dev/fdset`) and
//! `monitor/fds.c` of QEMU 7.2 and 10.0.

use std::os::fd::OwnedFd;

use serde::Deserialize;

use crate::connection::Monitor;
use crate::error::CallError;
use crate::qmp;

/// Why QEMU cannot be given a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResultSetError {
    #[error("could not pass the file to QEMU")]
    Pass(#[from] CallError),
    #[error("QEMU still has {0} earlier results open, which it closes while the guest runs; resume the guest first")]
    Held(usize),
}

/// How results are called in `query-fdsets`.
const LABEL: &str = "result of a QMP client's command";

/// Results QEMU may hold at once. QEMU 7.2 closes a descriptor that it was asked to release only while the guest runs
/// (`monitor_fdset_cleanup`), so a client of a paused guest could otherwise use up all of QEMU's descriptors.
const HELD_LIMIT: usize = 8;

/// Gives QEMU a file that is open for writing alone, as `qemu_open` finds a descriptor by its access mode; answers with its set.
pub(crate) async fn offer(monitor: &Monitor, file: OwnedFd) -> Result<i64, ResultSetError> {
    for set in sets(monitor).await?.into_iter().filter(Set::is_result) {
        take_back(monitor, set.id).await;
    }
    let sets = sets(monitor).await?;
    let held = sets.iter().filter(|set| set.is_result()).count();
    if held >= HELD_LIMIT {
        return Err(ResultSetError::Held(held));
    }
    // QEMU 7.2 keeps the empty set of a PNG for ever, because it closes that file without its own `qemu_close`.
    let empty = sets.iter().find(|set| set.fds.is_empty()).map(|set| set.id);
    Ok(monitor.add_descriptor(empty, LABEL, file).await?.set)
}

/// The name by which QEMU opens it.
pub(crate) fn path(set: i64) -> String {
    format!("/dev/fdset/{set}")
}

/// Takes it back from QEMU, which keeps its own while it still writes.
pub(crate) async fn take_back(monitor: &Monitor, set: i64) {
    if let Err(error) = monitor.call(&qmp::remove_fd { fd: None, fdset_id: set }).await {
        tracing::debug!(%error, set, "could not remove a result's descriptor from QEMU");
    }
}

/// A descriptor set.
#[derive(Deserialize)]
struct Set {
    #[serde(rename = "fdset-id")]
    id: i64,
    fds: Vec<Held>,
}

/// A descriptor of one.
#[derive(Deserialize)]
struct Held {
    opaque: Option<String>,
}

impl Set {
    fn is_result(&self) -> bool {
        self.fds.iter().any(|held| held.opaque.as_deref() == Some(LABEL))
    }
}

async fn sets(monitor: &Monitor) -> Result<Vec<Set>, CallError> {
    monitor.ask(&qmp::query_fdsets {}).await
}
