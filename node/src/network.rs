//! Making the interfaces of a machine, in the network namespace that its launcher handed over.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use garboard_agent::line_socket::{LineError, LineSocket};
use garboard_agent::plumbing::{self, Interfaces, PlumbingError, Reply};
use garboard_net::resolv::Resolver;
use garboard_net::{NetError, NetNs};
use garboard_protocol::agent::InterfaceRequest;
use tracing::{Instrument, Span};

use crate::caller::{Caller, CallerError};
use crate::order::Work;

/// Why nothing is made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    /// No descriptor came with the request.
    #[error("a network namespace has to come with the request")]
    Missing(#[from] LineError),
    /// The descriptor is something else.
    #[error("the request's descriptor cannot be used")]
    Descriptor(#[source] NetError),
    /// The caller cannot be looked at any more.
    #[error(transparent)]
    Caller(#[from] CallerError),
    /// The namespace is another's.
    #[error("the network namespace that came with the request is not the caller's own")]
    Foreign,
    /// The namespace was made inside the pod, not by the kubelet.
    #[error("the network namespace that came with the request was made inside the pod")]
    Tenants,
    /// The thread that made it has ended.
    #[error("the agent stopped before the network was complete")]
    Broken,
    /// The interfaces could not be made.
    #[error(transparent)]
    Plumbing(#[from] PlumbingError),
}

/// The descriptor that came with a request.
pub(crate) fn descriptor(socket: &mut LineSocket) -> Result<OwnedFd, NetworkError> {
    let descriptor = socket.take_descriptors(1)?.into_iter().next();
    descriptor.ok_or_else(|| LineError::MissingDescriptors { announced: 1, arrived: 0 }.into())
}

/// Does the work, on a thread that may take its time: the kernel's lock on all networks may be held by another tenant.
pub(crate) async fn done(namespace: NetNs, work: Work) -> Result<Reply, NetworkError> {
    let (runtime, span) = (tokio::runtime::Handle::current(), Span::current());
    let thread = tokio::task::spawn_blocking(move || {
        let working = async {
            match work {
                Work::Plumb(requests) => plumb(&namespace, &requests).await,
                Work::Sockets(requests) => sockets(&namespace, &requests).await,
            }
        };
        runtime.block_on(working.instrument(span))
    });
    thread.await.map_err(|_| NetworkError::Broken)?
}

/// The namespace that came with a request, on a thread that may take its time: a descriptor may be a file of a file system
/// that hangs.
pub(crate) async fn namespace(descriptor: OwnedFd, caller: Arc<Caller>) -> Result<NetNs, NetworkError> {
    let thread = tokio::task::spawn_blocking(move || checked(descriptor, &caller));
    thread.await.map_err(|_| NetworkError::Broken)?
}

/// The namespace that came with a request. It has to be the one the caller is in: even if a tenant has descriptors of
/// other namespaces, the agent works only in that of the pod that asks. A pod with the network of the node is no
/// launcher pod (`pods`); that the namespace is not the agent's own is checked where it is changed. It refuses
/// a namespace that a tenant made for itself: those belong to another user namespace.
fn checked(descriptor: OwnedFd, caller: &Caller) -> Result<NetNs, NetworkError> {
    let namespace = NetNs::from_fd(descriptor).map_err(NetworkError::Descriptor)?;
    // First: what a tenant made is not even entered.
    if !namespace.is_of_our_users().map_err(NetworkError::Descriptor)? {
        return Err(NetworkError::Tenants);
    }
    if !caller.is_in(&namespace)? {
        return Err(NetworkError::Foreign);
    }
    Ok(namespace)
}

async fn plumb(namespace: &NetNs, requests: &[InterfaceRequest]) -> Result<Reply, NetworkError> {
    let plans = plumbing::net_plans(requests)?;
    Ok(plumbing::plumb(namespace, Interfaces { requests, plans: &plans }, &Resolver::default()).await?)
}

async fn sockets(namespace: &NetNs, requests: &[InterfaceRequest]) -> Result<Reply, NetworkError> {
    let plans = plumbing::net_plans(requests)?;
    Ok(plumbing::sockets(namespace, Interfaces { requests, plans: &plans }, &Resolver::default()).await?)
}
