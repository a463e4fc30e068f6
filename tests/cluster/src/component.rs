//! The programs a cluster consists of, and how people call them.

use std::fmt;
use std::str::FromStr;

use crate::layout::NodeNumber;

/// A program of the control plane, on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// The database.
    Etcd,
    /// The one that all others connect to.
    ApiServer,
    /// Controllers of Kubernetes' own kinds.
    ControllerManager,
    /// Finds a node for each pod.
    Scheduler,
    /// Plays the nodes that are not there; only when asked for.
    Kwok,
}

impl Server {
    /// All, in the order in which they start.
    pub const ALL: [Self; 5] = [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Kwok];

    /// The file name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.program())
    }
}

/// A program of a node, in the node's namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// Runs containers.
    Containerd,
    /// Runs pods.
    Kubelet,
    /// Carries services to pods.
    Proxy,
}

impl Agent {
    /// All, in the order in which they start.
    pub const ALL: [Self; 3] = [Self::Containerd, Self::Kubelet, Self::Proxy];

    /// The file name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::Proxy => "kube-proxy",
        }
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.program())
    }
}

/// One process of ours that can be watched, stopped and started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// Of the control plane.
    Server(Server),
    /// Of a node.
    Agent(NodeNumber, Agent),
}

impl Component {
    /// The file name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Server(server) => server.program(),
            Self::Agent(_, agent) => agent.program(),
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => server.fmt(out),
            Self::Agent(node, agent) => write!(out, "{node}/{agent}"),
        }
    }
}

/// What a fault is done to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// One program.
    Component(Component),
    /// A whole node: its programs and its pods.
    Node(NodeNumber),
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Component(component) => component.fmt(out),
            Self::Node(node) => node.fmt(out),
        }
    }
}

/// An argument that names neither a component nor a node.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` names nothing here: write node-N, a program of the control plane (etcd, kube-apiserver, \
     kube-controller-manager, kube-scheduler, kwok), or node-N/containerd, node-N/kubelet, node-N/kube-proxy"
)]
pub struct UnknownTarget(String);

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(text: &str) -> Result<Self, UnknownTarget> {
        let found = if let Some((node, program)) = text.split_once('/') {
            let agent = Agent::ALL.into_iter().find(|agent| agent.program() == program);
            node.parse().ok().zip(agent).map(|(node, agent)| Self::Component(Component::Agent(node, agent)))
        } else if let Some(server) = Server::ALL.into_iter().find(|server| server.program() == text) {
            Some(Self::Component(Component::Server(server)))
        } else {
            text.parse().ok().map(Self::Node)
        };
        found.ok_or_else(|| UnknownTarget(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_called_as_it_is_shown() {
        let node = NodeNumber::new(2).unwrap();
        let servers = Server::ALL.into_iter().map(Component::Server);
        let agents = Agent::ALL.into_iter().map(|agent| Component::Agent(node, agent));
        for component in servers.chain(agents) {
            assert_eq!(component.to_string().parse(), Ok(Target::Component(component)));
        }
        assert_eq!("node-2".parse(), Ok(Target::Node(node)));
    }

    #[test]
    fn other_targets_are_refused() {
        for bad in ["", "kubelet", "node-1/etcd", "node-0/kubelet", "etcd/node-1", "node-1/"] {
            assert_eq!(bad.parse::<Target>(), Err(UnknownTarget(bad.to_owned())), "{bad}");
        }
    }
}
