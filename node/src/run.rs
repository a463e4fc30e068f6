//! Putting the agent together.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use anyhow::Context;
use futures::StreamExt;
use garboard_api::metadata::label;
use garboard_api::v1::VirtualMachineInstance;
use garboard_host::root::HostRoot;
use garboard_launcher::vm::Chain;
use garboard_protocol::pod::AGENT_SOCKET;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::args::Args;
use crate::caller::Processes;
use crate::cluster::ApiServer;
use crate::confine::looker::Looker;
use crate::device::resource::Health;
use crate::device::{self, Plugins, Resource};
use crate::heartbeat::Sources;
use crate::launchers::Launchers;
use crate::mirror::Mirror;
use crate::pods::{self, LauncherPod, launcher_pod};
use crate::server::Server;
use crate::writer::{Setting, Writer};
use crate::{facts, heartbeat, server};

/// Runs until it is told to leave. Leaving changes nothing: pods of this node run on, and the next agent goes on where
/// this one stopped.
///
/// # Errors
/// The agent's directory, its socket, or the configuration of its client cannot be used.
pub async fn run(args: Args, looker: Looker) -> anyhow::Result<()> {
    prepare(&args.agent_directory)?;
    let health = Resource::ALL.map(|resource| (resource, device::health::watch(HostRoot::real(), resource)));
    write_facts(&args.agent_directory, &health)?;
    let client = garboard_apiserver::client().await?;
    let pods: Arc<Mirror<LauncherPod>> = Arc::default();
    let vmis: Arc<Mirror<Arc<VirtualMachineInstance>>> = Arc::default();
    tokio::spawn(watch_pods(client.clone(), args.node_name.clone(), Arc::clone(&pods)));
    tokio::spawn(watch_vmis(client.clone(), args.node_name.clone(), Arc::clone(&vmis)));

    let api = ApiServer::new(client, &args.node_name);
    let setting = Setting { cluster: api.clone(), node: args.node_name.clone(), pods: Arc::clone(&pods), vmis };
    let launchers = launchers(api.clone(), args.node_name.clone(), Arc::clone(&pods));
    let server = Server::new(Processes::of_this_node(looker), launchers, Writer::new(setting));
    let socket = args.agent_directory.join(AGENT_SOCKET);
    let listener = server::listen(&socket).with_context(|| format!("listen at {}", socket.display()))?;
    let serving = tokio::spawn(server.serve(listener));

    let (registered, is_registered) = watch::channel(false);
    let plugins = Plugins {
        directory: args.kubelet_directory.clone(),
        count: args.devices,
        agent_directory: args.agent_directory.clone(),
        health: health.to_vec(),
    };
    // Only now: whoever is given a device finds the agent's socket.
    tokio::spawn(device::serve(plugins, registered));
    let [(_, kvm), ..] = health.clone();
    let sources = Sources { offer: heartbeat::read_offer(&args.offer), registered: is_registered, kvm, pods };
    tokio::spawn(heartbeat::beat(api, args.node_name.clone(), sources));
    tokio::spawn(keep_facts(args.agent_directory, health));

    tracing::info!(node = args.node_name, socket = %socket.display(), "the agent is ready");
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = serving => ended.context("the agent's server panicked")?.context("accept connections")?,
    }
    tracing::info!("the agent leaves");
    Ok(())
}

/// The directory is mounted into pods: it is never made anew, or running pods would keep the old one.
fn prepare(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("prepare {}", directory.display()))
}

type Healths = [(Resource, watch::Receiver<Health>); 3];

fn write_facts(directory: &Path, health: &Healths) -> anyhow::Result<()> {
    let facts = facts::facts(|wanted| {
        let found = health.iter().find(|(resource, _)| *resource == wanted);
        found.map_or(Health::Unhealthy, |(_, health)| *health.borrow())
    });
    facts::write(directory, &facts).with_context(|| format!("write the node's facts to {}", directory.display()))
}

/// Writes the facts again whenever a device of the network comes or goes.
async fn keep_facts(directory: std::path::PathBuf, mut health: Healths) {
    loop {
        let [_, (_, tun), (_, vhost)] = &mut health;
        let changed = tokio::select! {
            changed = tun.changed() => changed,
            changed = vhost.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        if let Err(error) = write_facts(&directory, &health) {
            tracing::warn!(error = format!("{error:#}"), "the node's facts are old");
        }
    }
}

fn launchers(api: ApiServer, node: String, mirror: Arc<Mirror<LauncherPod>>) -> Launchers {
    Launchers::new(mirror, move || {
        let (api, node) = (api.clone(), node.clone());
        async move { api.launcher_pods(&node).await }
    })
}

async fn watch_pods(client: Client, node: String, mirror: Arc<Mirror<LauncherPod>>) {
    let (fields, labels) = pods::selectors(&node);
    let wanted = watcher::Config::default().fields(&fields).labels(&labels);
    let mut events = pin!(watcher(Api::<Pod>::all(client), wanted).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => mirror
                .apply(event, |pod: Pod| (pod.metadata.uid.clone().unwrap_or_default(), launcher_pod(&pod, &node))),
            Err(error) => tracing::warn!(error = %Chain(&error), "launcher pods cannot be watched for now"),
        }
    }
}

async fn watch_vmis(client: Client, node: String, mirror: Arc<Mirror<Arc<VirtualMachineInstance>>>) {
    let wanted = watcher::Config::default().labels(&format!("{}={node}", label::NODE_NAME));
    let mut events = pin!(watcher(Api::<VirtualMachineInstance>::all(client), wanted).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => mirror.apply(event, |mut vmi: VirtualMachineInstance| {
                vmi.metadata.managed_fields = None;
                (vmi.metadata.uid.clone().unwrap_or_default(), Some(Arc::new(vmi)))
            }),
            Err(error) => tracing::warn!(error = %Chain(&error), "VMIs cannot be watched for now"),
        }
    }
}
