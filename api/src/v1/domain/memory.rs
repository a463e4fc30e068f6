//! Memory of the guest, and what the pod asks of its node.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

/// `spec.domain.memory`: memory of the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// How much the guest starts with, in bytes. Default: the pod's request, its limit, or one hugepage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<Quantity>,
    /// Pages the memory is made of. Default: the host's usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<Hugepages>,
    /// How much the guest may grow to, in bytes. Default: 4 × `guest` where memory can be plugged, or the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
    /// Memory beside the guest's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_overhead: Option<ReservedOverhead>,
}

/// `spec.domain.memory.hugepages`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Hugepages {
    /// Size of a page: `2Mi` or `1Gi` on amd64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size: Option<String>,
}

/// `spec.domain.memory.reservedOverhead`: memory beside the guest's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservedOverhead {
    /// How much more than what is computed, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_overhead: Option<Quantity>,
    /// Whether memory must be locked: `Required` or `NotRequired`. Default: if a device needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_lock: Option<String>,
}

/// `spec.domain.resources`: what the pod asks of its node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirements {
    /// What the guest may take: `cpu` in CPUs, `memory` in bytes, and devices.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
    /// Whether what QEMU needs itself is left out of the request. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommit_guest_overhead: Option<bool>,
    /// What is set aside for the guest: `cpu` in CPUs, `memory` in bytes, and devices.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}
