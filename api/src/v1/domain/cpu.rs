//! Virtual processors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::Present;

/// `spec.domain.cpu`: virtual processors. Their number is sockets × cores × threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CPU {
    /// Cores of each socket. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Whether each vCPU has a CPU of the node for itself. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedicated_cpu_placement: Option<bool>,
    /// Features of the processor beside its model's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<CPUFeature>,
    /// Whether QEMU's own threads have a CPU for themselves. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolate_emulator_thread: Option<bool>,
    /// Sockets the guest may grow to. Default: 4 × sockets, or the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sockets: Option<u32>,
    /// `host-model`, `host-passthrough` or a named model. Default: `host-model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How NUMA nodes of the host show in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NUMA>,
    /// Scheduling of vCPUs in real time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime: Option<Realtime>,
    /// Sockets at the start. Default: 1, or the CPUs asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// Threads of each core. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
}

/// `spec.domain.cpu.features[]`: one feature of the processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CPUFeature {
    /// Its name, as QEMU and Linux have it (`vmx`).
    pub name: String,
    /// `force`, `require` (default), `optional`, `disable` or `forbid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// `spec.domain.cpu.numa`: NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NUMA {
    /// Gives the guest the host's nodes. Needs CPUs of its own and hugepages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_mapping_passthrough: Option<Present>,
}

/// `spec.domain.cpu.realtime`: vCPUs that nothing preempts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Realtime {
    /// Which vCPUs, such as `0-3,^1`. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
}
