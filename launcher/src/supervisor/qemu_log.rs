//! What QEMU and its libraries print: a file that QEMU appends to and no other process empties. Some of it a guest can
//! provoke, and in a pod it lies in memory; so it is looked at now and then and cut to its end, which shows why
//! QEMU left.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use garboard_protocol::paths;
use tokio::time::timeout;

use super::run::Context;
use super::serial_log::read_tail;

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// When it is longer, it is cut.
const MAX_BYTES: u64 = 1024 * 1024;
/// What is kept of it then.
const KEPT_BYTES: u64 = 64 * 1024;
/// Marks removed lines.
const NOTE: &[u8] = b"garboard: earlier lines were removed\n";

/// Keeps the log short until the driver has gone.
pub(super) async fn run(context: Context) {
    let path = context.layout.init().join(paths::QEMU_LOG);
    while timeout(LOOK, context.happened.closed()).await.is_err() {
        if let Err(error) = cut(&path) {
            tracing::debug!(path = %path.display(), %error, "could not cut QEMU's log");
        }
    }
}

/// QEMU appends (`O_APPEND`), so it goes on at the new end. What it prints between the two steps is lost.
fn cut(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.len() <= MAX_BYTES {
        return Ok(());
    }
    let tail = read_tail(path, KEPT_BYTES)?;
    let mut log = OpenOptions::new().append(true).custom_flags(nix::libc::O_NOFOLLOW).open(path)?;
    log.set_len(0)?;
    log.write_all(&[NOTE, tail.as_slice()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_grows_is_cut_to_its_last_output() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(paths::QEMU_LOG);
        let mut qemu = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        qemu.write_all(b"warning: early\n").unwrap();
        cut(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"warning: early\n", "a short one stays whole");
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        for _ in 0..1100 {
            qemu.write_all(&line).unwrap();
        }
        qemu.write_all(b"no lock\n").unwrap();
        cut(&path).unwrap();
        let kept = std::fs::read(&path).unwrap();
        assert!(kept.starts_with(NOTE) && kept.ends_with(b"x\nno lock\n"));
        assert_eq!(kept.len() as u64, KEPT_BYTES + NOTE.len() as u64);
        qemu.write_all(b"the end\n").unwrap();
        assert!(std::fs::read(&path).unwrap().ends_with(b"no lock\nthe end\n"), "QEMU goes on at the new end");
    }
}
