//! The caller of a connection: the connection identifies it, never the payload.
//!
//! The kernel gives the process that connected (`SO_PEERCRED`, unix(7)), as a number, and numbers are used again. So the
//! process is pinned first: a descriptor of its directory in `/proc` belongs to that process for good, reading through it
//! fails once the process is gone, even if another process has its number then. One gap remains: the number may already
//! belong to another process when the directory is opened. Linux 6.5 and later close it: `SO_PEERPIDFD` is the process that
//! connected, and as long as that process lives its number is its own. On an older kernel a caller that ends between `connect` and `accept`,
//! and whose number is given to a process of another launcher pod in that time, would be taken for that one; it would
//! hold a connection that answers with taps in a network namespace it has no descriptor of, and its reports would be taken
//! for that pod's. The agent accepts at once, so that the time is microseconds in which all process numbers of the
//! node would have to be used up.
//!
//! Which network namespace a process is in is compared, not opened: `/proc/PID/ns/net` is only for callers that may debug the
//! process. `/proc/PID/net` shows, to every caller, the files of the namespace that the process is in; each namespace has files
//! of its own, so that one of them is the same file exactly where the namespace is the same.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use garboard_api::defaults::RUNTIME_USER;
use garboard_net::{NetError, NetNs};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::stat::{FileStat, Mode, fstatat, stat};
use nix::unistd::geteuid;
use tokio::net::UnixStream;

use crate::identity::{IdentityError, KubeletRoot, PodUid};

/// A file that each network namespace has of its own, below a process's directory.
const OF_ITS_NETWORK: &str = "net/dev";

/// The longest `/proc/PID/cgroup` that is read, bytes.
const CGROUPS_MAX: u64 = 64 * 1024;

