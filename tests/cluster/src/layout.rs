//! Where everything of a cluster is: names, addresses, paths. Pure, so that a later command, after a crash too,
//! finds by the cluster's name what an earlier one made.
//!
//! Addresses are the same for every cluster, so one machine has one cluster at a time.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::component::{Agent, Component, Server};

/// The most nodes a cluster can have; their addresses and pod ranges are counted from one.
pub const MOST_NODES: u8 = 20;
/// Below it each cluster has a directory for configuration, certificates and logs, unless the caller names another.
pub const STATE_ROOT: &str = "/run/garboard-cluster";
/// Below it each cluster has a directory for what is large: images, containers, volumes, the database.
pub const BULK_ROOT: &str = "/var/lib/garboard-cluster";
/// What every link and control group of a cluster begins with.
pub const MARK: &str = "gbk";

/// The host's end of the network; the API server listens here.
pub const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 1);
/// Port of the API server.
pub const API_PORT: u16 = 6443;
/// Port of etcd on the host's loopback address, out of the way of another etcd.
pub const ETCD_PORT: u16 = 12379;
/// Port on which etcd would listen for other members, on loopback.
pub const ETCD_PEER_PORT: u16 = 12380;
/// Ports that the others listen on by default, as Kubernetes documents them ("Ports and Protocols").
const CONTROLLER_MANAGER_PORT: u16 = 10257;
const SCHEDULER_PORT: u16 = 10259;
const KUBELET_PORT: u16 = 10250;
/// Addresses of services.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";
/// The service `kubernetes`, the first of the range.
pub const API_SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// Addresses of all pods; each node has a /24 of it.
pub const POD_RANGE: &str = "10.244.0.0/16";

/// An argument that is wrong.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LayoutError {
    /// The name would not fit a link's 15 bytes.
    #[error("`{0}` cannot name a cluster: one to eight lower-case letters and digits, a letter first")]
    Name(String),
    /// There is no such node number.
    #[error("`{0}` is no node: nodes are node-1 to node-{MOST_NODES}")]
    Node(String),
    /// Nodes have a directory of their own at this place, which would hide it.
    #[error("{0} is below /run, /var/lib or /var/log, of which each node has its own: choose another place")]
    Hidden(PathBuf),
}

/// A cluster's name, short enough for the names of links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterName(String);

impl FromStr for ClusterName {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        let first_is_letter = text.starts_with(|c: char| c.is_ascii_lowercase());
        let all_fit = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        if first_is_letter && all_fit && text.len() <= 8 {
            Ok(Self(text.to_owned()))
        } else {
            Err(LayoutError::Name(text.to_owned()))
        }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A node, counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeNumber(u8);

impl NodeNumber {
    /// The node of this number.
    ///
    /// # Errors
    /// Zero, or more than [`MOST_NODES`].
    pub fn new(number: u8) -> Result<Self, LayoutError> {
        if (1..=MOST_NODES).contains(&number) { Ok(Self(number)) } else { Err(LayoutError::Node(number.to_string())) }
    }

    /// The nodes of a cluster that has `count`.
    pub fn first(count: u8) -> impl Iterator<Item = Self> {
        (1..=count.min(MOST_NODES)).map(Self)
    }

    /// Its address on the cluster's network.
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(172, 30, 0, 10 + self.0)
    }

    /// The addresses of its pods.
    pub fn pod_range(self) -> String {
        format!("10.244.{}.0/24", self.0)
    }

    /// The hardware address of its end of the link: the same after a restart, so that neighbour tables stay right.
    pub fn hardware_address(self) -> String {
        format!("02:67:62:6b:00:{:02x}", self.0)
    }
}

impl fmt::Display for NodeNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "node-{}", self.0)
    }
}

impl FromStr for NodeNumber {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        let number = text.strip_prefix("node-").unwrap_or(text).parse();
        number.ok().and_then(|n| Self::new(n).ok()).ok_or_else(|| LayoutError::Node(text.to_owned()))
    }
}

