//! Keeping the journal: replaced as a whole, so that a reader never sees half of it.

use std::io::Write;
use std::path::{Path, PathBuf};

use garboard_protocol::PROTOCOL_VERSION;
use garboard_protocol::journal::Journal;
use garboard_protocol::paths;
use garboard_storage::beneath::BeneathPath;
use garboard_storage::open::{Dir, Links, OpenError};

/// Longest journal that is read, bytes; one with a hundred taints has 20 KiB.
const MAX_BYTES: u64 = 1 << 20;

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It is there but not ours to read.
    #[error("the journal {path} cannot be read; if QEMU is gone, remove the file", path = path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: std::io::Error,
    },
    /// A newer supervisor wrote it.
    #[error(
        "the journal was written by a supervisor of protocol version {found}, this one supports {PROTOCOL_VERSION}"
    )]
    TooNew {
        /// Its version.
        found: u32,
    },
}

/// Reads the journal of an earlier supervisor; `None` if there was none.
///
/// # Errors
/// [`JournalError`] if there is one and it cannot be understood: guessing could start a second QEMU.
pub fn read(shared: &Path) -> Result<Option<Journal>, JournalError> {
    let path = shared.join(paths::JOURNAL);
    let unreadable = |source: std::io::Error| JournalError::Unreadable { path: path.clone(), source };
    // A shim that is root reads it too, from a directory where the machine's user writes.
    let read = BeneathPath::parse(paths::JOURNAL)
        .map_err(|error| unreadable(std::io::Error::other(error)))
        .map(|name| Dir::open(shared).and_then(|directory| directory.read_file(&name, Links::Refused, MAX_BYTES)))?;
    let bytes = match read {
        Err(OpenError::Missing { .. }) => return Ok(None),
        other => other.map_err(|error| unreadable(std::io::Error::other(error)))?,
    };
    let journal: Journal = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.into()))?;
    if journal.version > PROTOCOL_VERSION {
        return Err(JournalError::TooNew { found: journal.version });
    }
    Ok(Some(journal))
}

/// Replaces a file of the shared directory as a whole.
///
/// # Errors
/// The file system's error.
pub fn replace(shared: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let fresh = shared.join(format!("{name}.new"));
    let mut file = std::fs::File::create(&fresh)?;
    file.write_all(bytes)?;
    std::fs::rename(&fresh, shared.join(name))
}

/// Writes the journal and answers whether it was written. A full disk must not stop a machine that runs: the failure is
/// logged, and the next change tries again.
pub fn write(shared: &Path, journal: &Journal) -> bool {
    let written = serde_json::to_vec(journal)
        .map_err(std::io::Error::from)
        .and_then(|bytes| replace(shared, paths::JOURNAL, &bytes));
    if let Err(error) = &written {
        tracing::error!(%error, "could not write the journal; a restart of the supervisor now would lose this event");
    }
    written.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()).unwrap(), None);
        let journal = Journal { version: PROTOCOL_VERSION, launched: true, resets: 3, ..Journal::default() };
        assert!(write(directory.path(), &journal));
        assert_eq!(read(directory.path()).unwrap(), Some(journal));
    }

    #[test]
    fn a_broken_or_newer_journal_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(paths::JOURNAL), b"{").unwrap();
        assert!(matches!(read(directory.path()), Err(JournalError::Unreadable { .. })));
        std::fs::write(directory.path().join(paths::JOURNAL), b"{\"version\":99}").unwrap();
        assert!(matches!(read(directory.path()), Err(JournalError::TooNew { found: 99 })));
    }
}
