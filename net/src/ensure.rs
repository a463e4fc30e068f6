//! Steps that are safe to repeat: look, then change only what differs, and note how to take it back.
//!
//! Each `ensure_*` may run twice, and may run after a crash at any point of an earlier run.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::error::NetError;
use crate::names::{EthernetAddress, LinkName};
use crate::observed::{Admin, Link, Observed, Origin, Route};
use crate::plan::ruleset::Ruleset;
use crate::seam::{LinkChange, Links, Nft, Sysctl};
use crate::undo::{UndoStack, UndoStep};

/// What an `ensure` found and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ensured {
    /// It was not there and is now.
    Created,
    /// Nothing had to be done.
    AlreadySo,
    /// It was there but different.
    Changed,
}

impl Ensured {
    /// The outcome for a thing (`self`) and one of its properties together: what was created stays created,
    /// and what was there already has changed if its property had to be.
    pub fn with(self, property: Self) -> Self {
        match (self, property) {
            (Self::Created, _) => Self::Created,
            (outcome, Self::AlreadySo) => outcome,
            (Self::AlreadySo | Self::Changed, Self::Created | Self::Changed) => Self::Changed,
        }
    }
}

/// Makes the bridge, with that MAC address, MTU and alias, and sets it up.
pub(crate) async fn ensure_bridge<'a, N: Links>(
    namespace: &'a N,
    seen: &Observed,
    wanted: &Bridge<'_>,
    undo: &mut UndoStack<'a, N>,
) -> Result<Ensured, NetError> {
    let name = wanted.name;
    let mut outcome = Ensured::AlreadySo;
    let existing = seen.link(name.as_str());
    match existing {
        Some(link) if link.kind.as_deref() != Some("bridge") => {
            return Err(NetError::LinkKind { name: name.clone(), kind: link.kind.clone(), expected: "bridge" });
        }
        Some(link) => {
            if link.mac != Some(wanted.mac) {
                change(namespace, name, LinkChange::Mac(wanted.mac), link.mac.map(LinkChange::Mac), undo).await?;
                outcome = Ensured::Changed;
            }
            outcome = outcome.with(ensure_mtu(namespace, link, name, wanted.mtu, undo).await?);
        }
        None => {
            namespace.add_bridge(name, wanted.mac, wanted.mtu).await?;
            undo.push(namespace, UndoStep::DeleteLink(name.clone()));
            outcome = Ensured::Created;
        }
    }
    let alias = existing.and_then(|link| link.alias.as_deref());
    if let Some(record) = wanted.record.filter(|record| alias != Some(*record)) {
        let before = LinkChange::Alias(alias.unwrap_or_default().to_owned());
        change(namespace, name, LinkChange::Alias(record.to_owned()), Some(before), undo).await?;
        outcome = outcome.with(Ensured::Changed);
    }
    Ok(outcome)
}

/// A bridge that is wanted.
pub(crate) struct Bridge<'a> {
    pub(crate) name: &'a LinkName,
    pub(crate) mac: EthernetAddress,
    pub(crate) mtu: u16,
    pub(crate) record: Option<&'a str>,
}

/// Changes one property and notes what it was, if that is known.
pub(crate) async fn change<'a, N: Links>(
    namespace: &'a N,
    name: &LinkName,
    to: LinkChange,
    before: Option<LinkChange>,
    undo: &mut UndoStack<'a, N>,
) -> Result<(), NetError> {
    namespace.change_link(name, &to).await?;
    if let Some(before) = before {
        undo.push(namespace, UndoStep::ChangeLink(name.clone(), before));
    }
    Ok(())
}

/// Sets the link's MTU.
pub(crate) async fn ensure_mtu<'a, N: Links>(
    namespace: &'a N,
    link: &Link,
    name: &LinkName,
    mtu: u16,
    undo: &mut UndoStack<'a, N>,
) -> Result<Ensured, NetError> {
    if link.mtu == u32::from(mtu) {
        return Ok(Ensured::AlreadySo);
    }
    change(namespace, name, LinkChange::Mtu(mtu.into()), Some(LinkChange::Mtu(link.mtu)), undo).await?;
    Ok(Ensured::Changed)
}

/// Sets the link up.
pub(crate) async fn ensure_up<'a, N: Links>(
    namespace: &'a N,
    seen: &Observed,
    name: &LinkName,
    undo: &mut UndoStack<'a, N>,
) -> Result<Ensured, NetError> {
    if seen.link(name.as_str()).is_some_and(|link| link.admin == Admin::Up) {
        return Ok(Ensured::AlreadySo);
    }
    change(namespace, name, LinkChange::Up, Some(LinkChange::Down), undo).await?;
    Ok(Ensured::Changed)
}

/// Makes the link a port of the bridge.
pub(crate) async fn ensure_port<'a, N: Links>(
    namespace: &'a N,
    seen: &Observed,
    name: &LinkName,
    bridge: &LinkName,
    undo: &mut UndoStack<'a, N>,
) -> Result<Ensured, NetError> {
    let controller = seen.link(name.as_str()).and_then(|link| link.controller.as_deref());
    if controller == Some(bridge.as_str()) {
        return Ok(Ensured::AlreadySo);
    }
    change(namespace, name, LinkChange::Port(bridge.clone()), Some(LinkChange::NoPort), undo).await?;
    Ok(Ensured::Changed)
}

