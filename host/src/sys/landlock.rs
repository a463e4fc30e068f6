//! Asks the kernel for the version of its Landlock interface.

use nix::libc;

/// `LANDLOCK_CREATE_RULESET_VERSION` of `include/uapi/linux/landlock.h`.
const VERSION_FLAG: u32 = 1;

/// The Landlock version (1 and up), or the error number: ENOSYS if it is not built in, EOPNOTSUPP if it is off.
pub(crate) fn version() -> Result<u32, nix::errno::Errno> {
    // SAFETY: with this flag the kernel takes a null pointer and a size of 0, reads no memory and creates nothing.
    let answer = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, VERSION_FLAG)
    };
    nix::errno::Errno::result(answer).map(|version| u32::try_from(version).unwrap_or(0))
}
