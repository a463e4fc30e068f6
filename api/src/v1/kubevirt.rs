//! KubeVirt: the settings of a cluster, and how its installation does.
//!
//! The fields are those of KubeVirt's own object that mean something here. What becomes of the others that KubeVirt has
//! is in `crate::fields`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

/// The settings of a cluster. A cluster has one such object; without it every setting has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirt {
    /// The version of the API the object is written in: `kubevirt.io/v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `KubeVirt`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name, namespace, labels and annotations.
    pub metadata: meta::ObjectMeta,
    /// The wanted settings.
    pub spec: KubeVirtSpec,
    /// The state of the installation; written by the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<KubeVirtStatus>,
}

/// `spec` of a KubeVirt object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtSpec {
    /// How long the certificates of the webhooks are valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_rotate_strategy: Option<KubeVirtCertificateRotateStrategy>,
    /// Defaults of machines, and what they may request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<KubeVirtConfiguration>,
    /// When a node pulls the image of launcher pods, where the configuration does not set it: `Always`, `IfNotPresent` or
    /// `Never`. Default: as the controller was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
}

/// `spec.certificateRotateStrategy` of a KubeVirt object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtCertificateRotateStrategy {
    /// Certificates that Garboard makes itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_signed: Option<KubeVirtSelfSignConfiguration>,
}

/// Lifetimes of the certificates that Garboard makes itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtSelfSignConfiguration {
    /// The certificate authority. Default: 168 hours, renewed when a fifth is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<CertConfig>,
    /// The certificates of the webhooks. Default: 24 hours, renewed when a fifth is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<CertConfig>,
}

/// Validity of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CertConfig {
    /// How long it is valid, in Go's notation (`48h`, `1h30m`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// How long before its end it is renewed; shorter than `duration`. Default: a fifth of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<String>,
}

/// `spec.configuration` of a KubeVirt object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtConfiguration {
    /// Factor of the memory that a pod requests besides the guest's: a number from 1 to 100 with at most three
    /// decimals, as text. Default: `1.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_guest_memory_overhead_ratio: Option<String>,
    /// Settings for each architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture_configuration: Option<ArchConfiguration>,
    /// The CPU model of guests that name none. Default: `host-model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// The CPU request of the pod of a guest that requests none. Default: `100m` for each vCPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_request: Option<Quantity>,
    /// Feature gates, emulation, ratios.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub developer_configuration: Option<DeveloperConfiguration>,
    /// What a drain does to guests without their own setting: `None` (the default), `LiveMigrate`, `LiveMigrateIfPossible` or
    /// `External`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_strategy: Option<String>,
    /// When a node pulls the image of launcher pods: `Always`, `IfNotPresent` or `Never`. Default: `spec.imagePullPolicy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Instancetypes and preferences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instancetype: Option<InstancetypeConfiguration>,
    /// Limits of CPUs and memory that guests get while they run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_update_configuration: Option<LiveUpdateConfiguration>,
    /// How guests are connected to the pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConfiguration>,
    /// The storage class of the small claims that hold EFI variables (`efi.persistent`). Default: the cluster's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_state_storage_class: Option<String>,
    /// How changes of a machine reach its guest: `LiveUpdate` (the default) or `Stage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_rollout_strategy: Option<String>,
}

/// Settings for each architecture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ArchConfiguration {
    /// Settings of amd64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amd64: Option<ArchSpecificConfiguration>,
    /// The architecture of guests that name none. Default: `amd64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_architecture: Option<String>,
}

/// Settings of one architecture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ArchSpecificConfiguration {
    /// The machine type of guests that name none. Default: `q35`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
}

/// Feature gates, emulation and ratios.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeveloperConfiguration {
    /// vCPUs for each CPU that a pod requests. Default: 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_allocation_ratio: Option<u32>,
    /// Feature gates that are on by default, and are switched off here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disabled_feature_gates: Vec<String>,
    /// Feature gates that are off by default, and are switched on here. Those that have become part of the product are
    /// ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub feature_gates: Vec<String>,
    /// How much the parts of the installation log, also while they run: with 0 to 2 the usual lines, with 3 to 5 those for debugging
    /// too, with 6 and more every line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_verbosity: Option<LogVerbosity>,
    /// The guest's memory in per cent of what its pod requests. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_overcommit: Option<u32>,
    /// Whether guests are emulated by QEMU (TCG) on every node instead of run by KVM; slow. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_emulation: Option<bool>,
}

/// How much the parts of the installation log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LogVerbosity {
    /// By the name of a node: the number of the controller and of the node agent that run there, in place of their own; 0 is none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_verbosity: BTreeMap<String, u32>,
    /// The webhooks and the subresource API, which the controller serves. Default: 2.
    #[serde(rename = "virtAPI", skip_serializing_if = "Option::is_none")]
    pub virt_api: Option<u32>,
    /// The rest of the controller. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_controller: Option<u32>,
    /// The node agents. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_handler: Option<u32>,
    /// The supervisors of machines that have no label `logVerbosity`. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virt_launcher: Option<u32>,
}

/// Limits of CPUs and memory that guests get while they run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LiveUpdateConfiguration {
    /// Most sockets of a guest. Default: `maxHotplugRatio` times the sockets at its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_sockets: Option<u32>,
    /// Most memory of a guest. Default: `maxHotplugRatio` times the memory at its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
    /// Most sockets and memory, as a multiple of those at the start. Default: 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hotplug_ratio: Option<u32>,
}

/// Instancetypes and preferences.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InstancetypeConfiguration {
    /// What becomes of a machine that names them: `reference` (the default) keeps the names and copies of the objects; `expand` writes
    /// what they stand for into machines that have no copy yet, and `expandAll` into all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference_policy: Option<String>,
}

/// How guests are connected to the pod network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkConfiguration {
    /// The binding of guests that name no network: `bridge` (the default) or `masquerade`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_network_interface: Option<String>,
    /// Whether a guest may use the binding `bridge` on the pod network, and so have the pod's address. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit_bridge_interface_on_pod_network: Option<bool>,
}

/// `status` of a KubeVirt object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtStatus {
    /// `Available`, `Progressing`, `Degraded`, `Created`, `garboard.dev/LaunchersUpdated`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<KubeVirtCondition>,
    /// The architecture of guests that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_architecture: Option<String>,
    /// The generation of the object that the conditions describe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The version of Garboard that is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_kube_virt_version: Option<String>,
    /// Instances whose supervisor is of another image than that of new launcher pods; nothing while there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outdated_virtual_machine_instance_workloads: Option<i32>,
    /// The version of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator_version: Option<String>,
    /// `Deploying` or `Deployed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

/// A condition of a KubeVirt object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeVirtCondition {
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<meta::Time>,
    /// The reason in a sentence, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The reason in one word, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// `Available`, `Progressing`, `Degraded`, `Created` or `garboard.dev/LaunchersUpdated`.
    pub r#type: String,
}
