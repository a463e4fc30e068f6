//! VirtualMachineInstance: one run of a guest.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metadata::label;
use crate::names::SUBDOMAIN_MAX;
use crate::v1::{AccessCredential, DomainSpec, Network, Present, UtilityVolume, VirtualMachineInstanceStatus, Volume};

/// One run of a guest: one QEMU process in one pod. It ends when the guest ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstance {
    /// The version of the API the object is written in: `kubevirt.io/v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `VirtualMachineInstance`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name, namespace, labels and annotations.
    pub metadata: meta::ObjectMeta,
    /// The wanted instance.
    pub spec: VirtualMachineInstanceSpec,
    /// The state of the instance; written by the controller and by the agent of the guest's node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<VirtualMachineInstanceStatus>,
}

impl VirtualMachineInstanceSpec {
    /// The claims of a machine of this name: those of its volumes, and the one that holds what its firmware keeps
    /// ([`Self::state_claim`]).
    pub fn claims(&self, machine: &str) -> impl Iterator<Item = String> {
        self.volumes.iter().filter_map(|volume| volume.claim().map(str::to_owned)).chain(self.state_claim(machine))
    }

    /// The claim that a machine of this name has beside those of its volumes, if it keeps anything (`efi.persistent`).
    #[must_use]
    pub fn state_claim(&self, machine: &str) -> Option<String> {
        let loader = self.domain.firmware.as_ref()?.bootloader.as_ref()?;
        loader.efi.as_ref().filter(|efi| efi.persistent == Some(true))?;
        let prefix = label::PERSISTENT_STATE_FOR;
        let room = SUBDOMAIN_MAX - prefix.len() - 1;
        Some(format!("{prefix}-{}", machine.get(..room).unwrap_or(machine)))
    }
}

/// `spec` of a VirtualMachineInstance: the machine, its volumes and networks, and where it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceSpec {
    /// Public keys and passwords for users of the guest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_credentials: Vec<AccessCredential>,
    /// Nodes and other pods that the pod requires, prefers or avoids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<core::Affinity>,
    /// `amd64`, `arm64` or `s390x`. Default: the cluster's, usually `amd64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// DNS servers and search domains of the guest, added to those of `dnsPolicy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns_config: Option<core::PodDNSConfig>,
    /// Where DNS servers come from, as for pods. Default: `ClusterFirst`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]))]
    pub dns_policy: Option<String>,
    /// The machine the guest sees.
    pub domain: DomainSpec,
    /// What a node drain does: `None`, `LiveMigrate`, `LiveMigrateIfPossible` or `External`. Default: the cluster's,
    /// usually `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_strategy: Option<String>,
    /// Host name of the guest, a DNS label. Default: the name of the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// When this probe fails, the guest is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness_probe: Option<Probe>,
    /// The networks that interfaces connect to, at most 256.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// Labels that a node must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// PriorityClass of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// While this probe fails, the instance is not ready, and Services send it no traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<Probe>,
    /// Resource claims of the pod (dynamic resource allocation).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_claims: Vec<VirtualMachineInstanceResourceClaim>,
    /// The scheduler that places the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// The service account of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// `Paused` starts the guest paused, before its first instruction. Default: it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_strategy: Option<String>,
    /// Subdomain of the guest: its full name is `hostname.subdomain.namespace.svc.…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subdomain: Option<String>,
    /// Seconds a guest has to power down before it is stopped by force. Default: 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// Taints of nodes that the pod tolerates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<core::Toleration>,
    /// How pods are spread over the cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<core::TopologySpreadConstraint>,
    /// Volumes for operations on the guest, such as memory dumps. The guest does not see them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub utility_volumes: Vec<UtilityVolume>,
    /// Volumes of disks and filesystems, at most 256.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
}

/// `spec.resourceClaims[]`: a resource claim of the pod; one of the two sources is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualMachineInstanceResourceClaim {
    /// The name by which devices refer to it.
    pub name: String,
    /// An existing ResourceClaim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
    /// A ResourceClaimTemplate, from which a ResourceClaim is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_template_name: Option<String>,
}

/// `spec.livenessProbe` and `spec.readinessProbe`: a check of the guest; one of the four ways is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// A command that the guest agent runs; exit code 0 is success.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<core::ExecAction>,
    /// Failures in a row after which the probe has failed. Default: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_threshold: Option<i32>,
    /// The guest agent must answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_agent_ping: Option<Present>,
    /// A web server in the guest must answer the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<core::HTTPGetAction>,
    /// Seconds after the start before the first check. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds between checks. Default: 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_seconds: Option<i32>,
    /// Successes in a row after which a failed probe succeeds again. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_threshold: Option<i32>,
    /// A port of the guest must accept a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<core::TCPSocketAction>,
    /// Seconds an answer may take. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
}