/// The places of one cluster.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Its name.
    pub name: ClusterName,
    /// Configuration, certificates, logs.
    pub state: PathBuf,
    /// What is large.
    pub bulk: PathBuf,
}

impl Layout {
    /// The places of a cluster, below `directory` if the caller names one.
    ///
    /// # Errors
    /// A directory that nodes could not see.
    pub fn new(name: ClusterName, directory: Option<&Path>) -> Result<Self, LayoutError> {
        let own = name.to_string();
        let (state, bulk) = match directory {
            Some(directory) => {
                let state = visible(directory)?.join(&own);
                (state.clone(), state.join("data"))
            }
            None => (Path::new(STATE_ROOT).join(&own), Path::new(BULK_ROOT).join(&own)),
        };
        Ok(Self { name, state, bulk })
    }

    /// What the administrator uses.
    pub fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    /// What the cluster was last asked to be, and where its programs are.
    pub fn record(&self) -> PathBuf {
        self.state.join("cluster.json")
    }

    /// A certificate, by the name of its owner.
    pub fn certificate(&self, owner: &str) -> PathBuf {
        self.state.join("pki").join(format!("{owner}.crt"))
    }

    /// The key to a certificate.
    pub fn key(&self, owner: &str) -> PathBuf {
        self.state.join("pki").join(format!("{owner}.key"))
    }

    /// A configuration file of the control plane.
    pub fn config(&self, file: &str) -> PathBuf {
        self.state.join("config").join(file)
    }

    /// Where containerd looks for a registry's `hosts.toml`, for every node.
    pub fn registries(&self) -> PathBuf {
        self.state.join("registries")
    }

    /// A file of one node's configuration.
    pub fn node_file(&self, node: NodeNumber, file: &str) -> PathBuf {
        self.state.join("nodes").join(node.to_string()).join(file)
    }

    /// What stands for a directory of the node's own file system: `lib` for /var/lib, `log` for /var/log.
    pub fn node_bulk(&self, node: NodeNumber, directory: &str) -> PathBuf {
        self.bulk.join(node.to_string()).join(directory)
    }

    /// One line for each request to the API server.
    pub fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.log")
    }

    /// The logs of all components.
    pub fn logs(&self) -> PathBuf {
        self.state.join("logs")
    }

    /// The log of a component.
    pub fn log(&self, component: Component) -> PathBuf {
        self.logs().join(format!("{component}.log"))
    }

    /// The log of a node's first process.
    pub fn init_log(&self, node: NodeNumber) -> PathBuf {
        self.logs().join(node.to_string()).join("init.log")
    }

    /// The control group of the whole cluster, in every hierarchy.
    pub fn cgroup(&self) -> String {
        format!("{MARK}-{}", self.name)
    }

    /// A node's control group: its components and its pods.
    pub fn node_cgroup(&self, node: NodeNumber) -> String {
        format!("{}/{node}", self.cgroup())
    }

    /// The control group of a node's first process.
    pub fn init_cgroup(&self, node: NodeNumber) -> String {
        format!("{}/system/init", self.node_cgroup(node))
    }

    /// A component's control group.
    pub fn component_cgroup(&self, component: Component) -> String {
        match component {
            Component::Server(server) => format!("{}/control-plane/{server}", self.cgroup()),
            Component::Agent(node, agent) => format!("{}/system/{agent}", self.node_cgroup(node)),
        }
    }

    /// The port on which a component listens once it serves, in its own network namespace. Containerd has a socket
    /// instead; kube-proxy and KWOK have none.
    pub fn port(component: Component) -> Option<u16> {
        match component {
            Component::Server(Server::Etcd) => Some(ETCD_PORT),
            Component::Server(Server::ApiServer) => Some(API_PORT),
            Component::Server(Server::ControllerManager) => Some(CONTROLLER_MANAGER_PORT),
            Component::Server(Server::Scheduler) => Some(SCHEDULER_PORT),
            Component::Agent(_, Agent::Kubelet) => Some(KUBELET_PORT),
            Component::Agent(_, Agent::Containerd | Agent::Proxy) | Component::Server(Server::Kwok) => None,
        }
    }

    /// The bridge that joins the nodes and the host.
    pub fn bridge(&self) -> String {
        format!("{MARK}-{}", self.name)
    }

    /// The host's end of a node's link.
    pub fn uplink(&self, node: NodeNumber) -> String {
        format!("{MARK}{}-{}", node.0, self.name)
    }

    /// Whether a link is this cluster's.
    pub fn owns_link(&self, link: &str) -> bool {
        let number = |rest: &str| rest.is_empty() || rest.parse::<u8>().is_ok();
        link.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(&format!("-{}", self.name))).is_some_and(number)
    }

    /// Whether the node's own /run hides the state, so that it has to be shown there again.
    pub fn state_is_below_run(&self) -> bool {
        self.state.starts_with("/run") || self.state.starts_with("/var/run")
    }
}

