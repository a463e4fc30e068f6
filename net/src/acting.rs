//! What this process does to the network of a VM and to that of its own host.

use std::path::Path;

use crate::error::NetError;
use crate::kernel::{Kernel, Paths};
use crate::names::VmNetId;
use crate::netns::{NetNs, unpin};
use crate::plan::NetPlan;
use crate::plan::guest::GuestAddresses;
use crate::plan::uplink::mtu;
use crate::plumb::{Plumbed, Sockets, plumb_in, sockets_in};
use crate::seam::Links;
use crate::uplink::{HostUplink, Removed, UplinkRequest, ensure_in, remove_in};

/// Joins the interfaces of a VM to the network of its namespace. Privileged, repeatable, within a tokio
/// runtime. The namespace must not be the caller's own: a tenant may hand an agent any descriptor it has.
pub async fn plumb(namespace: &NetNs, plans: &[NetPlan]) -> Result<Plumbed, NetError> {
    plumb_in(&enter_foreign(namespace)?, plans).await
}

/// Opens only the guest's sockets again, in a namespace that is plumbed. Privileged.
pub async fn sockets(namespace: &NetNs, plans: &[NetPlan]) -> Result<Vec<(Sockets, GuestAddresses)>, NetError> {
    sockets_in(&enter_foreign(namespace)?, plans).await
}

/// Joins the namespace of a VM to the host this process runs on. Privileged, repeatable.
pub async fn ensure_uplink(namespace: &NetNs, request: &UplinkRequest) -> Result<HostUplink, NetError> {
    let here = NetNs::current()?;
    let host = Kernel::enter(&here, Paths::default())?;
    ensure_in(&host, &enter_foreign(namespace)?, request).await
}

/// MTU of the way out of the host this process runs on, which every machine's link to it gets. Repeatable.
pub async fn default_link_mtu() -> Result<u16, NetError> {
    let here = NetNs::current()?;
    let host = Kernel::enter(&here, Paths::default())?;
    Ok(mtu(&Links::observe(&host).await?))
}

/// Removes everything a VM's network left on the host this process runs on: link, nft table and, if its path
/// is given, the pinned namespace. Needs nothing but the id; repeatable; privileged.
pub async fn remove_all(id: &VmNetId, pin: Option<&Path>) -> Result<Removed, NetError> {
    let here = NetNs::current()?;
    let host = Kernel::enter(&here, Paths::default())?;
    let unpinned = pin.map_or(Ok(()), unpin);
    let removed = remove_in(&host, id).await;
    unpinned?;
    removed
}

fn enter_foreign(namespace: &NetNs) -> Result<Kernel<'_>, NetError> {
    if namespace.is_current()? {
        return Err(NetError::OwnNamespace);
    }
    Kernel::enter(namespace, Paths::default())
}
