//! Clearing away a machine whose shim is dead.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use garboard_shim_client::calls::Reason;
use garboard_shim_client::lock::{self, HeldLock};
use garboard_shim_client::processes::{MachineProcess, Process, find, send, wait_for_end};
use garboard_shim_client::request::LaunchRequest;
use nix::sys::signal::Signal;

use crate::resources::HostResources;
use crate::serve::keep_record;
use crate::{record, run_journal};

/// A supervisor that is asked to end needs no longer than this.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long killed processes have to end: QEMU goes with PID 1 and gives its guest's memory back first, on a host that may be busy.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Removes everything of a machine whose shim is dead: processes, network by name, files. Its record is kept. Where processes do
/// not end, their files stay, too.
///
/// It holds the machine's lock meanwhile: a shim that was started after the command looked keeps its machine.
///
/// # Errors
/// That a shim lives, what could not be ended or removed, or why the record could not be kept.
pub fn delete(machine: &Path, reason: Reason) -> anyhow::Result<()> {
    garboard_common::private::by_default();
    let Some(_lock) = lock_of(machine)? else { return Ok(()) };
    let request = LaunchRequest::read(machine)?;
    if reason == Reason::Forced {
        run_journal::note_force(&request.layout());
    }
    end_processes(machine)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        keep_record_of_dead(&request)?;
        HostResources::adopt(&request).remove().await
    })
}

/// The lock of a machine; nothing if another command was quicker and the machine is gone.
fn lock_of(machine: &Path) -> anyhow::Result<Option<HeldLock>> {
    match lock::hold(machine) {
        Ok(held) => Ok(Some(held)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            anyhow::bail!("a shim runs the machine of {}; nothing was removed", machine.display())
        }
        Err(error) => Err(error).with_context(|| format!("take the lock of {}", machine.display())),
    }
}

/// A shim that was killed before its run had directories has written down no more than its log. Between two runs the record of
/// the last one is there already.
fn keep_record_of_dead(request: &LaunchRequest) -> anyhow::Result<()> {
    if request.layout().supervisor().exists() || request.record.exists() {
        return keep_record(request);
    }
    record::keep(&request.layout(), &request.record).context("keep the record of the run")
}

/// Ends what is left of a machine without a shim. QEMU goes with PID 1, whose PID namespace it is in.
fn end_processes(machine: &Path) -> anyhow::Result<()> {
    send(&find(machine, MachineProcess::Supervisor), Signal::SIGTERM);
    if !wait_for_end(machine, MachineProcess::Supervisor, FAREWELL) {
        send(&find(machine, MachineProcess::Supervisor), Signal::SIGKILL);
    }
    send(&find(machine, MachineProcess::Init), Signal::SIGKILL);
    for part in [MachineProcess::Supervisor, MachineProcess::Init] {
        if !wait_for_end(machine, part, END_LIMIT) {
            let left: Vec<_> = find(machine, part).iter().map(Process::pid).collect();
            anyhow::bail!("processes of the machine do not end after SIGKILL: {left:?}; {} is kept", machine.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_whose_shim_lives_is_left_alone_and_one_that_is_gone_is_no_error() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("vm");
        delete(&machine, Reason::Left).unwrap();
        std::fs::create_dir(&machine).unwrap();
        let held = lock::hold(&machine).unwrap();
        let error = delete(&machine, Reason::Forced).unwrap_err().to_string();
        assert!(error.contains("a shim runs the machine"), "{error}");
        assert!(machine.join("lock").exists());
        drop(held);
    }
}
