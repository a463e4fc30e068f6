//! Host networking for one VM: namespace, tap, bridge, nftables, DHCP, router advertisements.
#![doc = include_str!("lib.md")]

pub mod dhcp;
pub mod ensure;
pub mod error;
pub mod kernel;
pub mod names;
pub mod netns;
pub mod observed;
pub mod plan;
pub mod plumb;
pub mod publish;
pub mod resolv;
pub mod seam;
mod sys;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod undo;
pub mod uplink;

use std::path::Path;

pub use ensure::Ensured;
pub use error::NetError;
use kernel::{Kernel, Paths};
pub use names::{EthernetAddress, LinkName, NameError, VmNetId};
pub use netns::NetNs;
pub use plan::guest::{GuestAddresses, GuestIpv4, GuestIpv6, GuestRoute};
pub use plan::uplink::Obstacle;
pub use plan::{Binding, DEFAULT_IPV4, DEFAULT_IPV6, Masquerade, NetPlan, PlanError, Port, Protocol};
pub use plumb::{Plumbed, PlumbedInterface, Sockets};
pub use uplink::{HostUplink, Removed, UplinkRequest};

/// Joins the interfaces of a VM to the network of its namespace. Privileged, repeatable, within a tokio
/// runtime. The namespace must not be the caller's own: a tenant may hand an agent any descriptor it has.
pub async fn plumb(namespace: &NetNs, plans: &[NetPlan]) -> Result<Plumbed, NetError> {
    plumb::plumb_in(&enter_foreign(namespace)?, plans).await
}

/// Opens only the guest's sockets again, in a namespace that is plumbed. Privileged.
pub async fn sockets(namespace: &NetNs, plans: &[NetPlan]) -> Result<Vec<(Sockets, GuestAddresses)>, NetError> {
    plumb::sockets_in(&enter_foreign(namespace)?, plans).await
}

/// Joins the namespace of a VM to the host this process runs on. Privileged, repeatable.
pub async fn ensure_uplink(namespace: &NetNs, request: &UplinkRequest) -> Result<HostUplink, NetError> {
    let here = NetNs::current()?;
    let host = Kernel::enter(&here, Paths::default())?;
    uplink::ensure_in(&host, &enter_foreign(namespace)?, request).await
}

/// MTU of the way out of the host this process runs on, which every machine's link to it gets. Repeatable.
pub async fn default_link_mtu() -> Result<u16, NetError> {
    let here = NetNs::current()?;
    let host = Kernel::enter(&here, Paths::default())?;
    Ok(plan::uplink::mtu(&seam::Links::observe(&host).await?))
}

/// Removes everything a VM's network left on the host this process runs on: link, nft table and, if its path
/// is given, the pinned namespace. Needs nothing but the id; repeatable; privileged.
pub async fn remove_all(id: &VmNetId, pin: Option<&Path>) -> Result<Removed, NetError> {
    let here = NetNs::current()?;
    let host = Kernel::enter(&here, Paths::default())?;
    let unpinned = pin.map_or(Ok(()), netns::unpin);
    let removed = uplink::remove_in(&host, id).await;
    unpinned?;
    removed
}

fn enter_foreign(namespace: &NetNs) -> Result<Kernel<'_>, NetError> {
    if namespace.is_current()? {
        return Err(NetError::OwnNamespace);
    }
    Kernel::enter(namespace, Paths::default())
}
