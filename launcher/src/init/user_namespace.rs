//! The namespaces of a machine whose shim is an ordinary user: made in a user namespace of their own
//! (`user_namespaces(7)`), where the user keeps its ID and no other user exists.
//!
//! A PID namespace is entered by being born in it, so the process that makes the namespaces has a child and leaves; the
//! child is PID 1, and the shim adopts it. What the shim learns on standard output is a [`NamespaceReport`].

use std::fs;
use std::io::Write;

use garboard_protocol::namespaces::NamespaceReport;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{ForkResult, Gid, Uid};

use super::InitError;
use crate::sys::fork::fork_single_threaded;

/// Makes the namespaces and builds the root in them. Returns in PID 1; the process that was called ends here, and so
/// does PID 1 if it was refused something: the shim gets a report, and starts another one without.
pub(super) fn enter(build_root: impl FnOnce() -> Result<(), InitError>) {
    if let Err(error) = make_namespaces().and_then(|()| be_born()).and_then(|()| build_root()) {
        write_report(&NamespaceReport::Refused(error.chain()));
        std::process::exit(1);
    }
    write_report(&NamespaceReport::Ready);
    // The shim reads until the last writer is gone.
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
    // Without this the kernel lets only root map groups.
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
            write_report(&NamespaceReport::Pid(child.as_raw()));
            std::process::exit(0);
        }
    }
}

/// A shim that is gone gets no report.
fn write_report(report: &NamespaceReport) {
    let _ = writeln!(std::io::stdout(), "{report}");
}
