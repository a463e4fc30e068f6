//! PID 1 of the machine: receive a launch, confine, execute QEMU, reap, report.
//!
//! It is small and synchronous: one thread, one `poll(2)` loop, no async runtime. It is not the supervisor:
//! it handles nothing of disks, networks or QMP beyond the single `system_powerdown` it sends when SIGTERM
//! comes without an answer.
//!
//! ```text
//!   connect launch.sock ──► Launch + descriptors ──► helpers ──► confine ──► exec QEMU
//!          ▲   │ lost: again                                                    │
//!          └───┘                                                 SIGCHLD ◄──────┘──► exit.json, termination log, exit
//!   SIGTERM ──► supervisor there? ask it : power down by ourselves ──► grace over: SIGKILL
//! ```

mod account;
mod confine;
mod helper;
mod isolate;
mod last_resort;
mod link;
mod logs;
mod own;
mod spawn;
mod user_namespace;
mod watch;

use std::path::PathBuf;

use garboard_protocol::causes::ErrorChain;

pub use watch::run;

/// How PID 1 was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitOptions {
    /// The directory shared with the supervisor ([`garboard_protocol::paths::INIT_DIRECTORY`]).
    pub directory: PathBuf,
    /// Where Kubernetes reads the last output (`terminationMessagePath`).
    pub termination_log: Option<PathBuf>,
    /// On a bare host: build a root file system of its own before anything else.
    pub isolation: Isolation,
}

/// Whether PID 1 has to build its own view of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// A container runtime did, or none; leave everything as it is.
    Inherited,
    /// Only these host paths are visible, read-only.
    OwnRoot {
        /// Which process makes these namespaces.
        by: NamespacesBy,
        /// Host directories and files QEMU needs.
        readable: Vec<PathBuf>,
        /// Devices QEMU may open, for example `/dev/kvm`.
        devices: Vec<PathBuf>,
        /// Whose these devices are inside: they are created for this user and group ID, as a container runtime
        /// does, whatever the permissions of the host's are. `None`: the host's own nodes, with their permissions.
        device_owner: Option<u32>,
    },
}

/// Which process makes the namespaces of PID 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespacesBy {
    /// The shim is root and has made them.
    Shim,
    /// The shim is an ordinary user: PID 1 makes them in a user namespace of its own and writes
    /// [`garboard_protocol::namespaces::NamespaceReport`]s.
    UserNamespace,
}

/// What can go wrong before QEMU runs. Everything after that is an exit cause.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// A system call of the set-up failed.
    #[error("could not {action}")]
    System {
        /// What was being attempted.
        action: String,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// The supervisor uses another protocol.
    #[error("the supervisor's message could not be parsed")]
    Protocol {
        /// What was wrong with it.
        #[source]
        source: garboard_protocol::wire::WireError,
    },
}

impl InitError {
    pub(crate) fn system(action: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::System { action: action.into(), source: source.into() }
    }

    /// The error with its causes, for a place that takes only text.
    #[must_use]
    pub fn chain(&self) -> String {
        ErrorChain(self).to_string()
    }
}

impl InitOptions {
    /// Reads the command line: `DIRECTORY [--termination-log FILE] [--own-root | --user-namespace] [--readable PATH]…
    /// [--device PATH]… [--device-owner UID] [--uid UID]`. From the last one nothing follows: it is the instance's, for who looks for its process.
    ///
    /// # Errors
    /// A message that names the wrong argument.
    pub fn from_args(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = arguments;
        let mut directory = None;
        let mut termination_log = None;
        let mut own_root = None;
        let (mut readable, mut devices, mut device_owner) = (Vec::new(), Vec::new(), None);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--termination-log" => termination_log = Some(value()?.into()),
                "--readable" => readable.push(value()?.into()),
                "--device" => devices.push(value()?.into()),
                "--device-owner" => {
                    device_owner = Some(value()?.parse().map_err(|_| "--device-owner needs a user ID")?)
                }
                "--uid" => drop(value()?),
                "--own-root" => own_root = Some(NamespacesBy::Shim),
                "--user-namespace" => own_root = Some(NamespacesBy::UserNamespace),
                other if other.starts_with('-') => return Err(format!("unknown option {other}")),
                other => directory = Some(PathBuf::from(other)),
            }
        }
        let directory = directory.ok_or("the directory shared with the supervisor is missing")?;
        let isolation =
            own_root.map_or(Isolation::Inherited, |by| Isolation::OwnRoot { by, readable, devices, device_owner });
        Ok(Self { directory, termination_log, isolation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<InitOptions, String> {
        InitOptions::from_args(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn nothing_follows_from_the_uid_by_which_a_process_is_found() {
        let plain = read("/run/garboard/init --termination-log /dev/termination-log").unwrap();
        assert_eq!(read("/run/garboard/init --termination-log /dev/termination-log --uid u-1"), Ok(plain));
        assert_eq!(read("/run/garboard/init --uid"), Err("--uid needs a value".to_owned()));
        assert_eq!(read("/run/garboard/init --other"), Err("unknown option --other".to_owned()));
    }
}
