//! What a plan needs beside the manifest and the host: the user's options on the command line and what was found out
//! about the volumes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::disk::{ImageFormat, Medium};
use super::interface::Forward;

/// Inputs that stand neither in the manifest nor in the host's facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanOptions {
    /// What executes the guest's instructions, unless its annotation `garboard.dev/accelerator` sets it. Versions up to 8ee2679
    /// wrote `emulation`: `allow` or `forbid`.
    #[serde(alias = "emulation")]
    pub accelerator: AcceleratorChoice,
    /// What was found out about volumes, by name. A volume that is not here is assumed to be as
    /// [`VolumeFacts::assumed`].
    pub volumes: BTreeMap<String, VolumeFacts>,
    /// Ports of the host that lead to the guest, for its first interface.
    pub forwards: Vec<Forward>,
    /// The MAC address that a cluster's network gave the pod: a guest that takes the pod's place on it has this one, unless
    /// its manifest has another. Nothing outside of a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_mac: Option<String>,
    /// What was found out about the networks of interfaces, by the interface's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub interfaces: BTreeMap<String, InterfaceFacts>,
    /// The most bytes that layers and empty disks together may take of the machine's scratch directory, where its pod's
    /// container has a limit or its node an end; `limits.ephemeral-storage` of the manifest counts as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch_limit_bytes: Option<u64>,
    /// What a machine requests without a value of its own. The controller, which makes its pod, may need another than the usual; in
    /// the pod the supervisor has that of the memory beside the guest's, which it reports.
    #[serde(skip_serializing_if = "Shares::is_usual")]
    pub shares: Shares,
}

/// What was found out about one interface's network before the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceFacts {
    /// MTU of the link that the guest's packets leave by, bytes; `None`: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// How little a machine asks of its node for what it is given (KubeVirt's `developerConfiguration`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
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

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AcceleratorChoice {
    /// KVM, also where it interprets guest code; without it there is no plan. A cluster's default.
    #[serde(alias = "forbid")]
    Kvm,
    /// TCG. The default of a cluster with `useEmulation`.
    Tcg,
    /// KVM where the processor runs guest code, else TCG. A bare host's default.
    #[default]
    #[serde(alias = "allow")]
    Auto,
}

/// What was found out about one volume before the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
    /// Size of the disk that the guest sees, bytes; `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_bytes: Option<u64>,
    /// CHAP's user, of a disk on iSCSI whose Secret has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_user: Option<String>,
}

/// Whether `O_DIRECT` works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DirectIo {
    /// It does.
    Works,
    /// The file system refuses it. Also a value of a later build.
    #[serde(other)]
    Refused,
}

/// Block sizes of a device, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
        Self {
            format,
            medium: Medium::File,
            direct_io: DirectIo::Works,
            preallocated: false,
            block_sizes: None,
            virtual_bytes: None,
            chap_user: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulation_forbidden_in_an_earlier_version_stays_forbidden() {
        for (stored, accelerator) in [("forbid", AcceleratorChoice::Kvm), ("allow", AcceleratorChoice::Auto)] {
            let options: PlanOptions = serde_json::from_value(serde_json::json!({"emulation": stored})).unwrap();
            assert_eq!(options.accelerator, accelerator);
        }
    }
}
