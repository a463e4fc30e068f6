//! Which VirtualMachineInstances this agent may write, and how much of a report it passes on. Pure.
//!
//! What a report makes of a status is decided in [`garboard_cluster::report`].

use garboard_api::v1::{VirtualMachineInstance, VirtualMachineInstanceStatus};
use garboard_cluster::report::{self, Seen};
use garboard_protocol::control::Status;
use jiff::Timestamp;

use crate::pods::LauncherPod;

/// The most interfaces and disks that are reported, addresses of each interface, and letters of a name and of a message.
const INTERFACES: usize = 64;
const DISKS: usize = 256;
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
    cut(&mut report.machine);
    report.supervisor.iter_mut().for_each(|supervisor| cut(&mut supervisor.version));
    report.interfaces.truncate(INTERFACES);
    for interface in &mut report.interfaces {
        for text in [&mut interface.name, &mut interface.mac, &mut interface.info_source] {
            cut(text);
        }
        interface.interface_name.iter_mut().for_each(cut);
        interface.addresses.truncate(ADDRESSES);
        interface.addresses.iter_mut().for_each(cut);
    }
    if let Some(guest) = &mut report.guest {
        let system = &mut guest.system;
        let texts = [
            &mut guest.hostname,
            &mut guest.os,
            &mut guest.kernel,
            &mut guest.agent_version,
            &mut system.id,
            &mut system.name,
            &mut system.version,
            &mut system.version_id,
            &mut system.kernel_version,
            &mut system.machine,
        ];
        texts.into_iter().flatten().for_each(cut);
    }
    if report.stored.as_ref().is_some_and(|stored| stored.to_string().len() > STORED) {
        tracing::warn!(limit_bytes = STORED, "the stored machine is too long and is left out of the status");
        report.stored = None;
    }
    report.disks.truncate(DISKS);
    for disk in &mut report.disks {
        [&mut disk.volume, &mut disk.target].into_iter().for_each(cut);
    }
    report.ended.iter_mut().for_each(|ended| cut_at(&mut ended.message, MESSAGE));
    report
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
#[path = "status_tests.rs"]
pub(crate) mod tests;
