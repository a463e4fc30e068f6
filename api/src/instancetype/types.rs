//! Instancetypes: CPUs, memory and devices under a name.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::v1::{DiskIOThreads, GPU, HostDevice, Hugepages, LaunchSecurity, NUMA, Realtime};

/// A size of machines, for one namespace or, as VirtualMachineClusterInstancetype, for all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstancetype {
    /// The version of the API the object is written in: `instancetype.kubevirt.io/v1beta1` or `v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `VirtualMachineInstancetype` or `VirtualMachineClusterInstancetype`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name, namespace, labels and annotations.
    pub metadata: meta::ObjectMeta,
    /// The size.
    pub spec: VirtualMachineInstancetypeSpec,
}

/// `spec` of an instancetype. A machine that names it must not set the same fields itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstancetypeSpec {
    /// Annotations that the instance gets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The virtual processors.
    pub cpu: CPUInstancetype,
    /// GPUs of the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GPU>,
    /// Other devices of the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_devices: Vec<HostDevice>,
    /// I/O threads that disks share under the policy `supplementalPool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads: Option<DiskIOThreads>,
    /// I/O threads of disks: `shared`, `auto` or `supplementalPool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads_policy: Option<String>,
    /// Encryption of the guest's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_security: Option<LaunchSecurity>,
    /// The memory.
    pub memory: MemoryInstancetype,
    /// Labels of the nodes that the machine may run on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// The scheduler of the launcher pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
}

/// `spec.cpu` of an instancetype.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CPUInstancetype {
    /// Whether each vCPU runs on a CPU of the node that nothing else uses. Default: false.
    #[serde(rename = "dedicatedCPUPlacement", skip_serializing_if = "Option::is_none")]
    pub dedicated_cpu_placement: Option<bool>,
    /// Number of vCPUs. The preference decides whether the guest sees them as sockets (default), cores or threads.
    pub guest: u32,
    /// Whether QEMU's emulator threads run on a dedicated CPU of their own. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolate_emulator_thread: Option<bool>,
    /// Sockets the guest may grow to while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sockets: Option<u32>,
    /// `host-model`, `host-passthrough` or a named model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// NUMA topology of the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NUMA>,
    /// Real-time scheduling of vCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime: Option<Realtime>,
}

/// `spec.memory` of an instancetype.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryInstancetype {
    /// Memory of the guest, bytes.
    pub guest: Quantity,
    /// Backs the guest's memory with hugepages. Excludes `overcommitPercent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<Hugepages>,
    /// Memory the guest may grow to while it runs, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
    /// By how many per cent of the guest's memory the pod requests less, 0 to 100. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommit_percent: Option<i32>,
}
