//! Links and routes: one bridge for the host and all nodes, one pair of ends for each node.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cluster::Cluster;
use crate::config::network::{bridge_commands, host_route_commands, node_commands, uplink_commands};
use crate::error::{Error, Result};
use crate::files::{at, read};
use crate::layout::{ClusterName, Layout, MARK, NodeNumber};
use crate::tool::{ip, run};

/// Where the kernel lists the links of the namespace this process was started in.
const LINKS: &str = "/sys/class/net";
/// The flag of an interface that is up (`netdevice(7)`).
const UP: u32 = 1;

/// Another cluster of this machine, by its bridge.
///
/// # Errors
/// There is no `/sys`.
pub fn other_cluster(layout: &Layout) -> Result<Option<ClusterName>> {
    let (prefix, bridge) = (format!("{MARK}-"), layout.bridge());
    let other = all()?.into_iter().find(|link| link.starts_with(&prefix) && *link != bridge);
    Ok(other.and_then(|link| link.trim_start_matches(&prefix).parse().ok()))
}

/// Makes the bridge.
///
/// # Errors
/// No permission.
pub fn ensure_bridge(layout: &Layout) -> Result<()> {
    ip(None, &bridge_commands(layout, exists(&layout.bridge())))
}

/// Joins a node to the bridge and gives it the routes to all others. Returns whether a link had to be made or set up.
///
/// # Errors
/// The bridge is not there.
pub fn ensure(cluster: &Cluster, node: NodeNumber, init: i32) -> Result<bool> {
    let there = exists(&cluster.layout.uplink(node));
    let was_cut = is_cut(&cluster.layout, node);
    ip(None, &uplink_commands(&cluster.layout, node, init, there))?;
    ip(Some(init), &node_commands(node, cluster.record.nodes))?;
    Ok(!there || was_cut)
}

/// The host's way to the pods of every node.
///
/// # Errors
/// The bridge is not there.
pub fn ensure_host_routes(cluster: &Cluster) -> Result<()> {
    ip(None, &host_route_commands(&cluster.layout, cluster.record.nodes))
}

/// A partition: the node runs on, and no other node reaches it.
///
/// # Errors
/// It has no link.
pub fn cut(layout: &Layout, node: NodeNumber) -> Result<()> {
    set(layout, node, "down")
}

/// Ends a partition.
///
/// # Errors
/// It has no link.
pub fn heal(layout: &Layout, node: NodeNumber) -> Result<()> {
    set(layout, node, "up")
}

/// Whether a node is cut off.
pub fn is_cut(layout: &Layout, node: NodeNumber) -> bool {
    let flags = read(&place(&layout.uplink(node)).join("flags")).unwrap_or_default();
    u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).is_ok_and(|flags| flags & UP == 0)
}

/// Removes a link, with its other end. One that is not there is fine.
///
/// # Errors
/// No permission.
pub fn remove(link: &str) -> Result<()> {
    if !exists(link) {
        return Ok(());
    }
    match run("ip", &["link", "del", link]) {
        // The kernel was faster: the namespace of its other end has gone.
        Err(_) if !exists(link) => Ok(()),
        other => other.map(drop),
    }
}

/// Every link of the cluster that the host has.
///
/// # Errors
/// There is no `/sys`.
pub fn of_cluster(layout: &Layout) -> Result<Vec<String>> {
    Ok(all()?.into_iter().filter(|link| layout.owns_link(link)).collect())
}

fn set(layout: &Layout, node: NodeNumber, state: &str) -> Result<()> {
    let link = layout.uplink(node);
    if !exists(&link) {
        return Err(Error::Refused(format!("{node} has no link: it is down")));
    }
    run("ip", &["link", "set", &link, state]).map(drop)
}

fn exists(link: &str) -> bool {
    place(link).exists()
}

fn place(link: &str) -> PathBuf {
    Path::new(LINKS).join(link)
}

fn all() -> Result<Vec<String>> {
    let directory = Path::new(LINKS);
    let entries = at("list", directory, fs::read_dir(directory))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}
