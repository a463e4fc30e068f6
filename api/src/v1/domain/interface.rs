//! Network cards.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::Present;

/// `spec.domain.devices.interfaces[]`: a card, and one way of joining it to its network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Interface {
    /// Index that decides the name in the guest (`eno7`), from 1 to 16383.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi_index: Option<i32>,
    /// A binding that a plugin of the cluster makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<PluginBinding>,
    /// Place in the boot order, from 1. Default: it does not boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u32>,
    /// On one Ethernet with the network; the guest takes over the pod's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<Present>,
    /// What the DHCP server sends to the guest beside its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp_options: Option<DHCPOptions>,
    /// Hardware address. Default: made at the first start, and kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// No longer there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macvtap: Option<Present>,
    /// Behind the pod's address (NAT).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<Present>,
    /// `virtio` (default), `e1000`, `e1000e`, `igb`, `rtl8139`, `ne2k_pci` or `pcnet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Name of the network.
    pub name: String,
    /// No longer there; `passtBinding` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt: Option<Present>,
    /// Through passt, in user space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt_binding: Option<Present>,
    /// Place on the PCI bus, such as `0000:81:01.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    /// Ranges of ports that reach the guest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub port_ranges: Vec<PortRange>,
    /// Ports that reach the guest. Default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// No longer there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slirp: Option<Present>,
    /// A virtual function of the host's card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sriov: Option<Present>,
    /// `up` (default), `down`, or `absent`, which unplugs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// What the guest's metadata calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// `spec.domain.devices.interfaces[].binding`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginBinding {
    /// Name of the plugin in the KubeVirt object.
    pub name: String,
}

/// `spec.domain.devices.interfaces[].ports[]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Its name, unique in the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number, from 1 to 65535.
    pub port: i32,
    /// `TCP` (default) or `UDP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// `spec.domain.devices.interfaces[].portRanges[]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PortRange {
    /// Last port, from 1 to 65535.
    pub end: i32,
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// First port, from 1 to 65535.
    pub start: i32,
}

/// `spec.domain.devices.interfaces[].dhcpOptions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DHCPOptions {
    /// Option 67: what to boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_file_name: Option<String>,
    /// Option 42: IPv4 addresses of time servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ntp_servers: Vec<String>,
    /// Options 224 to 254.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub private_options: Vec<DHCPPrivateOptions>,
    /// Option 66: where to boot from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tftp_server_name: Option<String>,
}

/// `spec.domain.devices.interfaces[].dhcpOptions.privateOptions[]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DHCPPrivateOptions {
    /// Number, from 224 to 254.
    pub option: i32,
    /// Text.
    pub value: String,
}
