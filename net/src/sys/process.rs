//! Handing one descriptor to a child under a chosen number.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets the child keep `descriptor` under the number it has in this process. The descriptor itself stays
/// closed-on-exec here, so no other child that is started meanwhile inherits it.
pub(crate) fn keep(command: &mut Command, descriptor: &OwnedFd) {
    let number = descriptor.as_raw_fd();
    let clear = move || {
        // SAFETY: between fork and exec this is the child's only thread, its descriptor table is a copy in
        // which `number` is still what the parent had open when it called `keep`; fcntl is
        // async-signal-safe (signal-safety(7)) and nothing is allocated.
        let done = unsafe { nix::libc::fcntl(number, nix::libc::F_SETFD, 0) };
        if done == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure does what the comment in it states and nothing else.
    unsafe { command.pre_exec(clear) };
}
