//! The namespaces of a machine whose keeper is an ordinary user: made in a user namespace of their own
//! (`user_namespaces(7)`), where the user stays who he is and nobody else exists.
//!
//! A PID namespace is entered by being born in it, so the process that makes the namespaces has a child and leaves; the
//! child is PID 1, and the keeper adopts it. What the keeper learns on standard output is a [`Report`].

use std::fmt;
use std::fs;
use std::io::Write;
use std::str::FromStr;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{ForkResult, Gid, Uid};

use super::InitError;
use crate::sys::fork::fork_single_threaded;

/// One line of what PID 1's start says to the keeper; it says both, in either order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// PID 1 is this process, as the keeper numbers processes.
    Pid(i32),
    /// It has its namespaces and its root.
    Ready,
    /// It cannot have them, and has ended: one sentence.
    Refused(String),
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => write!(formatter, "pid {pid}"),
            Self::Ready => formatter.write_str("ready"),
            Self::Refused(why) => write!(formatter, "refused {}", why.replace('\n', " ")),
        }
    }
}

impl FromStr for Report {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("ready", "") => Ok(Self::Ready),
            ("pid", pid) => pid.parse().map(Self::Pid).map_err(|_| format!("`{line}` names no process")),
            ("refused", why) => Ok(Self::Refused(why.to_owned())),
            _ => Err(format!("`{line}` is not what PID 1 says")),
        }
    }
}

/// Makes the namespaces and builds the root in them. Returns in PID 1; the process that was called ends here, and so
/// does PID 1 if it was refused something: the keeper is told, and starts another one without.
pub(super) fn enter(build_root: impl FnOnce() -> Result<(), InitError>) {
    if let Err(error) = make_namespaces().and_then(|()| be_born()).and_then(|()| build_root()) {
        tell(&Report::Refused(error.chain()));
        std::process::exit(1);
    }
    tell(&Report::Ready);
    // The keeper reads until nobody can say anything any more.
    if let Ok(null) = fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(null);
    }
}

fn make_namespaces() -> Result<(), InitError> {
    let (uid, gid) = (Uid::current(), Gid::current());
    let flags = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    unshare(flags).map_err(|errno| InitError::system("make a user namespace", errno))?;
    // Without this the kernel lets nobody but root map groups.
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", &format!("{gid} {gid} 1"))
}

fn write(path: &str, text: &str) -> Result<(), InitError> {
    fs::write(path, text).map_err(|error| InitError::system(format!("write {path}"), error))
}

fn be_born() -> Result<(), InitError> {
    match fork_single_threaded().map_err(|error| InitError::system("start PID 1", error))? {
        ForkResult::Child => Ok(()),
        ForkResult::Parent { child } => {
            tell(&Report::Pid(child.as_raw()));
            std::process::exit(0);
        }
    }
}

/// If the keeper is gone there is nobody to tell.
fn tell(report: &Report) {
    let _ = writeln!(std::io::stdout(), "{report}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for report in [Report::Pid(7), Report::Ready, Report::Refused("could not mount /proc: EPERM".to_owned())] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        for bad in ["", "pid", "pid x", "hello", "ready now"] {
            assert!(bad.parse::<Report>().is_err(), "{bad}");
        }
    }
}
