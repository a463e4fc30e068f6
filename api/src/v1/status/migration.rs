//! The state of a live migration.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::v1::VMIMConfigurationOptions;

/// `status.migrationState`: the last migration, ended or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigrationState {
    /// Whether its abort was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_requested: Option<bool>,
    /// State of the abort: `Aborting`, `Succeeded` or `Failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_status: Option<String>,
    /// Whether it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<bool>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<meta::Time>,
    /// Whether it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<bool>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The settings of this migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_configuration: Option<VMIMConfigurationOptions>,
    /// The network that it uses: `Pod` or `Migration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_network_type: Option<String>,
    /// The MigrationPolicy that decided the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_policy_name: Option<String>,
    /// UID of the VirtualMachineInstanceMigration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    /// `PreCopy`, `PostCopy` or `Paused`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The node of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_node: Option<String>,
    /// The claim with TPM and EFI state at the source.
    #[serde(rename = "sourcePersistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub source_persistent_state_pvc_name: Option<String>,
    /// The launcher pod of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_pod: Option<String>,
    /// Details of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_state: Option<VirtualMachineInstanceMigrationSourceState>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<meta::Time>,
    /// UID of the pod that attaches hotplugged volumes to the node of the target.
    #[serde(rename = "targetAttachmentPodUID", skip_serializing_if = "Option::is_none")]
    pub target_attachment_pod_uid: Option<String>,
    /// CPUs on the node of the target, for a guest with dedicated CPUs.
    #[serde(rename = "targetCPUSet", skip_serializing_if = "Vec::is_empty")]
    pub target_cpu_set: Vec<i32>,
    /// Ports on the node of the target, by their use.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub target_direct_migration_node_ports: BTreeMap<String, i32>,
    /// Memory of the target's pod besides the guest's, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_memory_overhead: Option<Quantity>,
    /// The node of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node: Option<String>,
    /// Address of the node of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_address: Option<String>,
    /// Whether QEMU has started on the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_domain_detected: Option<bool>,
    /// When the guest ran on the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_domain_ready_timestamp: Option<meta::Time>,
    /// NUMA topology of the node of the target, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_topology: Option<String>,
    /// The claim with TPM and EFI state at the target.
    #[serde(rename = "targetPersistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub target_persistent_state_pvc_name: Option<String>,
    /// The launcher pod of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_pod: Option<String>,
    /// Details of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_state: Option<VirtualMachineInstanceMigrationTargetState>,
}

/// `status.migrationState.sourceState`: details of the source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigrationSourceState {
    /// Name of the instance at the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    /// Namespace of the instance at the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_namespace: Option<String>,
    /// UID of the VirtualMachineInstanceMigration at the source.
    #[serde(rename = "migrationUID", skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Labels that the target's node must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selectors: BTreeMap<String, String>,
    /// The claim with TPM and EFI state.
    #[serde(rename = "persistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub persistent_state_pvc_name: Option<String>,
    /// The launcher pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// SELinux label of the launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    /// Address by which source and target synchronize the instance, in a migration between clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_address: Option<String>,
    /// UID of the instance at the source.
    #[serde(rename = "virtualMachineInstanceUID", skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instance_uid: Option<String>,
}

/// `status.migrationState.targetState`: details of the target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceMigrationTargetState {
    /// UID of the pod that attaches hotplugged volumes.
    #[serde(rename = "attachmentPodUID", skip_serializing_if = "Option::is_none")]
    pub attachment_pod_uid: Option<String>,
    /// CPUs of the node, for a guest with dedicated CPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpu_set: Vec<i32>,
    /// Ports on the node, by their use.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub direct_migration_node_ports: BTreeMap<String, i32>,
    /// Whether QEMU has started on the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_detected: Option<bool>,
    /// Name of the instance at the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    /// Namespace of the instance at the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_namespace: Option<String>,
    /// When the guest ran on the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_ready_timestamp: Option<meta::Time>,
    /// UID of the VirtualMachineInstanceMigration at the target.
    #[serde(rename = "migrationUID", skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Address of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_address: Option<String>,
    /// NUMA topology of the node, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_topology: Option<String>,
    /// The claim with TPM and EFI state.
    #[serde(rename = "persistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub persistent_state_pvc_name: Option<String>,
    /// The launcher pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// SELinux label of the launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    /// Address by which source and target synchronize the instance, in a migration between clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_address: Option<String>,
    /// UID of the instance at the target.
    #[serde(rename = "virtualMachineInstanceUID", skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instance_uid: Option<String>,
}
