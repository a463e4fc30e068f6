//! Daemons: started by a helper that moves into their control group first, found again by group and program.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::Cluster;
use crate::component::{Agent, Component};
use crate::config::{Invocation, invocation};
use crate::error::{Error, Result};
use crate::files::tail;
use crate::layout::Layout;
use crate::node;
use crate::tool::run;
use crate::wait::{Patience, until_true};

/// For a program to appear, or to go after a signal that it may not ignore.
const LIMIT: Duration = Duration::from_secs(60);

/// How a component is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// It runs as this process.
    Running(i32),
    /// It is stopped by a signal.
    Stopped(i32),
    /// There is none.
    Gone,
}

/// A component's process, from this command or an earlier one.
pub fn main_process(cluster: &Cluster, component: Component) -> Option<i32> {
    let members = cluster.cgroups.members(&cluster.layout.component_cgroup(component));
    members.into_iter().find(|pid| program_of(*pid).as_deref() == Some(component.program()))
}

/// How a component is now.
pub fn condition(cluster: &Cluster, component: Component) -> Condition {
    match main_process(cluster, component) {
        None => Condition::Gone,
        Some(pid) if is_stopped(pid) => Condition::Stopped(pid),
        Some(pid) => Condition::Running(pid),
    }
}

/// Starts a component unless it runs. Returns whether it did.
///
/// # Errors
/// Its program or its node is not there.
pub fn ensure(cluster: &Cluster, component: Component) -> Result<bool> {
    match condition(cluster, component) {
        Condition::Running(_) => return Ok(false),
        Condition::Stopped(_) => {
            signal(cluster, component, Signal::SIGCONT)?;
            return Ok(true);
        }
        Condition::Gone => {}
    }
    let (layout, group) = (&cluster.layout, cluster.layout.component_cgroup(component));
    cluster.cgroups.ensure(&group)?;
    let wanted = invocation(layout, &cluster.record.programs, component);
    let arguments = daemon_arguments(cluster, &group, &layout.log(component), &wanted);
    match component {
        Component::Server(_) => run(&cluster.helper, &arguments)?,
        Component::Agent(node, _) => {
            let init = node::init(cluster, node).ok_or_else(|| Error::Refused(format!("{node} is down")))?;
            run("nsenter", &node::enter(init, &cluster.helper.display().to_string(), &arguments))?
        }
    };
    Ok(true)
}

/// The arguments with which this program starts another in the background.
pub fn daemon_arguments(cluster: &Cluster, group: &str, log: &Path, wanted: &Invocation) -> Vec<String> {
    let own = [
        "internal",
        "daemon",
        "--group",
        group,
        "--log",
        &log.display().to_string(),
        "--programs",
        &cluster.record.programs.display().to_string(),
        "--",
        &wanted.program.display().to_string(),
    ]
    .map(str::to_owned);
    own.into_iter().chain(wanted.arguments.iter().cloned()).collect()
}

/// Sends a signal to a component.
///
/// # Errors
/// It does not run.
pub fn signal(cluster: &Cluster, component: Component, signal: Signal) -> Result<()> {
    let pid = main_process(cluster, component).ok_or_else(|| Error::Refused(format!("{component} does not run")))?;
    let failed = |source| Error::Kernel { action: format!("send {signal} to {component}"), source };
    kill(Pid::from_raw(pid), signal).map_err(failed)
}

/// Waits until a component is gone.
///
/// # Errors
/// It stays.
pub fn wait_until_gone(cluster: &Cluster, component: Component) -> Result<()> {
    let what = format!("the end of {component}");
    let patience = Patience { what: &what, limit: LIMIT, logs: &cluster.layout.logs() };
    until_true(&patience, || Ok(main_process(cluster, component).is_none()))
}

/// Waits until a component that was just started serves.
///
/// # Errors
/// It ends instead, or does not come that far.
pub fn wait_until_serving(cluster: &Cluster, component: Component) -> Result<()> {
    let what = format!("{component} serving");
    until_true(&Patience { what: &what, limit: LIMIT, logs: &cluster.layout.logs() }, || {
        expect_alive(cluster, &[component])?;
        Ok(serves(cluster, component))
    })
}

/// Looked for in the kernel's tables, since a node may be cut off.
fn serves(cluster: &Cluster, component: Component) -> bool {
    let namespace_of = match component {
        Component::Server(_) => Some("self".to_owned()),
        Component::Agent(node, _) => node::init(cluster, node).map(|pid| pid.to_string()),
    };
    let Some(process) = namespace_of else { return false };
    match (component, Layout::port(component)) {
        (Component::Agent(node, Agent::Containerd), _) => node::containerd_listens(cluster, node),
        (_, None) => true,
        (_, Some(port)) => ["tcp", "tcp6"].iter().any(|table| {
            let table = std::fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
            listens(&table, port)
        }),
    }
}

/// Whether `/proc/net/tcp` has a listener on a port (`proc_net_tcp.rst`: local address, then state 0A).
fn listens(table: &str, port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields.as_slice(), [_, local, _, "0A", ..] if local.ends_with(&wanted))
    })
}

/// An error when one of the components has ended, with the end of its log.
///
/// # Errors
/// [`Error::Ended`].
pub fn expect_alive(cluster: &Cluster, components: &[Component]) -> Result<()> {
    for component in components {
        if main_process(cluster, *component).is_none() {
            let log = cluster.layout.log(*component);
            let tail = tail(&log, 12);
            return Err(Error::Ended { component: component.to_string(), log, tail });
        }
    }
    Ok(())
}

/// The file name of the program a process runs, even if the file is gone.
fn program_of(pid: i32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let name = path.file_name()?.to_str()?;
    Some(name.strip_suffix(" (deleted)").unwrap_or(name).to_owned())
}

fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may hold anything, parentheses too.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_by_its_port() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
                        0: 0100007F:2766 00000000:0000 0A 00000000:00000000\n\
                        1: 0B001EAC:280A 0C001EAC:D431 01 00000000:00000000\n";
        assert!(listens(table, 10086));
        assert!(!listens(table, 10250), "a connection is no listener");
        assert!(!listens("", 80));
    }

    #[test]
    fn a_process_is_known_by_its_program() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let logs = Path::new("/");
        let patience = |what| Patience { what, limit: LIMIT, logs };
        until_true(&patience("the program"), || Ok(program_of(pid).as_deref() == Some("sleep"))).unwrap();
        assert!(!is_stopped(pid));
        kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
        until_true(&patience("a stop"), || Ok(is_stopped(pid))).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(program_of(pid), None);
    }
}
