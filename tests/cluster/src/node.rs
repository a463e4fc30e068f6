//! A node: the namespaces of its first process. With that process everything of the node goes, mounts too.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uuid::Uuid;

use crate::cluster::Cluster;
use crate::component::{Agent, Component};
use crate::config::{Invocation, containerd, kubelet, network};
use crate::error::{Error, Result};
use crate::files::{ensure_directory, read, remove_file, tail, write, write_all};
use crate::layout::NodeNumber;
use crate::links;
use crate::process;
use crate::tool::{run, run_from};
use crate::wait::{Patience, until, until_true};

/// For a node's first process to have everything mounted, and for containerd to answer.
const LIMIT: Duration = Duration::from_secs(60);
/// Settings of the whole kernel that a kubelet changes. It changes copies, so that the machine stays as it is.
pub const KERNEL_SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// A node's first process, by its number on the host.
pub fn init(cluster: &Cluster, node: NodeNumber) -> Option<i32> {
    let members = cluster.cgroups.members(&cluster.layout.init_cgroup(node));
    members.into_iter().find(|pid| is_first_of_namespace(&status_of(*pid)))
}

/// Whether `/proc/PID/status` is that of the first process of a namespace one level down.
fn is_first_of_namespace(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| matches!(numbers.split_whitespace().collect::<Vec<_>>()[..], [_, "1"]))
}

fn status_of(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
}

/// `nsenter` arguments that run a program inside a node.
pub fn enter(init: i32, program: &str, arguments: &[impl AsRef<str>]) -> Vec<String> {
    let init = init.to_string();
    let own = ["--target", &init, "--net", "--mount", "--uts", "--pid", "--", program].map(str::to_owned);
    own.into_iter().chain(arguments.iter().map(|argument| argument.as_ref().to_owned())).collect()
}

/// Makes the node stand: its first process, its link, its containerd. Returns whether anything had to be done.
///
/// # Errors
/// Something that could not be made; the node's `init.log` has the error.
pub fn ensure(cluster: &Cluster, node: NodeNumber) -> Result<bool> {
    let group = cluster.layout.node_cgroup(node);
    let mut done = cluster.cgroups.is_frozen(&group);
    if done {
        cluster.cgroups.thaw(&group)?;
    }
    let (pid, booted) = match init(cluster, node) {
        Some(pid) => (pid, false),
        None => (boot(cluster, node)?, true),
    };
    done |= booted;
    done |= links::ensure(cluster, node, pid)?;
    done |= process::ensure(cluster, Component::Agent(node, Agent::Containerd))?;
    Ok(done)
}

/// Starts what connects to the API server. Returns whether anything had to be done.
///
/// # Errors
/// A program that is not there.
pub fn ensure_agents(cluster: &Cluster, node: NodeNumber) -> Result<bool> {
    let mut done = false;
    for agent in Agent::ALL {
        done |= process::ensure(cluster, Component::Agent(node, agent))?;
    }
    Ok(done)
}

fn boot(cluster: &Cluster, node: NodeNumber) -> Result<i32> {
    let layout = &cluster.layout;
    forget(cluster, node)?;
    prepare(cluster, node)?;
    let group = layout.init_cgroup(node);
    cluster.cgroups.ensure(&group)?;
    let wanted = init_invocation(cluster, node);
    run(&cluster.helper, &process::daemon_arguments(cluster, &group, &layout.init_log(node), &wanted))?;
    let ready = layout.node_file(node, "ready");
    let what = format!("the first process of {node}");
    until(&Patience { what: &what, limit: LIMIT, logs: &layout.logs() }, || {
        if cluster.cgroups.members(&group).is_empty() {
            let log = layout.init_log(node);
            let tail = tail(&log, 12);
            return Err(Error::Ended { component: what.clone(), log, tail });
        }
        Ok(init(cluster, node).filter(|_| ready.exists()))
    })
}

/// Takes away what an earlier life of the node left outside its namespaces.
///
/// # Errors
/// A process that does not go.
pub fn forget(cluster: &Cluster, node: NodeNumber) -> Result<()> {
    let group = cluster.layout.node_cgroup(node);
    cluster.cgroups.sweep(&group)?;
    links::remove(&cluster.layout.uplink(node))?;
    remove_file(&cluster.layout.node_file(node, "ready"))
}

/// Everything the node reads. Its identity stays, its boot is a new one.
fn prepare(cluster: &Cluster, node: NodeNumber) -> Result<()> {
    let layout = &cluster.layout;
    write_all(containerd::files(layout, &cluster.record.programs, node))?;
    write_all(kubelet::files(layout, node))?;
    write_all([network::cni(layout, node)])?;
    for directory in ["lib", "lib/kubelet", "lib/cni", "log", "run"] {
        ensure_directory(&layout.node_bulk(node, directory))?;
    }
    if let Some(parent) = layout.init_log(node).parent() {
        ensure_directory(parent)?;
    }
    for setting in KERNEL_SETTINGS {
        let now = read(&Path::new("/proc/sys").join(setting))?;
        write(&layout.node_file(node, "kernel").join(setting), &now)?;
    }
    let identity = layout.node_file(node, "machine-id");
    if !identity.exists() {
        write(&identity, &format!("{}\n", Uuid::new_v4().simple()))?;
    }
    write(&layout.node_file(node, "boot-id"), &format!("{}\n", Uuid::new_v4()))
}

