//! A namespace whose n-th change fails, for tests of what is taken back.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ipnet::IpNet;

use crate::error::NetError;
use crate::names::{EthernetAddress, LinkName};
use crate::observed::{Link, LinkAddress, Route};
use crate::plan::ruleset::Ruleset;
use crate::seam::{Devices, LinkChange, Links, Nft, Outline, Service, Sysctl};

/// Wraps a namespace: looking always works, the n-th change fails (once: what is taken back afterwards
/// works again). Clones of the counter may be shared between two namespaces.
#[derive(Debug)]
pub struct Faulty<N> {
    inner: N,
    left: Arc<AtomicUsize>,
    kind: io::ErrorKind,
}

impl<N> Faulty<N> {
    /// Lets `left` hold how many changes still succeed.
    pub fn new(inner: N, left: Arc<AtomicUsize>) -> Self {
        Self { inner, left, kind: io::ErrorKind::Other }
    }

    /// What the failure is called.
    #[must_use]
    pub fn failing_as(self, kind: io::ErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// The namespace itself.
    pub fn inner(&self) -> &N {
        &self.inner
    }

    fn pass(&self) -> Result<(), NetError> {
        // Below zero it wraps to a number no test reaches, so exactly one change fails.
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            let source = io::Error::new(self.kind, "injected");
            return Err(NetError::Netlink { doing: "make this change".to_owned(), source });
        }
        Ok(())
    }
}

impl<N: Links> Links for Faulty<N> {
    async fn links(&self) -> Result<Vec<Link>, NetError> {
        self.inner.links().await
    }

    async fn addresses(&self) -> Result<Vec<LinkAddress>, NetError> {
        self.inner.addresses().await
    }

    async fn routes(&self) -> Result<Vec<Route>, NetError> {
        self.inner.routes().await
    }

    async fn add_bridge(&self, name: &LinkName, mac: EthernetAddress, mtu: u16) -> Result<(), NetError> {
        self.pass()?;
        self.inner.add_bridge(name, mac, mtu).await
    }

    async fn add_veth(&self, name: &LinkName, there: &Self, peer: &LinkName, mtu: u16) -> Result<(), NetError> {
        self.pass()?;
        self.inner.add_veth(name, &there.inner, peer, mtu).await
    }

    async fn delete_link(&self, name: &LinkName) -> Result<(), NetError> {
        self.pass()?;
        self.inner.delete_link(name).await
    }

    async fn change_link(&self, name: &LinkName, change: &LinkChange) -> Result<(), NetError> {
        self.pass()?;
        self.inner.change_link(name, change).await
    }

    async fn add_address(&self, link: &LinkName, address: IpNet) -> Result<(), NetError> {
        self.pass()?;
        self.inner.add_address(link, address).await
    }

    async fn delete_address(&self, link: &LinkName, address: IpNet) -> Result<(), NetError> {
        self.pass()?;
        self.inner.delete_address(link, address).await
    }

    async fn add_route(&self, route: &Route) -> Result<(), NetError> {
        self.pass()?;
        self.inner.add_route(route).await
    }

    async fn setting(&self, setting: &Sysctl) -> Result<Option<String>, NetError> {
        self.inner.setting(setting).await
    }

    async fn change_setting(&self, setting: &Sysctl, value: &str) -> Result<(), NetError> {
        self.pass()?;
        self.inner.change_setting(setting, value).await
    }
}

impl<N: Nft> Nft for Faulty<N> {
    async fn outline(&self, table: &str) -> Result<Option<Outline>, NetError> {
        self.inner.outline(table).await
    }

    async fn replace(&self, ruleset: &Ruleset) -> Result<(), NetError> {
        self.pass()?;
        self.inner.replace(ruleset).await
    }

    async fn delete_table(&self, table: &str) -> Result<(), NetError> {
        self.pass()?;
        self.inner.delete_table(table).await
    }

    async fn list_chains(&self) -> Result<String, NetError> {
        self.inner.list_chains().await
    }
}

impl<N: Devices> Devices for Faulty<N> {
    async fn open_tap(&self, name: &LinkName, queues: u16) -> Result<Vec<OwnedFd>, NetError> {
        self.pass()?;
        self.inner.open_tap(name, queues).await
    }

    async fn open_vhost(&self, queues: u16) -> Result<Vec<OwnedFd>, NetError> {
        self.pass()?;
        self.inner.open_vhost(queues).await
    }

    async fn open_socket(&self, kind: Service, bridge: &LinkName) -> Result<OwnedFd, NetError> {
        self.pass()?;
        self.inner.open_socket(kind, bridge).await
    }
}
