//! The networks that interfaces connect to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec.networks[]`: one of the three sources is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    /// A network of a NetworkAttachmentDefinition, which Multus connects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multus: Option<MultusNetwork>,
    /// The name by which an interface refers to it, a DNS label.
    pub name: String,
    /// The pod network of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodNetwork>,
    /// A network device from a resource claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim: Option<ClaimRequest>,
}

/// `spec.networks[].multus`: a network that Multus connects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultusNetwork {
    /// Whether it replaces the pod network as the default network of the pod. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
    /// The NetworkAttachmentDefinition, `name` or `namespace/name`.
    pub network_name: String,
}

/// `spec.networks[].pod`: the pod network of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodNetwork {
    /// The IPv6 network between pod and guest (masquerade). Default: `fd10:0:2::/120`.
    #[serde(rename = "vmIPv6NetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub vm_ipv6_network_cidr: Option<String>,
    /// The IPv4 network between pod and guest (masquerade). Default: `10.0.2.0/24`.
    #[serde(rename = "vmNetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub vm_network_cidr: Option<String>,
}

/// `spec.networks[].resourceClaim`: a request in a claim of `spec.resourceClaims`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimRequest {
    /// Name of the claim in this specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// Name of the request in the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
}
