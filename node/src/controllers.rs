//! Connections to the controllers: one to each replica, dialled from here and dialled again when it ends.
//!
//! ```text
//!   EndpointSlices of the controllers' Service ─► addresses ─► a task for each: pause, dial, serve
//!   ConfigMap garboard-authorities            ─► their CA bundle    (read when it is first needed, and after a failure)
//!   the token of the projected volume         ─► who this is        (read for each attempt: the kubelet renews it)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use garboard_cluster::names::{AUTHORITIES, AUTHORITIES_KEY, CONTROLLER_SERVICE, NODES_PORT_NAME};
use garboard_protocol::causes::ErrorChain;
use garboard_tunnel::agent::{Controller, DialError, Dialled, Supervisors, dial, serve_with_token};
use garboard_tunnel::redial::{self, Chance};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use crate::connections::Connections;

/// How long the API server may take for the authorities.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// How the controllers are found and trusted.
pub struct Way {
    /// The API server.
    pub client: Client,
    /// The namespace of the installation.
    pub namespace: String,
    /// The file with the token for controllers.
    pub token: PathBuf,
}

/// Why a controller is not connected.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    /// The token is not there.
    #[error("the token for controllers cannot be read")]
    Token(#[source] std::io::Error),
    /// The API server does not have the authorities.
    #[error("ConfigMap {AUTHORITIES} cannot be read")]
    Authorities(#[source] Box<kube::Error>),
    /// The API server does not answer.
    #[error("the API server took longer than {} s for ConfigMap {AUTHORITIES}", READ_WITHIN.as_secs())]
    Slow,
    /// The controllers have not published any yet.
    #[error("ConfigMap {AUTHORITIES} has no certificate yet")]
    NoAuthorities,
    /// They cannot be used.
    #[error("a certificate in ConfigMap {AUTHORITIES} cannot be used")]
    Certificate(#[source] rustls::Error),
    /// They are no PEM.
    #[error("ConfigMap {AUTHORITIES} is not PEM")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// The namespace makes no host name.
    #[error("the name of the controllers' Service is not a host name")]
    Name(#[from] InvalidDnsNameError),
    /// The controller.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The connection ended.
    #[error("the connection ended")]
    Ended(#[source] hyper::Error),
}

/// Keeps the connections, for ever, and counts them.
pub async fn keep(way: Way, supervisors: Arc<impl Supervisors>, connections: Arc<Connections>) {
    let spread = watch::channel(redial::LEAST_SPREAD).0;
    let way = Arc::new(Connecting { tls: Mutex::default(), spread, connections, way });
    let (known, addresses) = watch::channel(BTreeSet::new());
    let mut slices = Slices::default();
    let mut tasks: BTreeMap<SocketAddr, JoinHandle<()>> = BTreeMap::new();
    let mut events = pin!(changes(&way.way).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => slices.apply(event),
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "watch of the controllers' EndpointSlices failed; tried again");
                continue;
            }
        }
        let now = slices.addresses();
        known.send_replace(now.clone());
        tasks.retain(|_, task| !task.is_finished());
        for address in now {
            // One for each: a controller that was away for a moment still has its connection.
            tasks.entry(address).or_insert_with(|| {
                tokio::spawn(keep_one(address, Arc::clone(&way), Arc::clone(&supervisors), addresses.clone()))
            });
        }
    }
}

fn changes(way: &Way) -> impl futures::Stream<Item = watcher::Result<watcher::Event<EndpointSlice>>> + Send + use<> {
    let slices: Api<EndpointSlice> = Api::namespaced(way.client.clone(), &way.namespace);
    let of_service = watcher::Config::default().labels(&format!("kubernetes.io/service-name={CONTROLLER_SERVICE}"));
    watcher(slices, of_service)
}

/// The addresses of each slice. A list that is read anew counts when it is whole.
#[derive(Debug, Default)]
struct Slices {
    whole: BTreeMap<String, BTreeSet<SocketAddr>>,
    listed: BTreeMap<String, BTreeSet<SocketAddr>>,
}

impl Slices {
    fn apply(&mut self, event: watcher::Event<EndpointSlice>) {
        let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap_or_default();
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(slice) => drop(self.listed.insert(name(&slice), addresses(&slice))),
            watcher::Event::InitDone => self.whole = std::mem::take(&mut self.listed),
            watcher::Event::Apply(slice) => drop(self.whole.insert(name(&slice), addresses(&slice))),
            watcher::Event::Delete(slice) => drop(self.whole.remove(&name(&slice))),
        }
    }

    fn addresses(&self) -> BTreeSet<SocketAddr> {
        self.whole.values().flatten().copied().collect()
    }
}

