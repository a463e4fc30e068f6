//! `up`: whatever is not there is made, whatever is broken is repaired. A second `up` therefore does nothing, and one
//! after a crash finishes what the first began.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::api::Api;
use crate::cluster::{Cluster, Record, lock};
use crate::component::{Agent, Component, Server};
use crate::config::{containerd, control_plane};
use crate::error::{Error, Result};
use crate::files::{ensure_directory, read, write_all};
use crate::layout::{Layout, NodeNumber, visible};
use crate::report::step;
use crate::teardown::make_room;
use crate::wait::{Patience, until_true};
use crate::{links, node, pki, process};

/// For each state on the way; a start takes a tenth of it on two idle cores.
const LIMIT: Duration = Duration::from_secs(120);
/// Programs of the machine that are called by name.
const TOOLS: [&str; 5] = ["ip", "nsenter", "unshare", "nft", "mount"];

/// What the caller asks for.
#[derive(Debug, Clone)]
pub struct Request {
    /// Nodes, at least one.
    pub nodes: u8,
    /// Nodes that are only played.
    pub kwok: u16,
    /// The directory that `scripts/fetch-cluster` printed.
    pub programs: PathBuf,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Something was started or repaired.
    Changed,
    /// Everything was as it should be.
    AlreadySo,
}

/// Makes the cluster as requested and returns when every node is ready and pods can be made.
///
/// # Errors
/// What is missing on this machine, what could not be started, or a state that did not come.
pub fn up(layout: Layout, request: &Request) -> Result<Outcome> {
    let began = Instant::now();
    // What is refused leaves nothing, not even the directory that the lock is on.
    check_machine(&Cluster::new(layout.clone(), merge(Record::load(&layout)?, request))?)?;
    make_room(&layout)?;
    let _lock = lock(&layout)?;
    let known = Record::load(&layout)?;
    if let Some(known) = known.as_ref().filter(|known| known.nodes > request.nodes) {
        step(&format!("it has {} nodes and keeps them", known.nodes));
    }
    let cluster = Cluster::new(layout, merge(known, request))?;
    links::ensure_bridge(&cluster.layout)?;
    cluster.record.store(&cluster.layout)?;
    prepare(&cluster)?;

    let mut changed = start(&cluster)?;
    changed |= wait_until_ready(&cluster)?;
    let outcome = if changed { Outcome::Changed } else { Outcome::AlreadySo };
    let state = if changed { "up" } else { "already up" };
    step(&format!("cluster `{}` is {state}, {:.1} s", cluster.layout.name, began.elapsed().as_secs_f64()));
    Ok(outcome)
}

/// A cluster grows and does not shrink: what runs on a node is not for `up` to end.
fn merge(known: Option<Record>, request: &Request) -> Record {
    let known = known.unwrap_or(Record { programs: request.programs.clone(), nodes: 0, kwok: 0 });
    Record { programs: known.programs, nodes: known.nodes.max(request.nodes), kwok: known.kwok.max(request.kwok) }
}

/// Reports first what would fail half-way.
fn check_machine(cluster: &Cluster) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::Refused("a cluster needs root: it makes links, mounts and namespaces".to_owned()));
    }
    let programs = &cluster.record.programs;
    let (program, helper) = (visible(programs)?, visible(&cluster.helper)?);
    let wanted = cluster.components().into_iter().map(Component::program).chain(["runc", "ctr", "pause.tar"]);
    let missing: Vec<&str> = wanted.filter(|name| !program.join(name).exists()).collect();
    if let Some(first) = missing.first() {
        let option = if *first == "kwok" { " --kwok" } else { "" };
        return Err(Error::Refused(format!(
            "{} has no {first}: `scripts/fetch-cluster{option}` makes it",
            programs.display()
        )));
    }
    if !helper.exists() {
        return Err(Error::Refused(format!("{} has been removed since it started", helper.display())));
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = |tool: &&str| std::env::split_paths(&search).any(|directory| directory.join(tool).exists());
    match TOOLS.iter().find(|tool| !found(tool)) {
        Some(tool) => Err(Error::Refused(format!("this machine has no `{tool}`"))),
        None => Ok(()),
    }
}

/// Files, and the control plane's groups.
fn prepare(cluster: &Cluster) -> Result<()> {
    let layout = &cluster.layout;
    for directory in [layout.bulk.clone(), layout.logs(), layout.bulk.join("etcd")] {
        ensure_directory(&directory)?;
    }
    pki::ensure(layout, cluster.record.nodes)?;
    write_all([control_plane::audit_policy(layout)])?;
    write_all(containerd::registries(layout))
}

/// Starts everything, in the order in which each needs the one before. Returns whether anything was started.
fn start(cluster: &Cluster) -> Result<bool> {
    let server = |server| process::ensure(cluster, Component::Server(server));
    let mut changed = server(Server::Etcd)?;
    if changed {
        step("etcd");
        process::wait_until_serving(cluster, Component::Server(Server::Etcd))?;
    }
    if server(Server::ApiServer)? {
        step("API server");
        changed = true;
    }
    for node in cluster.nodes() {
        if node::ensure(cluster, node)? {
            step(&format!("{node}"));
            changed = true;
        }
    }
    links::ensure_host_routes(cluster)?;
    for node in cluster.nodes() {
        node::ensure_pause(cluster, node)?;
    }
    wait_for_api(cluster)?;
    for rest in cluster.servers() {
        changed |= server(rest)?;
    }
    for node in cluster.nodes() {
        changed |= node::ensure_agents(cluster, node)?;
    }
    Ok(changed)
}

