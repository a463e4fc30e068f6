//! Requests to the shim or node agent for what the supervisor cannot do itself.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use garboard_net::GuestAddresses;
use garboard_plan::InterfacePlan;
use garboard_protocol::agent::{AgentReply, AgentRequest, InterfaceReply, InterfaceRequest};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::Status;
use garboard_protocol::record::RunRecord;
use tokio::net::UnixStream;

use crate::line_socket::{LineError, LineSocket};
use crate::tap_binding::{TapBinding, tapped};

/// Pause before a node agent that did not answer is asked again, and the longest it grows to.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Why the agent did not help.
#[derive(Debug, thiserror::Error)]
pub enum NodeAgentError {
    /// It is not there.
    #[error("no shim or node agent answers at {path}")]
    Absent {
        /// The socket.
        path: String,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// The conversation broke.
    #[error("the connection to the shim (or node agent) broke")]
    Conversation(#[from] LineError),
    /// The agent refused.
    #[error("{reason}")]
    Refused {
        /// Its message.
        reason: String,
    },
    /// It answered something else.
    #[error("the shim (or node agent) sent an unexpected answer")]
    Unexpected,
}

/// Where the agent makes interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkPlace {
    /// In a namespace that it made for this machine: a shim.
    Agents,
    /// In the namespace of this process, which it is given a descriptor of: a node agent.
    Ours,
}

/// A connection to the agent.
pub struct AgentClient {
    socket: LineSocket,
    place: NetworkPlace,
}

/// One interface as the agent made it.
pub struct Plumbed {
    /// Its description.
    pub interface: InterfaceReply<GuestAddresses>,
    /// Taps, one per queue.
    pub taps: Vec<OwnedFd>,
    /// vhost-net descriptors, one per queue or none.
    pub vhosts: Vec<OwnedFd>,
    /// In the order of [`InterfaceReply::sockets`].
    pub sockets: Vec<OwnedFd>,
}

impl AgentClient {
    /// Connects.
    pub async fn connect(path: &Path, place: NetworkPlace) -> Result<Self, NodeAgentError> {
        let stream = UnixStream::connect(path)
            .await
            .map_err(|source| NodeAgentError::Absent { path: path.display().to_string(), source })?;
        Ok(Self { socket: LineSocket::new(stream), place })
    }

    /// Has a volume opened.
    pub async fn volume(&mut self, name: &str) -> Result<OwnedFd, NodeAgentError> {
        match self.ask(&AgentRequest::Volume { name: name.to_owned() }, None).await? {
            AgentReply::Volume => self.socket.take_descriptors(1)?.pop().ok_or(NodeAgentError::Unexpected),
            AgentReply::Refused { reason } => Err(NodeAgentError::Refused { reason }),
            AgentReply::Plumbed { .. } | AgentReply::Noted | AgentReply::Serving | AgentReply::Connection => {
                Err(NodeAgentError::Unexpected)
            }
        }
    }

    /// Has the interfaces made.
    pub async fn plumb(&mut self, interfaces: &[InterfacePlan]) -> Result<Vec<Plumbed>, NodeAgentError> {
        match requests(interfaces) {
            interfaces if interfaces.is_empty() => Ok(Vec::new()),
            interfaces => self.plumbed(&AgentRequest::Plumb { interfaces }).await,
        }
    }

    /// Gets the sockets of interfaces that exist already.
    pub async fn sockets(&mut self, interfaces: &[InterfacePlan]) -> Result<Vec<Plumbed>, NodeAgentError> {
        match requests(interfaces) {
            interfaces if interfaces.is_empty() => Ok(Vec::new()),
            interfaces => self.plumbed(&AgentRequest::Sockets { interfaces }).await,
        }
    }

    /// Reports the machine's status.
    pub async fn report(&mut self, status: &Status) -> Result<(), NodeAgentError> {
        match self.ask(&AgentRequest::Report { status: Box::new(status.clone()) }, None).await? {
            AgentReply::Noted => Ok(()),
            AgentReply::Refused { reason } => Err(NodeAgentError::Refused { reason }),
            AgentReply::Plumbed { .. } | AgentReply::Volume | AgentReply::Serving | AgentReply::Connection => {
                Err(NodeAgentError::Unexpected)
            }
        }
    }

