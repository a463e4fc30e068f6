//! The real kernel behind the traits of [`crate::seam`]: rtnetlink for links, the `nft` program for rules,
//! `/dev/net/tun` for taps.
//!
//! Not for decisions: each call is one step and its error names what it attempted.

mod devices;
mod links;
mod nft;
mod tool;

use std::path::PathBuf;
use std::time::Duration;

use crate::error::NetError;
use crate::netns::NetNs;

/// One namespace, entered: its netlink socket is open, so links can be changed without entering again.
#[derive(Debug)]
pub struct Kernel<'a> {
    namespace: &'a NetNs,
    netlink: rtnetlink::Handle,
    paths: Paths,
}

/// Files and programs that are used. The default is right everywhere; tests look at what is missing.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The nft program, a path or a name looked up in the system's directories.
    pub nft: String,
    /// The tun device.
    pub tun: PathBuf,
    /// The vhost-net device.
    pub vhost_net: PathBuf,
    /// How long one run of a program may take.
    pub tool_limit: Duration,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            nft: "nft".to_owned(),
            tun: PathBuf::from("/dev/net/tun"),
            vhost_net: PathBuf::from("/dev/vhost-net"),
            tool_limit: Duration::from_secs(20),
        }
    }
}

impl<'a> Kernel<'a> {
    /// Opens a netlink socket inside `namespace`. Call it within a tokio runtime with I/O and time enabled;
    /// the socket is served by a task that ends when this value is dropped.
    pub fn enter(namespace: &'a NetNs, paths: Paths) -> Result<Self, NetError> {
        let runtime = tokio::runtime::Handle::current();
        let opened = namespace.run(|| {
            let _entered = runtime.enter();
            rtnetlink::new_connection()
        })?;
        let (connection, netlink, _) =
            opened.map_err(|source| NetError::Netlink { doing: "open a netlink socket".to_owned(), source })?;
        tokio::spawn(connection);
        Ok(Self { namespace, netlink, paths })
    }

    /// The namespace.
    pub fn namespace(&self) -> &'a NetNs {
        self.namespace
    }
}
