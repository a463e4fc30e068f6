//! Starting a shim, and having one clear away what another has left.

use std::io::{ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::directory::{self, Right};
use crate::processes::{self, MachineProcess};
use crate::request::{self, LaunchRequest};
use crate::{ShimError, lock, logs, pause_briefly, program};

/// What a shim writes to its standard output once both processes of the machine run.
pub const STARTED: &str = "started";
/// First argument of a shim that starts a machine and stays; the second is the machine's directory.
pub const RUN: &str = "run";
/// First argument of a shim that clears away what another has left of a machine; the second is the machine's directory.
pub const DELETE: &str = "delete";
/// Third argument after [`DELETE`]: the end of the run was forced by a user.
pub const FORCED: &str = "--forced";

/// How long the rest of a machine's directory may outlive its lock.
const LAST_FILES: Duration = Duration::from_secs(2);

/// Why a machine without a shim is cleared away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A user ends its run by force.
    Forced,
    /// Anything else; the record has how the run ended, as far as it left that.
    Left,
}

/// Starts a shim in the background; returns once both processes of the machine run.
///
/// # Errors
/// [`ShimError`]; when the shim itself gives up, with its own message.
pub fn start(request: &LaunchRequest) -> Result<(), ShimError> {
    request.write()?;
    let log = request.machine.join(logs::SHIM_LOG);
    let opened = logs::create(&log).map_err(ShimError::file("create", &log))?;
    let path = program::find(program::SHIM)?;
    let mut shim = Command::new(&path)
        .args([RUN.as_ref(), request.machine.as_os_str()])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(opened)
        // A process group of its own: Ctrl-C on the terminal is for the command, which then asks politely.
        .process_group(0)
        .spawn()
        .map_err(|source| ShimError::Execute { program: path.clone(), source })?;
    let answer = answer_of(&mut shim);
    if answer.trim() == STARTED {
        return Ok(());
    }
    let ended = shim.wait().map_err(|source| ShimError::Execute { program: path, source })?;
    // A shim that gives up prints why, and has cleared away what it had made.
    let printed = if answer.trim().is_empty() { std::fs::read_to_string(&log).unwrap_or_default() } else { answer };
    if ended.signal().is_some() || printed.trim().is_empty() {
        Err(ShimError::Died { ended })
    } else {
        Err(ShimError::Shim(message(&printed)))
    }
}

/// What a shim writes until both processes run, or it has ended.
fn answer_of(shim: &mut Child) -> String {
    let mut answer = String::new();
    let read = shim.stdout.take().map_or(Ok(0), |mut out| out.read_to_string(&mut answer));
    if read.is_err() {
        // Its further output would have no reader.
        let _ = shim.kill();
    }
    answer
}

fn message(text: &str) -> String {
    let text = text.trim();
    text.strip_prefix("garboard-shim: ").unwrap_or(text).to_owned()
}

/// Has everything of a machine removed whose shim is dead: processes, network by name, files. Its record is kept.
///
/// # Errors
/// [`ShimError`], with the shim's own message if something is left.
pub fn delete(machine: &Path, reason: Reason) -> Result<(), ShimError> {
    let path = program::find(program::SHIM)?;
    let mut command = Command::new(&path);
    command.arg(DELETE).arg(machine).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    // Ctrl-C on the terminal does not end it half way.
    command.process_group(0);
    if reason == Reason::Forced {
        command.arg(FORCED);
    }
    let ended = command.output().map_err(|source| ShimError::Execute { program: path, source })?;
    if ended.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&ended.stderr);
    let why = if why.trim().is_empty() { format!("garboard-shim ended with {}", ended.status) } else { message(&why) };
    Err(ShimError::Shim(why))
}

/// Clears away what a dead shim or an interrupted command left in a directory, unless it is gone. Its processes are ended
/// first.
///
/// # Errors
/// [`ShimError`] if something is left.
pub fn clear_away(right: &Right) -> Result<(), ShimError> {
    let machine = right.machine();
    if !right.is_there() {
        return Ok(());
    }
    if request::path(machine).is_some() {
        return delete(machine, Reason::Left);
    }
    // Nothing is started before there is a launch request. One that was removed by hand is another matter.
    let running = processes::all(machine);
    if running.is_empty() {
        remove_files(right)
    } else {
        Err(ShimError::NoRequest { machine: machine.to_owned(), running })
    }
}

/// Removes a directory in which nothing was started, unless it is gone.
///
/// # Errors
/// [`ShimError`] if something is left.
pub fn remove_files(right: &Right) -> Result<(), ShimError> {
    if !right.is_there() {
        return Ok(());
    }
    match std::fs::remove_dir_all(right.machine()) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(ShimError::file("remove", right.machine())(error));
        }
        _ => {}
    }
    // The namespace's directory stays only while another machine is in it.
    let _ = right.machine().parent().map(std::fs::remove_dir);
    Ok(())
}

/// Waits until a machine's directory is gone: then nothing of it is left.
///
/// # Errors
/// [`ShimError`] if its shim has died, and something is left when it was cleared away.
pub fn wait_until_gone(machine: &Path) -> Result<(), ShimError> {
    let mut alive = Instant::now();
    while machine.exists() {
        // The directory goes with its lock, at once unless it cannot be renamed: only a shim that stays away is dead.
        if lock::is_held(machine) {
            alive = Instant::now();
        } else if alive.elapsed() > LAST_FILES
            && let Some(right) = directory::leftover(machine)
            && !lock::is_held(machine)
        {
            return clear_away(&right);
        }
        pause_briefly();
    }
    Ok(())
}

/// Has its shim end a machine that a command cannot follow any more.
///
/// # Errors
/// As [`wait_until_gone`].
pub fn give_up(machine: &Path) -> Result<(), ShimError> {
    processes::send(&processes::find(machine, MachineProcess::Shim), Signal::SIGTERM);
    wait_until_gone(machine)
}

/// Whether a machine without a shim still has a guest: then it is no leftover.
#[must_use]
pub fn has_guest(machine: &Path) -> bool {
    !processes::find(machine, MachineProcess::Init).is_empty()
}

/// The record of a machine's present run: each has its own, so it distinguishes runs.
#[must_use]
pub fn present_run(machine: &Path) -> Option<PathBuf> {
    let request: serde_json::Value = serde_json::from_slice(&std::fs::read(request::path(machine)?).ok()?).ok()?;
    request["record"].as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_shim_is_shown_without_its_name() {
        assert_eq!(message("garboard-shim: no room\n"), "no room");
        assert_eq!(
            message("another holds /run/garboard/default/vm/lock\n"),
            "another holds /run/garboard/default/vm/lock"
        );
    }

    #[test]
    fn what_is_left_without_a_launch_request_is_only_removed() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("vm");
        let right = directory::make(&machine).unwrap().unwrap();
        std::fs::write(machine.join("lock"), "").unwrap();
        clear_away(&right).unwrap();
        assert!(!machine.exists());
        clear_away(&right).unwrap();
    }

    /// One whose start failed comes late, when its directory is gone already and another machine is started there.
    #[test]
    fn the_directory_of_another_run_is_not_removed() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("vm");
        let right = directory::make(&machine).unwrap().unwrap();
        std::fs::remove_dir(&machine).unwrap();
        let next = directory::make(&machine).unwrap().unwrap();
        std::fs::write(machine.join("launch-request.json"), "{}").unwrap();
        clear_away(&right).unwrap();
        remove_files(&right).unwrap();
        assert!(next.is_there() && machine.join("launch-request.json").exists());
    }
}
