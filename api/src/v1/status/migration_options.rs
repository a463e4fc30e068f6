//! Settings of live migrations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

/// `status.migrationState.migrationConfiguration`: the settings in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VMIMConfigurationOptions {
    /// Whether the guest is slowed down if it writes too fast. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_auto_converge: Option<bool>,
    /// Whether the guest may run on the target before all memory is there. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_post_copy: Option<bool>,
    /// Whether the guest may be paused, or copied afterwards, to bring it to an end. Default: as `allowPostCopy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workload_disruption: Option<bool>,
    /// Bytes a second; 0 is no limit. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds for each GiB of memory and copied disks. Default: 150.
    #[serde(rename = "completionTimeoutPerGiB", skip_serializing_if = "Option::is_none")]
    pub completion_timeout_per_gib: Option<i64>,
    /// Whether it goes unencrypted. Default: false.
    #[serde(rename = "disableTLS", skip_serializing_if = "Option::is_none")]
    pub disable_tls: Option<bool>,
    /// Settings that may change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<ExperimentalMigrationOptions>,
    /// Whether the target has the source's SELinux level. Default: true.
    #[serde(rename = "matchSELinuxLevelOnMigration", skip_serializing_if = "Option::is_none")]
    pub match_selinux_level_on_migration: Option<bool>,
    /// Milliseconds the guest may stand still at the end. Default: 900.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_downtime_ms: Option<i64>,
    /// The NetworkAttachmentDefinition it goes over. Default: the pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The taint of a node that is being drained. Default: `kubevirt.io/drain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_taint_key: Option<String>,
    /// Migrations at a time in the cluster. Default: 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_migrations_per_cluster: Option<u32>,
    /// Migrations at a time from a node. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_outbound_migrations_per_node: Option<u32>,
    /// Seconds without progress after which it is given up. Default: 150.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_timeout: Option<i64>,
    /// Whether a guest that is not migratable is migrated all the same. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_migration_override: Option<bool>,
    /// Seconds to wait until utility volumes are gone. Default: 150.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utility_volumes_timeout: Option<i64>,
}

/// `…migrationConfiguration.experimental`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExperimentalMigrationOptions {
    /// How memory is compressed on its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// Raising the downtime step by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_tuning: Option<DowntimeTuningOptions>,
    /// Finding out that a migration will not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_detector: Option<StallDetectorOptions>,
}

/// `…experimental.downtimeTuning`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DowntimeTuningOptions {
    /// Seconds between two steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooldown_seconds: Option<i32>,
    /// Milliseconds of downtime at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_ms: Option<i64>,
    /// Passes over the memory before the first step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_after_iteration: Option<i64>,
    /// Steps up to the greatest downtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<i32>,
}

/// `…experimental.stallDetector`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StallDetectorOptions {
    /// What the completion timeout is multiplied by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_timeout_factor: Option<Quantity>,
    /// Weight of the newest measurement, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ewma_alpha: Option<Quantity>,
    /// How fast patience shrinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience_window_decay_factor: Option<Quantity>,
    /// How much faster than the guest writes the copy has to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precopy_possible_factor: Option<Quantity>,
    /// Whether to wait for a moment in which little is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_local_minima: Option<bool>,
    /// How much less must be left for it to count as progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_margin: Option<i64>,
    /// Seconds without progress that are a stall.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_progress_timeout: Option<i64>,
    /// Seconds the last step may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switchover_timeout: Option<i64>,
}
