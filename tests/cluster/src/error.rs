//! What can go wrong on the way from and to the machine.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use crate::layout::LayoutError;

/// Anything that kept a command from being done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory.
    #[error("could not {action} {path}")]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A call to the kernel.
    #[error("could not {action}")]
    Kernel {
        /// What was tried, as a verb and its object.
        action: String,
        /// Why not.
        #[source]
        source: nix::Error,
    },
    /// A program that is not there.
    #[error("could not start `{command}`")]
    Start {
        /// With its arguments.
        command: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A program that failed.
    #[error("`{command}` ended with {status}: {stderr}")]
    Failed {
        /// With its arguments.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to standard error.
        stderr: String,
    },
    /// A certificate.
    #[error("could not make the certificate of {owner}")]
    Certificate {
        /// Its owner.
        owner: String,
        /// Why not.
        #[source]
        source: rcgen::Error,
    },
    /// A request to the API server got no answer.
    #[error("the API server did not answer {path}")]
    Api {
        /// Which request.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A file of the cluster that was changed.
    #[error("could not understand {what}")]
    Malformed {
        /// Which.
        what: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
    /// A state that did not come.
    #[error("{what} did not come within {} s; logs are below {logs}", .limit.as_secs())]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
        /// Where to look.
        logs: PathBuf,
    },
    /// A component ended by itself.
    #[error("{component} has ended; the end of {log}:\n{tail}")]
    Ended {
        /// Which.
        component: String,
        /// Where the rest is.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// A place that does not suit.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// What the machine's or the cluster's state does not allow.
    #[error("{0}")]
    Refused(String),
}

/// What most functions here return.
pub type Result<T> = std::result::Result<T, Error>;
