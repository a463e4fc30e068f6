//! Network cards.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1::Present;

/// `spec.domain.devices.interfaces[]`: a network card of the guest, and how it is connected to its network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Interface {
    /// ACPI index, from 1 to 16383, after which Linux names the card (`eno7`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi_index: Option<i32>,
    /// A binding by a network binding plugin of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<PluginBinding>,
    /// Place in the boot order, from 1. Default: the guest does not boot from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u32>,
    /// The card is bridged to the network; on the pod network the guest has the pod's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<Present>,
    /// Options that the DHCP server sends to the guest besides its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp_options: Option<DHCPOptions>,
    /// MAC address. Default: one that is generated at the first start, and kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// Removed from KubeVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macvtap: Option<Present>,
    /// The guest has a private address, behind the pod's address (NAT).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<Present>,
    /// `virtio` (default), `e1000`, `e1000e`, `igb`, `rtl8139`, `ne2k_pci` or `pcnet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Name of the network.
    pub name: String,
    /// Removed from KubeVirt; write `passtBinding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt: Option<Present>,
    /// The card is connected through passt, which needs no rights of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt_binding: Option<Present>,
    /// PCI address, such as `0000:81:01.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    /// Ranges of ports that are forwarded to the guest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub port_ranges: Vec<PortRange>,
    /// Ports that are forwarded to the guest. Default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// Removed from KubeVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slirp: Option<Present>,
    /// An SR-IOV virtual function of a card of the node is passed through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sriov: Option<Present>,
    /// State of the link: `up` (default), `down`, or `absent`, which unplugs the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Tag with which cloud-init metadata lists the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// `spec.domain.devices.interfaces[].binding`: a binding by a plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginBinding {
    /// Name of the plugin, as the KubeVirt object registers it.
    pub name: String,
}

/// `spec.domain.devices.interfaces[].ports[]`: a port that is forwarded to the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Its name, unique in the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of the port, from 1 to 65535.
    pub port: i32,
    /// `TCP` (default) or `UDP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// `spec.domain.devices.interfaces[].portRanges[]`: ports that are forwarded to the guest.
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

/// `spec.domain.devices.interfaces[].dhcpOptions`: options that the DHCP server sends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DHCPOptions {
    /// Option 67: name of the boot file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_file_name: Option<String>,
    /// Option 42: IPv4 addresses of time servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ntp_servers: Vec<String>,
    /// Private options, 224 to 254.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub private_options: Vec<DHCPPrivateOptions>,
    /// Option 66: name of the TFTP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tftp_server_name: Option<String>,
}

/// `spec.domain.devices.interfaces[].dhcpOptions.privateOptions[]`: a private option.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DHCPPrivateOptions {
    /// Number of the option, from 224 to 254.
    pub option: i32,
    /// Value of the option, as text.
    pub value: String,
}
