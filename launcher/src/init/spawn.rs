//! Executing QEMU with exactly the descriptors of the launch.

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use garboard_protocol::launch::Launch;
use nix::unistd::Pid;

use super::InitError;
use crate::sys::{descriptors, signals};

/// Parts what arrived into QEMU's descriptors, its log first, and those of the helpers.
///
/// # Errors
/// When there are more or fewer than the launch announces.
pub(super) fn share_out(launch: &Launch, mut arrived: Vec<OwnedFd>) -> Result<(Vec<OwnedFd>, Vec<OwnedFd>), InitError> {
    let for_qemu = launch.descriptors.len() + 1;
    let announced = for_qemu + launch.helpers.len();
    if arrived.len() != announced {
        let text = format!("{} descriptors arrived, {announced} were announced", arrived.len());
        return Err(InitError::system("take the descriptors", std::io::Error::other(text)));
    }
    let for_helpers = arrived.split_off(for_qemu);
    Ok((arrived, for_helpers))
}

/// Starts QEMU. The first descriptor is its log; the others go to the numbers the launch names.
///
/// # Errors
/// When descriptors cannot be placed, or the program cannot be executed.
pub(super) fn spawn(launch: &Launch, mut arrived: Vec<OwnedFd>) -> Result<Pid, InitError> {
    let log = arrived.remove(0);
    let same_log = log.try_clone().map_err(|error| InitError::system("duplicate the log", error))?;
    let placed = descriptors::place(arrived, &launch.descriptors)
        .map_err(|error| InitError::system("place the descriptors", error))?;
    let (program, arguments) = launch
        .argv
        .split_first()
        .ok_or_else(|| InitError::system("read the launch", std::io::Error::other("it names no program")))?;
    let mut command = Command::new(program);
    signals::unblock(&mut command);
    let child = command
        .args(arguments)
        .env_clear()
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::from(same_log))
        .stderr(Stdio::from(log))
        .spawn()
        .map_err(|error| InitError::system(format!("execute {program}"), error))?;
    drop(placed);
    i32::try_from(child.id())
        .map(Pid::from_raw)
        .map_err(|_| InitError::system("note QEMU's process ID", std::io::Error::other("it is out of range")))
}
