//! Files and directories, with their names in the error.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::config::ConfigFile;
use crate::error::{Error, Result};

/// Adds the path to what went wrong.
pub fn at<T>(action: &'static str, path: &Path, outcome: io::Result<T>) -> Result<T> {
    outcome.map_err(|source| Error::File { action, path: path.to_owned(), source })
}

/// A directory and its parents.
///
/// # Errors
/// A parent that is no directory, no permission.
pub fn ensure_directory(path: &Path) -> Result<()> {
    at("make", path, fs::create_dir_all(path))
}

/// Writes a file, whole or not at all, with the directories above it.
///
/// # Errors
/// No permission, no room.
pub fn write(path: &Path, content: &str) -> Result<()> {
    write_as(0o666, path, content)
}

/// The same for keys, and what holds one: only its owner may read it, from the beginning.
///
/// # Errors
/// As [`write()`].
pub fn write_secret(path: &Path, content: &str) -> Result<()> {
    write_as(0o600, path, content)
}

/// `mode` is for a new file; the umask takes from it.
fn write_as(mode: u32, path: &Path, content: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        ensure_directory(parent)?;
    }
    let unfinished = unfinished(path);
    // One that is left of a command that was killed has a mode of its own.
    remove_file(&unfinished)?;
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&unfinished);
    at("write", &unfinished, opened.and_then(|mut file| file.write_all(content.as_bytes())))?;
    at("write", path, fs::rename(&unfinished, path))
}

/// Writes configuration files.
///
/// # Errors
/// As [`write()`].
pub fn write_all(files: impl IntoIterator<Item = ConfigFile>) -> Result<()> {
    files.into_iter().try_for_each(|file| write(&file.path, &file.content))
}

/// What a file holds.
///
/// # Errors
/// It is not there, or not text.
pub fn read(path: &Path) -> Result<String> {
    at("read", path, fs::read_to_string(path))
}

/// Removes a directory with all that is in it. One that is not there is fine.
///
/// # Errors
/// Something in it that cannot be removed.
pub fn remove_tree(path: &Path) -> Result<()> {
    tolerate(ErrorKind::NotFound, at("remove", path, fs::remove_dir_all(path)))
}

/// Removes a file. One that is not there is fine.
///
/// # Errors
/// No permission.
pub fn remove_file(path: &Path) -> Result<()> {
    tolerate(ErrorKind::NotFound, at("remove", path, fs::remove_file(path)))
}

/// Removes a directory if nothing is in it and it is there.
///
/// # Errors
/// No permission.
pub fn remove_if_empty(path: &Path) -> Result<()> {
    let removed = at("remove", path, fs::remove_dir(path));
    tolerate(ErrorKind::NotFound, tolerate(ErrorKind::DirectoryNotEmpty, removed))
}

/// The last lines of a file, or nothing.
pub fn tail(path: &Path, lines: usize) -> String {
    let content = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&content);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn tolerate(kind: ErrorKind, outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::File { source, .. }) if source.kind() == kind => Ok(()),
        other => other,
    }
}

/// Beside the file, so that it can be renamed.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_with_its_directories_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/file.toml");
        write(&path, "one").unwrap();
        write(&path, "two").unwrap();
        assert_eq!(read(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_secret_is_its_owners_whatever_was_left_there() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("owner.key");
        fs::write(unfinished(&path), "of a command that was killed").unwrap();
        write_secret(&path, "key").unwrap();
        assert_eq!(read(&path).unwrap(), "key");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_not_there_is_removed_already() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        remove_tree(&missing).unwrap();
        remove_file(&missing).unwrap();
        remove_if_empty(&missing).unwrap();
        write(&missing.join("file"), "").unwrap();
        remove_if_empty(&missing).unwrap();
        assert!(missing.exists());
    }

    #[test]
    fn the_tail_is_the_last_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        assert_eq!(tail(&path, 2), "");
        write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(tail(&path, 2), "two\nthree");
        assert_eq!(tail(&path, 9), "one\ntwo\nthree");
    }
}
