//! Preferences: what a guest operating system prefers, filled in where a template sets nothing.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DevicePreferences;
use crate::quantity::Quantity;
use crate::v1::{
    CPUFeature, ClockOffsetUTC, EFI, FeatureAPIC, FeatureHyperv, FeatureKVM, FeatureState, LaunchSecurity, Timer,
};

/// What guests of a kind prefer, for one namespace or, as VirtualMachineClusterPreference, for all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePreference {
    /// The version of the API the object is written in: `instancetype.kubevirt.io/v1beta1` or `v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `VirtualMachinePreference` or `VirtualMachineClusterPreference`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name, namespace, labels and annotations.
    pub metadata: meta::ObjectMeta,
    /// The preferences.
    pub spec: VirtualMachinePreferenceSpec,
}

/// `spec` of a preference. What the template sets counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachinePreferenceSpec {
    /// Annotations that the instance gets, unless the template has others.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The clock and the timers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockPreferences>,
    /// How the guest sees the vCPUs of the instancetype.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CPUPreferences>,
    /// Devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DevicePreferences>,
    /// Features of the machine and of the hypervisor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<FeaturePreferences>,
    /// What boots the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwarePreferences>,
    /// The machine type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachinePreferences>,
    /// Cores of each socket under the topology `spread`; `cpu.spreadOptions.ratio` is its newer form. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefer_spread_socket_to_core_ratio: Option<u32>,
    /// The architecture: `amd64`, `arm64` or `s390x`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_architecture: Option<String>,
    /// Encryption of the guest's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_launch_security: Option<LaunchSecurity>,
    /// The subdomain of the guest's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_subdomain: Option<String>,
    /// How long the guest may take to power down, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_termination_grace_period_seconds: Option<i64>,
    /// What a machine needs at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requirements: Option<PreferenceRequirements>,
    /// Claims of the machine's DataVolume templates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<VolumePreferences>,
}

/// `spec.volumes` of a preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumePreferences {
    /// The storage class of DataVolume templates that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_storage_class_name: Option<String>,
}

/// `spec.cpu` of a preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CPUPreferences {
    /// CPU features, each unless the template has one of its name.
    #[serde(rename = "preferredCPUFeatures", skip_serializing_if = "Vec::is_empty")]
    pub preferred_cpu_features: Vec<CPUFeature>,
    /// `sockets` (default), `cores`, `threads`, `spread` or `any`; `preferSockets` and so on are the older names.
    #[serde(rename = "preferredCPUTopology", skip_serializing_if = "Option::is_none")]
    pub preferred_cpu_topology: Option<String>,
    /// How `spread` spreads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_options: Option<SpreadOptions>,
}

/// `spec.cpu.spreadOptions` of a preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadOptions {
    /// `SocketsCores` (default), `CoresThreads` or `SocketsCoresThreads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub across: Option<String>,
    /// Cores of each socket, or threads of each core, of which there are always 2. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<u32>,
}

/// `spec.clock` of a preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClockPreferences {
    /// The clock's offset, unless the template has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_clock_offset: Option<ClockOffset>,
    /// The timers, unless the template has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_timer: Option<Timer>,
}

/// `spec.clock.preferredClockOffset` of a preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClockOffset {
    /// The clock shows the time of this time zone, such as `Europe/Berlin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// The clock shows UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc: Option<ClockOffsetUTC>,
}

/// `spec.features` of a preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FeaturePreferences {
    /// ACPI. As in KubeVirt it takes the place of the template's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_acpi: Option<FeatureState>,
    /// The local interrupt controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_apic: Option<FeatureAPIC>,
    /// Hyper-V's enlightenments, each unless the template has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_hyperv: Option<FeatureHyperv>,
    /// KVM's features.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_kvm: Option<FeatureKVM>,
    /// Paravirtual spinlocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_pvspinlock: Option<FeatureState>,
    /// System management mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_smm: Option<FeatureState>,
}

/// `spec.firmware` of a preference. All of it counts only where the template has no bootloader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FirmwarePreferences {
    /// UEFI with these settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_efi: Option<EFI>,
    /// BIOS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_bios: Option<bool>,
    /// Whether the BIOS writes to the serial console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_bios_serial: Option<bool>,
    /// UEFI. Deprecated: `preferredEfi` is its newer form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_efi: Option<bool>,
    /// Secure boot. Deprecated: `preferredEfi.secureBoot` is its newer form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_secure_boot: Option<bool>,
}

/// `spec.machine` of a preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MachinePreferences {
    /// The machine type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_machine_type: Option<String>,
}

/// `spec.requirements` of a preference: a machine with less is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PreferenceRequirements {
    /// The architecture that the machine must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// vCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CPUPreferenceRequirement>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryPreferenceRequirement>,
}

/// `spec.requirements.cpu` of a preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CPUPreferenceRequirement {
    /// The least number of vCPUs.
    pub guest: u32,
}

/// `spec.requirements.memory` of a preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryPreferenceRequirement {
    /// The least memory of the guest, bytes.
    pub guest: Quantity,
}
