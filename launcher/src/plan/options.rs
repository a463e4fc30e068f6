//! What a plan needs beside the manifest and the host: the user's wishes on the command line and what was found out
//! about the volumes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::disk::{ImageFormat, Medium};
use super::interface::Forward;

/// Inputs that stand neither in the manifest nor in the host's facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PlanOptions {
    /// Whether TCG may stand in for KVM.
    pub emulation: Emulation,
    /// What was found out about volumes, by name. A volume that is not here is assumed to be as
    /// [`VolumeFacts::assumed`] says.
    pub volumes: BTreeMap<String, VolumeFacts>,
    /// Ports of the host that lead to the guest, for its first interface.
    pub forwards: Vec<Forward>,
    /// The MAC address that a cluster's network gave the pod: a guest that takes the pod's place on it has this one, unless
    /// its manifest says another. Nothing outside of a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_mac: Option<String>,
    /// What a machine asks for that does not say. Only whoever makes its pod needs another than the usual.
    #[serde(skip_serializing_if = "Shares::is_usual")]
    pub shares: Shares,
}

/// How little a machine asks of its node for what it is given (KubeVirt's `developerConfiguration`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Shares {
    /// How many vCPUs share one CPU in the request. At least 1; usually 10.
    pub cpu_allocation_ratio: u32,
    /// The guest's memory in per cent of what is asked for it. At least 1; usually 100.
    pub memory_overcommit_percent: u32,
    /// By how much the memory beside the guest's is multiplied, in thousandths. At least 1000, which is usual.
    pub overhead_permille: u32,
}

impl Default for Shares {
    fn default() -> Self {
        Self { cpu_allocation_ratio: 10, memory_overcommit_percent: 100, overhead_permille: 1000 }
    }
}

impl Shares {
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether TCG may stand in for KVM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Emulation {
    /// Without KVM there is no plan.
    Forbid,
    /// TCG is used where KVM is missing, not permitted or emulated.
    #[default]
    Allow,
}

/// What was found out about one volume before the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeFacts {
    /// Format of the image. Only a container disk and a claim under an overlay may be qcow2; everything else a guest
    /// can write is raw, whatever it looks like.
    pub format: ImageFormat,
    /// File or block device.
    pub medium: Medium,
    /// Whether `O_DIRECT` works on what the guest writes to: the volume, or the directory of its overlay.
    pub direct_io: DirectIo,
    /// Every block of the file is allocated, or it is a block device.
    pub preallocated: bool,
    /// Logical and physical block size and discard granularity of the device below, bytes; for `blockSize.matchVolume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_sizes: Option<BlockSizes>,
}

/// Whether `O_DIRECT` works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DirectIo {
    /// It does.
    Works,
    /// The file system refuses it.
    Refused,
}

/// Block sizes of a device, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BlockSizes {
    /// Smallest addressable unit.
    pub logical: u32,
    /// Smallest unit written without reading first.
    pub physical: u32,
    /// Smallest unit that can be discarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard_granularity: Option<u32>,
}

impl VolumeFacts {
    /// What is taken for true offline: a sparse file that takes `O_DIRECT`.
    #[must_use]
    pub fn assumed(format: ImageFormat) -> Self {
        Self { format, medium: Medium::File, direct_io: DirectIo::Works, preallocated: false, block_sizes: None }
    }
}
