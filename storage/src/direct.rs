//! Direct I/O: whether a descriptor can bypass the page cache of the host, found out by doing it.
//!
//! A file system may take the flag and refuse the first read (FUSE), so the flag alone proves nothing. QEMU shares the
//! open file description with us, hence the flag set here is the flag it runs with.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::uio::pread;

/// The largest logical block size in use; a buffer, offset and length aligned to it suit every device.
const ALIGNMENT: usize = 4096;

/// Switches direct I/O on and proves it with one aligned read; on failure the descriptor is as before.
pub(crate) fn enable(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let before = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(before | OFlag::O_DIRECT))?;
    let mut space = vec![0_u8; 2 * ALIGNMENT];
    let start = space.as_ptr().align_offset(ALIGNMENT);
    let proof = space.get_mut(start..start + ALIGNMENT).ok_or(Errno::EINVAL).and_then(|block| pread(fd, block, 0));
    match proof {
        Ok(_) => Ok(()),
        Err(errno) => {
            fcntl(fd, FcntlArg::F_SETFL(before))?;
            Err(errno)
        }
    }
}
