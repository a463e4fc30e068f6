//! Making the interfaces of a machine, in the network namespace that its launcher handed over.

use garboard_launcher::plumbing::{self, PlumbingError, Reply};
use garboard_launcher::supervisor::line_socket::{LineError, LineSocket};
use garboard_net::resolv::Resolver;
use garboard_net::{NetError, NetNs};
use garboard_protocol::agent::InterfaceRequest;

use crate::caller::{Caller, CallerError};

/// More interfaces than any machine has.
const INTERFACES: usize = 64;

/// Why nothing is made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    /// No descriptor came with the request.
    #[error("a network namespace has to come with the request")]
    Missing(#[from] LineError),
    /// The descriptor is something else.
    #[error("the descriptor that came with the request cannot be used")]
    Descriptor(#[source] NetError),
    /// The caller cannot be looked at any more.
    #[error(transparent)]
    Caller(#[from] CallerError),
    /// The namespace is another's.
    #[error("the network namespace that came with the request is not the caller's own")]
    Foreign,
    /// Too much is asked.
    #[error("{0} interfaces are more than any machine has")]
    TooMany(usize),
    /// It did not work.
    #[error(transparent)]
    Plumbing(#[from] PlumbingError),
}

/// The namespace that came with a request. It has to be the one the caller is in: whatever descriptors a tenant may have
/// got hold of, the agent works in no namespace but that of the pod that asks. A pod with the network of the node is no
/// launcher pod (`pods`); that the namespace is not the agent's own is checked where it is entered.
pub(crate) fn namespace(socket: &mut LineSocket, caller: &Caller) -> Result<NetNs, NetworkError> {
    let descriptor = socket.take_descriptors(1)?.into_iter().next();
    let Some(descriptor) = descriptor else {
        return Err(LineError::MissingDescriptors { announced: 1, arrived: 0 }.into());
    };
    let namespace = NetNs::from_fd(descriptor).map_err(NetworkError::Descriptor)?;
    if namespace != caller.network()? {
        return Err(NetworkError::Foreign);
    }
    Ok(namespace)
}

/// Makes the interfaces.
pub(crate) async fn plumb(namespace: &NetNs, requests: &[InterfaceRequest]) -> Result<Reply, NetworkError> {
    let plans = plumbing::net_plans(few(requests)?)?;
    Ok(plumbing::plumb(namespace, (requests, &plans), &Resolver::default()).await?)
}

/// Opens their sockets again.
pub(crate) async fn sockets(namespace: &NetNs, requests: &[InterfaceRequest]) -> Result<Reply, NetworkError> {
    let plans = plumbing::net_plans(few(requests)?)?;
    Ok(plumbing::sockets(namespace, (requests, &plans), &Resolver::default()).await?)
}

fn few(requests: &[InterfaceRequest]) -> Result<&[InterfaceRequest], NetworkError> {
    if requests.len() > INTERFACES { Err(NetworkError::TooMany(requests.len())) } else { Ok(requests) }
}
