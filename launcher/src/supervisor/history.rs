//! What a console has printed, in two files of the supervisor's own, for viewers that come again and have missed more than is in memory.
//!
//! The log of the serial port has it too, and is not enough: while its socket is full, QEMU 7.2 to 10 writes a byte to the log with each
//! attempt to send it (`qemu_chr_write_buffer` in `chardev/char.c`), and a socket is full with some 280 bytes of a serial port. So no
//! place in the log is that of the console.
//!
//! ```text
//!   what was printed    ├───────────────┬───────────────┬────────────┤ end
//!   the files                     older ├── .history.1 ─┼─ .history ─┤
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use garboard_protocol::causes::ErrorChain;

/// A file that would be longer takes the place of the older one, and another one is begun, bytes.
const MOST_BYTES: u64 = 1024 * 1024;

/// The two files. Those of a supervisor before this one are overwritten: a place does not outlive its supervisor.
pub(super) struct History {
    path: PathBuf,
    /// The newer file; nothing after a failure, until the next bytes come.
    file: Option<File>,
    /// Length of the newer file, bytes.
    length: u64,
    /// Length of the older file, bytes.
    before: u64,
    /// The position behind the last byte.
    end: u64,
    /// Whether the last attempt to write failed, which was logged then.
    has_failed: bool,
}

impl History {
    /// Nothing yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None, length: 0, before: 0, end: 0, has_failed: false }
    }

    /// More was printed. Where it cannot be kept, as on a full disk, what came before is not kept any more either.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.end += bytes.len() as u64;
        match self.write(bytes) {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                (self.file, self.length, self.before) = (None, 0, 0);
                if !std::mem::replace(&mut self.has_failed, true) {
                    let error = ErrorChain(&error);
                    tracing::warn!(path = %self.path.display(), %error, "what the console prints is kept in memory alone");
                }
            }
        }
    }

    /// What was printed from `from` on until `to`, as far back as it is kept.
    pub(super) fn read(&self, from: u64, to: u64) -> Vec<u8> {
        let from = from.max(self.end - self.length - self.before);
        if from >= to {
            return Vec::new();
        }
        // Fewer: a file was shortened by another process.
        self.parts(from, to).ok().filter(|bytes| bytes.len() as u64 == to - from).unwrap_or_default()
    }

    /// From both files.
    fn parts(&self, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let newer_from = self.end - self.length;
        let mut bytes = Vec::new();
        if from < newer_from {
            let begin = from - (newer_from - self.before);
            part(&self.older(), begin, to.min(newer_from) - from, &mut bytes)?;
        }
        if to > newer_from {
            let from = from.max(newer_from);
            part(&self.path, from - newer_from, to - from, &mut bytes)?;
        }
        Ok(bytes)
    }

    fn older(&self) -> PathBuf {
        self.path.with_extension("history.1")
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.length + bytes.len() as u64 > MOST_BYTES && self.file.take().is_some() {
            std::fs::rename(&self.path, self.older())?;
            (self.before, self.length) = (self.length, 0);
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&self.path)?,
        };
        file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        self.file = Some(file);
        Ok(())
    }
}

/// Adds so many bytes of a file from a place on; fewer where it ends.
fn part(path: &Path, from: u64, count: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    file.take(count).read_to_end(bytes).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Printing {
        directory: tempfile::TempDir,
        printed: Vec<u8>,
        history: History,
    }

    impl Printing {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let history = History::new(directory.path().join("serial0.history"));
            Self { directory, printed: Vec::new(), history }
        }

        fn lines(&mut self, bytes: usize) {
            let until = self.printed.len() + bytes;
            while self.printed.len() < until {
                let line = format!("line {}\n", self.printed.len());
                self.printed.extend(line.as_bytes());
                self.history.append(line.as_bytes());
            }
        }

        /// How many bytes are known of those between, and whether they are those that were printed.
        fn known(&self, from: usize, to: usize) -> (usize, bool) {
            let read = self.history.read(from as u64, to as u64);
            (read.len(), self.printed[..to].ends_with(&read))
        }

        fn file(&self, name: &str) -> u64 {
            std::fs::metadata(self.directory.path().join(name)).map(|metadata| metadata.len()).unwrap_or(0)
        }
    }

    #[test]
    fn one_to_two_mebibytes_are_kept_and_no_more() {
        let mut printing = Printing::new();
        assert_eq!(printing.known(0, 0), (0, true));
        printing.lines(700_000);
        let end = printing.printed.len();
        for (from, to) in [(0, end), (5, end), (5, 600_000), (end - 1, end), (end, end)] {
            assert_eq!(printing.known(from, to), (to - from, true), "{from} {to}");
        }
        printing.lines(800_000);
        assert_eq!(printing.known(7, 1_200_000), (1_200_000 - 7, true), "over two files");
        printing.lines(4_000_000);
        let end = printing.printed.len();
        let (known, is_true) = printing.known(5, end);
        let most = usize::try_from(MOST_BYTES).unwrap();
        assert!(is_true && known >= most - 20 && known <= 2 * most, "{known} {is_true}");
        assert_eq!(printing.known(5, 1_000_000), (0, true), "it is older than all that is kept");
        let files = [printing.file("serial0.history"), printing.file("serial0.history.1")];
        assert!(files.iter().all(|length| *length <= MOST_BYTES), "{files:?}");
    }

    #[test]
    fn what_comes_before_bytes_that_could_not_be_kept_is_not_known() {
        let mut printing = Printing::new();
        printing.lines(1000);
        let path = printing.directory.path().join("serial0.history");
        printing.history.file = None;
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        printing.lines(1000);
        let end = printing.printed.len();
        assert_eq!(printing.known(0, end), (0, true));
        std::fs::remove_dir(&path).unwrap();
        printing.lines(1000);
        let later = printing.printed.len();
        assert_eq!(printing.known(0, later), (later - end, true), "since it could be kept again");
    }

    #[test]
    fn the_next_supervisor_begins_anew() {
        let mut printing = Printing::new();
        printing.lines(1_500_000);
        let mut next = History::new(printing.directory.path().join("serial0.history"));
        assert!(next.read(0, 0).is_empty());
        next.append(b"after");
        assert_eq!(next.read(0, 5), b"after");
        assert_eq!(next.read(0, 3), b"aft");
    }
}
