//! Faults on purpose, and their end.

use nix::sys::signal::Signal;

use crate::cluster::Cluster;
use crate::component::{Component, Target};
use crate::error::{Error, Result};
use crate::layout::NodeNumber;
use crate::process::{condition, signal, wait_until_gone};
use crate::{links, node, process, up};

/// A hang: nothing of the target gets the processor any more, and its connections stay open.
///
/// # Errors
/// It does not run.
pub fn freeze(cluster: &Cluster, target: Target) -> Result<()> {
    match target {
        Target::Component(component) => {
            cluster.expect(component)?;
            signal(cluster, component, Signal::SIGSTOP)?;
            wait_for(cluster, component, "a stopped", |state| matches!(state, process::Condition::Stopped(_)))
        }
        Target::Node(number) => {
            expect_up(cluster, number)?;
            cluster.cgroups.freeze(&cluster.layout.node_cgroup(number))
        }
    }
}

/// The end of a hang.
///
/// # Errors
/// It does not run.
pub fn thaw(cluster: &Cluster, target: Target) -> Result<()> {
    match target {
        Target::Component(component) => {
            cluster.expect(component)?;
            signal(cluster, component, Signal::SIGCONT)?;
            wait_for(cluster, component, "a running", |state| matches!(state, process::Condition::Running(_)))
        }
        Target::Node(number) => {
            expect_up(cluster, number)?;
            cluster.cgroups.thaw(&cluster.layout.node_cgroup(number))
        }
    }
}

/// A signal to a program; a signal that ends it is waited for. A node is lost whole, whatever the signal.
///
/// # Errors
/// It does not run.
pub fn kill(cluster: &Cluster, target: Target, how: Signal) -> Result<()> {
    match target {
        Target::Component(component) => {
            cluster.expect(component)?;
            signal(cluster, component, how)?;
            if matches!(how, Signal::SIGKILL | Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT) {
                wait_until_gone(cluster, component)?;
            }
            Ok(())
        }
        Target::Node(number) => {
            cluster.expect_node(number)?;
            node::lose(cluster, number)
        }
    }
}

/// Brings back what was killed.
///
/// # Errors
/// It cannot be started.
pub fn start(cluster: &Cluster, target: Target) -> Result<()> {
    match target {
        Target::Component(component) => {
            cluster.expect(component)?;
            up::start_component(cluster, component)
        }
        Target::Node(number) => {
            cluster.expect_node(number)?;
            up::start_node(cluster, number)
        }
    }
}

/// Cuts a node's link: it runs on, and no other node reaches it.
///
/// # Errors
/// It is down.
pub fn partition(cluster: &Cluster, number: NodeNumber) -> Result<()> {
    expect_up(cluster, number)?;
    links::cut(&cluster.layout, number)
}

/// Joins it again.
///
/// # Errors
/// It is down.
pub fn heal(cluster: &Cluster, number: NodeNumber) -> Result<()> {
    expect_up(cluster, number)?;
    links::heal(&cluster.layout, number)
}

fn expect_up(cluster: &Cluster, number: NodeNumber) -> Result<()> {
    cluster.expect_node(number)?;
    match node::init(cluster, number) {
        Some(_) => Ok(()),
        None => Err(Error::Refused(format!("{number} is down: `cluster start {number}` boots it"))),
    }
}

fn wait_for(
    cluster: &Cluster,
    component: Component,
    how: &str,
    wanted: impl Fn(process::Condition) -> bool,
) -> Result<()> {
    let what = format!("{how} {component}");
    let logs = cluster.layout.logs();
    let patience = crate::wait::Patience { what: &what, limit: std::time::Duration::from_secs(10), logs: &logs };
    crate::wait::until_true(&patience, || Ok(wanted(condition(cluster, component))))
}
