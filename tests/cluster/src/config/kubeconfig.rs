//! How a client finds the API server and authenticates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::pretty;
use crate::layout::{API_PORT, HOST_ADDRESS};

/// PEM texts of a client.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    /// The authority of the API server's certificate.
    pub authority: &'a str,
    /// The client's own.
    pub certificate: &'a str,
    /// The key to it.
    pub key: &'a str,
}

/// A kubeconfig that needs no other file.
pub fn render(cluster: &str, user: &str, identity: &Identity<'_>) -> String {
    let data = |pem: &str| STANDARD.encode(pem);
    pretty(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {
            "server": format!("https://{HOST_ADDRESS}:{API_PORT}"),
            "certificate-authority-data": data(identity.authority),
        }}],
        "users": [{"name": user, "user": {
            "client-certificate-data": data(identity.certificate),
            "client-key-data": data(identity.key),
        }}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_needs_no_other_file() {
        let identity = Identity { authority: "CA", certificate: "CERT", key: "KEY" };
        let rendered: serde_json::Value = serde_json::from_str(&render("gbk-main", "admin", &identity)).unwrap();
        assert_eq!(rendered["clusters"][0]["cluster"]["server"], "https://172.30.0.1:6443");
        assert_eq!(rendered["users"][0]["user"]["client-key-data"], STANDARD.encode("KEY"));
        assert_eq!(rendered["contexts"][0]["context"]["user"], rendered["users"][0]["name"]);
        assert_eq!(rendered["current-context"], rendered["contexts"][0]["name"]);
    }
}
