//! On a bare host: the veth pair that joins a VM's namespace to the host, the host's forwarding and its nft
//! table for this VM, and the removal of all of it by the VM's id alone.
//!
//! Nothing is recorded anywhere but in the kernel: the link's name and alias name its owner, its address
//! is that of its network of the pool. Two shims that start at once settle it without a lock: an address
//! is put on the link first and looked for on other links afterwards, so of two that chose the same network
//! at least one sees the other and moves on.
//!
//! `net.ipv4.ip_forward` and its IPv6 sibling are switched on and stay on, because another VM, or Docker, may
//! rely on them by the time this one ends.

use std::io::ErrorKind;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::ensure::{
    Ensured, Keep, ensure_addresses, ensure_default_route, ensure_forwarding, ensure_mtu, ensure_setting, ensure_table,
    ensure_up,
};
use crate::error::NetError;
use crate::names::{LinkName, VmNetId};
use crate::observed::{Link, Observed};
use crate::plan::pool::{LinkNetwork, candidates};
use crate::plan::uplink::{Families, Obstacle, default_link, families, mtu, obstacles, ruleset, taken};
use crate::seam::{LinkChange, Namespace, Sysctl};
use crate::undo::{UndoStack, UndoStep};

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UplinkRequest {
    /// Whose namespace it is.
    pub id: VmNetId,
    /// Name of the link inside the namespace, for example `eth0`.
    pub uplink: LinkName,
    /// Ranges the link network may not overlap, beside those the host uses: the guest's own.
    pub avoid: Vec<IpNet>,
}

/// The way out that now exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostUplink {
    /// What was found and done, all in all.
    pub outcome: Ensured,
    /// The host's end of the veth pair.
    pub host_link: LinkName,
    /// The host's address on it: the namespace's gateway.
    pub host4: Ipv4Net,
    /// The namespace's address.
    pub guest4: Ipv4Net,
    /// The namespace's IPv6 address; none where the host has no IPv6 to share.
    pub guest6: Option<Ipv6Net>,
    /// MTU of both ends: that of the host's own way out, bytes.
    pub mtu: u16,
    /// What on this host may drop the guest's packets although our rules accept them.
    pub obstacles: Vec<Obstacle>,
    /// The link of the host's default route.
    pub default_link: Option<String>,
}

/// Whether there was anything to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Something was there and is gone.
    Removed,
    /// There was nothing.
    AlreadyAbsent,
}

/// Joins the namespace `vm` to `host`. Repeatable.
pub async fn ensure_in<N: Namespace>(host: &N, vm: &N, request: &UplinkRequest) -> Result<HostUplink, NetError> {
    let mut undo = UndoStack::default();
    let outcome = Joining { host, vm, request }.apply(&mut undo).await;
    undo.settle(outcome).await
}

/// Removes link and table of a VM from the host. Repeatable; everything is attempted also when one part
/// fails.
pub async fn remove_in<N: Namespace>(host: &N, id: &VmNetId) -> Result<Removed, NetError> {
    let link = remove_link(host, id).await;
    let table = remove_table(host, id).await;
    let removed = [link?, table?].contains(&Removed::Removed);
    Ok(if removed { Removed::Removed } else { Removed::AlreadyAbsent })
}

