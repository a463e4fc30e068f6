//! Machines that are started at once, and how long that takes.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use futures::{StreamExt, TryStreamExt};
use garboard_api::VirtualMachine;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::nodes::{CPU_MODEL, MACHINE_TYPES};

/// What is started, and how.
#[derive(Args, Clone, Debug)]
pub(crate) struct Request {
    /// Where.
    #[arg(long, default_value = "tenant")]
    namespace: String,
    /// What names begin with; a number follows.
    #[arg(long)]
    prefix: String,
    /// How many.
    #[arg(long)]
    number: usize,
    /// How many are created at the same time.
    #[arg(long, default_value_t = 8)]
    writers: usize,
    /// How many may be on their way to Running; 0: any number.
    #[arg(long, default_value_t = 0)]
    in_flight: usize,
    /// How long all of them together may take, seconds.
    #[arg(long, default_value_t = 600)]
    patience: u64,
}

/// What the writers share with the watcher.
#[derive(Clone)]
struct Shared {
    /// A permit for each that may be on its way.
    room: Arc<Semaphore>,
    /// When each was about to be created.
    begun: Arc<Mutex<HashMap<String, Instant>>>,
}

impl Shared {
    fn begins(&self, name: &str) {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), Instant::now());
    }

    fn began(&self, name: &str) -> Option<Instant> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }
}

/// Starts them; seconds until all were created, until all ran, and from the one to the other of each, as JSON.
pub(crate) async fn start(client: Client, request: &Request) -> anyhow::Result<Value> {
    let most = if request.in_flight == 0 { Semaphore::MAX_PERMITS } else { request.in_flight };
    let shared = Shared { room: Arc::new(Semaphore::new(most)), begun: Arc::default() };
    let began = Instant::now();
    let running = tokio::spawn(all_run(client.clone(), request.clone(), shared.clone()));
    let machines: Api<VirtualMachine> = Api::namespaced(client, &request.namespace);
    futures::stream::iter(0..request.number)
        .map(|number| create(machines.clone(), request, number, shared.clone()))
        .buffer_unordered(request.writers)
        .try_collect::<Vec<()>>()
        .await?;
    let created = began.elapsed();
    let patience = Duration::from_secs(request.patience);
    let took = tokio::time::timeout(patience.saturating_sub(created), running).await;
    let took = took.with_context(|| format!("not all machines run within {} s", request.patience))???;
    Ok(json!({"created": created.as_secs_f64(), "running": began.elapsed().as_secs_f64(), "took": took}))
}

async fn create(machines: Api<VirtualMachine>, request: &Request, number: usize, shared: Shared) -> anyhow::Result<()> {
    // It is given back by the one that runs.
    shared.room.acquire().await?.forget();
    let name = format!("{}-{number}", request.prefix);
    let machine: VirtualMachine = serde_json::from_value(machine(&request.namespace, &name))?;
    shared.begins(&name);
    machines.create(&PostParams::default(), &machine).await?;
    Ok(())
}

/// Returns when so many instances run as are wanted, with the seconds that each took; each gives its room to another one.
async fn all_run(client: Client, request: Request, shared: Shared) -> anyhow::Result<BTreeMap<String, f64>> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance"));
    let instances: Api<DynamicObject> = Api::namespaced_with(client, &request.namespace, &kind);
    let events = watcher(instances, watcher::Config::default()).default_backoff().applied_objects();
    let (mut events, mut running) = (pin!(events), BTreeMap::new());
    while running.len() < request.number {
        let Some(event) = events.next().await else { bail!("the watch of instances has ended") };
        // It is opened again.
        let Ok(instance) = event else { continue };
        let name = instance.metadata.name.unwrap_or_default();
        if instance.data["status"]["phase"] != "Running" || running.contains_key(&name) {
            continue;
        }
        if let Some(began) = shared.began(&name) {
            running.insert(name, began.elapsed().as_secs_f64());
            shared.room.add_permits(1);
        }
    }
    Ok(running)
}

/// One that either project takes without webhooks: the fields that these would fill in are set.
fn machine(namespace: &str, name: &str) -> Value {
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()), ..Default::default() };
    let disk = |name: &str| json!({"name": name, "disk": {"bus": "virtio"}});
    let domain = json!({
        "machine": {"type": MACHINE_TYPES[0]},
        "cpu": {"cores": 1, "sockets": 1, "threads": 1, "model": CPU_MODEL},
        "memory": {"guest": "128Mi"},
        "resources": {"requests": {"memory": "128Mi"}},
        "devices": {"disks": [disk("root"), disk("seed")], "interfaces": [{"name": "default", "masquerade": {}}], "rng": {}},
    });
    let spec = json!({
        "architecture": "amd64",
        "domain": domain,
        "networks": [{"name": "default", "pod": {}}],
        "nodeSelector": {"type": "kwok"},
        "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}],
        "terminationGracePeriodSeconds": 30,
        "volumes": [
            {"name": "root", "containerDisk": {"image": "registry.garboard.dev/hello:1"}},
            {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\nhostname: played\nssh_pwauth: false\n"}},
        ],
    });
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata,
        "spec": {"runStrategy": "Always", "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    })
}
