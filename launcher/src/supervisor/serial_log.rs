//! The file QEMU appends every serial byte to. It outlives supervisors, so it is where scroll-back comes
//! from after a restart. The guest decides how much it prints; we decide how much is kept. While its socket is full, QEMU writes a
//! byte to it more than once ([`super::history`]).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// When the log is longer it is copied beside and emptied. QEMU appends (`O_APPEND`), so it goes on at the
/// new end; bytes printed between the copy and the cut are lost from the log, not from the console.
const MAX_BYTES: u64 = 1024 * 1024;

pub(super) struct SerialLog {
    path: PathBuf,
    length: u64,
}

impl SerialLog {
    pub(super) fn new(path: PathBuf) -> Self {
        let length = std::fs::metadata(&path).map(|metadata| metadata.len()).unwrap_or(0);
        Self { path, length }
    }

    /// The last bytes of the log, at most `bytes`, also those before its last cut; empty if it cannot be read.
    pub(super) fn tail(&self, bytes: usize) -> Vec<u8> {
        let last = read_tail(&self.path, bytes as u64).unwrap_or_default();
        let missing = bytes.saturating_sub(last.len()) as u64;
        let mut tail = read_tail(&self.before(), missing).unwrap_or_default();
        tail.extend(last);
        tail
    }

    /// What was in the log before its last cut.
    fn before(&self) -> PathBuf {
        self.path.with_extension("log.1")
    }

    /// QEMU has appended this much; cuts the log when it is due.
    pub(super) fn note_appended(&mut self, bytes: usize) {
        self.length += bytes as u64;
        if self.length > MAX_BYTES {
            if let Err(error) = self.cut() {
                tracing::warn!(path = %self.path.display(), %error, "could not cut the serial log");
            }
            self.length = 0;
        }
    }

    fn cut(&self) -> io::Result<()> {
        std::fs::copy(&self.path, self.before())?;
        OpenOptions::new().write(true).open(&self.path)?.set_len(0)
    }
}

/// The last bytes of a file.
pub(super) fn read_tail(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    let mut tail = Vec::new();
    file.take(bytes).read_to_end(&mut tail)?;
    Ok(tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_chatty_guest_does_not_fill_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("serial0.log");
        let mut qemu = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let mut log = SerialLog::new(path.clone());
        let line = vec![b'z'; 64 * 1024];
        for _ in 0..64 {
            qemu.write_all(&line).unwrap();
            log.note_appended(line.len());
        }
        let kept = std::fs::metadata(&path).unwrap().len();
        let before = std::fs::metadata(path.with_extension("log.1")).unwrap().len();
        assert!(kept <= MAX_BYTES && before <= MAX_BYTES + line.len() as u64, "{kept} {before}");
        assert_eq!(SerialLog::new(path).tail(10).len(), 10);
    }

    #[test]
    fn the_end_of_a_log_that_was_just_cut_is_that_of_both_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("serial0.log");
        std::fs::write(&path, "before the cut, ").unwrap();
        let mut log = SerialLog::new(path.clone());
        log.note_appended(usize::try_from(MAX_BYTES).unwrap());
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"after").unwrap();
        let next = SerialLog::new(path);
        assert_eq!(next.tail(9), b"ut, after");
        assert_eq!(next.tail(100), b"before the cut, after");
    }
}
