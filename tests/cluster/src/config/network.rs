//! A node's network: the links of its pods, its routes, its services.

use serde_json::json;

use super::{ConfigFile, flags, pretty, text};
use crate::layout::{HOST_ADDRESS, Layout, NodeNumber, POD_RANGE};

/// kube-proxy's arguments. What conntrack may hold is the host's business.
pub fn proxy_arguments(layout: &Layout, node: NodeNumber) -> Vec<String> {
    flags(&[
        ("kubeconfig", text(&layout.config("proxy.kubeconfig"))),
        ("hostname-override", node.to_string()),
        ("proxy-mode", "nftables".to_owned()),
        ("cluster-cidr", POD_RANGE.to_owned()),
        ("conntrack-max-per-core", "0".to_owned()),
        ("conntrack-tcp-timeout-established", "0s".to_owned()),
        ("conntrack-tcp-timeout-close-wait", "0s".to_owned()),
    ])
}

/// What containerd hands to the CNI plugins.
pub fn cni(layout: &Layout, node: NodeNumber) -> ConfigFile {
    let list = json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": node.pod_range()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}, "backend": "nftables"},
        ],
    });
    ConfigFile { path: layout.node_file(node, "cni").join("10-pods.conflist"), content: pretty(&list) }
}

/// `ip -batch` for the bridge, which may be there already.
pub fn bridge_commands(layout: &Layout, there: bool) -> String {
    let bridge = layout.bridge();
    // With an address of its own it does not take that of a node, which may go.
    let add = format!("link add {bridge} address 02:67:62:6b:00:00 type bridge\n");
    let set = format!("addr replace {HOST_ADDRESS}/24 dev {bridge}\nlink set {bridge} up\n");
    if there { set } else { add + &set }
}

/// `ip -batch` on the host for a node's link, which may be there already; its other end is in the namespace of the
/// process `init`.
pub fn uplink_commands(layout: &Layout, node: NodeNumber, init: i32, there: bool) -> String {
    let (bridge, link, address) = (layout.bridge(), layout.uplink(node), node.hardware_address());
    let add = format!("link add {link} type veth peer name eth0 address {address} netns {init}\n");
    let set = format!("link set {link} master {bridge} up\n");
    if there { set } else { add + &set }
}

/// `ip -batch` on the host: the way to the pods of every node, so that the API server reaches webhooks.
pub fn host_route_commands(layout: &Layout, nodes: u8) -> String {
    let bridge = layout.bridge();
    NodeNumber::first(nodes)
        .map(|node| format!("route replace {} via {} dev {bridge}\n", node.pod_range(), node.address()))
        .collect()
}

/// `ip -batch` inside a node: its address, and the way to the host and to the pods of the others.
pub fn node_commands(node: NodeNumber, nodes: u8) -> String {
    let own = format!(
        "link set lo up\n\
         addr replace {}/24 dev eth0\n\
         link set eth0 up\n\
         route replace default via {HOST_ADDRESS}\n",
        node.address()
    );
    let others = NodeNumber::first(nodes)
        .filter(|other| *other != node)
        .map(|other| format!("route replace {} via {}\n", other.pod_range(), other.address()));
    own + &others.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_knows_the_way_to_the_pods_of_all_others() {
        let commands = node_commands(NodeNumber::new(2).unwrap(), 3);
        assert!(commands.contains("route replace 10.244.1.0/24 via 172.30.0.11\n"));
        assert!(commands.contains("route replace 10.244.3.0/24 via 172.30.0.13\n"));
        assert!(!commands.contains("10.244.2.0/24"));
        assert!(commands.contains("addr replace 172.30.0.12/24 dev eth0\n"));
    }

    #[test]
    fn pods_of_a_node_have_addresses_of_its_range() {
        let layout = Layout::new("main".parse().unwrap(), None).unwrap();
        let file = cni(&layout, NodeNumber::new(3).unwrap());
        let list: serde_json::Value = serde_json::from_str(&file.content).unwrap();
        assert_eq!(list["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.244.3.0/24");
    }
}
