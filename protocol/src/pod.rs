//! What the controller gives a launcher pod, and where things are in it.
//!
//! The pod carries its whole order as an annotation, which reaches the sidecar as a file (downward API): a VMI starts
//! although the API server is away. Everything else is a mount whose place is a constant here, so that the controller,
//! which makes the pod, and the programs in it cannot disagree.

use garboard_machine::facts::KvmFacts;
use serde::{Deserialize, Serialize};

use crate::agent::VolumeTable;

/// The supervisor, in the launcher's image.
pub const LAUNCHER_PROGRAM: &str = "/usr/bin/garboard-launcher";
/// PID 1 of the container of QEMU, in the launcher's image.
pub const INIT_PROGRAM: &str = "/usr/bin/garboard-init";
/// What asks a host what it offers, in the images of launcher and node agent.
pub const FACTS_PROGRAM: &str = "/usr/bin/garboard-facts";
/// The annotation of the launcher pod that holds a [`PodOrder`] as JSON.
pub const ORDER_ANNOTATION: &str = "garboard.dev/order";

/// emptyDir in memory, in the sidecar: the machine's directory ([`crate::paths::Layout`]).
pub const RUN_DIRECTORY: &str = "/run/garboard";
/// emptyDir in memory, in both containers: what PID 1 and the supervisor share, at its place in [`RUN_DIRECTORY`].
pub const INIT_DIRECTORY: &str = "/run/garboard/init";
/// emptyDir on the node's disk, in the sidecar: overlays and empty disks, lost at the stop.
pub const SCRATCH_DIRECTORY: &str = "/var/lib/garboard/scratch";
/// Downward API volume, in the sidecar.
pub const ORDER_DIRECTORY: &str = "/etc/garboard/order";
/// Name of the file in [`ORDER_DIRECTORY`] that holds the order.
pub const ORDER_FILE: &str = "order.json";
/// Name of the file in [`ORDER_DIRECTORY`] that holds what `compute` may keep on its node's disk, bytes: its limit of
/// ephemeral storage, which a LimitRange may have given, or else what the node has for all pods.
pub const STORAGE_LIMIT_FILE: &str = "ephemeral-storage-limit";
/// What logs and writable layers of the pod's containers may take of that, bytes; KubeVirt's figure.
pub const LOGS_BYTES: u64 = 50_000_000;
/// Below it each volume of the VMI has a directory of its name, in the sidecar.
pub const VOLUMES_DIRECTORY: &str = "/var/lib/garboard/volumes";
/// Below it each block volume is a device of its name, in the sidecar.
pub const BLOCK_DIRECTORY: &str = "/dev/garboard";
/// Name of the image in a claim with a file system.
pub const DISK_IMAGE: &str = "disk.img";
/// The claim with what the firmware keeps from run to run, in the sidecar.
pub const STATE_DIRECTORY: &str = "/var/lib/garboard/state";
/// The image of `kernelBoot`, in the sidecar.
pub const KERNEL_DIRECTORY: &str = "/var/lib/garboard/kernel-boot";
/// Below it each Secret with SSH keys has a directory of its name, in the sidecar.
pub const SSH_KEYS_DIRECTORY: &str = "/var/lib/garboard/ssh-keys";
/// Below it each Secret with passwords of the guest's users has a directory of its name, in the sidecar.
pub const PASSWORDS_DIRECTORY: &str = "/var/lib/garboard/passwords";
/// Below it the Secret of each `networkDataSecretRef` has a directory of the volume's name, in the sidecar.
pub const NETWORK_DATA_DIRECTORY: &str = "/var/lib/garboard/network-data";
/// Where the program that opens a container disk is, in the disk's own container; an init container put it there.
pub const CONTAINER_DISK_DIRECTORY: &str = "/run/garboard-container-disk";
/// Name of that program, in [`CONTAINER_DISK_DIRECTORY`] and in `/usr/bin` of the launcher's image.
pub const CONTAINER_DISK_PROGRAM: &str = "garboard-container-disk";
/// Where that program listens, in its container and in the sidecar; emptyDir in memory.
pub const CONTAINER_DISK_SOCKETS: &str = "/run/garboard-disks";
/// The agent's directory, mounted into each container that requests one of its devices.
pub const AGENT_DIRECTORY: &str = "/run/garboard-agent";
/// The agent's socket in [`AGENT_DIRECTORY`].
pub const AGENT_SOCKET: &str = "agent.sock";
/// What the agent found out about the node, in [`AGENT_DIRECTORY`]: [`NodeFacts`].
pub const NODE_FACTS: &str = "node.json";

/// Everything a launcher pod needs beside what is mounted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodOrder {
    /// [`crate::PROTOCOL_VERSION`] of the controller.
    pub version: u32,
    /// The VirtualMachineInstance, defaulted, without its status.
    pub vmi: serde_json::Value,
    /// Where its volumes are.
    pub volumes: VolumeTable,
    /// Disk images that are made if they are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<DiskImage>,
    /// Whether the guest runs under TCG (`useEmulation`, or the instance asks for it); else it runs under KVM, and
    /// `compute` has `/dev/kvm`.
    pub emulation: bool,
    /// By how much the memory is multiplied that the pod requests beside the guest's, in thousandths
    /// (`additionalGuestMemoryOverheadRatio`). Nothing from a controller that is older than this field: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead_permille: Option<u32>,
    /// What an earlier run of the same machine decided: `garboard_plan::StoredMachine`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<serde_json::Value>,
}

/// A disk image that is made in a volume with a file system: a claim, or a directory of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskImage {
    /// Name of the volume.
    pub volume: String,
    /// Name of the image in it.
    pub file: String,
    /// Size of the image, bytes; a sparse file.
    pub bytes: u64,
}

/// What the node agent found out about its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// [`crate::PROTOCOL_VERSION`] of the agent.
    pub version: u32,
    /// The agent makes taps.
    pub tap: bool,
    /// The agent hands out vhost-net descriptors.
    pub vhost_net: bool,
    /// What KVM is worth there. Nothing from an agent that could not measure it, or that is older than this field: a
    /// container that was given `/dev/kvm` may then take it for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm: Option<KvmFacts>,
}
