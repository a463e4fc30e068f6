//! Certificates of the cluster's components. Each is made once and kept; a node added later gets one from the same
//! authority. They do not expire, for a cluster lives for an afternoon.
//!
//! Names and groups are those that Kubernetes' own roles are bound to ("PKI certificates and requirements" and "Using
//! Node Authorization" in its documentation).

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use crate::config::kubeconfig::{Identity, render};
use crate::error::{Error, Result};
use crate::files::{read, write, write_secret};
use crate::layout::{API_SERVICE_ADDRESS, HOST_ADDRESS, Layout, NodeNumber};

/// Signs all certificates but the front proxy's.
pub const AUTHORITY: &str = "ca";
/// Signs the API server's when it forwards a client's request to an aggregated API.
pub const FRONT_AUTHORITY: &str = "front-proxy-ca";
/// Not a certificate but a pair of keys: it signs tokens.
pub const SERVICE_ACCOUNTS: &str = "service-accounts";
/// May do everything.
const ADMINISTRATORS: &str = "system:masters";

/// One certificate to make.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    /// Its files' name.
    owner: String,
    authority: &'static str,
    /// The user a client is.
    user: String,
    /// The group a client is in.
    group: Option<&'static str>,
    /// Names and addresses of a server.
    names: Vec<String>,
}

impl Request {
    fn client(owner: &str, user: &str, group: Option<&'static str>) -> Self {
        Self { owner: owner.to_owned(), authority: AUTHORITY, user: user.to_owned(), group, names: Vec::new() }
    }
}

/// The clients that need a kubeconfig, their names in it, and where it lies.
fn clients(layout: &Layout, nodes: u8) -> Vec<(String, String, std::path::PathBuf)> {
    let named = |owner: &str, user: &str, path| (owner.to_owned(), user.to_owned(), path);
    let mut found = vec![
        named("admin", "admin", layout.kubeconfig()),
        named("controller-manager", "controller-manager", layout.config("controller-manager.kubeconfig")),
        named("scheduler", "scheduler", layout.config("scheduler.kubeconfig")),
        named("proxy", "proxy", layout.config("proxy.kubeconfig")),
    ];
    found.extend(NodeNumber::first(nodes).map(|node| {
        let owner = node.to_string();
        (owner.clone(), owner, layout.node_file(node, "kubelet.kubeconfig"))
    }));
    found
}

/// Every certificate of the cluster. Pure.
fn requests(nodes: u8) -> Vec<Request> {
    let api_names = [
        "kubernetes".to_owned(),
        "kubernetes.default".to_owned(),
        "kubernetes.default.svc".to_owned(),
        "kubernetes.default.svc.cluster.local".to_owned(),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        HOST_ADDRESS.to_string(),
        API_SERVICE_ADDRESS.to_string(),
    ];
    let mut all = vec![
        Request { names: api_names.to_vec(), ..Request::client("apiserver", "kube-apiserver", None) },
        Request::client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", Some(ADMINISTRATORS)),
        Request { authority: FRONT_AUTHORITY, ..Request::client("front-proxy-client", "front-proxy-client", None) },
        Request::client("admin", "kubernetes-admin", Some(ADMINISTRATORS)),
        Request::client("controller-manager", "system:kube-controller-manager", None),
        Request::client("scheduler", "system:kube-scheduler", None),
        Request::client("proxy", "system:kube-proxy", None),
    ];
    all.extend(NodeNumber::first(nodes).map(|node| Request {
        names: vec![node.to_string(), node.address().to_string()],
        ..Request::client(&node.to_string(), &format!("system:node:{node}"), Some("system:nodes"))
    }));
    all
}

/// Makes what is missing: authorities, certificates, keys, kubeconfigs.
///
/// # Errors
/// No room, or files that were changed.
pub fn ensure(layout: &Layout, nodes: u8) -> Result<()> {
    let authorities = [ensure_authority(layout, AUTHORITY)?, ensure_authority(layout, FRONT_AUTHORITY)?];
    ensure_token_keys(layout)?;
    for request in requests(nodes) {
        let [general, front] = &authorities;
        ensure_certificate(layout, &request, if request.authority == AUTHORITY { general } else { front })?;
    }
    for (owner, user, path) in clients(layout, nodes) {
        if !path.exists() {
            write_secret(&path, &kubeconfig(layout, &owner, &user)?)?;
        }
    }
    Ok(())
}

