//! `mount_setattr(2)`, which has no safe form: a mount with everything that is mounted below it.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::libc;

/// Lets nothing at or below a mount point be written, no program there change its user, and no device there count.
/// What is forbidden already stays so.
///
/// # Errors
/// The kernel's error; `Unsupported` before Linux 5.12.
pub(crate) fn make_read_only(target: &Path) -> io::Result<()> {
    let path = CString::new(target.as_os_str().as_bytes())?;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is a live string with its end, the attributes a live value of the size that is given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
