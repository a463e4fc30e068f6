//! The control plane. It listens on the bridge's host address (API server) and on loopback (all others).

use std::path::Path;

use serde_json::json;

use super::{ConfigFile, flags, pretty, text};
use crate::layout::{API_PORT, ETCD_PEER_PORT, ETCD_PORT, HOST_ADDRESS, Layout, SERVICE_RANGE};
use crate::pki::{AUTHORITY, FRONT_AUTHORITY, SERVICE_ACCOUNTS};

/// The issuer of the tokens of service accounts.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Seconds without a lease renewal after which a node is not Ready. Kubernetes waits 50; kubelets here renew every five.
pub const NODE_GRACE_S: u32 = 20;
/// The mark of a node that KWOK plays.
pub const KWOK_MARK: &str = "kwok.x-k8s.io/node";

/// The database: no `fsync`, for nothing here outlives the machine.
pub fn etcd(layout: &Layout) -> Vec<String> {
    let client = format!("http://127.0.0.1:{ETCD_PORT}");
    let peer = format!("http://127.0.0.1:{ETCD_PEER_PORT}");
    flags(&[
        ("name", "only".to_owned()),
        ("data-dir", text(&layout.bulk.join("etcd"))),
        ("listen-client-urls", client.clone()),
        ("advertise-client-urls", client),
        ("listen-peer-urls", peer.clone()),
        ("initial-advertise-peer-urls", peer.clone()),
        ("initial-cluster", format!("only={peer}")),
        ("unsafe-no-fsync", "true".to_owned()),
        ("snapshot-count", "10000".to_owned()),
    ])
}

/// Everything else connects to it.
pub fn api_server(layout: &Layout) -> Vec<String> {
    let mut arguments = flags(&[
        ("etcd-servers", format!("http://127.0.0.1:{ETCD_PORT}")),
        ("bind-address", HOST_ADDRESS.to_string()),
        ("advertise-address", HOST_ADDRESS.to_string()),
        ("secure-port", API_PORT.to_string()),
        ("service-cluster-ip-range", SERVICE_RANGE.to_owned()),
        ("allow-privileged", "true".to_owned()),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("enable-admission-plugins", "NodeRestriction,ValidatingAdmissionPolicy,PodSecurity".to_owned()),
        // Aggregated APIs and webhooks are reached by their pods' addresses: the host has no service addresses.
        ("enable-aggregator-routing", "true".to_owned()),
        ("audit-policy-file", text(&layout.config("audit.json"))),
        ("audit-log-path", text(&layout.audit_log())),
        // MB; one file, because tests count what is in it.
        ("audit-log-maxsize", "100000".to_owned()),
    ]);
    arguments.extend(api_server_trust(layout));
    arguments
}

/// The authorities that the API server trusts, and its own certificate.
fn api_server_trust(layout: &Layout) -> Vec<String> {
    flags(&[
        ("tls-cert-file", text(&layout.certificate("apiserver"))),
        ("tls-private-key-file", text(&layout.key("apiserver"))),
        ("client-ca-file", text(&layout.certificate(AUTHORITY))),
        ("kubelet-certificate-authority", text(&layout.certificate(AUTHORITY))),
        ("kubelet-client-certificate", text(&layout.certificate("apiserver-kubelet-client"))),
        ("kubelet-client-key", text(&layout.key("apiserver-kubelet-client"))),
        ("kubelet-preferred-address-types", "InternalIP".to_owned()),
        ("proxy-client-cert-file", text(&layout.certificate("front-proxy-client"))),
        ("proxy-client-key-file", text(&layout.key("front-proxy-client"))),
        ("requestheader-client-ca-file", text(&layout.certificate(FRONT_AUTHORITY))),
        ("requestheader-allowed-names", "front-proxy-client".to_owned()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".to_owned()),
        ("requestheader-group-headers", "X-Remote-Group".to_owned()),
        ("requestheader-username-headers", "X-Remote-User".to_owned()),
        ("service-account-issuer", ISSUER.to_owned()),
        ("service-account-key-file", text(&layout.certificate(SERVICE_ACCOUNTS))),
        ("service-account-signing-key-file", text(&layout.key(SERVICE_ACCOUNTS))),
    ])
}

/// Controllers of Kubernetes' own kinds.
pub fn controller_manager(layout: &Layout) -> Vec<String> {
    let mut arguments = flags(&[
        ("use-service-account-credentials", "true".to_owned()),
        ("service-account-private-key-file", text(&layout.key(SERVICE_ACCOUNTS))),
        ("root-ca-file", text(&layout.certificate(AUTHORITY))),
        ("cluster-signing-cert-file", text(&layout.certificate(AUTHORITY))),
        ("cluster-signing-key-file", text(&layout.key(AUTHORITY))),
        ("node-monitor-grace-period", format!("{NODE_GRACE_S}s")),
        // With the usual 20 requests a second it takes four seconds to begin.
        ("kube-api-qps", "100".to_owned()),
        ("kube-api-burst", "200".to_owned()),
    ]);
    arguments.extend(lone_client(layout, "controller-manager"));
    arguments
}

/// Finds a node for each pod.
pub fn scheduler(layout: &Layout) -> Vec<String> {
    lone_client(layout, "scheduler")
}

/// One of a kind, so it leads from its first moment.
fn lone_client(layout: &Layout, owner: &str) -> Vec<String> {
    let kubeconfig = text(&layout.config(&format!("{owner}.kubeconfig")));
    flags(&[
        ("kubeconfig", kubeconfig.clone()),
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig),
        ("bind-address", "127.0.0.1".to_owned()),
        ("leader-elect", "false".to_owned()),
    ])
}

/// Plays nodes: whatever is bound to them runs in name only.
pub fn kwok(layout: &Layout, programs: &Path) -> Vec<String> {
    flags(&[
        ("kubeconfig", text(&layout.kubeconfig())),
        ("config", text(&programs.join("kwok-stages.yaml"))),
        // As real kubelets here, so that they are not taken for lost.
        ("node-lease-duration-seconds", NODE_GRACE_S.to_string()),
        ("manage-nodes-with-annotation-selector", format!("{KWOK_MARK}=fake")),
        ("cidr", "10.250.0.0/16".to_owned()),
        ("node-ip", HOST_ADDRESS.to_string()),
    ])
}

/// A node for KWOK to play. The taint keeps away pods that did not ask for it.
pub fn kwok_node(number: u16) -> serde_json::Value {
    let name = format!("kwok-{number}");
    let room = json!({"cpu": "32", "memory": "256Gi", "pods": "250"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {KWOK_MARK: "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {
                "type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
            },
        },
        "spec": {"taints": [{"key": KWOK_MARK, "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": room, "capacity": room},
    })
}

/// Every request that was answered, without its body.
pub fn audit_policy(layout: &Layout) -> ConfigFile {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    });
    ConfigFile { path: layout.config("audit.json"), content: pretty(&policy) }
}
