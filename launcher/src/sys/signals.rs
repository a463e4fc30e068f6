//! The signal mask of programs that are executed: a child inherits that of its parent.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::SigSet;

/// Has the program begin with no signal blocked: one that is told to end must not be deaf because its parent waits for
/// signals by descriptor.
pub(crate) fn unblock(command: &mut Command) {
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; this is one `sigprocmask(2)` on a set that
    // was made before, without allocation or lock.
    unsafe {
        let none = SigSet::empty();
        command.pre_exec(move || none.thread_set_mask().map_err(std::io::Error::from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::Signal;

    #[test]
    fn a_child_hears_what_its_parent_has_blocked() {
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
