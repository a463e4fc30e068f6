//! Taps, vhost-net and the guest's sockets.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::time::Instant;

use super::Kernel;
use crate::error::NetError;
use crate::names::LinkName;
use crate::seam::{Devices, Links, Service};
use crate::sys;

/// How long a tap may take to vanish after its holder did: descriptors are closed one after another, and a
/// child just being started holds copies until it executes its program.
const GRACE: Duration = Duration::from_millis(1000);
/// How often it is looked at meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl Kernel<'_> {
    /// Waits until there is no such link. Attaching to a tap with several queues would succeed, and steal
    /// frames from the process that holds it.
    async fn wait_until_free(&self, name: &LinkName) -> Result<(), NetError> {
        let started = Instant::now();
        while self.links().await?.iter().any(|link| link.name == name.as_str()) {
            if started.elapsed() >= GRACE {
                return Err(NetError::TapHeld { name: name.clone() });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }
}

impl Devices for Kernel<'_> {
    async fn open_tap(&self, name: &LinkName, queues: u16) -> Result<Vec<OwnedFd>, NetError> {
        self.wait_until_free(name).await?;
        let kind = if queues == 1 { sys::tap::Queues::One } else { sys::tap::Queues::Several };
        let open = || (0..queues).map(|_| sys::tap::open_queue(&self.paths.tun, name, kind)).collect();
        let opened: io::Result<Vec<OwnedFd>> = self.namespace.run(open)?;
        opened.map_err(|source| NetError::Tap { name: name.clone(), source })
    }

    async fn open_vhost(&self, queues: u16) -> Result<Vec<OwnedFd>, NetError> {
        let path = &self.paths.vhost_net;
        let open = |_| OpenOptions::new().read(true).write(true).open(path).map(OwnedFd::from);
        match (0..queues).map(open).collect::<io::Result<Vec<OwnedFd>>>() {
            Ok(opened) => Ok(opened),
            // No file: the module is not there. A file without a driver: it is not loaded.
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) if matches!(source.raw_os_error(), Some(nix::libc::ENXIO | nix::libc::ENODEV)) => {
                Ok(Vec::new())
            }
            Err(source) => Err(NetError::Vhost { path: path.clone(), source }),
        }
    }

    async fn open_socket(&self, kind: Service, bridge: &LinkName) -> Result<OwnedFd, NetError> {
        let started = Instant::now();
        loop {
            match self.namespace.run(|| open_socket(kind, bridge))? {
                // As with a tap: the process that held the port may just be ending.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && started.elapsed() < GRACE => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                opened => {
                    let bridge = bridge.clone();
                    return opened.map_err(|source| NetError::Socket { what: kind.name(), bridge, source });
                }
            }
        }
    }
}

fn open_socket(kind: Service, bridge: &LinkName) -> io::Result<OwnedFd> {
    match kind {
        Service::Dhcp4 => sys::socket::dhcp4(bridge),
        Service::Dhcp6 => sys::socket::dhcp6(bridge),
        Service::RouterAdvertisement => sys::socket::router_advertisement(bridge),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Paths;
    use super::*;
    use crate::netns::NetNs;
    use crate::testing::root_or_skip;

    async fn vhosts(path: &std::path::Path) -> Result<usize, NetError> {
        let namespace = NetNs::create().unwrap();
        let kernel = Kernel::enter(&namespace, Paths { vhost_net: path.to_owned(), ..Paths::default() }).unwrap();
        kernel.open_vhost(3).await.map(|opened| opened.len())
    }

    #[tokio::test]
    async fn vhost_net_is_opened_once_per_queue_where_it_exists() {
        if !root_or_skip("vhost_net_is_opened_once_per_queue_where_it_exists") {
            return;
        }
        // Any device that can be opened serves the test: what QEMU does with it is not ours.
        assert_eq!(vhosts("/dev/null".as_ref()).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_host_without_vhost_net_gives_none() {
        if !root_or_skip("a_host_without_vhost_net_gives_none") {
            return;
        }
        assert_eq!(vhosts("/dev/garboard-no-such-device".as_ref()).await.unwrap(), 0);
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(vhosts(directory.path()).await, Err(NetError::Vhost { .. })), "a directory is no absence");
    }
}
