//! Making taps. Source followed: the kernel's Documentation/networking/tuntap.rst and drivers/net/tun.c.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::libc;

use crate::names::LinkName;

nix::ioctl_write_ptr_bad!(
    /// `TUNSETIFF`: gives an open tun file its link. The number encodes `int`, the argument is an `ifreq`.
    tun_set_iff,
    nix::request_code_write!(b'T', 202, size_of::<libc::c_int>()),
    libc::ifreq
);

/// One queue of the tap `name`, in the namespace of the calling thread; makes the tap if it is not there.
/// Frames carry a virtio-net header (`IFF_VNET_HDR`), nothing else before them (`IFF_NO_PI`), as QEMU requires.
pub(crate) fn open_queue(device: &Path, name: &LinkName, queues: Queues) -> io::Result<OwnedFd> {
    let file = OpenOptions::new().read(true).write(true).open(device)?;
    nonblocking(&file)?;
    let multi = if queues == Queues::Several { libc::IFF_MULTI_QUEUE } else { 0 };
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | multi;
    let request = request(name, flags);
    // SAFETY: `request` is a whole `ifreq` that outlives the call; the kernel reads it and writes it back in
    // place. The descriptor is open.
    unsafe { tun_set_iff(file.as_raw_fd(), &raw const request) }?;
    Ok(file.into())
}

/// Whether a tap has one queue or several: the two are different kinds of device to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queues {
    /// One.
    One,
    /// Several.
    Several,
}

fn nonblocking(file: &File) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(file, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
    Ok(())
}

fn request(name: &LinkName, flags: libc::c_int) -> libc::ifreq {
    let mut bytes = [0; libc::IFNAMSIZ];
    for (to, from) in bytes.iter_mut().zip(name.as_str().bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // All flags used here are below 0x8000; TUNSETIFF reads them as 16 bits.
    let flags = libc::c_short::try_from(flags).unwrap_or_default();
    libc::ifreq { ifr_name: bytes, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags } }
}

#[cfg(test)]
nix::ioctl_write_int_bad!(
    /// `TUNSETOFFLOAD`: what the reader of a tap can do by itself.
    tun_set_offload,
    nix::request_code_write!(b'T', 208, size_of::<libc::c_uint>())
);

/// Has the kernel leave checksums to the reader of the tap, as QEMU does for a virtio NIC.
#[cfg(test)]
pub(crate) fn offload_checksums(tap: &OwnedFd) -> io::Result<()> {
    // SAFETY: the request takes a number and no pointer; the descriptor is borrowed and therefore open.
    unsafe { tun_set_offload(tap.as_raw_fd(), libc::c_int::try_from(libc::TUN_F_CSUM).map_err(io::Error::other)?) }?;
    Ok(())
}
