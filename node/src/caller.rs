//! Who is calling: the connection says, never the payload.
//!
//! The kernel gives the process that connected (`SO_PEERCRED`, unix(7)), as a number, and numbers are used again. So the
//! process is pinned first: a descriptor of its directory in `/proc` belongs to that process for good, reading through it
//! fails once the process is gone, whoever has its number then. What remains is that the number had already been given to
//! another when the directory was opened. Linux 6.5 and later rule that out: `SO_PEERPIDFD` is the process that connected,
//! and as long as that lives its number is its own. On an older kernel a caller that ends between `connect` and `accept`,
//! and whose number is given to a process of another launcher pod in that time, would be taken for that one; it would
//! hold a connection that answers with taps in a network namespace it has no descriptor of, and take reports it has no
//! business to make. The agent accepts at once, so that the time is microseconds in which all process numbers of the
//! node would have to be used up.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use garboard_net::{NetError, NetNs};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::stat::Mode;
use tokio::net::UnixStream;

use crate::confine::looker::Looker;
use crate::identity::{IdentityError, PodUid, pod_of};

/// The longest account of control groups that is read, bytes.
const CGROUPS_MAX: u64 = 64 * 1024;

/// Why nobody knows who is calling.
#[derive(Debug, thiserror::Error)]
pub enum CallerError {
    /// The kernel does not tell, or the process is gone.
    #[error("could not {doing} the caller")]
    Unknown {
        /// What was being done.
        doing: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It lives in another PID namespace than this process, or has ended.
    #[error("the caller has ended, or is in no PID namespace that this process sees")]
    Gone,
    /// It is in no pod.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its network namespace cannot be looked at.
    #[error("could not look at the caller's network namespace")]
    Network(#[from] NetError),
}

/// A process that called.
#[derive(Debug)]
pub struct Caller {
    /// Its number.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// The pod it is in.
    pub pod: PodUid,
    /// Its directory in `/proc`.
    directory: OwnedFd,
    looker: Option<Looker>,
}

/// Where processes are looked up: `/proc`.
#[derive(Clone, Debug)]
pub struct Processes {
    root: PathBuf,
    looker: Option<Looker>,
}

impl Processes {
    /// Looks below this directory, which another one than `/proc` is for tests, by the rights of this process.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self { root: root.to_owned(), looker: None }
    }

    /// Looks in `/proc`, with the looker where rights are asked for.
    #[must_use]
    pub fn of_this_node(looker: Looker) -> Self {
        Self { root: "/proc".into(), looker: Some(looker) }
    }

    /// Finds out who connected.
    ///
    /// # Errors
    /// [`CallerError`].
    pub fn identify(&self, stream: &UnixStream) -> Result<Caller, CallerError> {
        let credentials = stream.peer_cred().map_err(unknown("ask the kernel for"))?;
        // 0 is a process of a namespace that is not below ours.
        let pid = credentials.pid().filter(|pid| *pid > 0).ok_or(CallerError::Gone)?;
        let handle = match getsockopt(stream, sockopt::PeerPidfd) {
            Ok(handle) => Some(handle),
            Err(Errno::ENOPROTOOPT) => None,
            // It has ended and was reaped.
            Err(Errno::ESRCH | Errno::EINVAL) => return Err(CallerError::Gone),
            Err(errno) => return Err(unknown("get a handle of")(errno.into())),
        };
        let directory = std::fs::File::open(self.root.join(pid.to_string())).map_err(unknown("look up"))?.into();
        if let Some(handle) = handle
            && has_ended(&handle).map_err(unknown("look at"))?
        {
            return Err(CallerError::Gone);
        }
        let cgroups = read(&directory, "cgroup").map_err(unknown("read the control groups of"))?;
        Ok(Caller { pid, uid: credentials.uid(), pod: pod_of(&cgroups)?, directory, looker: self.looker.clone() })
    }
}

impl Caller {
    /// The network namespace it is in.
    ///
    /// # Errors
    /// [`CallerError::Unknown`] if it has ended.
    pub fn network(&self) -> Result<NetNs, CallerError> {
        let opened = match &self.looker {
            Some(looker) => self.directory.try_clone().and_then(|directory| looker.network_of(directory)),
            None => open_network(&self.directory),
        };
        Ok(NetNs::from_fd(opened.map_err(unknown("open the network namespace of"))?)?)
    }
}

/// Opens the network namespace of the process whose directory that is, as far as the calling thread may.
pub(crate) fn open_network(directory: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(openat(directory, "ns/net", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// Whether the process of a pidfd has ended (pidfd_open(2): it is readable then).
fn has_ended(handle: &OwnedFd) -> io::Result<bool> {
    let mut watched = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut watched, PollTimeout::ZERO)? > 0)
}

fn read(directory: &OwnedFd, name: &str) -> io::Result<String> {
    let opened = openat(directory, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    std::fs::File::from(opened).take(CGROUPS_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn unknown(doing: &'static str) -> impl FnOnce(io::Error) -> CallerError {
    move |source| CallerError::Unknown { doing, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_outside_pods_is_nobody() {
        let (here, _there) = UnixStream::pair().unwrap();
        let error = Processes::below("/proc".as_ref()).identify(&here).unwrap_err();
        assert!(matches!(error, CallerError::Identity(_)), "{error:?}");
    }

    #[tokio::test]
    async fn the_pod_is_read_from_the_process_of_the_peer() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join(std::process::id().to_string());
        std::fs::create_dir_all(own.join("ns")).unwrap();
        let pod = crate::pods::tests::POD;
        std::fs::write(own.join("cgroup"), format!("0::/kubepods/pod{pod}/c\n")).unwrap();
        std::os::unix::fs::symlink("/proc/self/ns/net", own.join("ns/net")).unwrap();
        let (here, _there) = UnixStream::pair().unwrap();
        let caller = Processes::below(root.path()).identify(&here).unwrap();
        assert_eq!((caller.pod.as_str(), caller.pid.unsigned_abs()), (pod, std::process::id()));
        assert!(caller.network().unwrap().is_current().unwrap());
    }

    #[tokio::test]
    async fn a_caller_that_has_ended_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let Ok(mut child) = std::process::Command::new("python3")
            .args(["-c", "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"])
            .arg(&path)
            .spawn()
        else {
            eprintln!("skipped: no python3 here");
            return;
        };
        child.wait().unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let error = Processes::below("/proc".as_ref()).identify(&stream).unwrap_err();
        assert!(matches!(error, CallerError::Gone | CallerError::Unknown { .. }), "{error:?}");
    }
}
