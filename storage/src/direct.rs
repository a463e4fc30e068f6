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

/// Whether direct I/O works on an open file: switched on, proved with one aligned read, and switched off again unless it
/// was on before. An empty file proves nothing; give it a block first.
#[must_use]
pub fn works(fd: BorrowedFd<'_>) -> bool {
    let Ok(before) = fcntl(fd, FcntlArg::F_GETFL) else { return false };
    let works = enable(fd).is_ok();
    // If this failed the flag would stay, and it works.
    let _ = fcntl(fd, FcntlArg::F_SETFL(OFlag::from_bits_retain(before)));
    works
}

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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_flag_that_is_taken_proves_nothing() {
        // A pipe takes the flag and has nothing to read at an offset, like a file system that refuses the first read.
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        let flags = || fcntl(reader.as_fd(), FcntlArg::F_GETFL).unwrap();
        let before = flags();
        let set = |flags| fcntl(reader.as_fd(), FcntlArg::F_SETFL(flags)).unwrap();
        set(OFlag::from_bits_retain(before) | OFlag::O_DIRECT);
        set(OFlag::from_bits_retain(before));
        assert!(!works(reader.as_fd()));
        assert_eq!(flags(), before);
    }

    #[test]
    fn a_descriptor_is_left_as_it_was() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let before = fcntl(file.as_fd(), FcntlArg::F_GETFL).unwrap();
        let _ = works(file.as_fd());
        assert_eq!(fcntl(file.as_fd(), FcntlArg::F_GETFL).unwrap(), before);
    }
}