    /// Has the record of a run kept.
    pub async fn record(&mut self, record: &RunRecord) -> Result<(), NodeAgentError> {
        match self.ask(&AgentRequest::Record { record: Box::new(record.clone()) }, None).await? {
            AgentReply::Noted => Ok(()),
            AgentReply::Refused { reason } => Err(NodeAgentError::Refused { reason }),
            AgentReply::Plumbed { .. } | AgentReply::Volume | AgentReply::Serving | AgentReply::Connection => {
                Err(NodeAgentError::Unexpected)
            }
        }
    }

    /// Has control connections sent from now on; [`Self::connection`] waits for them.
    pub async fn serve(&mut self) -> Result<(), NodeAgentError> {
        match self.ask(&AgentRequest::Serve, None).await? {
            AgentReply::Serving => Ok(()),
            AgentReply::Refused { reason } => Err(NodeAgentError::Refused { reason }),
            AgentReply::Plumbed { .. } | AgentReply::Volume | AgentReply::Noted | AgentReply::Connection => {
                Err(NodeAgentError::Unexpected)
            }
        }
    }

    /// The next control connection. Cancel-safe.
    pub async fn connection(&mut self) -> Result<UnixStream, NodeAgentError> {
        match self.socket.receive::<AgentReply<GuestAddresses>>().await? {
            AgentReply::Connection => {
                let descriptor = self.socket.take_descriptors(1)?.pop().ok_or(NodeAgentError::Unexpected)?;
                let stream = std::os::unix::net::UnixStream::from(descriptor);
                stream.set_nonblocking(true).map_err(LineError::from)?;
                Ok(UnixStream::from_std(stream).map_err(LineError::from)?)
            }
            AgentReply::Refused { reason } => Err(NodeAgentError::Refused { reason }),
            AgentReply::Plumbed { .. } | AgentReply::Volume | AgentReply::Noted | AgentReply::Serving => {
                Err(NodeAgentError::Unexpected)
            }
        }
    }

    /// Waits until the conversation is over, while nothing is asked.
    pub async fn broken(&mut self) -> NodeAgentError {
        match self.socket.receive::<AgentReply<GuestAddresses>>().await {
            Ok(_) => NodeAgentError::Unexpected,
            Err(error) => error.into(),
        }
    }

    async fn plumbed(&mut self, request: &AgentRequest) -> Result<Vec<Plumbed>, NodeAgentError> {
        let namespace = match self.place {
            NetworkPlace::Agents => None,
            NetworkPlace::Ours => Some(own_namespace()?),
        };
        match self.ask(request, namespace.as_ref()).await? {
            AgentReply::Plumbed { interfaces } => interfaces.into_iter().map(|one| self.collect(one)).collect(),
            AgentReply::Refused { reason } => Err(NodeAgentError::Refused { reason }),
            AgentReply::Volume | AgentReply::Noted | AgentReply::Serving | AgentReply::Connection => {
                Err(NodeAgentError::Unexpected)
            }
        }
    }

    fn collect(&mut self, mut interface: InterfaceReply<GuestAddresses>) -> Result<Plumbed, NodeAgentError> {
        if self.place == NetworkPlace::Ours {
            // A node agent opens no file of a pod, so it cannot read the pod's name servers. They are in our own.
            let resolver = garboard_net::resolv::of_host().unwrap_or_default();
            interface.nameservers = resolver.nameservers.iter().map(ToString::to_string).collect();
            interface.searches = resolver.searches;
        }
        let taps = self.socket.take_descriptors(interface.taps)?;
        let vhosts = self.socket.take_descriptors(interface.vhosts)?;
        let sockets = self.socket.take_descriptors(interface.sockets.len())?;
        Ok(Plumbed { interface, taps, vhosts, sockets })
    }

