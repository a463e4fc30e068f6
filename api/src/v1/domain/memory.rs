//! Memory of the guest, and what the pod asks of its node.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

/// `spec.domain.memory`: memory of the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Memory at the start, in bytes. Default: the memory that `resources` requests, its limit, or one hugepage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<Quantity>,
    /// Hugepages that back the guest's memory. Default: ordinary pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<Hugepages>,
    /// Memory that the guest may grow to while it runs, in bytes. Default: 4 × `guest` where memory can be plugged, or
    /// the cluster's setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
    /// Memory of the pod besides the guest's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_overhead: Option<ReservedOverhead>,
}

/// `spec.domain.memory.hugepages`: hugepages that back the guest's memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Hugepages {
    /// Size of a page: `2Mi` or `1Gi` on amd64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size: Option<String>,
}

/// `spec.domain.memory.reservedOverhead`: memory of the pod besides the guest's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservedOverhead {
    /// Memory that is added to what Garboard computes, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_overhead: Option<Quantity>,
    /// Whether the guest's memory is locked: `Required` or `NotRequired`. Default: `Required` where a device needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_lock: Option<String>,
}

/// `spec.domain.resources`: resources of the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequirements {
    /// Limits of the pod: `cpu` in CPUs, `memory` in bytes, and devices.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
    /// Whether the memory request leaves out what QEMU needs besides the guest's memory. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommit_guest_overhead: Option<bool>,
    /// Requests of the pod: `cpu` in CPUs, `memory` in bytes, and devices.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}
