//! A descriptor of a process: signals reach this very process or none, also when another process has its number.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// A process held by a descriptor (`pidfd_open(2)`).
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// The process that has this number now.
    ///
    /// # Errors
    /// `ESRCH` if there is none, `EMFILE` and `ENFILE` if no more files can be opened.
    pub fn open(process: Pid) -> Result<Self, Errno> {
        // SAFETY: takes two integers and returns a new descriptor or an error.
        let answer = unsafe { libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0) };
        let descriptor = libc::c_int::try_from(Errno::result(answer)?).map_err(|_| Errno::EBADF)?;
        // SAFETY: the kernel has just made this descriptor, and no other owner has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Sends a signal. A process that is gone is fine.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn send(&self, signal: Signal) -> Result<(), Errno> {
        let no_details = std::ptr::null::<libc::siginfo_t>();
        let (descriptor, number) = (self.0.as_raw_fd(), signal as libc::c_int);
        // SAFETY: the descriptor is ours and open; a null siginfo means what kill(2) would send.
        let answer = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, descriptor, number, no_details, 0) };
        match Errno::result(answer) {
            Ok(_) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether it has ended, also if its parent did not wait for it yet.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut look = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut look, PollTimeout::ZERO), Ok(ready) if ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn signals_reach_the_process_and_none_once_it_is_gone() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Pidfd::open(Pid::from_raw(i32::try_from(child.id()).unwrap())).unwrap();
        assert!(!process.has_ended());
        process.send(Signal::SIGTERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(process.has_ended());
        assert_eq!(process.send(Signal::SIGKILL), Ok(()), "one that is gone is fine");
        assert_eq!(Pidfd::open(Pid::from_raw(i32::MAX)).err(), Some(Errno::ESRCH));
    }
}
