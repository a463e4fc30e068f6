//! Descriptors that a process has from its caller, and how many it may have.

use std::os::fd::{BorrowedFd, RawFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Marks every descriptor but the standard streams close-on-exec: what our caller left open is not for the
/// programs we start. Descriptors that cannot be listed stay as they are.
pub fn close_inherited_on_exec() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<RawFd> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // SAFETY: the number is only used for one fcntl call; if it was closed meanwhile the call fails harmlessly.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    }
}

/// Lets this process, and all that it starts, open as many files as it may: a shell gives 1024, and a guest with many
/// disks or queues takes more. A limit that cannot be raised stays as it is.
pub fn raise_descriptor_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_may_be_open_as_the_hard_limit_allows() {
        raise_descriptor_limit();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(soft, hard);
    }
}
