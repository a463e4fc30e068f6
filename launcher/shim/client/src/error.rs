//! What can go wrong between a command and the machines of this host.

use std::io;
use std::path::{Path, PathBuf};

/// Why a machine of this host could not be found, started or cleared away.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// The file system refused something.
    #[error("{doing} {path}", path = path.display())]
    File {
        /// A verb, as `read`.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the file system says.
        #[source]
        source: io::Error,
    },
    /// A document of a machine could not be written as JSON, or read.
    #[error("{path} is of another version of garboard", path = path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// An ordinary user without a home.
    #[error("HOME is not set, so there is no place for state and images")]
    NoHome,
    /// A directory in `/tmp` that another user could exchange.
    #[error("{path} is not a directory that only this user writes to; set XDG_RUNTIME_DIR or GARBOARD_RUNTIME_DIR", path = path.display())]
    NotOurs {
        /// The directory.
        path: PathBuf,
    },
    /// One of our programs is not installed.
    #[error("{name} is missing; it belongs beside {own}", own = own.display())]
    MissingProgram {
        /// Its name.
        name: &'static str,
        /// The program that looked for it.
        own: PathBuf,
    },
    /// A program could not be executed, or its output not be read.
    #[error("execute {program}", program = program.display())]
    Execute {
        /// Its path.
        program: PathBuf,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// The shim's own sentence.
    #[error("{0}")]
    Shim(String),
}

impl ShimError {
    /// The file system refused `doing` with `path`.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { doing, path: path.to_owned(), source }
    }
}
