//! Asking QEMU what it holds, with questions that no storage has to answer.

use std::collections::{BTreeMap, BTreeSet};

use garboard_plan::live::{Drive, HeldByQemu};
use garboard_qmp::{CallError, Event, Monitor, qmp};
use serde::Deserialize;

/// Where QEMU keeps the devices that have an ID.
const PERIPHERALS: &str = "/machine/peripheral";

/// Kinds of devices whose medium can be changed. Only `query-block` reports it of a device, and that is not asked.
const DRIVES: [&str; 2] = ["child<ide-cd>", "child<scsi-cd>"];

/// What QEMU reports. Network backends are in no query; of a drive that is not among the `drives` known so far, the tray is taken to be
/// closed.
pub(super) async fn held(monitor: &Monitor, drives: &BTreeMap<String, Drive>) -> Result<HeldByQemu, CallError> {
    let block_nodes = block_nodes(monitor).await?;
    let children: Vec<Child> = monitor.ask(&qmp::qom_list { path: PERIPHERALS.to_owned() }).await?;
    let chardevs: Vec<Chardev> = monitor.ask(&qmp::query_chardev {}).await?;
    let blocks: Vec<Block> = monitor.ask(&qmp::query_blockstats { query_nodes: None }).await?;
    let has_tray = |id: &str| {
        drives.contains_key(id)
            || children.iter().any(|child| child.name == id && DRIVES.contains(&child.kind.as_str()))
    };
    let drive = |block: Block| {
        let id = device(&block.qdev).filter(|id| has_tray(id))?.to_owned();
        let is_open = drives.get(&id).is_some_and(|drive| drive.is_open);
        Some((id, Drive { is_open, medium: block.node_name }))
    };
    Ok(HeldByQemu {
        block_nodes: block_nodes.into_iter().filter(|name| !name.starts_with('#')).collect(),
        drives: blocks.into_iter().filter_map(drive).collect(),
        devices: children.into_iter().filter(Child::is_device).map(|child| child.name).collect(),
        chardevs: chardevs.into_iter().map(|chardev| chardev.label).collect(),
        ..HeldByQemu::default()
    })
}

/// Names of all block nodes; those that begin with `#` QEMU has made up.
///
/// `query-named-block-nodes` and `query-block` would ask the storage for sizes, in QEMU's main loop: where it hangs, every vCPU stops
/// at its next device access. Counters are in memory.
pub(in crate::supervisor) async fn block_nodes(monitor: &Monitor) -> Result<BTreeSet<String>, CallError> {
    let nodes: Vec<Block> = monitor.ask(&qmp::query_blockstats { query_nodes: Some(true) }).await?;
    Ok(nodes.into_iter().filter_map(|node| node.node_name).collect())
}

/// A tray that has moved, and whether it is open now.
pub(super) fn moved_tray(event: &Event) -> Option<(String, bool)> {
    let moved: Moved = event.decode().ok()?;
    Some((device(&moved.id)?.to_owned(), moved.tray_open))
}

/// The device's ID in what QEMU calls it: that, or the path of one of its parts.
fn device(qdev: &str) -> Option<&str> {
    let path = qdev.strip_prefix(PERIPHERALS).and_then(|rest| rest.strip_prefix('/')).unwrap_or(qdev);
    path.split('/').next().filter(|id| !id.is_empty())
}

/// Of `DEVICE_TRAY_MOVED`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Moved {
    id: String,
    tray_open: bool,
}

#[derive(Deserialize)]
struct Child {
    name: String,
    #[serde(rename = "type")]
    kind: String,
}

impl Child {
    /// The container has a property of its own.
    fn is_device(&self) -> bool {
        self.kind.starts_with("child<")
    }
}

#[derive(Deserialize)]
struct Chardev {
    label: String,
}

/// A backend of a device, or a node.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Block {
    #[serde(default)]
    qdev: String,
    node_name: Option<String>,
}
