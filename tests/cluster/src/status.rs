//! `status`: what runs, what does not, and what the API server thinks of the nodes.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;

use crate::api::Api;
use crate::cluster::Cluster;
use crate::component::{Agent, Component};
use crate::layout::NodeNumber;
use crate::process::{Condition, condition};
use crate::{links, node, up};

/// A whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Everything runs, nothing is cut off, every node is ready.
    pub healthy: bool,
    /// For `kubectl`.
    pub kubeconfig: PathBuf,
    /// The directory of `kubectl` and all others.
    pub programs: PathBuf,
    /// One line for each request to the API server.
    pub audit_log: PathBuf,
    /// The directory of the logs.
    pub logs: PathBuf,
    /// Whether the API server reports that it is ready.
    pub api_ready: bool,
    /// How many nodes are only played.
    pub kwok_nodes: u16,
    /// The control plane.
    pub servers: Vec<ComponentStatus>,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
}

/// One program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// As in `cluster logs NAME`.
    pub name: String,
    /// `running`, `frozen` or `gone`.
    pub state: &'static str,
    /// Its number on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// As in Kubernetes.
    pub name: String,
    /// On the cluster's network.
    pub address: String,
    /// `running`, `frozen`, `partitioned`, `frozen and partitioned` or `down`.
    pub state: &'static str,
    /// The API server's condition `Ready` is true.
    pub ready: bool,
    /// Its first process, by its number on the host; `nsenter --target` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its programs.
    pub agents: Vec<ComponentStatus>,
}

/// Looks at everything.
pub fn status(cluster: &Cluster) -> Status {
    let api = Api::of_administrator(&cluster.layout).ok();
    let api_ready = api.as_ref().is_some_and(|api| api.get("/readyz").is_ok_and(|answer| answer.is_success()));
    let servers: Vec<_> =
        cluster.servers().map(|server| component_status(cluster, Component::Server(server))).collect();
    // One that does not answer is not asked for each node.
    let asked = api.filter(|_| api_ready);
    let nodes: Vec<_> = cluster.nodes().map(|node| node_status(cluster, node, asked.as_ref())).collect();
    let all_run = servers.iter().all(ComponentStatus::runs);
    let nodes_well =
        nodes.iter().all(|node| node.state == "running" && node.ready && node.agents.iter().all(ComponentStatus::runs));
    let layout = &cluster.layout;
    Status {
        name: layout.name.to_string(),
        healthy: api_ready && all_run && nodes_well,
        kubeconfig: layout.kubeconfig(),
        programs: cluster.record.programs.clone(),
        audit_log: layout.audit_log(),
        logs: layout.logs(),
        api_ready,
        kwok_nodes: cluster.record.kwok,
        servers,
        nodes,
    }
}

impl ComponentStatus {
    fn runs(&self) -> bool {
        self.state == "running"
    }
}

fn component_status(cluster: &Cluster, component: Component) -> ComponentStatus {
    let (state, pid) = match condition(cluster, component) {
        Condition::Running(pid) => ("running", Some(pid)),
        Condition::Stopped(pid) => ("frozen", Some(pid)),
        Condition::Gone => ("gone", None),
    };
    ComponentStatus { name: component.to_string(), state, pid }
}

fn node_status(cluster: &Cluster, node: NodeNumber, api: Option<&Api>) -> NodeStatus {
    let pid = node::init(cluster, node);
    let frozen = cluster.cgroups.is_frozen(&cluster.layout.node_cgroup(node));
    let state = match (pid, frozen, links::is_cut(&cluster.layout, node)) {
        (None, ..) => "down",
        (Some(_), true, true) => "frozen and partitioned",
        (Some(_), true, false) => "frozen",
        (Some(_), false, true) => "partitioned",
        (Some(_), false, false) => "running",
    };
    let answer = api.and_then(|api| api.get(&format!("/api/v1/nodes/{node}")).ok());
    NodeStatus {
        name: node.to_string(),
        address: node.address().to_string(),
        state,
        ready: answer.is_some_and(|answer| up::is_ready(&answer.body)),
        pid,
        agents: Agent::ALL.map(|agent| component_status(cluster, Component::Agent(node, agent))).to_vec(),
    }
}

impl Status {
    /// For people: one line for each thing.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let verdict = if self.healthy { "healthy" } else { "not healthy" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "cluster `{}` is {verdict}; KUBECONFIG={}", self.name, self.kubeconfig.display());
        for server in &self.servers {
            let _ = writeln!(text, "  {:<26} {:<8} {}", server.name, server.state, number(server.pid));
        }
        for node in &self.nodes {
            let ready = if node.ready { "Ready" } else { "NotReady" };
            let _ =
                writeln!(text, "  {:<26} {:<8} {} {} {ready}", node.name, node.state, number(node.pid), node.address);
            for agent in &node.agents {
                let _ = writeln!(text, "  {:<26} {:<8} {}", agent.name, agent.state, number(agent.pid));
            }
        }
        if self.kwok_nodes > 0 {
            let _ = writeln!(text, "  {} more nodes are played by kwok", self.kwok_nodes);
        }
        text
    }
}

fn number(pid: Option<i32>) -> String {
    pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_what_is_wrong() {
        let gone = ComponentStatus { name: "etcd".to_owned(), state: "gone", pid: None };
        let node = NodeStatus {
            name: "node-1".to_owned(),
            address: "172.30.0.11".to_owned(),
            state: "partitioned",
            ready: false,
            pid: Some(7),
            agents: Vec::new(),
        };
        let status = Status {
            name: "main".to_owned(),
            healthy: false,
            kubeconfig: "/run/kubeconfig".into(),
            programs: "/opt".into(),
            audit_log: "/run/audit.log".into(),
            logs: "/run/logs".into(),
            api_ready: false,
            kwok_nodes: 0,
            servers: vec![gone],
            nodes: vec![node],
        };
        let table = status.table();
        for wanted in ["not healthy", "etcd                       gone     -", "partitioned 7 172.30.0.11 NotReady"] {
            assert!(table.contains(wanted), "{table}");
        }
    }
}
