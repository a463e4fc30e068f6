//! What can go wrong between a command and the machines of this host.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use nix::unistd::Pid;

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
        /// The file system's error.
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
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The shim ended without a message.
    #[error("its garboard-shim ended with {ended} before the machine's processes ran")]
    Died {
        /// How it ended.
        ended: ExitStatus,
    },
    /// A directory without a launch request, in which something runs all the same.
    #[error(
        "{machine} has no launch request, so it cannot be cleared away while processes of the machine run ({}): end them first", list(running),
        machine = machine.display()
    )]
    NoRequest {
        /// The machine's directory.
        machine: PathBuf,
        /// Its processes.
        running: Vec<Pid>,
    },
    /// The shim's own message.
    #[error("{0}")]
    Shim(String),
}

impl ShimError {
    /// Whether a shim was executed: then it may have started something.
    #[must_use]
    pub fn is_of_shim(&self) -> bool {
        matches!(self, Self::Died { .. } | Self::Shim(_))
    }

    /// The file system refused `doing` with `path`.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { doing, path: path.to_owned(), source }
    }
}

fn list(processes: &[Pid]) -> String {
    processes.iter().map(Pid::to_string).collect::<Vec<_>>().join(", ")
}