fn kubeconfig(layout: &Layout, owner: &str, user: &str) -> Result<String> {
    let authority = read(&layout.certificate(AUTHORITY))?;
    let (certificate, key) = (read(&layout.certificate(owner))?, read(&layout.key(owner))?);
    let identity = Identity { authority: &authority, certificate: &certificate, key: &key };
    Ok(render(&layout.cgroup(), user, &identity))
}

fn ensure_authority(layout: &Layout, owner: &str) -> Result<Issuer<'static, KeyPair>> {
    let failed = |source| Error::Certificate { owner: owner.to_owned(), source };
    let mut wanted = CertificateParams::default();
    wanted.distinguished_name = name(owner, None);
    wanted.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    wanted.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let key = ensure_key(layout, owner)?;
    let path = layout.certificate(owner);
    if !path.exists() {
        write(&path, &wanted.self_signed(&key).map_err(failed)?.pem())?;
    }
    Ok(Issuer::new(wanted, key))
}

fn ensure_certificate(layout: &Layout, request: &Request, authority: &Issuer<'_, KeyPair>) -> Result<()> {
    let path = layout.certificate(&request.owner);
    if path.exists() {
        return Ok(());
    }
    let failed = |source| Error::Certificate { owner: request.owner.clone(), source };
    let key = ensure_key(layout, &request.owner)?;
    let mut wanted = CertificateParams::new(request.names.clone()).map_err(failed)?;
    wanted.distinguished_name = name(&request.user, request.group);
    wanted.use_authority_key_identifier_extension = true;
    wanted.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    wanted.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if !request.names.is_empty() {
        wanted.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    write(&path, &wanted.signed_by(&key, authority).map_err(failed)?.pem())
}

/// The public half stands where a certificate would.
fn ensure_token_keys(layout: &Layout) -> Result<()> {
    let key = ensure_key(layout, SERVICE_ACCOUNTS)?;
    let path = layout.certificate(SERVICE_ACCOUNTS);
    if path.exists() { Ok(()) } else { write(&path, &key.public_key_pem()) }
}

/// A key on the curve P-256.
fn ensure_key(layout: &Layout, owner: &str) -> Result<KeyPair> {
    let failed = |source| Error::Certificate { owner: owner.to_owned(), source };
    let path = layout.key(owner);
    if path.exists() {
        return KeyPair::from_pem(&read(&path)?).map_err(failed);
    }
    let key = KeyPair::generate().map_err(failed)?;
    write_secret(&path, &key.serialize_pem())?;
    Ok(key)
}

fn name(user: &str, group: Option<&str>) -> rcgen::DistinguishedName {
    let mut name = rcgen::DistinguishedName::new();
    if let Some(group) = group {
        name.push(DnType::OrganizationName, group);
    }
    name.push(DnType::CommonName, user);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_is_a_node_and_a_server() {
        let all = requests(2);
        let kubelet = all.iter().find(|request| request.owner == "node-2").unwrap();
        assert_eq!((kubelet.user.as_str(), kubelet.group), ("system:node:node-2", Some("system:nodes")));
        assert_eq!(kubelet.names, ["node-2", "172.30.0.12"]);
    }

    #[test]
    fn a_second_time_changes_nothing_and_a_new_node_gets_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new("main".parse().unwrap(), Some(directory.path())).unwrap();
        ensure(&layout, 1).unwrap();
        let snapshot = |owner: &str| (read(&layout.certificate(owner)).unwrap(), read(&layout.key(owner)).unwrap());
        let before = [AUTHORITY, "apiserver", "node-1"].map(snapshot);
        assert!(!layout.certificate("node-2").exists());
        ensure(&layout, 2).unwrap();
        assert_eq!(before, [AUTHORITY, "apiserver", "node-1"].map(snapshot));
        assert!(layout.certificate("node-2").exists() && layout.kubeconfig().exists());
    }

    #[test]
    fn keys_and_what_holds_one_are_for_nobody_else() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new("main".parse().unwrap(), Some(directory.path())).unwrap();
        ensure(&layout, 1).unwrap();
        let keys = [AUTHORITY, FRONT_AUTHORITY, SERVICE_ACCOUNTS, "admin", "node-1"].map(|owner| layout.key(owner));
        for secret in keys.into_iter().chain(clients(&layout, 1).into_iter().map(|(_, _, path)| path)) {
            let mode = std::fs::metadata(&secret).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", secret.display());
        }
    }
}
