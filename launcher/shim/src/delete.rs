//! Clearing away a machine whose shim is dead.

use std::path::Path;
use std::time::Duration;

use garboard_shim_client::calls::Reason;
use garboard_shim_client::processes::{Part, find, send, wait_for_end};
use garboard_shim_client::request::LaunchRequest;
use nix::sys::signal::Signal;

use crate::resources::HostResources;
use crate::run_journal;
use crate::serve::keep_record;

/// A supervisor that is asked to end needs no longer than this, nor does a PID 1 that is killed.
const FAREWELL: Duration = Duration::from_secs(2);

/// Removes everything of a machine whose shim is dead: processes, network by name, files. Its record is kept.
///
/// # Errors
/// What could not be removed, or why the record could not be kept.
pub fn delete(machine: &Path, reason: Reason) -> anyhow::Result<()> {
    garboard_common::private::by_default();
    let request = LaunchRequest::read(machine)?;
    if reason == Reason::Forced {
        run_journal::note_force(&request.layout());
    }
    end_processes(machine);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        keep_record(&request)?;
        HostResources::adopt(&request).remove().await
    })
}

/// Ends what is left of a machine without a shim. QEMU goes with PID 1, whose PID namespace it is in.
fn end_processes(machine: &Path) {
    send(&find(machine, Part::Supervisor), Signal::SIGTERM);
    if !wait_for_end(machine, Part::Supervisor, FAREWELL) {
        send(&find(machine, Part::Supervisor), Signal::SIGKILL);
    }
    send(&find(machine, Part::Init), Signal::SIGKILL);
    // What goes on all the same is seen by what cannot be removed.
    let _ = wait_for_end(machine, Part::Init, FAREWELL);
}
