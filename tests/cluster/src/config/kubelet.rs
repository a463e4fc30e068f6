//! A node's kubelet. What is not set here is Kubernetes' own default.

use serde_json::json;

use super::{ConfigFile, flags, pretty, text};
use crate::layout::{HOST_ADDRESS, Layout, NodeNumber};
use crate::pki::AUTHORITY;

/// Its arguments; the rest is in [`files`].
pub fn arguments(layout: &Layout, node: NodeNumber) -> Vec<String> {
    flags(&[
        ("config", text(&layout.node_file(node, "kubelet.json"))),
        ("kubeconfig", text(&layout.node_file(node, "kubelet.kubeconfig"))),
        ("hostname-override", node.to_string()),
        ("node-ip", node.address().to_string()),
    ])
}

/// What it reads.
pub fn files(layout: &Layout, node: NodeNumber) -> [ConfigFile; 2] {
    [
        ConfigFile { path: layout.node_file(node, "kubelet.json"), content: pretty(&configuration(layout, node)) },
        // What pods get beside the cluster's own: nothing, for there is no way out.
        ConfigFile { path: layout.node_file(node, "resolv.conf"), content: String::new() },
    ]
}

fn configuration(layout: &Layout, node: NodeNumber) -> serde_json::Value {
    let owner = node.to_string();
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address(),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": layout.certificate(AUTHORITY)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": layout.certificate(&owner),
        "tlsPrivateKeyFile": layout.key(&owner),
        "rotateCertificates": false,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", layout.node_cgroup(node)),
        "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDomain": "cluster.local",
        // No server is there, and a pod gets the error at once; without an address each pod would be warned of in an event.
        "clusterDNS": [HOST_ADDRESS],
        "resolvConf": layout.node_file(node, "resolv.conf"),
        "serializeImagePulls": false,
        // Other users share the machine's disk and memory: they must not evict these pods.
        "evictionHard": {
            "memory.available": "100Mi", "nodefs.available": "100Mi", "nodefs.inodesFree": "1%",
            "imagefs.available": "100Mi", "imagefs.inodesFree": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        // A lost node is noticed in 20 s instead of 50.
        "nodeLeaseDurationSeconds": 20,
        "nodeStatusUpdateFrequency": "5s",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_a_node_are_in_its_control_group() {
        let layout = Layout::new("main".parse().unwrap(), None).unwrap();
        let node = NodeNumber::new(2).unwrap();
        let [rendered, _] = files(&layout, node);
        let rendered: serde_json::Value = serde_json::from_str(&rendered.content).unwrap();
        assert_eq!(rendered["cgroupRoot"], "/gbk-main/node-2");
        assert_eq!(rendered["address"], "172.30.0.12");
        assert_eq!(rendered["tlsCertFile"], "/run/garboard-cluster/main/pki/node-2.crt");
    }
}
