//! A network namespace as a value: a descriptor, never a path a tenant could have prepared.
//!
//! On a bare host the shim makes one and *pins* it: bind-mounts it at a path of its own choosing, so that
//! it is found again, and removed, after a crash. In a cluster the node agent is given a descriptor.
//! Work inside runs on a thread of its own that enters the namespace and ends with the work: the namespace
//! is a property of the thread, and no thread of a runtime may come back changed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::error::NetError;
use crate::sys::netns as sys;

/// A network namespace. It exists at least as long as this value, or a pin, or a process inside.
#[derive(Debug)]
pub struct NetNs {
    descriptor: OwnedFd,
    identity: sys::Identity,
}

impl NetNs {
    /// The namespace a descriptor refers to. The kernel is asked whether it is a network namespace at all.
    pub fn from_fd(descriptor: OwnedFd) -> Result<Self, NetError> {
        let identity = sys::identify(descriptor.as_fd())
            .map_err(failed("ask the kernel what the descriptor refers to"))?
            .ok_or(NetError::NotANamespace)?;
        Ok(Self { descriptor, identity })
    }

    /// The namespace this thread is in.
    pub fn current() -> Result<Self, NetError> {
        Self::from_fd(sys::open_current().map_err(failed("open the namespace of this process"))?)
    }

    /// A new namespace with nothing in it but `lo`, down.
    pub fn create() -> Result<Self, NetError> {
        let made = in_thread(|| {
            sys::unshare()?;
            sys::open_current()
        });
        Self::from_fd(made.and_then(|opened| opened).map_err(failed("make a network namespace"))?)
    }

    /// The namespace pinned at a path.
    pub fn open_pinned(path: &Path) -> Result<Self, NetError> {
        let opened = std::fs::File::open(path);
        Self::from_fd(opened.map_err(failed(&format!("open the namespace at {}", path.display())))?.into())
    }

    /// Bind-mounts this namespace at `path`, which is made if it is missing; its directory must exist and
    /// belong to the caller alone.
    pub fn pin(&self, path: &Path) -> Result<(), NetError> {
        sys::pin(self.as_fd(), path).map_err(failed(&format!("pin the namespace at {}", path.display())))
    }

    /// Whether this is the namespace the calling thread is in.
    pub fn is_current(&self) -> Result<bool, NetError> {
        Ok(self.identity == Self::current()?.identity)
    }

    /// Whether it belongs to the users of this process: one made inside another user's user namespace does not, and
    /// may hold what that user put there.
    pub fn is_of_our_users(&self) -> Result<bool, NetError> {
        sys::is_owned_by_ours(self.as_fd()).map_err(failed("ask the kernel who owns the network namespace"))
    }

    /// Runs `work` inside, on a thread of its own, and returns what it returns. Sockets and processes made
    /// there stay in this namespace. For short work: the caller waits.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetError> {
        in_thread(|| sys::enter(self.as_fd()).map(|()| work()))
            .and_then(|outcome| outcome)
            .map_err(failed("enter the network namespace"))
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl PartialEq for NetNs {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for NetNs {}

/// Removes a pin made by [`NetNs::pin`], also one a crash left half made. Absent is not an error.
pub fn unpin(path: &Path) -> Result<(), NetError> {
    sys::unpin(path).map_err(failed(&format!("unpin the namespace at {}", path.display())))
}

fn failed(doing: &str) -> impl FnOnce(io::Error) -> NetError {
    let doing = doing.to_owned();
    move |source| NetError::Namespace { doing, source }
}

fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, work)?;
        thread.join().map_err(|_| io::Error::other("the thread inside the namespace panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::root_or_skip;

    #[test]
    fn a_new_namespace_holds_only_a_loopback_link() {
        if !root_or_skip("a_new_namespace_holds_only_a_loopback_link") {
            return;
        }
        let namespace = NetNs::create().unwrap();
        assert!(!namespace.is_current().unwrap());
        let links = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
        assert_eq!(links.lines().filter(|line| line.contains(':')).count(), 1, "{links}");
        assert_eq!(namespace.run(|| NetNs::current().unwrap()).unwrap(), namespace);
    }

    #[test]
    fn a_pinned_namespace_is_found_again_and_removed_twice() {
        if !root_or_skip("a_pinned_namespace_is_found_again_and_removed_twice") {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("net");
        let namespace = NetNs::create().unwrap();
        namespace.pin(&path).unwrap();
        assert_eq!(NetNs::open_pinned(&path).unwrap(), namespace);
        namespace.pin(&path).unwrap();
        unpin(&path).unwrap();
        assert!(!path.exists());
        unpin(&path).unwrap();
    }

    #[test]
    fn a_pin_left_half_made_is_removed_too() {
        if !root_or_skip("a_pin_left_half_made_is_removed_too") {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("net");
        std::fs::write(&path, "").unwrap();
        assert!(matches!(NetNs::open_pinned(&path), Err(NetError::NotANamespace)));
        unpin(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn other_descriptors_are_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(matches!(NetNs::from_fd(file.into()), Err(NetError::NotANamespace)));
        let user = std::fs::File::open("/proc/thread-self/ns/user").unwrap();
        assert!(matches!(NetNs::from_fd(user.into()), Err(NetError::NotANamespace)));
    }

    #[test]
    fn a_namespace_of_other_users_is_recognised() {
        if !root_or_skip("a_namespace_of_other_users_is_recognised") {
            return;
        }
        assert!(NetNs::create().unwrap().is_of_our_users().unwrap());
        let theirs = in_thread(|| {
            // Only a process of its own may enter a user namespace.
            let mut child = std::process::Command::new("unshare")
                .args(["--user", "--net", "cat"])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()?;
            use std::io::{Read as _, Write as _};
            let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            // Its answer shows that it is there.
            to.write_all(b"x")?;
            from.read_exact(&mut [0])?;
            let opened = std::fs::File::open(format!("/proc/{}/ns/net", child.id()));
            drop(to);
            child.wait()?;
            opened
        });
        let Ok(Ok(theirs)) = theirs else {
            eprintln!("skipped: no user namespace can be made here");
            return;
        };
        assert!(!NetNs::from_fd(theirs.into()).unwrap().is_of_our_users().unwrap());
    }

    #[test]
    fn a_panic_inside_is_an_error_outside() {
        if !root_or_skip("a_panic_inside_is_an_error_outside") {
            return;
        }
        let namespace = NetNs::create().unwrap();
        assert!(namespace.run(|| -> u8 { panic!("on purpose") }).is_err());
    }
}
