//! Giving up capabilities (`capabilities(7)`). In a user namespace of its own PID 1 has them all while it builds its
//! root, whatever its user is.

use std::io;

use nix::libc;

/// `_LINUX_CAPABILITY_VERSION_3` of `linux/capability.h`: two sets of 32 bits.
const VERSION_3: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`; process 0 is the calling thread.
#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

/// `struct __user_cap_data_struct`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops every capability of the calling thread, which must be the only one. Ambient ones go with the permitted.
///
/// # Errors
/// The error of `capset(2)`; giving up is always allowed.
pub(crate) fn drop_all() -> io::Result<()> {
    let header = Header { version: VERSION_3, pid: 0 };
    let none = [Data { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: both pointers are to live values of the layout that version 3 of the call reads, two sets long.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_a_threads_capabilities() {
        // A thread of its own: others of this test program keep theirs.
        let left = std::thread::spawn(|| {
            drop_all().unwrap();
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let status = left.join().unwrap();
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
        }
    }
}
