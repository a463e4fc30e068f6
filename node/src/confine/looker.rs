//! Finding out which network namespace a caller is in, without the power to look at every process of the node.
//!
//! `/proc/PID/ns/net` opens for whoever might debug the process: somebody with `CAP_SYS_PTRACE`, who may then take over any
//! process of the node, or the process's own user, if it has no more capabilities than they. Launchers are user 107
//! without capabilities. So one thread looks as that user, and has no capabilities either.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc;

use caps::CapSet;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use crate::caller::open_network;

/// User and group of launchers.
pub const LAUNCHERS: u32 = 107;

type Question = (OwnedFd, mpsc::Sender<io::Result<OwnedFd>>);

/// The thread that looks; it ends with the last of these.
#[derive(Clone, Debug)]
pub struct Looker {
    questions: mpsc::Sender<Question>,
}

impl Looker {
    /// Starts the thread. Needs `CAP_SETUID` and `CAP_SETGID`, or to be that user.
    ///
    /// # Errors
    /// It cannot be started or cannot become that user.
    pub fn start() -> io::Result<Self> {
        let (questions, asked) = mpsc::channel::<Question>();
        let (tell, ready) = mpsc::channel();
        std::thread::Builder::new().name("looker".to_owned()).spawn(move || {
            if tell.send(become_launcher()).is_err() {
                return;
            }
            for (directory, answer) in asked {
                // Nobody waits any more: nobody needs it.
                let _ = answer.send(open_network(&directory));
            }
        })?;
        ready.recv().map_err(io::Error::other)??;
        Ok(Self { questions })
    }

    /// Opens the network namespace of the process whose directory in `/proc` that is.
    ///
    /// # Errors
    /// The process has ended, or is not a launcher's.
    pub fn network_of(&self, directory: OwnedFd) -> io::Result<OwnedFd> {
        let (answer, answered) = mpsc::channel();
        self.questions.send((directory, answer)).map_err(io::Error::other)?;
        answered.recv().map_err(io::Error::other)?
    }
}

/// For access to files this thread is a launcher; capabilities go with it.
fn become_launcher() -> io::Result<()> {
    let (user, group) = (Uid::from_raw(LAUNCHERS), Gid::from_raw(LAUNCHERS));
    setfsgid(group);
    setfsuid(user);
    // These calls tell nothing but what was before: asked again, they tell whether it worked.
    if setfsgid(group) != group || setfsuid(user) != user {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    fn look_at(user: u32) -> Option<io::Result<OwnedFd>> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let mut child = Command::new("cat").uid(user).gid(user).stdin(Stdio::piped()).spawn().unwrap();
        let directory = std::fs::File::open(format!("/proc/{}", child.id())).unwrap();
        let looked = Looker::start().unwrap().network_of(directory.into());
        drop(child.stdin.take());
        child.wait().unwrap();
        Some(looked)
    }

    #[test]
    fn a_launchers_namespace_opens() {
        if let Some(looked) = look_at(LAUNCHERS) {
            looked.unwrap();
        }
    }

    #[test]
    fn nobody_elses_does() {
        for user in [0, 1000] {
            if let Some(looked) = look_at(user) {
                assert_eq!(looked.unwrap_err().kind(), io::ErrorKind::PermissionDenied, "user {user}");
            }
        }
    }
}
