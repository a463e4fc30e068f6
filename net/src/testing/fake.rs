//! Namespaces in memory behind the traits of [`crate::seam`].

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::IpNet;

use super::state::{Host, State};
use crate::error::NetError;
use crate::names::{EthernetAddress, LinkName};
use crate::observed::{Link, LinkAddress, Route};
use crate::plan::ruleset::Ruleset;
use crate::seam::{Devices, LinkChange, Links, Nft, Outline, Service, Sysctl};

/// A host in memory: its namespaces can be joined by veth pairs.
#[derive(Clone, Debug, Default)]
pub struct FakeHost {
    host: Arc<Mutex<Host>>,
}

impl FakeHost {
    /// A host without namespaces.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new namespace with nothing in it but `lo`, down.
    pub fn namespace(&self) -> FakeNamespace {
        let id = lock(&self.host).add_namespace();
        FakeNamespace { host: self.host.clone(), id, vhost: 0 }
    }
}

/// One namespace of a [`FakeHost`].
#[derive(Clone, Debug)]
pub struct FakeNamespace {
    host: Arc<Mutex<Host>>,
    id: usize,
    vhost: u16,
}

impl FakeNamespace {
    /// The same namespace on a host that has vhost-net.
    pub fn with_vhost_net(self) -> Self {
        Self { vhost: crate::plan::QUEUES_MAX, ..self }
    }

    fn make_tap(&self, name: &LinkName, queues: u16) -> Result<Vec<OwnedFd>, NetError> {
        self.act(format!("make the tap `{name}`"), |state| {
            let pairs = (0..queues).map(|_| pair()).collect::<io::Result<Vec<_>>>()?;
            let (ours, theirs) = pairs.into_iter().unzip();
            let mac = EthernetAddress::derived(name.as_str());
            state.add_link(name.as_str(), Some("tun"), Some(mac), 1500).queues = ours;
            Ok(theirs)
        })
    }

    fn act<T>(&self, doing: String, work: impl FnOnce(&mut State) -> io::Result<T>) -> Result<T, NetError> {
        let mut host = lock(&self.host);
        host.namespace(self.id).and_then(work).map_err(|source| NetError::Netlink { doing, source })
    }
}

fn lock(host: &Mutex<Host>) -> MutexGuard<'_, Host> {
    host.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Links for FakeNamespace {
    async fn links(&self) -> Result<Vec<Link>, NetError> {
        self.act("list".to_owned(), |state| Ok(state.links.iter().map(|link| link.link.clone()).collect()))
    }

    async fn addresses(&self) -> Result<Vec<LinkAddress>, NetError> {
        self.act("list".to_owned(), |state| Ok(state.addresses.clone()))
    }

    async fn routes(&self) -> Result<Vec<Route>, NetError> {
        self.act("list".to_owned(), |state| Ok(state.routes.clone()))
    }

    async fn add_bridge(&self, name: &LinkName, mac: EthernetAddress, mtu: u16) -> Result<(), NetError> {
        self.act(format!("make the bridge `{name}`"), |state| {
            state.refuse_existing(name.as_str())?;
            state.add_link(name.as_str(), Some("bridge"), Some(mac), mtu.into());
            Ok(())
        })
    }

    async fn add_veth(&self, name: &LinkName, there: &Self, peer: &LinkName, mtu: u16) -> Result<(), NetError> {
        let made = lock(&self.host).add_veth((self.id, name.as_str()), (there.id, peer.as_str()), mtu.into());
        made.map_err(|source| NetError::Netlink { doing: format!("make the veth pair `{name}` and `{peer}`"), source })
    }

    async fn delete_link(&self, name: &LinkName) -> Result<(), NetError> {
        let deleted = lock(&self.host).delete_link(self.id, name.as_str());
        deleted.map_err(|source| NetError::Netlink { doing: format!("remove the link `{name}`"), source })
    }

    async fn change_link(&self, name: &LinkName, change: &LinkChange) -> Result<(), NetError> {
        self.act(format!("set {change:?} on the link `{name}`"), |state| state.change(name.as_str(), change))
    }

    async fn add_address(&self, link: &LinkName, address: IpNet) -> Result<(), NetError> {
        self.act(format!("add {address} to the link `{link}`"), |state| state.add_address(link.as_str(), address))
    }

    async fn delete_address(&self, link: &LinkName, address: IpNet) -> Result<(), NetError> {
        let doing = format!("remove {address} from the link `{link}`");
        self.act(doing, |state| state.delete_address(link.as_str(), address))
    }

    async fn add_route(&self, route: &Route) -> Result<(), NetError> {
        self.act(format!("add the route to {}", route.to), |state| state.add_route(route))
    }

    async fn setting(&self, setting: &Sysctl) -> Result<Option<String>, NetError> {
        self.act("read a setting".to_owned(), |state| Ok(state.settings.get(setting).cloned()))
    }

    async fn change_setting(&self, setting: &Sysctl, value: &str) -> Result<(), NetError> {
        let changed = lock(&self.host).namespace(self.id).and_then(|state| state.change_setting(setting, value));
        changed.map_err(|source| NetError::Sysctl { path: setting.path(), source })
    }
}

impl Nft for FakeNamespace {
    async fn outline(&self, table: &str) -> Result<Option<Outline>, NetError> {
        self.act("list a table".to_owned(), |state| Ok(state.tables.get(table).cloned()))
    }

    async fn replace(&self, ruleset: &Ruleset) -> Result<(), NetError> {
        self.act("replace a table".to_owned(), |state| {
            state.tables.insert(ruleset.table.clone(), ruleset.outline());
            Ok(())
        })
    }

    async fn delete_table(&self, table: &str) -> Result<(), NetError> {
        self.act("delete a table".to_owned(), |state| {
            state.tables.remove(table);
            Ok(())
        })
    }

    async fn list_chains(&self) -> Result<String, NetError> {
        Ok(r#"{"nftables": []}"#.to_owned())
    }
}

impl Devices for FakeNamespace {
    async fn open_tap(&self, name: &LinkName, queues: u16) -> Result<Vec<OwnedFd>, NetError> {
        // As patient as the kernel's side: a child that some test is just starting holds copies of the
        // descriptors until it executes its program.
        for _ in 0..100 {
            let absent = |state: &mut State| state.refuse_existing(name.as_str());
            if self.act(String::new(), absent).is_ok() {
                return self.make_tap(name, queues);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(NetError::TapHeld { name: name.clone() })
    }

    async fn open_vhost(&self, queues: u16) -> Result<Vec<OwnedFd>, NetError> {
        let open = |_| pair().map(|(one, _)| one);
        let opened = (0..queues.min(self.vhost)).map(open).collect::<io::Result<_>>();
        opened.map_err(|source| NetError::Vhost { path: "/dev/vhost-net".into(), source })
    }

    async fn open_socket(&self, kind: Service, bridge: &LinkName) -> Result<OwnedFd, NetError> {
        let made = self.act(String::new(), |state| {
            state.find(bridge.as_str())?;
            Ok(std::net::UdpSocket::bind("127.0.0.1:0")?.into())
        });
        made.map_err(|error| NetError::Socket {
            what: kind.name(),
            bridge: bridge.clone(),
            source: io::Error::other(error),
        })
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = std::os::unix::net::UnixStream::pair()?;
    Ok((one.into(), other.into()))
}
