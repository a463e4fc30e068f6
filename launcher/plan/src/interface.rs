//! The network interfaces of a plan.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::user_network::addresses;

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfacePlan {
    /// Name in the manifest.
    pub name: String,
    /// ID of the guest's device.
    pub device: String,
    /// ID of QEMU's backend.
    pub netdev: String,
    /// What the guest sees.
    pub model: NicModel,
    /// MAC address, six lower-case hexadecimal pairs with colons.
    pub mac: String,
    /// Queue pairs, at least 1.
    pub queues: u32,
    /// How it is joined to a network.
    pub binding: BindingPlan,
    /// What our DHCP server sends beside addresses.
    pub dhcp: DhcpPlan,
    /// Cable in or out.
    pub link: LinkState,
    /// The largest packet of its network, bytes, as the guest's device reports it; `None` where it reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Position among what is tried at boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u32>,
    /// The user's tag, handed to cloud-init's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

impl InterfacePlan {
    /// The guest's IPv4 address, where the plan itself decides it: no lease has to be looked up.
    #[must_use]
    pub fn planned_address(&self) -> Option<Ipv4Addr> {
        let (BindingPlan::User { ipv4, .. } | BindingPlan::Passt { ipv4: Some(ipv4), .. }) = &self.binding else {
            return None;
        };
        addresses(ipv4).map(|[_, guest, _]| guest)
    }
}

/// Defines the models, their list and their names in one place.
macro_rules! nic_models {
    ($($model:ident = $name:literal,)*) => {
        /// NIC models.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "the names are QEMU's and the manifest's")]
        pub enum NicModel {
            $(#[serde(rename = $name)] $model,)*
        }

        impl NicModel {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$model,)*];

            /// As a manifest has it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$model => $name,)*
                }
            }
        }
    };
}

nic_models! {
    Virtio = "virtio",
    E1000 = "e1000",
    E1000e = "e1000e",
    Igb = "igb",
    Rtl8139 = "rtl8139",
    Ne2kPci = "ne2k_pci",
    Pcnet = "pcnet",
}

/// How an interface is joined to a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", rename_all_fields = "camelCase")]
pub enum BindingPlan {
    /// A tap behind address translation.
    Masquerade {
        /// Name of the tap, at most 15 bytes.
        tap: String,
        /// IPv4 range of the guest; it gets the second host address, the gateway is the first.
        ipv4: String,
        /// IPv6 range of the guest.
        ipv6: String,
        /// If not empty, only these reach the guest.
        ports: Vec<PortPlan>,
        /// Ports of the host that lead to the guest.
        forwards: Vec<Forward>,
    },
    /// A tap on a bridge with the pod's own interface.
    Bridge {
        /// Name of the tap, at most 15 bytes.
        tap: String,
    },
    /// QEMU's own user-mode network.
    User {
        /// IPv4 range of the guest.
        ipv4: String,
        /// Ports of the host that lead to the guest.
        forwards: Vec<Forward>,
    },
    /// passt, reached through a connected socket.
    Passt {
        /// IPv4 range of the guest, as in [`BindingPlan::Masquerade`]; `None`: the guest has the host's own address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ipv4: Option<String>,
        /// The ports that the manifest lists. passt lets in the ports of `forwards`, not this list.
        ports: Vec<PortPlan>,
        /// Ports of the host that lead to the guest.
        forwards: Vec<Forward>,
    },
}

/// A port of the guest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortPlan {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port number.
    pub port: u16,
}

/// A port of the host that leads to the guest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Forward {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Address of the host to listen on; `None`: every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_address: Option<String>,
    /// Port of the host.
    pub host_port: u16,
    /// Port of the guest.
    pub guest_port: u16,
}

/// Transport protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs, reason = "the names are enough")]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

/// What our DHCP server sends beside addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DhcpPlan {
    /// Option 12: host name.
    pub hostname: String,
    /// Added before the search domains of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subdomain: Option<String>,
    /// Option 67.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_file_name: Option<String>,
    /// Option 66.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tftp_server_name: Option<String>,
    /// Option 42.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ntp_servers: Vec<String>,
    /// Options 224 to 254.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub private_options: BTreeMap<u8, String>,
}

/// Cable in or out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LinkState {
    /// In.
    Up,
    /// Out: `set_link` before the guest runs.
    Down,
}
