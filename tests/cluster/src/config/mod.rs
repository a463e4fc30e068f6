//! What every program is started with: its arguments and the files it reads, rendered from the layout. Pure.
//!
//! JSON is written where YAML is expected, because it is YAML too.

pub mod containerd;
pub mod control_plane;
pub mod kubeconfig;
pub mod kubelet;
pub mod network;

use std::path::{Path, PathBuf};

use crate::component::{Agent, Component, Server};
use crate::layout::Layout;

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// Its path.
    pub program: PathBuf,
    /// What follows.
    pub arguments: Vec<String>,
}

/// A file that a program reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it is read.
    pub path: PathBuf,
    /// What it holds.
    pub content: String,
}

/// How a component is started.
pub fn invocation(layout: &Layout, programs: &Path, component: Component) -> Invocation {
    let arguments = match component {
        Component::Server(Server::Etcd) => control_plane::etcd(layout),
        Component::Server(Server::ApiServer) => control_plane::api_server(layout),
        Component::Server(Server::ControllerManager) => control_plane::controller_manager(layout),
        Component::Server(Server::Scheduler) => control_plane::scheduler(layout),
        Component::Server(Server::Kwok) => control_plane::kwok(layout, programs),
        Component::Agent(node, Agent::Containerd) => containerd::arguments(layout, node),
        Component::Agent(node, Agent::Kubelet) => kubelet::arguments(layout, node),
        Component::Agent(node, Agent::Proxy) => network::proxy_arguments(layout, node),
    };
    Invocation { program: programs.join(component.program()), arguments }
}

/// `--name=value` for each pair.
fn flags(pairs: &[(&str, String)]) -> Vec<String> {
    pairs.iter().map(|(name, value)| format!("--{name}={value}")).collect()
}

/// A path as text; all paths here are UTF-8.
fn text(path: &Path) -> String {
    path.display().to_string()
}

/// JSON as people read it.
fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::NodeNumber;

    /// Every component of a node, and of the control plane.
    fn all() -> Vec<Component> {
        let node = NodeNumber::new(1).unwrap();
        let agents = Agent::ALL.into_iter().map(|agent| Component::Agent(node, agent));
        Server::ALL.into_iter().map(Component::Server).chain(agents).collect()
    }

    #[test]
    fn no_component_gets_an_argument_twice() {
        let layout = Layout::new("main".parse().unwrap(), None).unwrap();
        for component in all() {
            let started = invocation(&layout, Path::new("/opt/programs"), component);
            assert_eq!(started.program, Path::new("/opt/programs").join(component.program()));
            let mut names: Vec<&str> =
                started.arguments.iter().filter_map(|argument| argument.split('=').next()).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count, "{component}: {:?}", started.arguments);
        }
    }

    #[test]
    fn two_clusters_have_no_file_in_common() {
        for component in all() {
            let arguments = |name: &str| {
                let layout = Layout::new(name.parse().unwrap(), None).unwrap();
                invocation(&layout, Path::new("/opt/programs"), component).arguments.join(" ")
            };
            assert!(!arguments("one").contains("garboard-cluster/two"));
            assert_eq!(arguments("one").replace("cluster/one", "cluster/two"), arguments("two"));
        }
    }
}