/// A path that processes of a node see as the host does.
///
/// # Errors
/// One at a place of which each node has its own.
pub fn visible(path: &Path) -> Result<&Path, LayoutError> {
    let hidden = ["/run", "/var/run", "/var/lib", "/var/log", "/proc"].iter().any(|place| path.starts_with(place));
    if hidden { Err(LayoutError::Hidden(path.to_owned())) } else { Ok(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new("main".parse().unwrap(), None).unwrap()
    }

    #[test]
    fn names_fit_a_link() {
        for good in ["a", "main", "abcdefgh", "t1"] {
            let layout = Layout::new(good.parse().unwrap(), None).unwrap();
            assert!(layout.bridge().len() <= 15);
            assert!(layout.uplink(NodeNumber::new(MOST_NODES).unwrap()).len() <= 15);
        }
        for bad in ["", "1a", "Main", "a-b", "abcdefghi", "a/b", ".."] {
            assert_eq!(bad.parse::<ClusterName>(), Err(LayoutError::Name(bad.to_owned())));
        }
    }

    #[test]
    fn a_cluster_owns_its_links_only() {
        let layout = layout();
        for ours in ["gbk-main", "gbk1-main", "gbk20-main"] {
            assert!(layout.owns_link(ours), "{ours}");
        }
        for foreign in ["gbk-other", "gbk1-amain", "gbkx-main", "eth0", "gbk-main1", "main"] {
            assert!(!layout.owns_link(foreign), "{foreign}");
        }
        assert!(layout.owns_link(&layout.bridge()));
        assert!(NodeNumber::first(MOST_NODES).all(|node| layout.owns_link(&layout.uplink(node))));
    }

    #[test]
    fn nodes_are_counted_from_one() {
        let node: NodeNumber = "node-2".parse().unwrap();
        assert_eq!(node.to_string(), "node-2");
        assert_eq!(node.address().to_string(), "172.30.0.12");
        assert_eq!(node.pod_range(), "10.244.2.0/24");
        assert_eq!("2".parse(), Ok(node));
        for bad in ["node-0", "node-21", "node-", "node-x", "nodes", ""] {
            assert_eq!(bad.parse::<NodeNumber>(), Err(LayoutError::Node(bad.to_owned())));
        }
    }

    #[test]
    fn control_groups_of_a_node_lie_in_one_tree() {
        let (layout, node) = (layout(), NodeNumber::new(1).unwrap());
        assert_eq!(layout.component_cgroup(Component::Server(Server::Etcd)), "gbk-main/control-plane/etcd");
        assert_eq!(layout.component_cgroup(Component::Agent(node, Agent::Kubelet)), "gbk-main/node-1/system/kubelet");
        assert!(layout.init_cgroup(node).starts_with(&layout.node_cgroup(node)));
    }

    #[test]
    fn a_directory_must_be_seen_from_the_nodes() {
        let at = |place: &str| Layout::new("main".parse().unwrap(), Some(Path::new(place)));
        assert_eq!(at("/tmp/x").unwrap().bulk, Path::new("/tmp/x/main/data"));
        assert!(matches!(at("/var/lib/x"), Err(LayoutError::Hidden(_))));
        assert!(matches!(at("/run/x"), Err(LayoutError::Hidden(_))));
    }
}
