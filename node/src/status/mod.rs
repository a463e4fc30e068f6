//! Which VirtualMachineInstances this agent may write, and how much of a report it passes on. Pure.
//!
//! What a report makes of a status is decided in [`garboard_cluster::report`].

use garboard_api::v1::{VirtualMachineInstance, VirtualMachineInstanceStatus};
use garboard_cluster::report::{self, Seen};
use garboard_protocol::control::{
    CredentialsStatus, DiskStatus, Ended, GuestStatus, GuestSystem, InterfaceStatus, Status, SupervisorInfo,
};
use garboard_protocol::guest::expected_commands;
use jiff::Timestamp;

use crate::pods::LauncherPod;

/// The most interfaces and disks that are reported, addresses of each interface, and letters of a name and of a message.
const INTERFACES: usize = 64;
const DISKS: usize = 256;
/// The most commands of people, as many as a supervisor remembers.
const TAINTS: usize = 16;
/// The longest description of a machine for its next start, bytes.
const STORED: usize = 64 << 10;
const ADDRESSES: usize = 64;
const NAME: usize = 256;
const MESSAGE: usize = 1024;

/// Whether a VMI is the agent's to write, by this pod's report.
#[must_use]
pub fn is_ours(pod: &LauncherPod, vmi: &VirtualMachineInstance, node: &str) -> bool {
    let Some(status) = &vmi.status else { return false };
    // Only the controller writes `activePods`, with the node: a pod that merely claims to belong to the VMI is not in it.
    let pod_is_known = status.active_pods.contains_key(pod.uid.as_str());
    vmi.metadata.uid.as_deref() == Some(&pod.vmi_uid) && status.node_name.as_deref() == Some(node) && pod_is_known
}

/// The status a VMI of this node should have by the report of its pod; nothing if it has it already, or is not the agent's
/// to write.
#[must_use]
pub fn next_status(
    report: &Status,
    pod: &LauncherPod,
    vmi: &VirtualMachineInstance,
    node: &str,
    now: Timestamp,
) -> Option<VirtualMachineInstanceStatus> {
    let seen = Seen { report, addresses: &pod.addresses, claims: &pod.claims, vmi, now };
    is_ours(pod, vmi, node).then(|| report::next_status(&seen)).flatten()
}

/// A report with no more in it than a launcher that keeps to the rules would send: the API server stores it
/// and shows it to users, and a launcher that a guest has taken over may report anything.
#[must_use]
pub fn bounded(mut report: Status) -> Status {
    // Every field: a new one that may be long, and is cut nowhere, is an error here. What is `_` has a fixed length.
    let Status {
        generation: _,
        namespace,
        name,
        uid,
        phase: _,
        phase_since_ms: _,
        paused: _,
        pause_message,
        observed: _,
        stopping: _,
        soft_rebooting: _,
        frozen: _,
        unresponsive: _,
        ended_helper,
        software_emulation: _,
        interpreted_by_kvm: _,
        machine,
        memory_bytes: _,
        overhead_bytes: _,
        vcpus: _,
        stored,
        disks,
        interfaces,
        guest,
        access_credentials,
        taints,
        run,
        supervisor_pid: _,
        supervisor,
        resets: _,
        ended,
    } = &mut report;
    [namespace, name, uid, machine, run].into_iter().for_each(cut);
    pause_message.iter_mut().for_each(|message| cut_at(message, MESSAGE));
    ended_helper.iter_mut().for_each(cut);
    taints.truncate(TAINTS);
    taints.iter_mut().for_each(cut);
    supervisor.iter_mut().for_each(|SupervisorInfo { version, started_at_ms: _, executed_at_ms: _ }| cut(version));
    interfaces.truncate(INTERFACES);
    interfaces.iter_mut().for_each(cut_interface);
    guest.iter_mut().for_each(cut_guest);
    access_credentials.iter_mut().for_each(|CredentialsStatus { synchronized: _, message }| cut_at(message, MESSAGE));
    if stored.as_ref().is_some_and(|stored| stored.to_string().len() > STORED) {
        tracing::warn!(limit_bytes = STORED, "the stored machine is too long and is left out of the status");
        *stored = None;
    }
    disks.truncate(DISKS);
    disks.iter_mut().for_each(|DiskStatus { volume, target }| [volume, target].into_iter().for_each(cut));
    // What the report and the cause have beside the message is not passed on.
    ended.iter_mut().for_each(|Ended { cause: _, message, report: _, at_ms: _ }| cut_at(message, MESSAGE));
    report
}

fn cut_interface(interface: &mut InterfaceStatus) {
    let InterfaceStatus { name, interface_name, mac, addresses, info_source, queues: _, link: _ } = interface;
    [name, mac, info_source].into_iter().for_each(cut);
    interface_name.iter_mut().for_each(cut);
    addresses.truncate(ADDRESSES);
    addresses.iter_mut().for_each(cut);
}

fn cut_guest(guest: &mut GuestStatus) {
    let GuestStatus { hostname, os, kernel, agent_version, system, missing_commands } = guest;
    let GuestSystem { id, name, version, version_id, kernel_version, machine } = system;
    let texts = [hostname, os, kernel, agent_version, id, name, version, version_id, kernel_version, machine];
    texts.into_iter().flatten().for_each(cut);
    missing_commands.truncate(expected_commands().count());
    missing_commands.iter_mut().for_each(cut);
}

fn cut(text: &mut String) {
    cut_at(text, NAME);
}

fn cut_at(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
}

#[cfg(test)]
pub(crate) mod tests;