/// Where the controllers of a slice that are ready serve nodes. Pure.
fn addresses(slice: &EndpointSlice) -> BTreeSet<SocketAddr> {
    let ports = slice.ports.iter().flatten();
    let port = ports.filter(|port| port.name.as_deref() == Some(NODES_PORT_NAME)).find_map(|port| port.port);
    let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else { return BTreeSet::new() };
    let ready = slice
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true));
    let addresses = ready.flat_map(|endpoint| &endpoint.addresses).filter_map(|address| address.parse::<IpAddr>().ok());
    addresses.map(|address| SocketAddr::new(address, port)).collect()
}

/// The way, and what was read of it.
struct Connecting {
    way: Way,
    tls: Mutex<Option<Trust>>,
    /// Over what time agents dial, as the last controller has answered.
    spread: watch::Sender<Duration>,
    connections: Arc<Connections>,
}

/// Whom to trust.
struct Trust {
    config: Arc<ClientConfig>,
    /// An attempt failed since it was read: there may be other authorities.
    is_doubted: bool,
}

/// Connects to one controller again and again, until it is none any more.
async fn keep_one(
    address: SocketAddr,
    way: Arc<Connecting>,
    supervisors: Arc<impl Supervisors>,
    mut addresses: watch::Receiver<BTreeSet<SocketAddr>>,
) {
    let (mut chance, mut failures) = (Chance::seeded(seed()), 0);
    loop {
        // Before the first attempt too: the other agents learn of a new controller at the same moment.
        let pause = redial::pause(*way.spread.borrow(), failures, chance.next().unwrap_or_default());
        let gone = addresses.wait_for(|addresses| !addresses.contains(&address));
        if tokio::time::timeout(pause, gone).await.is_ok() {
            return;
        }
        match way.connect(address).await {
            Ok(Dialled { connection, spread }) => {
                failures = 0;
                way.spread.send_replace(spread);
                tracing::info!(%address, "connected to a controller");
                let _counted = way.connections.open();
                let (token, supervisors) = (way.way.token.clone(), Arc::clone(&supervisors));
                let ended = serve_with_token(connection, supervisors, move || read_token(&token).ok()).await;
                let error = ended.map_err(ConnectError::Ended).err().map(|error| ErrorChain(&error).to_string());
                tracing::info!(%address, error, "the connection to a controller ended");
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                way.doubt().await;
                tracing::warn!(%address, error = %ErrorChain(&error), failures, "a controller cannot be connected to; tried again");
            }
        }
    }
}

/// What chance begins with: other on each node.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn read_token(file: &Path) -> std::io::Result<String> {
    std::fs::read_to_string(file).map(|token| token.trim().to_owned())
}

impl Connecting {
    async fn connect(&self, address: SocketAddr) -> Result<Dialled, ConnectError> {
        let token = read_token(&self.way.token).map_err(ConnectError::Token)?;
        let name = ServerName::try_from(format!("{CONTROLLER_SERVICE}.{}.svc", self.way.namespace))?;
        let controller = Controller { address, name, tls: self.tls().await? };
        Ok(dial(&controller, &token).await?)
    }

    /// The authorities are read again before the next attempt.
    async fn doubt(&self) {
        if let Some(trust) = self.tls.lock().await.as_mut() {
            trust.is_doubted = true;
        }
    }

