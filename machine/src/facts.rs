//! What a host offers to a virtual machine: the planner's only view of the world. Gathered elsewhere, once per
//! start; a value here so that the same plan can be made again anywhere from the recorded facts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::features::{Accelerator, QemuFeatures, QemuVersion};
use crate::tolerant;

/// The planner's facts of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostFacts {
    /// The QEMU that will be executed.
    pub qemu: QemuFacts,
    /// Whether `/dev/kvm` can run this guest.
    pub kvm: KvmState,
    /// The most vCPUs that KVM gives one machine (`KVM_CAP_MAX_VCPUS`); nothing where KVM was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm_max_vcpus: Option<u32>,
    /// The host's processor.
    pub cpu: CpuFacts,
    /// Installed UEFI builds, best first within each kind.
    #[serde(deserialize_with = "tolerant::each")]
    pub uefi: Vec<UefiPair>,
    /// How a guest can be joined to a network.
    pub network: NetworkFacts,
    /// cgroup hierarchy.
    pub cgroup: CgroupVersion,
    /// Sizes of huge pages the kernel offers, in bytes, with the number reserved.
    pub hugepages: Vec<HugepagePool>,
    /// Physical memory, bytes.
    pub memory_bytes: u64,
    /// Effective user ID 0 in the initial user namespace, with the capabilities that normally brings.
    pub is_root: bool,
}

/// One QEMU binary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QemuFacts {
    /// Absolute path of `qemu-system-x86_64`.
    pub binary: String,
    /// What this build can do.
    pub features: QemuFeatures,
    /// Directories for `-L`, in order; empty: the ones compiled in suffice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firmware_dirs: Vec<String>,
    /// Value of `QEMU_MODULE_DIR` if the modules are not where this build expects them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_dir: Option<String>,
}

/// The state of `/dev/kvm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KvmState {
    /// There is no `/dev/kvm`.
    Missing,
    /// It exists, but this user may not open it.
    NotPermitted,
    /// It opens, but supervisor-mode guest code is interpreted: slower than TCG for an ordinary kernel.
    Emulated,
    /// The processor runs guest code.
    Native,
    /// It opens, but a scratch VM did not run to its end in it (old API, broken nesting): treated as missing. Also a value that only a
    /// later build has.
    #[serde(other)]
    Broken,
}

impl std::fmt::Display for KvmState {
    /// Part of a message for the user.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Missing => "this host has no /dev/kvm",
            Self::NotPermitted => "/dev/kvm may not be opened by this user",
            Self::Emulated => "this host's KVM interprets guest code itself",
            Self::Broken => "this host's KVM does not run a guest",
            Self::Native => "this host's KVM works",
        })
    }
}

/// What KVM of a node gives its guests: measured once by the node agent, since a launcher's sidecar has no `/dev/kvm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KvmFacts {
    /// Whether it runs guests, and how.
    pub state: KvmState,
    /// Version of the QEMU that was asked for [`KvmFacts::cpu_features`]; nothing if an earlier version measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu: Option<QemuVersion>,
    /// CPU features that a guest can have under KVM; empty if QEMU could not be asked.
    #[serde(default)]
    pub cpu_features: BTreeSet<String>,
    /// The most vCPUs of one machine (`KVM_CAP_MAX_VCPUS`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_vcpus: Option<u32>,
    /// Whether guests can run guests of their own (parameter `nested` of the kernel's module); `None` if no module reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested: Option<bool>,
}

impl KvmState {
    /// Whether QEMU's `-accel kvm` runs a guest, slowly or not.
    #[must_use]
    pub const fn runs_guests(self) -> bool {
        matches!(self, Self::Emulated | Self::Native)
    }
}

/// The host's processor as QEMU sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuFacts {
    /// `GenuineIntel`, `AuthenticAMD`, …
    pub vendor: String,
    /// Model name for users.
    pub model_name: String,
    /// Logical processors this VM may be scheduled on.
    pub logical_cpus: u32,
    /// CPU features a guest can have with each accelerator: the properties that are true in a full expansion of
    /// `max` (`query-cpu-model-expansion`). An accelerator that was not probed is absent, then nothing is checked.
    #[serde(default, deserialize_with = "tolerant::entries")]
    pub features: BTreeMap<Accelerator, BTreeSet<String>>,
}

/// Code and variable store of one UEFI build (OVMF).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UefiPair {
    /// Read-only code image.
    pub code: String,
    /// Template a VM's own variables start from.
    pub vars_template: String,
    /// What the pair is for.
    pub kind: UefiKind,
    /// Size of the code image, bytes.
    pub code_bytes: u64,
    /// Size of the variable store, bytes.
    pub vars_bytes: u64,
}

/// Kinds of UEFI builds we choose between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UefiKind {
    /// No secure boot, no SMM.
    Plain,
    /// Secure boot is possible and needs SMM; no keys enrolled.
    SecureBoot,
    /// Secure boot with the usual keys enrolled: it refuses unsigned loaders from the first start.
    SecureBootEnrolled,
}

/// How guests reach a network from here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkFacts {
    /// Another process (shim or node agent) can make taps for us: `/dev/net/tun` is there and so is the privilege to use it.
    pub tap: bool,
    /// `/dev/vhost-net` can be opened.
    pub vhost_net: bool,
    /// Absolute path of `passt`, if installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passt: Option<String>,
}

/// cgroup hierarchy of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupVersion {
    /// One controller, one hierarchy.
    V1,
    /// The unified hierarchy.
    V2,
    /// No hierarchy we may write: limits cannot be set. Also a value of a later build.
    #[serde(other)]
    Unavailable,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HugepagePool {
    /// Size of one page, bytes.
    pub page_bytes: u64,
    /// Pages reserved.
    pub total: u64,
    /// Unused pages.
    pub free: u64,
}
