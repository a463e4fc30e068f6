//! What can go wrong while plumbing. Texts name the thing and, where the user can do something, what to do;
//! the cause is the source and not repeated.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::names::LinkName;
use crate::plan::NetPlanError;
use crate::undo::UndoFailure;

/// Plumbing failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The plan cannot be carried out in this namespace.
    #[error(transparent)]
    Plan(#[from] NetPlanError),
    /// Something with a network namespace itself.
    #[error("could not {doing}")]
    Namespace {
        /// What was attempted.
        doing: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The descriptor given is something else.
    #[error("the descriptor is not a network namespace")]
    NotANamespace,
    /// The namespace given is the caller's own.
    #[error("interfaces are not created in the namespace of this process: a VM needs a namespace of its own")]
    OwnNamespace,
    /// The kernel refused a change of links, addresses or routes.
    #[error("could not {doing}")]
    Netlink {
        /// What was attempted, on what.
        doing: String,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A network setting could not be read or written.
    #[error("could not access {path}")]
    Sysctl {
        /// The file below `/proc/sys/net`.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A program could not be started.
    #[error("could not run `{program}`; on Debian: apt-get install {package}")]
    ToolMissing {
        /// The program.
        program: String,
        /// Package that brings it.
        package: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A program ended with an error.
    #[error("`{program}` failed to {doing}: {message}")]
    ToolFailed {
        /// The program.
        program: String,
        /// What for it ran.
        doing: String,
        /// The beginning of what it wrote to stderr, escaped.
        message: String,
    },
    /// A program did not end in time and was killed.
    #[error("`{program}` did not {doing} within {} s", after.as_secs())]
    ToolHung {
        /// The program.
        program: String,
        /// What for it ran.
        doing: String,
        /// The limit.
        after: Duration,
    },
    /// A program answered something that differs from its manual.
    #[error("the answer of `{program}` could not be read")]
    ToolAnswer {
        /// The program.
        program: String,
        /// Where it went wrong.
        #[source]
        source: serde_json::Error,
    },
    /// No tap could be made.
    #[error("could not create the tap `{name}`; check that /dev/net/tun exists and the module `tun` is loaded")]
    Tap {
        /// Its name.
        name: LinkName,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The tap exists: some process, likely a running QEMU, holds its descriptors.
    #[error("the tap `{name}` exists already; a running process holds it, stop that VM first")]
    TapHeld {
        /// Its name.
        name: LinkName,
    },
    /// vhost-net is there but cannot be opened.
    #[error("could not open {path}")]
    Vhost {
        /// The device.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A socket for the guest's DHCP or router discovery could not be made.
    #[error("could not open the {what} socket on `{bridge}`")]
    Socket {
        /// Which socket.
        what: &'static str,
        /// The bridge it listens on.
        bridge: LinkName,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A link of the required name belongs to another owner.
    #[error("the link `{name}` is not Garboard's (its alias is {alias:?}, expected {expected:?}); remove or rename it")]
    LinkTaken {
        /// The link.
        name: LinkName,
        /// The alias it has.
        alias: Option<String>,
        /// The alias ours has.
        expected: String,
    },
    /// The link has another kind than the one we make.
    #[error("the link `{name}` exists but is of kind {kind:?}, not {expected}; remove or rename it")]
    LinkKind {
        /// The link.
        name: LinkName,
        /// Its kind.
        kind: Option<String>,
        /// Ours.
        expected: &'static str,
    },
    /// Every network of the pool overlaps something of this host.
    #[error("no link network is free: this host uses all of 169.254.0.0/16 or a route hides it")]
    PoolEmpty,
    /// A step failed, and not everything that had been done before could be taken back.
    #[error("the network could not be created, and a part of it is left: {}", left_text(left))]
    Undone {
        /// The step's error.
        #[source]
        cause: Box<NetError>,
        /// What could not be taken back.
        left: Vec<UndoFailure>,
    },
}

fn left_text(left: &[UndoFailure]) -> String {
    let texts: Vec<String> = left.iter().map(UndoFailure::to_string).collect();
    texts.join("; ")
}

impl NetError {
    /// The error of the step itself, without the report about taking back.
    pub fn cause(&self) -> &NetError {
        let mut error = self;
        while let Self::Undone { cause, .. } = error {
            error = cause;
        }
        error
    }

    /// What could not be taken back after the failure; empty if all is as before.
    pub fn left(&self) -> &[UndoFailure] {
        if let Self::Undone { left, .. } = self { left } else { &[] }
    }
}
