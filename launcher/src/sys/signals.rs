//! What a program that is executed inherits: its signal mask, whether it may gain privileges, and whether it outlives its
//! parent.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{SigSet, Signal};

/// Has the program begin with no signal blocked: one that is asked to end must not ignore it because its parent waits for
/// signals by descriptor.
pub(crate) fn unblock(command: &mut Command) {
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; this is one `sigprocmask(2)` on a set that
    // was made before, without allocation or lock.
    unsafe {
        let none = SigSet::empty();
        command.pre_exec(move || none.thread_set_mask().map_err(std::io::Error::from));
    }
}

/// Has the program, and all that it executes, gain no privileges by executing something.
pub(crate) fn forbid_new_privileges(command: &mut Command) {
    // SAFETY: one `prctl(2)` between fork and exec, without allocation or lock.
    unsafe {
        command.pre_exec(|| nix::sys::prctl::set_no_new_privs().map_err(std::io::Error::from));
    }
}

/// Has the program killed when the thread that starts it ends, however that is (`PR_SET_PDEATHSIG`, `prctl(2)`). One whose
/// parent has ended before that was set up is not executed.
pub(crate) fn die_with_parent(command: &mut Command) {
    let parent = nix::unistd::getpid();
    // SAFETY: two system calls between fork and exec, without allocation or lock.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            if nix::unistd::getppid() == parent { Ok(()) } else { Err(nix::errno::Errno::ESRCH.into()) }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_child_does_not_outlive_the_thread_that_started_it() {
        let parent = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("300");
            die_with_parent(&mut command);
            command.spawn().unwrap()
        });
        assert_eq!(parent.join().unwrap().wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
    }

    #[test]
    fn a_child_receives_what_its_parent_has_blocked() {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTERM);
        let before = SigSet::thread_get_mask().unwrap();
        mask.thread_block().unwrap();
        let mut command = Command::new("grep");
        command.args(["SigBlk", "/proc/self/status"]);
        unblock(&mut command);
        let output = command.output().unwrap();
        before.thread_set_mask().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("\t0000000000000000"), "{output:?}");
    }
}