    /// Where they cannot be read again, those that are known go on.
    async fn tls(&self) -> Result<Arc<ClientConfig>, ConnectError> {
        let mut known = self.tls.lock().await;
        if let Some(Trust { config, is_doubted: false }) = known.as_ref() {
            return Ok(Arc::clone(config));
        }
        match (self.read().await, known.as_ref()) {
            (Ok(config), _) => {
                *known = Some(Trust { config: Arc::clone(&config), is_doubted: false });
                Ok(config)
            }
            (Err(_), Some(known)) => Ok(Arc::clone(&known.config)),
            (Err(error), None) => Err(error),
        }
    }

    async fn read(&self) -> Result<Arc<ClientConfig>, ConnectError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.way.client.clone(), &self.way.namespace);
        let read = tokio::time::timeout(READ_WITHIN, maps.get(AUTHORITIES)).await;
        let map = read.map_err(|_| ConnectError::Slow)?.map_err(|error| ConnectError::Authorities(Box::new(error)))?;
        let text = map.data.and_then(|mut data| data.remove(AUTHORITIES_KEY)).ok_or(ConnectError::NoAuthorities)?;
        config(&text).map(Arc::new)
    }
}

fn config(authorities: &str) -> Result<ClientConfig, ConnectError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(certificate.map_err(ConnectError::Pem)?).map_err(ConnectError::Certificate)?;
    }
    if roots.is_empty() {
        return Err(ConnectError::NoAuthorities);
    }
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_controllers_that_are_ready_are_dialled_and_at_their_port_for_nodes() {
        let slice = |endpoints: serde_json::Value| -> EndpointSlice {
            serde_json::from_value(json!({
                "metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": endpoints,
                "ports": [{"name": "webhooks", "port": 8443}, {"name": "nodes", "port": 8445}],
            }))
            .unwrap()
        };
        let found = addresses(&slice(json!([
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            {"addresses": ["fd00::1"]},
            {"addresses": ["no address"]},
        ])));
        let expected = ["10.0.0.1:8445", "[fd00::1]:8445"].map(|address| address.parse().unwrap());
        assert_eq!(found, expected.into());
        let mut other = slice(json!([{"addresses": ["10.0.0.1"]}]));
        other.ports = None;
        assert!(addresses(&other).is_empty());
    }

    #[test]
    fn a_list_that_is_read_anew_takes_no_address_away_before_it_is_whole() {
        let slice = |name: &str, address: &str| -> EndpointSlice {
            serde_json::from_value(json!({
                "metadata": {"name": name}, "addressType": "IPv4", "endpoints": [{"addresses": [address]}],
                "ports": [{"name": "nodes", "port": 8445}],
            }))
            .unwrap()
        };
        let mut slices = Slices::default();
        let events = |slices: &mut Slices, all: Vec<watcher::Event<EndpointSlice>>| {
            all.into_iter()
                .map(|event| {
                    slices.apply(event);
                    slices.addresses().len()
                })
                .collect::<Vec<_>>()
        };
        let (a, b) = (slice("a", "10.0.0.1"), slice("b", "10.0.0.2"));
        let first = vec![watcher::Event::Init, watcher::Event::InitApply(a.clone()), watcher::Event::InitDone];
        assert_eq!(events(&mut slices, first), [0, 0, 1]);
        assert_eq!(events(&mut slices, vec![watcher::Event::Apply(b.clone())]), [2]);
        let again = vec![watcher::Event::Init, watcher::Event::InitApply(b.clone()), watcher::Event::InitDone];
        assert_eq!(events(&mut slices, again), [2, 2, 1]);
        assert_eq!(events(&mut slices, vec![watcher::Event::Delete(b)]), [0]);
    }

    #[test]
    fn without_an_authority_nothing_is_trusted() {
        assert!(matches!(config(""), Err(ConnectError::NoAuthorities)));
        let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(config(nonsense), Err(ConnectError::Certificate(_))));
    }
}
