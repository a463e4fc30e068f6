//! Giving up, at the start, the privileges that the agent does not use. Its container is privileged, because only such a
//! container may open the node's devices; what is given up never comes back.
//!
//! | kept | for |
//! | --- | --- |
//! | `CAP_SYS_ADMIN` | entering the network namespace that a launcher hands over (setns(2)), and nothing else: see `filter` |
//! | `CAP_NET_ADMIN` | bridges, taps, addresses, nftables and `/proc/sys/net` in there |
//! | `CAP_NET_RAW` | the socket for router advertisements, and binding sockets to the guest's bridge |
//! | `CAP_NET_BIND_SERVICE` | DHCP's ports, 67 and 547 |
//!
//! Root can open nearly every file without any capability: so the agent has a `/dev` with three devices (`devices`)
//! and, where the kernel has Landlock, the files of `files` alone.
//!
//! It does not keep `CAP_SYS_PTRACE`, which would give it every process of the node: callers are looked at from outside
//! ([`crate::caller`]).

mod devices;
mod files;
mod filter;

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

pub use files::{Directories, Enforced, HeldPaths};

/// What is used.
const KEPT: [Capability; 4] =
    [Capability::CAP_SYS_ADMIN, Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_NET_BIND_SERVICE];

/// Privileges could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Limits of this process.
    #[error("could not raise the number of descriptors")]
    Limit(#[source] nix::Error),
    /// A `/dev` of its own.
    #[error("could not mount a /dev with only the agent's devices")]
    Devices(#[source] nix::Error),
    /// Names in it.
    #[error("could not create the mount points of the agent's devices")]
    Places(#[source] std::io::Error),
    /// Files.
    #[error("could not restrict files with Landlock")]
    Files(#[from] landlock::RulesetError),
    /// Capabilities.
    #[error("could not drop capabilities")]
    Capabilities(#[from] caps::errors::CapsError),
    /// System calls.
    #[error("could not restrict system calls")]
    Filter(#[from] seccompiler::Error),
    /// The filter itself.
    #[error("the filter of system calls cannot be compiled")]
    Rules(#[from] seccompiler::BackendError),
}

/// Gives up what is not used, for good: of this thread and all that it starts. To be called before there are others.
///
/// What it returns belongs to the process for as long as it runs.
///
/// # Errors
/// [`ConfineError`]; then the agent is not to run.
pub fn confine(directories: Directories<'_>) -> Result<(Enforced, HeldPaths), ConfineError> {
    // Two descriptors for each connection, and a start may need hundreds for a guest with many queues.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(ConfineError::Limit)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(ConfineError::Limit)?;
    let kept: CapsHashSet = KEPT.iter().copied().collect();
    bound(&kept)?;
    // Before Landlock, under which nothing is mounted.
    devices::keep()?;
    let files = files::restrict(directories)?;
    keep(&kept)?;
    filter::apply()?;
    Ok(files)
}

/// Programs started as root get no more than the bounding set has.
fn bound(kept: &CapsHashSet) -> Result<(), caps::errors::CapsError> {
    let mut others = caps::runtime::thread_all_supported();
    others.retain(|each| !kept.contains(each));
    others.into_iter().try_for_each(|other| caps::drop(None, CapSet::Bounding, other))
}

/// Gives up the other capabilities of this thread.
fn keep(kept: &CapsHashSet) -> Result<(), caps::errors::CapsError> {
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    // In this order: what is effective has to be permitted.
    caps::set(None, CapSet::Effective, kept)?;
    caps::set(None, CapSet::Permitted, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_gone_from_every_set() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        // A thread of its own: others of this test program keep theirs.
        let status = std::thread::spawn(|| {
            let kept = CapsHashSet::from([Capability::CAP_NET_ADMIN]);
            bound(&kept).unwrap();
            keep(&kept).unwrap();
            std::fs::read_to_string("/proc/thread-self/status").unwrap()
        });
        let status = status.join().unwrap();
        for (set, bits) in [("CapInh", 0), ("CapPrm", 1 << 12), ("CapEff", 1 << 12), ("CapBnd", 1 << 12), ("CapAmb", 0)]
        {
            assert!(status.contains(&format!("{set}:\t{bits:016x}")), "{set}: {status}");
        }
    }
}
