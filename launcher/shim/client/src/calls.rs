//! Starting a shim, and having one clear away what another has left.

use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::processes::{self, Part};
use crate::request::{self, LaunchRequest};
use crate::{ShimError, lock, logs, pause_briefly, program};

/// What a shim writes to its standard output once both processes of the machine run.
pub const STARTED: &str = "started";
/// First argument of a shim that starts a machine and stays; the second is the machine's directory.
pub const RUN: &str = "run";
/// First argument of a shim that clears away what another has left of a machine; the second is the machine's directory.
pub const DELETE: &str = "delete";
/// Third argument after [`DELETE`]: the end of the run was forced by a person.
pub const FORCED: &str = "--forced";

/// How long the rest of a machine's directory may outlive its lock.
const LAST_FILES: Duration = Duration::from_secs(2);

/// Why a machine without a shim is cleared away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A person ends its run by force.
    Forced,
    /// Anything else; the record has how the run ended, as far as it left that.
    Left,
}

/// Starts a shim in the background; returns once both processes of the machine run.
///
/// # Errors
/// [`ShimError`]; when the shim itself gives up, with its own sentence.
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
    let answer = answer_of(&mut shim).map_err(|source| ShimError::Execute { program: path, source })?;
    if answer.trim() == STARTED {
        return Ok(());
    }
    let _ = shim.wait();
    let why = if answer.trim().is_empty() { std::fs::read_to_string(&log).unwrap_or_default() } else { answer };
    Err(ShimError::Shim(sentence(&why)))
}

fn answer_of(shim: &mut Child) -> io::Result<String> {
    let mut answer = String::new();
    if let Some(mut out) = shim.stdout.take() {
        out.read_to_string(&mut answer)?;
    }
    Ok(answer)
}

fn sentence(text: &str) -> String {
    let text = text.trim();
    text.strip_prefix("garboard-shim: ").unwrap_or(text).to_owned()
}

/// Has everything of a machine removed whose shim is dead: processes, network by name, files. Its record is kept.
///
/// # Errors
/// [`ShimError`], with the shim's own sentence if something is left.
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
    let why = if why.trim().is_empty() { format!("garboard-shim ended with {}", ended.status) } else { sentence(&why) };
    Err(ShimError::Shim(why))
}

/// What a dead shim left. Without a launch request nothing is known of it but that it is in the way.
///
/// # Errors
/// [`ShimError`] if something is left.
pub fn clear_away(machine: &Path) -> Result<(), ShimError> {
    if request::path(machine).is_some() {
        return delete(machine, Reason::Left);
    }
    match std::fs::remove_dir_all(machine) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(ShimError::file("remove", machine)(error)),
        _ => Ok(()),
    }
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
        } else if alive.elapsed() > LAST_FILES {
            return clear_away(machine);
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
    processes::send(&processes::find(machine, Part::Shim), Signal::SIGTERM);
    wait_until_gone(machine)
}

/// Whether a machine without a shim still has a guest: then it is no leftover.
#[must_use]
pub fn has_guest(machine: &Path) -> bool {
    !processes::find(machine, Part::Init).is_empty()
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
    fn the_sentence_of_a_shim_is_told_without_its_name() {
        assert_eq!(sentence("garboard-shim: no room\n"), "no room");
        assert_eq!(
            sentence("another holds /run/garboard/default/vm/lock\n"),
            "another holds /run/garboard/default/vm/lock"
        );
    }

    #[test]
    fn what_is_left_without_a_launch_request_is_only_removed() {
        let room = tempfile::tempdir().unwrap();
        let machine = room.path().join("vm");
        std::fs::create_dir(&machine).unwrap();
        std::fs::write(machine.join("lock"), "").unwrap();
        clear_away(&machine).unwrap();
        assert!(!machine.exists());
        clear_away(&machine).unwrap();
    }
}
