//! Executing QEMU with exactly the descriptors of the launch.

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use ::landlock::RulesetCreated;
use garboard_protocol::launch::Launch;
use nix::unistd::Pid;

use super::InitError;
use crate::sys::{descriptors, landlock, signals};

/// What arrived with a launch.
pub(super) struct Arrived {
    /// QEMU's, its log first.
    pub(super) for_qemu: Vec<OwnedFd>,
    /// One for each helper.
    pub(super) for_helpers: Vec<OwnedFd>,
    /// A connection to QEMU's second monitor.
    pub(super) monitor: Option<OwnedFd>,
}

/// Parts what arrived.
///
/// # Errors
/// When there are more or fewer than the launch announces.
pub(super) fn share_out(launch: &Launch, mut arrived: Vec<OwnedFd>) -> Result<Arrived, InitError> {
    let for_qemu = launch.descriptors.len() + 1;
    let announced = for_qemu + launch.helpers.len() + usize::from(launch.has_monitor);
    if arrived.len() != announced {
        let text = format!("{} descriptors arrived, {announced} were announced", arrived.len());
        return Err(InitError::system("take the descriptors", std::io::Error::other(text)));
    }
    let monitor = if launch.has_monitor { arrived.pop() } else { None };
    let for_helpers = arrived.split_off(for_qemu);
    Ok(Arrived { for_qemu: arrived, for_helpers, monitor })
}

/// Starts QEMU under `rules`. The first descriptor is its log; the others go to the numbers the launch names.
///
/// # Errors
/// When descriptors cannot be placed, or the program cannot be executed.
pub(super) fn spawn(launch: &Launch, mut arrived: Vec<OwnedFd>, rules: RulesetCreated) -> Result<Pid, InitError> {
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
    // Where this process has no PID namespace, the kernel does not end QEMU with it; one without a waiting parent would keep its
    // disks while the machine is started again.
    signals::die_with_parent(&mut command);
    landlock::restrict(&mut command, rules);
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
