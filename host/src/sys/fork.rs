//! Tries a system call in a child, so that this process keeps what it has.

use nix::errno::Errno;
use nix::libc;
use nix::sched::CloneFlags;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// Whether a child of ours may `unshare` these namespaces.
///
/// # Errors
/// What the kernel answered the child; EAGAIN or ENOMEM if there could be no child; EINTR if it was killed.
pub(crate) fn try_unshare(flags: CloneFlags) -> Result<(), Errno> {
    // SAFETY: between fork and _exit the child makes two system calls and touches no lock, no allocator and no
    // destructor, so the state other threads left behind does not matter.
    let child = match unsafe { fork() }? {
        ForkResult::Child => {
            // SAFETY: plain system calls, see above; `_exit` runs nothing of this process.
            unsafe {
                let answer = libc::unshare(flags.bits());
                libc::_exit(if answer == 0 { 0 } else { Errno::last_raw() & 0xff })
            }
        }
        ForkResult::Parent { child } => child,
    };
    loop {
        match waitpid(child, None) {
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
            Ok(WaitStatus::Exited(_, 0)) => return Ok(()),
            Ok(WaitStatus::Exited(_, code)) => return Err(Errno::from_raw(code)),
            Ok(_) => return Err(Errno::EINTR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_unshare_is_allowed() {
        assert_eq!(try_unshare(CloneFlags::empty()), Ok(()));
    }

    #[test]
    fn the_kernels_refusal_comes_back_as_its_error_number() {
        // unshare(2) does not support this flag.
        assert_eq!(try_unshare(CloneFlags::CLONE_IO), Err(Errno::EINVAL));
    }
}
