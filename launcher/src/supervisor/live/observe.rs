//! Asking QEMU what it holds.

use garboard_plan::live::{Drive, Held};
use garboard_qmp::{CallError, Monitor, qmp};
use serde::Deserialize;

/// Where QEMU keeps the devices that have an ID.
const PERIPHERALS: &str = "/machine/peripheral";

/// What QEMU says. Network backends are in no query.
pub(super) async fn held(monitor: &Monitor) -> Result<Held, CallError> {
    let nodes: Vec<Node> = monitor.ask(&qmp::query_named_block_nodes { flat: Some(true) }).await?;
    let children: Vec<Child> = monitor.ask(&qmp::qom_list { path: PERIPHERALS.to_owned() }).await?;
    let chardevs: Vec<Chardev> = monitor.ask(&qmp::query_chardev {}).await?;
    let blocks: Vec<Block> = monitor.ask(&qmp::query_block {}).await?;
    Ok(Held {
        block_nodes: nodes.into_iter().filter_map(Node::own_name).collect(),
        devices: children.into_iter().filter(Child::is_device).map(|child| child.name).collect(),
        chardevs: chardevs.into_iter().map(|chardev| chardev.label).collect(),
        drives: blocks.into_iter().filter_map(Block::drive).collect(),
        ..Held::default()
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Node {
    node_name: Option<String>,
}

impl Node {
    /// QEMU makes up names that begin with `#`.
    fn own_name(self) -> Option<String> {
        self.node_name.filter(|name| !name.starts_with('#'))
    }
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

#[derive(Deserialize)]
struct Block {
    #[serde(default)]
    qdev: String,
    #[serde(default)]
    removable: bool,
    tray_open: Option<bool>,
    inserted: Option<Inserted>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Inserted {
    node_name: Option<String>,
}

impl Block {
    fn drive(self) -> Option<(String, Drive)> {
        let path = self.qdev.strip_prefix(PERIPHERALS).and_then(|rest| rest.strip_prefix('/')).unwrap_or(&self.qdev);
        let id = path.split('/').next().filter(|id| self.removable && !id.is_empty())?;
        let medium = self.inserted.and_then(|inserted| inserted.node_name);
        Some((id.to_owned(), Drive { is_open: self.tray_open.unwrap_or(false), medium }))
    }
}
