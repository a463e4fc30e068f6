//! The one system call the tests need that has no safe wrapper: making a tap.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

nix::ioctl_write_ptr_bad!(tunsetiff, 0x4004_54ca, [u8; 40]);

const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const IFF_MULTI_QUEUE: u16 = 0x0100;

/// One queue of the tap called `name` in this process's network namespace.
pub(crate) fn open_tap(name: &str, queues: u32) -> io::Result<File> {
    let tap = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    let many = if queues > 1 { IFF_MULTI_QUEUE } else { 0 };
    request[16..18].copy_from_slice(&(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | many).to_ne_bytes());
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which has 40 bytes; `request` has as many and outlives the call.
    unsafe { tunsetiff(tap.as_raw_fd(), &request) }?;
    Ok(tap)
}
