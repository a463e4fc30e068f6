//! Files that a command writes: the broker names them, opens them and gives QEMU the descriptor.
//!
//! A client that could name a file could have QEMU write over any that QEMU may write, the supervisor's journal for
//! one. So a client leaves the argument out, and the answer has it, with the path where the file is:
//! `{"filename": "…/screendump.png"}`. A later call of the same kind replaces the file: there is never more than one
//! of each name, however often a client asks.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::connection::Monitor;
use crate::result_set::{self, ResultSetError};

/// Why a result cannot have a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResultFileError {
    #[error("this broker has no directory for results")]
    NoDirectory,
    #[error("could not make {path}")]
    Create {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Offer(#[from] ResultSetError),
}

/// The argument by which a command would take the name of a file that it writes.
pub(super) fn argument_of(command: &str) -> Option<&'static str> {
    (command == "screendump").then_some("filename")
}

/// Name of the result of such a command. Follows from the format asked for, from a list: nothing of the client's gets
/// into it.
fn name_of(arguments: &Value) -> &'static str {
    match arguments["format"].as_str() {
        Some("png") => "screendump.png",
        _ => "screendump.ppm",
    }
}

/// A file that QEMU has been given to write into, until it is taken back.
pub(super) struct ResultFile {
    argument: &'static str,
    path: PathBuf,
    set: i64,
}

impl ResultFile {
    /// The file for the result of `command`; none where it writes none.
    pub(super) async fn offer(
        monitor: &Monitor,
        directory: Option<&Path>,
        command: &str,
        arguments: &Value,
    ) -> Result<Option<Self>, ResultFileError> {
        let Some(argument) = argument_of(command) else { return Ok(None) };
        let path = directory.ok_or(ResultFileError::NoDirectory)?.join(name_of(arguments));
        let file = create(&path).map_err(|source| ResultFileError::Create { path: path.clone(), source })?;
        let set = result_set::offer(monitor, file.into()).await?;
        Ok(Some(Self { argument, path, set }))
    }

    /// The client's arguments with the name under which QEMU finds the file.
    pub(super) fn in_arguments(&self, arguments: &Value) -> Value {
        let mut members = arguments.as_object().cloned().unwrap_or_default();
        members.insert(self.argument.to_owned(), result_set::path(self.set).into());
        Value::Object(members)
    }

    /// What the client is answered beside QEMU's own answer, which is empty.
    pub(super) fn answer(&self) -> Value {
        json!({ self.argument: self.path })
    }

    /// Takes the descriptor back from QEMU, which keeps its own while it still writes. A file without a result goes.
    pub(super) async fn take_back(self, monitor: &Monitor, has_result: bool) {
        result_set::take_back(monitor, self.set).await;
        if !has_result {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A new, empty file in the place of an earlier one; a link there is removed, never followed.
fn create(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // QEMU finds a descriptor of a set by its access mode: write only, as it opens results.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_nothing_of_the_clients() {
        assert_eq!(name_of(&json!({"format": "png"})), "screendump.png");
        assert_eq!(name_of(&json!({"format": "../journal.json"})), "screendump.ppm");
        assert_eq!(name_of(&Value::Null), "screendump.ppm");
    }

    #[test]
    fn a_link_in_the_place_of_a_result_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, place) = (directory.path().join("journal.json"), directory.path().join("screendump.ppm"));
        std::fs::write(&victim, "kept").unwrap();
        std::os::unix::fs::symlink(&victim, &place).unwrap();
        drop(create(&place).unwrap());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
        assert!(std::fs::symlink_metadata(&place).unwrap().is_file());
    }
}
