//! Settings of live migrations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

/// `status.migrationState.migrationConfiguration`: the settings of a migration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VMIMConfigurationOptions {
    /// Whether the vCPUs are slowed down when the guest writes faster than memory is copied. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_auto_converge: Option<bool>,
    /// Whether post-copy may be used: the guest runs on the target before all memory is there. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_post_copy: Option<bool>,
    /// Whether the guest may be paused, or post-copy used, when the migration does not end by itself. Default: as
    /// `allowPostCopy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workload_disruption: Option<bool>,
    /// Most bytes per second of one migration; 0 is no limit. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds that a migration may take for each GiB of memory and copied disks. Default: 150.
    #[serde(rename = "completionTimeoutPerGiB", skip_serializing_if = "Option::is_none")]
    pub completion_timeout_per_gib: Option<i64>,
    /// Whether the data is sent without encryption. Default: false.
    #[serde(rename = "disableTLS", skip_serializing_if = "Option::is_none")]
    pub disable_tls: Option<bool>,
    /// Experimental settings, which later versions may change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<ExperimentalMigrationOptions>,
    /// Whether the target has the source's SELinux level. Default: true.
    #[serde(rename = "matchSELinuxLevelOnMigration", skip_serializing_if = "Option::is_none")]
    pub match_selinux_level_on_migration: Option<bool>,
    /// Milliseconds that the guest may be stopped at the end of the migration. Default: 900.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_downtime_ms: Option<i64>,
    /// The NetworkAttachmentDefinition of the network that is used. Default: the pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The taint of a node that is being drained. Default: `kubevirt.io/drain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_taint_key: Option<String>,
    /// Most migrations at a time in the cluster. Default: 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_migrations_per_cluster: Option<u32>,
    /// Most migrations at a time from one node. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_outbound_migrations_per_node: Option<u32>,
    /// Seconds without progress after which the migration is aborted. Default: 150.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_timeout: Option<i64>,
    /// Whether a guest is migrated although it is reported as not migratable. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_migration_override: Option<bool>,
    /// Seconds to wait for utility volumes to be detached before the migration. Default: 150.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utility_volumes_timeout: Option<i64>,
}

/// `…migrationConfiguration.experimental`: experimental settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExperimentalMigrationOptions {
    /// The algorithm that compresses the data of the migration; `none` or nothing for no compression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// How the permitted downtime is raised step by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_tuning: Option<DowntimeTuningOptions>,
    /// How a migration without progress is detected, and what follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_detector: Option<StallDetectorOptions>,
}

/// `…experimental.downtimeTuning`: how the permitted downtime is raised step by step, up to `maxDowntimeMs`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DowntimeTuningOptions {
    /// Least seconds between two steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooldown_seconds: Option<i32>,
    /// The permitted downtime at the start, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_ms: Option<i64>,
    /// Iterations of the memory copy before the first step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_after_iteration: Option<i64>,
    /// Number of equal steps from `initialMs` to `maxDowntimeMs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<i32>,
}

/// `…experimental.stallDetector`: how a migration without progress (a stall) is detected, and what follows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StallDetectorOptions {
    /// Factor of the completion timeout, for the whole time of a migration that is switched over because that timeout
    /// has passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_timeout_factor: Option<Quantity>,
    /// Weight of the newest sample in the moving average (EWMA) of the bandwidth: above 0, at most 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ewma_alpha: Option<Quantity>,
    /// Factor of the waiting time for the best value of remaining bytes. While that value is not reached again, it is
    /// replaced by the next higher one, and the waiting time is multiplied by this factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience_window_decay_factor: Option<Quantity>,
    /// How many times `maxDowntimeMs` the estimated downtime may be for the guest to be stopped and copied; above it
    /// the migration is aborted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precopy_possible_factor: Option<Quantity>,
    /// Whether actions after a stall wait until the remaining bytes are near their lowest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_local_minima: Option<bool>,
    /// Tolerance in per cent when the remaining bytes are compared with their lowest value, to detect a stall.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_margin: Option<i64>,
    /// Seconds of the window in which the remaining bytes must fall; otherwise the migration has stalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_progress_timeout: Option<i64>,
    /// Seconds that the switch to the target may take before the migration is aborted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switchover_timeout: Option<i64>,
}