async fn remove_link<N: Namespace>(host: &N, id: &VmNetId) -> Result<Removed, NetError> {
    let name = id.host_link();
    let seen = host.links().await?;
    let Some(link) = seen.iter().find(|link| link.name == name.as_str()) else { return Ok(Removed::AlreadyAbsent) };
    refuse_foreign(link, &name, id)?;
    match host.delete_link(&name).await {
        // The kernel removes it with the namespace that its other end is in, which the machine's last process has just left.
        Err(NetError::Netlink { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(Removed::Removed),
        other => other.map(|()| Removed::Removed),
    }
}

async fn remove_table<N: Namespace>(host: &N, id: &VmNetId) -> Result<Removed, NetError> {
    if host.outline(&id.table()).await?.is_none() {
        return Ok(Removed::AlreadyAbsent);
    }
    host.delete_table(&id.table()).await?;
    Ok(Removed::Removed)
}

/// A link of our name is ours by its alias, or if it is a veth without alias: a crash came between
/// making it and naming its owner.
fn refuse_foreign(link: &Link, name: &LinkName, id: &VmNetId) -> Result<(), NetError> {
    let unfinished = link.alias.is_none() && link.kind.as_deref() == Some("veth");
    if unfinished || link.alias.as_deref() == Some(id.alias().as_str()) {
        return Ok(());
    }
    Err(NetError::LinkTaken { name: name.clone(), alias: link.alias.clone(), expected: id.alias() })
}

struct Joining<'a, 'r, N> {
    host: &'a N,
    vm: &'a N,
    request: &'r UplinkRequest,
}

impl<'a, N: Namespace> Joining<'a, '_, N> {
    async fn apply(&self, undo: &mut UndoStack<'a, N>) -> Result<HostUplink, NetError> {
        let seen = self.host.observe().await?;
        let (families, mtu) = (families(&seen), mtu(&seen));
        let pair = self.ensure_pair(&seen, mtu, undo).await?;
        let seen = self.host.observe().await?;
        let settings = self.prepare_host_end(&seen, families, mtu, undo).await?;
        let (network, host_end) = self.ensure_network(&seen, families, undo).await?;
        let up = ensure_up(self.host, &seen, &self.link(), undo).await?;
        let vm_end = self.ensure_vm_end(network, families, mtu, undo).await?;
        ensure_forwarding(self.host, &seen, Keep::Always, undo).await?;
        let table = ensure_table(self.host, &ruleset(&self.request.id, network, families)).await?;
        let obstacles = self.obstacles().await?;
        Ok(HostUplink {
            outcome: [settings, host_end, up, vm_end, table].into_iter().fold(pair, Ensured::with),
            host_link: self.link(),
            host4: network.host4(),
            guest4: network.guest4(),
            guest6: (families == Families::Both).then(|| network.guest6()),
            mtu,
            obstacles,
            default_link: default_link(&seen).map(str::to_owned),
        })
    }

    fn link(&self) -> LinkName {
        self.request.id.host_link()
    }

    async fn obstacles(&self) -> Result<Vec<Obstacle>, NetError> {
        let listing = self.host.list_chains().await?;
        obstacles(&listing).map_err(|source| NetError::ToolAnswer { program: "nft".to_owned(), source })
    }

    /// Makes the pair. One whose other end is not in the namespace belongs to a namespace that is lost: it is
    /// made anew.
    async fn ensure_pair(&self, seen: &Observed, mtu: u16, undo: &mut UndoStack<'a, N>) -> Result<Ensured, NetError> {
        let name = self.link();
        let existing = seen.link(name.as_str());
        if let Some(link) = existing {
            refuse_foreign(link, &name, &self.request.id)?;
        }
        let far_end = self.vm.links().await?.iter().any(|link| link.name == self.request.uplink.as_str());
        if existing.is_some() && !far_end {
            tracing::info!(link = %name, "the link's peer namespace is gone; the link is created again");
            self.host.delete_link(&name).await?;
        }
        if existing.is_none() || !far_end {
            self.host.add_veth(&name, self.vm, &self.request.uplink, mtu).await?;
            undo.push(self.host, UndoStep::DeleteLink(name.clone()));
        }
        let named = far_end && existing.is_some_and(|link| link.alias.is_some());
        if !named {
            self.host.change_link(&name, &LinkChange::Alias(self.request.id.alias())).await?;
        }
        Ok(match (existing.is_some(), named) {
            (false, _) => Ensured::Created,
            (true, true) => Ensured::AlreadySo,
            (true, false) => Ensured::Changed,
        })
    }

    async fn prepare_host_end(
        &self,
        seen: &Observed,
        families: Families,
        mtu: u16,
        undo: &mut UndoStack<'a, N>,
    ) -> Result<Ensured, NetError> {
        let name = self.link();
        let disabled = if families == Families::Both { "0" } else { "1" };
        let mut outcome = Ensured::AlreadySo;
        // What the VM's side advertises must not become a route of the host.
        for (setting, value) in [(Sysctl::AcceptRa(name.clone()), "0"), (Sysctl::DisableIpv6(name.clone()), disabled)] {
            let set = ensure_setting(self.host, setting, value, Keep::UntilFailure, undo).await?;
            outcome = outcome.with(set);
        }
        if let Some(link) = seen.link(name.as_str()) {
            outcome = outcome.with(ensure_mtu(self.host, link, &name, mtu, undo).await?);
        }
        Ok(outcome)
    }

    /// Gives the host's end a network of its own.
    async fn ensure_network(
        &self,
        seen: &Observed,
        families: Families,
        undo: &mut UndoStack<'a, N>,
    ) -> Result<(LinkNetwork, Ensured), NetError> {
        let name = self.link();
        let present = seen.addresses_of(name.as_str()).find_map(|net| match net {
            IpNet::V4(net) => LinkNetwork::of_host(net),
            IpNet::V6(_) => None,
        });
        if let Some(network) = present {
            let wanted = host_addresses(network, families);
            let outcome = ensure_addresses(self.host, seen, &name, &wanted, undo).await?;
            return Ok((network, outcome));
        }
        let taken = taken(seen, &self.request.avoid);
        for network in candidates(&self.request.id, &taken) {
            let wanted = host_addresses(network, families);
            let outcome = ensure_addresses(self.host, seen, &name, &wanted, undo).await?;
            if !self.shared(network).await? {
                return Ok((network, outcome));
            }
            tracing::debug!(network = %network.host4(), "network taken by another VM in the meantime; the next one is tried");
            for address in wanted {
                self.host.delete_address(&name, address).await?;
            }
        }
        Err(NetError::PoolEmpty)
    }

    /// Whether another link has the network too.
    async fn shared(&self, network: LinkNetwork) -> Result<bool, NetError> {
        let own = self.link();
        let addresses = self.host.addresses().await?;
        Ok(addresses.iter().any(|seen| seen.link != own.as_str() && seen.address == IpNet::V4(network.host4())))
    }

    /// Addresses and default routes inside the namespace; an uplink that bridge binding has taken already is
    /// left alone.
    async fn ensure_vm_end(
        &self,
        network: LinkNetwork,
        families: Families,
        mtu: u16,
        undo: &mut UndoStack<'a, N>,
    ) -> Result<Ensured, NetError> {
        let uplink = &self.request.uplink;
        let seen = self.vm.observe().await?;
        let link = seen.link(uplink.as_str());
        if link.is_some_and(|link| link.controller.is_some()) {
            return Ok(Ensured::AlreadySo);
        }
        if let Ok(loopback) = "lo".parse() {
            ensure_up(self.vm, &seen, &loopback, undo).await?;
        }
        if let Some(link) = link {
            ensure_mtu(self.vm, link, uplink, mtu, undo).await?;
        }
        let both = families == Families::Both;
        let addresses: Vec<IpNet> = [Some(IpNet::V4(network.guest4())), both.then(|| IpNet::V6(network.guest6()))]
            .into_iter()
            .flatten()
            .collect();
        let disabled = if both { "0" } else { "1" };
        let no_ipv6 = Sysctl::DisableIpv6(uplink.clone());
        ensure_setting(self.vm, no_ipv6, disabled, Keep::UntilFailure, undo).await?;
        let mut outcome = ensure_addresses(self.vm, &seen, uplink, &addresses, undo).await?;
        outcome = outcome.with(ensure_up(self.vm, &seen, uplink, undo).await?);
        let gateways = [Some(IpAddr::V4(network.host4().addr())), both.then(|| IpAddr::V6(network.host6().addr()))];
        for gateway in gateways.into_iter().flatten() {
            outcome = outcome.with(ensure_default_route(self.vm, &seen, uplink, gateway).await?);
        }
        Ok(outcome)
    }
}

fn host_addresses(network: LinkNetwork, families: Families) -> Vec<IpNet> {
    let ipv6 = (families == Families::Both).then(|| IpNet::V6(network.host6()));
    [Some(IpNet::V4(network.host4())), ipv6].into_iter().flatten().collect()
}
