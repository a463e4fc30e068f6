//! Asking whoever has power over the host for what the supervisor cannot do itself.

use std::os::fd::OwnedFd;
use std::path::Path;

use garboard_net::GuestAddresses;
use garboard_protocol::agent::{AgentReply, AgentRequest, BindingRequest, InterfaceRequest, PlumbedInterface};
use tokio::net::UnixStream;

use super::line_socket::{LineError, LineSocket};
use crate::plan::{BindingPlan, InterfacePlan, PortPlan, Protocol};

/// Why the agent did not help.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    /// It is not there.
    #[error("nobody answers at {path}; the keeper (or node agent) is gone")]
    Absent {
        /// The socket.
        path: String,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// The conversation broke.
    #[error("the conversation with the keeper (or node agent) broke")]
    Conversation(#[from] LineError),
    /// It said no.
    #[error("{reason}")]
    Refused {
        /// Its sentence.
        reason: String,
    },
    /// It answered something else.
    #[error("the keeper (or node agent) answered a question that was not asked")]
    Unexpected,
}

/// A connection to the agent.
pub(crate) struct AgentClient {
    socket: LineSocket,
}

/// One interface as the agent made it.
pub(crate) struct Plumbed {
    /// Its description.
    pub(crate) interface: PlumbedInterface<GuestAddresses>,
    /// Taps, one per queue.
    pub(crate) taps: Vec<OwnedFd>,
    /// vhost-net descriptors, one per queue or none.
    pub(crate) vhosts: Vec<OwnedFd>,
    /// In the order of [`PlumbedInterface::sockets`].
    pub(crate) sockets: Vec<OwnedFd>,
}

impl AgentClient {
    /// Connects.
    pub(crate) async fn connect(path: &Path) -> Result<Self, AgentError> {
        let stream = UnixStream::connect(path)
            .await
            .map_err(|source| AgentError::Absent { path: path.display().to_string(), source })?;
        Ok(Self { socket: LineSocket::new(stream) })
    }

    /// Has a volume opened.
    pub(crate) async fn volume(&mut self, name: &str) -> Result<OwnedFd, AgentError> {
        match self.ask(&AgentRequest::Volume { name: name.to_owned() }).await? {
            AgentReply::Volume => self.socket.take_descriptors(1)?.pop().ok_or(AgentError::Unexpected),
            AgentReply::Refused { reason } => Err(AgentError::Refused { reason }),
            AgentReply::Plumbed { .. } => Err(AgentError::Unexpected),
        }
    }

    /// Has the interfaces made.
    pub(crate) async fn plumb(&mut self, interfaces: &[InterfacePlan]) -> Result<Vec<Plumbed>, AgentError> {
        let interfaces: Vec<InterfaceRequest> = interfaces.iter().filter_map(request).collect();
        if interfaces.is_empty() {
            return Ok(Vec::new());
        }
        self.plumbed(&AgentRequest::Plumb { interfaces }).await
    }

    /// Gets the sockets of interfaces that exist already.
    pub(crate) async fn sockets(&mut self) -> Result<Vec<Plumbed>, AgentError> {
        self.plumbed(&AgentRequest::Sockets).await
    }

    async fn plumbed(&mut self, request: &AgentRequest) -> Result<Vec<Plumbed>, AgentError> {
        match self.ask(request).await? {
            AgentReply::Plumbed { interfaces } => interfaces.into_iter().map(|one| self.collect(one)).collect(),
            AgentReply::Refused { reason } => Err(AgentError::Refused { reason }),
            AgentReply::Volume => Err(AgentError::Unexpected),
        }
    }

    fn collect(&mut self, interface: PlumbedInterface<GuestAddresses>) -> Result<Plumbed, AgentError> {
        let taps = self.socket.take_descriptors(interface.taps)?;
        let vhosts = self.socket.take_descriptors(interface.vhosts)?;
        let sockets = self.socket.take_descriptors(interface.sockets.len())?;
        Ok(Plumbed { interface, taps, vhosts, sockets })
    }

    async fn ask(&mut self, request: &AgentRequest) -> Result<AgentReply<GuestAddresses>, AgentError> {
        self.socket.send(request, &[]).await?;
        Ok(self.socket.receive().await?)
    }
}

/// What the agent must do for an interface; `None` for those that need no power.
fn request(plan: &InterfacePlan) -> Option<InterfaceRequest> {
    let (tap, binding) = match &plan.binding {
        BindingPlan::Masquerade { tap, ipv4, ipv6, ports, .. } => {
            let ports = ports.iter().map(port).collect();
            (tap, BindingRequest::Masquerade { ipv4: ipv4.clone(), ipv6: ipv6.clone(), ports })
        }
        BindingPlan::Bridge { tap } => (tap, BindingRequest::Bridge),
        BindingPlan::User { .. } | BindingPlan::Passt { .. } => return None,
    };
    Some(InterfaceRequest {
        name: plan.name.clone(),
        tap: tap.clone(),
        mac: plan.mac.clone(),
        queues: plan.queues,
        binding,
    })
}

fn port(plan: &PortPlan) -> (String, u16) {
    let protocol = match plan.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    };
    (protocol.to_owned(), plan.port)
}