    async fn ask(
        &mut self,
        request: &AgentRequest,
        descriptor: Option<&OwnedFd>,
    ) -> Result<AgentReply<GuestAddresses>, NodeAgentError> {
        let descriptors: Vec<_> = descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
        self.socket.send(request, &descriptors).await?;
        Ok(self.socket.receive().await?)
    }
}

/// What of a machine's interfaces is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// All of it.
    Plumb,
    /// The sockets of interfaces that exist already.
    Sockets,
}

/// Asks a node agent until it answers, yes or no. One that is away, or dies half-way, comes back, and finds what it had made:
/// a machine is not given up for that.
pub async fn until_answered(
    socket: &Path,
    ask: Ask,
    interfaces: &[InterfacePlan],
) -> Result<Vec<Plumbed>, NodeAgentError> {
    let mut pause = FIRST_PAUSE;
    if requests(interfaces).is_empty() {
        return Ok(Vec::new());
    }
    loop {
        let asked = match (AgentClient::connect(socket, NetworkPlace::Ours).await, ask) {
            (Ok(mut agent), Ask::Plumb) => agent.plumb(interfaces).await,
            (Ok(mut agent), Ask::Sockets) => agent.sockets(interfaces).await,
            (Err(error), _) => Err(error),
        };
        match asked {
            Err(error @ (NodeAgentError::Absent { .. } | NodeAgentError::Conversation(_))) => {
                tracing::warn!(error = %ErrorChain(&error), ?pause, "waiting for the node agent");
            }
            answered => return answered,
        }
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// The network namespace of this process, which is the pod's.
fn own_namespace() -> Result<OwnedFd, NodeAgentError> {
    let file = std::fs::File::open("/proc/self/ns/net").map_err(LineError::from)?;
    Ok(file.into())
}

fn requests(interfaces: &[InterfacePlan]) -> Vec<InterfaceRequest> {
    interfaces.iter().filter_map(request).collect()
}

/// What the agent must do for an interface; `None` for those that need no power.
fn request(plan: &InterfacePlan) -> Option<InterfaceRequest> {
    let TapBinding { tap, binding } = tapped(&plan.binding)?;
    Some(InterfaceRequest { name: plan.name.clone(), tap, mac: plan.mac.clone(), queues: plan.queues, binding })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tokio::net::UnixListener;

    fn interface() -> InterfacePlan {
        let vmi = serde_json::json!({"metadata": {"name": "vm"}, "spec": {"domain": {
            "memory": {"guest": "64Mi"}, "devices": {"interfaces": [{"name": "default", "masquerade": {}}]}}, "networks": [{"name": "default", "pod": {}}]}});
        let vmi = serde_json::from_value(vmi).unwrap();
        let facts = garboard_machine::facts::HostFacts::reference();
        let options = garboard_plan::PlanOptions { volumes: BTreeMap::new(), ..Default::default() };
        garboard_plan::plan(&vmi, &facts, &options, None).unwrap().interfaces.remove(0)
    }

    #[tokio::test]
    async fn an_agent_that_dies_half_way_is_asked_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.sock");
        let agent = async {
            // The socket has no listener; then a peer hangs up; then one reads and ends; then one answers.
            tokio::task::yield_now().await;
            let listener = UnixListener::bind(&path).unwrap();
            drop(listener.accept().await.unwrap());
            for answer in [None, Some("no")] {
                let mut socket = LineSocket::new(listener.accept().await.unwrap().0);
                let request: AgentRequest = socket.receive().await.unwrap();
                assert!(matches!(request, AgentRequest::Plumb { .. }), "{request:?}");
                if let Some(reason) = answer {
                    let reply = AgentReply::<GuestAddresses>::Refused { reason: reason.to_owned() };
                    socket.send(&reply, &[]).await.unwrap();
                }
            }
        };
        let interfaces = [interface()];
        let (asked, ()) = tokio::join!(until_answered(&path, Ask::Plumb, &interfaces), agent);
        assert!(matches!(asked, Err(NodeAgentError::Refused { reason }) if reason == "no"));
    }
}