/// Why the caller is unknown.
#[derive(Debug, thiserror::Error)]
pub enum CallerError {
    /// The kernel gives no answer.
    #[error("could not {doing} the caller")]
    Unknown {
        /// What was being done.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The caller is in another PID namespace than this process, or has ended.
    #[error("the caller has ended, or is in a PID namespace that this process does not see")]
    Gone,
    /// The caller runs as another user than launchers do.
    #[error("the caller has user ID {0}; launchers have {wanted}", wanted = RUNTIME_USER)]
    User(u32),
    /// The caller is in no pod.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The namespace that the caller's is compared with cannot be looked at.
    #[error("could not compare the caller's network namespace")]
    Network(#[from] NetError),
    /// This process itself cannot be looked at.
    #[error("could not read the agent's own control groups")]
    Own(#[source] io::Error),
}

/// A process that has connected.
#[derive(Debug)]
pub struct Caller {
    /// Its process ID.
    pub pid: i32,
    /// Its user ID.
    pub uid: u32,
    /// The pod it is in.
    pub pod: PodUid,
    /// Its directory in `/proc`.
    directory: OwnedFd,
}

/// Where processes are looked up: `/proc`.
#[derive(Clone, Debug)]
pub struct Processes {
    root: PathBuf,
    kubelet: KubeletRoot,
    /// The user ID of callers that are served.
    user: u32,
}

impl Processes {
    /// Looks below this directory, which another one than `/proc` is for tests, for callers of this process's own user.
    ///
    /// # Errors
    /// As [`Self::of_this_node`].
    pub fn below(root: &Path) -> Result<Self, CallerError> {
        let own = std::fs::read_to_string(root.join("self/cgroup")).map_err(CallerError::Own)?;
        Ok(Self { root: root.to_owned(), kubelet: KubeletRoot::of(&own)?, user: geteuid().as_raw() })
    }

    /// Looks in `/proc`, for launchers.
    ///
    /// # Errors
    /// [`CallerError::Own`], and [`CallerError::Identity`] if this process's own control groups cannot be parsed.
    pub fn of_this_node() -> Result<Self, CallerError> {
        Ok(Self { user: RUNTIME_USER, ..Self::below("/proc".as_ref())? })
    }

    /// Finds out which process connected.
    ///
    /// # Errors
    /// [`CallerError`].
    pub fn identify(&self, stream: &UnixStream) -> Result<Caller, CallerError> {
        let credentials = stream.peer_cred().map_err(unknown("ask the kernel for"))?;
        if credentials.uid() != self.user {
            return Err(CallerError::User(credentials.uid()));
        }
        // 0 is a process of a PID namespace that is not below this one.
        let pid = credentials.pid().filter(|pid| *pid > 0).ok_or(CallerError::Gone)?;
        let handle = match getsockopt(stream, sockopt::PeerPidfd) {
            Ok(handle) => Some(handle),
            Err(Errno::ENOPROTOOPT) => None,
            // It has ended and was reaped.
            Err(Errno::ESRCH | Errno::EINVAL) => return Err(CallerError::Gone),
            Err(errno) => return Err(unknown("get a handle of")(errno.into())),
        };
        let directory = std::fs::File::open(self.root.join(pid.to_string())).map_err(failed("look up"))?.into();
        if let Some(handle) = handle
            && has_ended(&handle).map_err(unknown("look at"))?
        {
            return Err(CallerError::Gone);
        }
        let cgroups = read(&directory, "cgroup").map_err(failed("read the control groups of"))?;
        Ok(Caller { pid, uid: credentials.uid(), pod: self.kubelet.pod_of(&cgroups)?, directory })
    }
}

impl Caller {
    /// Whether the caller is in that network namespace.
    ///
    /// # Errors
    /// [`CallerError::Gone`] if the caller has ended, [`CallerError::Network`] if the namespace cannot be entered.
    pub fn is_in(&self, namespace: &NetNs) -> Result<bool, CallerError> {
        let theirs = fstatat(&self.directory, OF_ITS_NETWORK, nix::fcntl::AtFlags::empty());
        let theirs = theirs.map_err(|errno| failed("look at the network of")(errno.into()))?;
        let given = namespace.run(|| stat(&Path::new("/proc/thread-self").join(OF_ITS_NETWORK)))?;
        let given = given.map_err(|errno| unknown("look at the network handed over by")(errno.into()))?;
        Ok(identity(&theirs) == identity(&given))
    }
}

/// Equal exactly for the same file.
fn identity(file: &FileStat) -> (u64, u64) {
    (file.st_dev, file.st_ino)
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

/// Why a file of the caller in `/proc` could not be read. Of a process that has ended, none is there (proc(5)).
fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> CallerError {
    move |source| match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ESRCH) => CallerError::Gone,
        _ => unknown(doing)(source),
    }
}

fn unknown(doing: &'static str) -> impl FnOnce(io::Error) -> CallerError {
    move |source| CallerError::Unknown { doing, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of processes that has this one, in a pod of the kubelet that it is in itself.
    fn processes() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join(std::process::id().to_string());
        std::fs::create_dir_all(&own).unwrap();
        let pod = crate::pods::tests::POD;
        std::fs::write(own.join("cgroup"), format!("0::/kubepods/pod{pod}/c\n")).unwrap();
        std::os::unix::fs::symlink("/proc/self/net", own.join("net")).unwrap();
        std::os::unix::fs::symlink(&own, root.path().join("self")).unwrap();
        root
    }

    #[tokio::test]
    async fn a_process_outside_pods_is_nobody() {
        let (here, _there) = UnixStream::pair().unwrap();
        let error = Processes::below("/proc".as_ref()).unwrap().identify(&here).unwrap_err();
        assert!(matches!(error, CallerError::Identity(_)), "{error:?}");
    }

    #[tokio::test]
    async fn the_pod_is_read_from_the_process_of_the_peer() {
        let root = processes();
        let (here, _there) = UnixStream::pair().unwrap();
        let caller = Processes::below(root.path()).unwrap().identify(&here).unwrap();
        let pod = crate::pods::tests::POD;
        assert_eq!((caller.pod.as_str(), caller.pid.unsigned_abs()), (pod, std::process::id()));
    }

    #[tokio::test]
    async fn its_network_is_distinguished_from_others() {
        if !geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let root = processes();
        let (here, _there) = UnixStream::pair().unwrap();
        let caller = Processes::below(root.path()).unwrap().identify(&here).unwrap();
        assert!(caller.is_in(&NetNs::current().unwrap()).unwrap());
        assert!(!caller.is_in(&NetNs::create().unwrap()).unwrap());
    }

    #[tokio::test]
    async fn another_user_is_no_launcher() {
        let root = processes();
        let (here, _there) = UnixStream::pair().unwrap();
        let processes = Processes { user: geteuid().as_raw() + 1, ..Processes::below(root.path()).unwrap() };
        let error = processes.identify(&here).unwrap_err();
        assert!(matches!(error, CallerError::User(_)), "{error:?}");
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
        let error = Processes::below("/proc".as_ref()).unwrap().identify(&stream).unwrap_err();
        assert!(matches!(error, CallerError::Gone), "{error:?}");
    }
}
