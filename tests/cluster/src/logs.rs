//! `logs` and `exec`: this process becomes another program, so that terminals and exit codes are that program's.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::Cluster;
use crate::component::Target;
use crate::error::{Error, Result};
use crate::inside::search_path;
use crate::layout::{Layout, NodeNumber};
use crate::node;

/// Whether to go on when the end of a log is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Show what comes.
    Yes,
    /// Be done.
    No,
}

/// Becomes `tail`: the whole log of a component, the ends of all logs of a node, or of all.
///
/// # Errors
/// There is no such log.
pub fn logs(layout: &Layout, target: Option<Target>, follow: Follow) -> Result<()> {
    let (files, lines) = match target {
        Some(Target::Component(component)) => (vec![layout.log(component)], "+1"),
        Some(Target::Node(node)) => (logs_below(&layout.logs().join(node.to_string())), "40"),
        // The audit log is for programs, and long.
        None => (logs_below(&layout.logs()).into_iter().filter(|path| *path != layout.audit_log()).collect(), "20"),
    };
    if !files.iter().any(|file| file.exists()) {
        return Err(Error::Refused(format!("there is no such log below {}", layout.logs().display())));
    }
    let mut tail = Command::new("tail");
    tail.args(["-n", lines]).args((follow == Follow::Yes).then_some("-F")).args(files);
    become_it(tail)
}

/// Becomes a program inside a node, which finds the cluster's programs by name and whose `ctr` looks at pods.
///
/// # Errors
/// The node is down.
pub fn exec(cluster: &Cluster, number: NodeNumber, command: &[OsString]) -> Result<()> {
    cluster.expect_node(number)?;
    let pid = node::init(cluster, number).ok_or_else(|| Error::Refused(format!("{number} is down")))?;
    let mut nsenter = Command::new("nsenter");
    let no_more: [&str; 0] = [];
    let mut arguments = node::enter(pid, "", &no_more);
    arguments.pop();
    nsenter.args(arguments).args(command);
    nsenter.env("PATH", search_path(&cluster.record.programs)).env("CONTAINERD_NAMESPACE", "k8s.io");
    become_it(nsenter)
}

fn become_it(mut command: Command) -> Result<()> {
    let shown = command.get_program().to_string_lossy().into_owned();
    // It returns only if it failed.
    Err(Error::Start { command: shown, source: command.exec() })
}

/// Every log below a directory, in the order of their names.
fn logs_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(logs_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "log") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::write;

    #[test]
    fn logs_are_found_in_the_order_of_their_names() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["node-1/kubelet.log", "etcd.log", "note.txt"] {
            write(&directory.path().join(name), "").unwrap();
        }
        let found = logs_below(directory.path());
        assert_eq!(found, ["etcd.log", "node-1/kubelet.log"].map(|name| directory.path().join(name)));
    }
}
