//! `fork(2)`, for the one place that must go on as a child: entering a PID namespace that was just made.

use std::io;

use nix::unistd::{ForkResult, fork};

/// Forks this process, which must have only one thread: then the child is a whole copy and may do anything.
///
/// # Errors
/// More than one thread, or the error of `fork(2)`.
pub(crate) fn fork_single_threaded() -> io::Result<ForkResult> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("this process has {threads} threads")));
    }
    // SAFETY: there is no other thread that could hold a lock or be in the middle of something.
    Ok(unsafe { fork() }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_forked() {
        // Tests run on threads of their own, beside the main one.
        assert!(fork_single_threaded().is_err());
    }
}
