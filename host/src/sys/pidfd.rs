//! A descriptor of a process: signals reach this very process or none, and its end can be waited for.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;

/// A process held by a descriptor.
pub(crate) struct Pidfd(OwnedFd);

impl Pidfd {
    /// The process that has this number now.
    ///
    /// # Errors
    /// ESRCH if there is none.
    pub(crate) fn open(pid: u32) -> Result<Self, Errno> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::ESRCH)?;
        // SAFETY: takes two integers and returns a new descriptor or an error.
        let answer = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let descriptor = libc::c_int::try_from(Errno::result(answer)?).map_err(|_| Errno::EBADF)?;
        // SAFETY: the kernel has just made this descriptor, and no other owner has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Ends the process. One that is already gone is fine.
    ///
    /// # Errors
    /// EPERM.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        let no_details = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is ours and open; a null siginfo means what kill(2) would send.
        let answer =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), libc::SIGKILL, no_details, 0) };
        match Errno::result(answer) {
            Ok(_) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Pidfd {
    /// Readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_process_is_killed_and_its_end_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let process = Pidfd::open(child.id()).unwrap();
        process.kill().unwrap();
        let mut wait = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut wait, PollTimeout::from(60_000_u16)), Ok(1));
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(process.kill(), Ok(()), "a process that is gone is fine");
        assert_eq!(Pidfd::open(u32::MAX).err(), Some(Errno::ESRCH));
    }
}