fn wait_for_api(cluster: &Cluster) -> Result<()> {
    let api = Api::of_administrator(&cluster.layout)?;
    let needed = [Server::Etcd, Server::ApiServer].map(Component::Server);
    let patience = Patience { what: "the API server's `ok`", limit: LIMIT, logs: &cluster.layout.logs() };
    until_true(&patience, || {
        process::expect_alive(cluster, &needed)?;
        Ok(api.get("/readyz").is_ok_and(|answer| answer.is_success()))
    })
}

/// Every node ready and free of taints, and a service account for pods to be made with. Returns whether it made a
/// played node.
fn wait_until_ready(cluster: &Cluster) -> Result<bool> {
    let api = Api::of_administrator(&cluster.layout)?;
    let made = ensure_kwok_nodes(cluster, &api)?;
    let components = cluster.components();
    for node in cluster.nodes() {
        let what = format!("{node} ready");
        let boot = read(&cluster.layout.node_file(node, "boot-id"))?;
        until_true(&Patience { what: &what, limit: LIMIT, logs: &cluster.layout.logs() }, || {
            process::expect_alive(cluster, &components)?;
            let answer = api.get(&format!("/api/v1/nodes/{node}"))?;
            Ok(answer.is_success() && takes_pods(&answer.body) && is_of_boot(&answer.body, boot.trim()))
        })?;
    }
    let patience = Patience { what: "the default service account", limit: LIMIT, logs: &cluster.layout.logs() };
    until_true(&patience, || {
        let answer = api.get("/api/v1/namespaces/default/serviceaccounts/default")?;
        Ok(answer.is_success())
    })?;
    Ok(made)
}

/// Whether a node object is ready and nothing keeps pods away.
pub fn takes_pods(node: &str) -> bool {
    is_ready(node) && serde_json::from_str::<serde_json::Value>(node).is_ok_and(|node| node["spec"]["taints"].is_null())
}

/// Whether a node object is of this boot: conditions of an earlier boot stay for a while.
fn is_of_boot(node: &str, boot: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(node).is_ok_and(|node| node["status"]["nodeInfo"]["bootID"] == boot)
}

/// Whether a node object's condition `Ready` is true.
pub fn is_ready(node: &str) -> bool {
    let node: serde_json::Value = serde_json::from_str(node).unwrap_or_default();
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn ensure_kwok_nodes(cluster: &Cluster, api: &Api) -> Result<bool> {
    let mut made = false;
    for number in 1..=cluster.record.kwok {
        let answer = api.post("/api/v1/nodes", &control_plane::kwok_node(number))?;
        match answer.status {
            409 => {}
            _ if answer.is_success() => made = true,
            _ => return Err(Error::Refused(format!("node kwok-{number} was refused: {}", answer.body))),
        }
    }
    Ok(made)
}

/// Starts one component that was killed, and returns when it serves. As on any machine, a kubelet gives up when it
/// starts before containerd serves, and no service manager here starts it again.
///
/// # Errors
/// There is no such thing in this cluster, or its node is down.
pub fn start_component(cluster: &Cluster, component: Component) -> Result<()> {
    if let Component::Agent(node, _) = component {
        let frozen = cluster.cgroups.is_frozen(&cluster.layout.node_cgroup(node));
        if frozen {
            return Err(Error::Refused(format!("{node} is frozen: `cluster thaw {node}` first")));
        }
    }
    process::ensure(cluster, component)?;
    process::wait_until_serving(cluster, component)
}

/// Boots a node that was killed.
///
/// # Errors
/// As [`up`].
pub fn start_node(cluster: &Cluster, number: NodeNumber) -> Result<()> {
    node::ensure(cluster, number)?;
    links::ensure_host_routes(cluster)?;
    node::ensure_pause(cluster, number)?;
    node::ensure_agents(cluster, number)?;
    Agent::ALL.into_iter().try_for_each(|agent| process::wait_until_serving(cluster, Component::Agent(number, agent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(nodes: u8, kwok: u16) -> Request {
        Request { nodes, kwok, programs: "/new".into() }
    }

    #[test]
    fn a_cluster_grows_and_does_not_shrink() {
        let fresh = merge(None, &request(2, 0));
        assert_eq!(fresh, Record { programs: "/new".into(), nodes: 2, kwok: 0 });
        let known = Record { programs: "/old".into(), nodes: 3, kwok: 5 };
        assert_eq!(merge(Some(known.clone()), &request(2, 0)), known);
        assert_eq!(merge(Some(known), &request(4, 9)), Record { programs: "/old".into(), nodes: 4, kwok: 9 });
    }

    #[test]
    fn a_node_is_ready_when_it_says_so_and_takes_pods_without_taints() {
        let ready = r#"{"spec":{},"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
        let tainted = r#"{"spec":{"taints":[{"key":"x"}]},"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
        let lost = r#"{"spec":{},"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}"#;
        assert!(takes_pods(ready) && is_ready(tainted) && !takes_pods(tainted));
        assert!(!is_ready(lost) && !is_ready("") && !is_ready("{}"));
        let booted = r#"{"status":{"nodeInfo":{"bootID":"b1"}}}"#;
        assert!(is_of_boot(booted, "b1") && !is_of_boot(booted, "b2") && !is_of_boot("{}", "b1"));
    }
}
