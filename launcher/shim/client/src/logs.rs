//! The two logs in a machine's own directory. All writers append.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The supervisor's log with PID 1's, one JSON a line: the shim opens it for every supervisor.
pub const SUPERVISOR_LOG: &str = "launcher.log";
/// The shim's own log, one JSON a line. Builds before the shim was a program called it `keeper.log`.
pub const SHIM_LOG: &str = "shim.log";

/// How a log is opened: for appending, so that its writers go on at its end after it was cut; no link is followed.
#[must_use]
pub fn append() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW);
    options
}

/// Opens a log, empty.
///
/// # Errors
/// The file system's error.
pub fn create(path: &Path) -> io::Result<File> {
    let file = append().create(true).open(path)?;
    file.set_len(0)?;
    Ok(file)
}