/// Gives the link exactly these addresses; link-local IPv6 ones, which the kernel makes, are not counted.
pub(crate) async fn ensure_addresses<'a, N: Links>(
    namespace: &'a N,
    seen: &Observed,
    link: &LinkName,
    wanted: &[IpNet],
    undo: &mut UndoStack<'a, N>,
) -> Result<Ensured, NetError> {
    let present: Vec<IpNet> = seen.addresses_of(link.as_str()).filter(|net| !made_by_kernel(net)).collect();
    let mut outcome = Ensured::AlreadySo;
    for address in present.iter().filter(|address| !wanted.contains(address)) {
        delete_address(namespace, link, *address, undo).await?;
        outcome = Ensured::Changed;
    }
    for address in wanted.iter().filter(|address| !present.contains(address)) {
        namespace.add_address(link, *address).await?;
        undo.push(namespace, UndoStep::DeleteAddress(link.clone(), *address));
        outcome = Ensured::Changed;
    }
    Ok(outcome)
}

fn made_by_kernel(net: &IpNet) -> bool {
    matches!(net, IpNet::V6(net) if net.addr().is_unicast_link_local())
}

/// Removes an address of a link.
pub(crate) async fn delete_address<'a, N: Links>(
    namespace: &'a N,
    link: &LinkName,
    address: IpNet,
    undo: &mut UndoStack<'a, N>,
) -> Result<(), NetError> {
    namespace.delete_address(link, address).await?;
    undo.push(namespace, UndoStep::AddAddress(link.clone(), address));
    Ok(())
}

/// Makes the default route of the address family of `via` lead there.
pub(crate) async fn ensure_default_route<N: Links>(
    namespace: &N,
    seen: &Observed,
    link: &LinkName,
    via: std::net::IpAddr,
) -> Result<Ensured, NetError> {
    let to = match via {
        std::net::IpAddr::V4(_) => IpNet::V4(ipnet::Ipv4Net::default()),
        std::net::IpAddr::V6(_) => IpNet::V6(ipnet::Ipv6Net::default()),
    };
    let route = Route { to, via: Some(via), link: link.to_string(), origin: Origin::Configured };
    if seen.routes.contains(&route) {
        return Ok(Ensured::AlreadySo);
    }
    // Taken back with the address it needs: deleting that, or the link, removes the route.
    namespace.add_route(&route).await?;
    Ok(Ensured::Created)
}

/// Whether a changed setting is taken back when a later step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It is.
    UntilFailure,
    /// It stays: others may rely on it by then.
    Always,
}

/// Writes a setting; a kernel that does not have it has nothing to set.
pub(crate) async fn ensure_setting<'a, N: Links>(
    namespace: &'a N,
    setting: Sysctl,
    value: &str,
    keep: Keep,
    undo: &mut UndoStack<'a, N>,
) -> Result<Ensured, NetError> {
    let Some(before) = namespace.setting(&setting).await?.filter(|before| before != value) else {
        return Ok(Ensured::AlreadySo);
    };
    namespace.change_setting(&setting, value).await?;
    if keep == Keep::UntilFailure {
        undo.push(namespace, UndoStep::ChangeSetting(setting, before));
    }
    Ok(Ensured::Changed)
}

/// Lets the namespace forward packets of both families.
///
/// A kernel that forwards IPv6 no longer accepts router advertisements, and a host or pod that has its
/// routes from them would lose them: links that have such routes are set to accept them further.
pub(crate) async fn ensure_forwarding<'a, N: Links>(
    namespace: &'a N,
    seen: &Observed,
    keep: Keep,
    undo: &mut UndoStack<'a, N>,
) -> Result<Ensured, NetError> {
    let ipv4 = ensure_setting(namespace, Sysctl::Ipv4Forwarding, "1", keep, undo).await?;
    let advertised = seen.routes.iter().filter(|route| route.origin == Origin::Advertised);
    for link in advertised.filter_map(|route| route.link.parse::<LinkName>().ok()) {
        let setting = Sysctl::AcceptRa(link);
        if namespace.setting(&setting).await?.as_deref() == Some("1") {
            ensure_setting(namespace, setting, "2", keep, undo).await?;
        }
    }
    let ipv6 = ensure_setting(namespace, Sysctl::Ipv6Forwarding, "1", keep, undo).await?;
    Ok(ipv4.with(ipv6))
}

/// Puts the table in place unless it is there as planned. Replacing is one transaction, so there is nothing
/// to take back if it fails; call it last.
pub(crate) async fn ensure_table<N: Nft>(namespace: &N, ruleset: &Ruleset) -> Result<Ensured, NetError> {
    let before = namespace.outline(&ruleset.table).await?;
    if before.as_ref() == Some(&ruleset.outline()) {
        return Ok(Ensured::AlreadySo);
    }
    namespace.replace(ruleset).await?;
    Ok(if before.is_none() { Ensured::Created } else { Ensured::Changed })
}

#[cfg(test)]
mod tests {
    use super::Ensured::{AlreadySo, Changed, Created};

    #[test]
    fn what_was_created_stays_created_and_what_was_there_changes_with_its_properties() {
        assert_eq!(Created.with(Changed), Created);
        assert_eq!(Created.with(AlreadySo), Created);
        assert_eq!(AlreadySo.with(AlreadySo), AlreadySo);
        assert_eq!(AlreadySo.with(Created), Changed);
        assert_eq!(AlreadySo.with(Changed), Changed);
        assert_eq!(Changed.with(AlreadySo), Changed);
    }
}
