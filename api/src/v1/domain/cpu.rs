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
    /// Whether each vCPU runs on a CPU of the node that nothing else uses. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedicated_cpu_placement: Option<bool>,
    /// CPU features that are added to those of the model, required or removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<CPUFeature>,
    /// Whether QEMU's emulator threads run on a dedicated CPU of their own. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolate_emulator_thread: Option<bool>,
    /// Sockets the guest may grow to while it runs. Default: 4 × `sockets`, or the cluster's setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sockets: Option<u32>,
    /// `host-model`, `host-passthrough` or a named model. Default: `host-model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// NUMA topology of the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NUMA>,
    /// Real-time scheduling of vCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime: Option<Realtime>,
    /// Sockets at the start. Default: as many as CPUs are requested in `resources`, or 1.
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

/// `spec.domain.cpu.numa`: NUMA topology of the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NUMA {
    /// The guest has the NUMA topology of the CPUs it runs on. Needs `dedicatedCpuPlacement` and hugepages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_mapping_passthrough: Option<Present>,
}

/// `spec.domain.cpu.realtime`: real-time scheduling of vCPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Realtime {
    /// vCPUs with real-time priority, such as `0-3,^1`. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
}