/// `unshare` makes the namespaces and this program is the first in them.
fn init_invocation(cluster: &Cluster, node: NodeNumber) -> Invocation {
    let layout = &cluster.layout;
    let arguments = [
        "--net",
        "--mount",
        "--uts",
        "--pid",
        "--fork",
        "--kill-child=SIGKILL",
        &cluster.helper.display().to_string(),
        "internal",
        "node-init",
        "--state",
        &layout.state.display().to_string(),
        "--bulk",
        &layout.bulk.display().to_string(),
        &layout.name.to_string(),
        &node.to_string(),
    ];
    Invocation { program: "unshare".into(), arguments: arguments.map(str::to_owned).to_vec() }
}

/// Node loss: the first process is killed, and with it everything that runs on the node.
///
/// # Errors
/// It is down already.
pub fn lose(cluster: &Cluster, node: NodeNumber) -> Result<()> {
    let pid = init(cluster, node).ok_or_else(|| Error::Refused(format!("{node} is down already")))?;
    let failed = |source| Error::Kernel { action: format!("kill {node}"), source };
    kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(failed)?;
    forget(cluster, node)
}

/// Gives an archive (OCI layout or `docker save`) to a node's containerd, and unpacks it there, so that the first pod
/// does not wait for it. Returns the names of the images.
///
/// # Errors
/// The node is down, or this is no image.
pub fn load(cluster: &Cluster, node: NodeNumber, archive: &Path) -> Result<Vec<String>> {
    let pid = init(cluster, node).ok_or_else(|| Error::Refused(format!("{node} is down")))?;
    let ctr = cluster.record.programs.join("ctr").display().to_string();
    let import = ["--namespace", "k8s.io", "images", "import", "--local", "-"];
    Ok(unpacked(&run_from("nsenter", &enter(pid, &ctr, &import), archive)?))
}

/// The names in what `ctr images import --local` prints: `unpacking NAME (DIGEST)...done`.
fn unpacked(output: &str) -> Vec<String> {
    let names = output.lines().filter_map(|line| line.strip_prefix("unpacking ")?.split_once(" ("));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// Waits until containerd answers, and gives it the pause image, once in the node's life.
///
/// # Errors
/// It has ended, or does not answer.
pub fn ensure_pause(cluster: &Cluster, node: NodeNumber) -> Result<()> {
    let component = Component::Agent(node, Agent::Containerd);
    let what = format!("an answer of {component}");
    let archive = cluster.record.programs.join("pause.tar");
    until_true(&Patience { what: &what, limit: LIMIT, logs: &cluster.layout.logs() }, || {
        process::expect_alive(cluster, &[component])?;
        Ok(containerd_listens(cluster, node))
    })?;
    let done = mark_of_pause(cluster, node);
    if !done.exists() {
        load(cluster, node, &archive)?;
        write(&done, "")?;
    }
    Ok(())
}

/// Lies beside what containerd keeps, and goes with it.
fn mark_of_pause(cluster: &Cluster, node: NodeNumber) -> PathBuf {
    cluster.layout.node_bulk(node, "pause-loaded")
}

/// Whether containerd's socket takes a connection, through the node's root directory.
pub fn containerd_listens(cluster: &Cluster, node: NodeNumber) -> bool {
    let Some(pid) = init(cluster, node) else { return false };
    let socket = format!("/proc/{pid}/root/run/containerd/containerd.sock");
    // An old one may lie there after a kill: only a connection counts.
    UnixStream::connect(socket).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_of_a_node_is_identified_by_its_two_numbers() {
        assert!(is_first_of_namespace("Name:\tcluster\nNSpid:\t4711\t1\n"));
        for other in ["NSpid:\t1\n", "NSpid:\t4711\n", "NSpid:\t4711\t2\n", "NSpid:\t4711\t30\t1\n", ""] {
            assert!(!is_first_of_namespace(other), "{other}");
        }
    }

    #[test]
    fn the_names_of_loaded_images_are_read() {
        let output = "unpacking registry.garboard.dev/a:1 (sha256:00)...done\nunpacking b:2 (sha256:11)...done\n";
        assert_eq!(unpacked(output), ["registry.garboard.dev/a:1", "b:2"]);
        assert!(unpacked("").is_empty());
    }

    #[test]
    fn nsenter_goes_everywhere_but_into_the_control_group() {
        let arguments = enter(7, "ctr", &["version"]).join(" ");
        assert_eq!(arguments, "--target 7 --net --mount --uts --pid -- ctr version");
    }
}
