//! Putting the agent together.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use anyhow::Context;
use futures::StreamExt;
use garboard_api::metadata::label;
use garboard_api::v1::VirtualMachineInstance;
use garboard_cluster::requests::Requests;
use garboard_host::root::HostRoot;
use garboard_log::Levels;
use garboard_machine::facts::{KvmFacts, KvmState};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::pod::AGENT_SOCKET;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::args::Args;
use crate::caller::Processes;
use crate::cluster::ApiServer;
use crate::connections::Connections;
use crate::contain::contained;
use crate::controllers::{self, Way};
use crate::device::resource::Health;
use crate::device::{self, Plugins, Resource};
use crate::heartbeat::Sources;
use crate::launchers::Launchers;
use crate::metrics::{Served, Sources as Counted};
use crate::mirror::Mirror;
use crate::pods::{self, LauncherPod, launcher_pod};
use crate::policy;
use crate::remains::{self, Remains};
use crate::server::Server;
use crate::socket::AgentSocket;
use crate::supervisors::Connected;
use crate::verbosity::{self, Own, Recipients};
use crate::watched_vmi::WatchedVmi;
use crate::writer::{Writer, WriterContext};
use crate::{facts, heartbeat};

/// Runs until it is asked to exit; `version` is that of this program, and `levels` what it logs. An exit changes nothing: pods of this
/// node run on, and the next agent goes on where this one stopped.
///
/// # Errors
/// The agent's directory, its socket, or the configuration of its client cannot be used.
pub async fn run(args: Args, version: &'static str, levels: Levels) -> anyhow::Result<()> {
    let offer = heartbeat::read_offer(&args.offer);
    let kvm = offer.as_ref().and_then(|offer| offer.kvm.clone());
    let health = healths(kvm.as_ref());
    write_facts(&args.agent_directory, &health, kvm.as_ref())?;
    let requests = Requests::default();
    let client = garboard_cluster::client(&requests).await?;
    let api = ApiServer::new(client.clone(), &args.node_name);
    let is_bound = policy::at_start(&api, &args.node_name).await?;
    let pods: Arc<Mirror<LauncherPod>> = Arc::default();
    let vmis = Vmis::default();
    // Without any of these it would be half an agent.
    let mut parts = JoinSet::new();
    parts.spawn(watch_pods(client.clone(), args.node_name.clone(), Arc::clone(&pods)));
    parts.spawn(watch_vmis(client.clone(), args.node_name.clone(), vmis.clone()));
    parts.spawn(policy::until_known(api.clone(), args.node_name.clone(), is_bound));

    let counted = Counted {
        node: args.node_name.clone(),
        version,
        pods: Arc::clone(&pods),
        vmis: Arc::clone(&vmis.whole),
        processes: "/proc".into(),
        requests,
    };
    let setting = WriterContext {
        cluster: api.clone(),
        node: args.node_name.clone(),
        pods: Arc::clone(&pods),
        vmis: vmis.whole,
        pace: Arc::default(),
    };
    parts.spawn(remains::answer(Remains {
        cluster: api.clone(),
        node: args.node_name.clone(),
        pods: Arc::clone(&pods),
        vmis: Arc::clone(&vmis.legible),
        processes: "/proc".into(),
    }));
    let supervisors = Connected::default();
    let (usual, usual_verbosity) = watch::channel(None);
    let own = Own { namespace: args.namespace.clone(), node: args.node_name.clone(), levels, usual };
    parts.spawn(verbosity::follow(client.clone(), own));
    let recipients = Recipients { pods: Arc::clone(&pods), vmis: vmis.legible, supervisors: supervisors.clone() };
    parts.spawn(verbosity::send(recipients, usual_verbosity));
    let launchers = launchers(api.clone(), args.node_name.clone(), Arc::clone(&pods));
    let server = Server::new(Processes::of_this_node()?, launchers, Writer::new(setting), supervisors.clone());
    let connections = Arc::<Connections>::default();
    parts.spawn(controllers::keep(
        Way { client: client.clone(), namespace: args.namespace.clone(), token: args.controller_token.clone() },
        Arc::new(Served::new(supervisors, counted)),
        Arc::clone(&connections),
    ));
    let socket = args.agent_directory.join(AGENT_SOCKET);
    let listening = AgentSocket::listen(&socket).with_context(|| format!("listen at {}", socket.display()))?;
    parts.spawn(async move {
        if let Err(error) = server.serve(listening).await {
            tracing::error!(error = %ErrorChain(&error), "connections cannot be accepted; the node agent exits");
        }
    });

    let (registered, is_registered) = watch::channel(false);
    // Only now: a pod that is given a device finds the agent's socket.
    parts.spawn(device::serve(plugins(&args, &health), registered));
    let [(_, kvm_health), ..] = health.clone();
    let sources = Sources { offer, registered: is_registered, kvm: kvm_health, pods, connections };
    parts.spawn(heartbeat::beat(api, args.node_name.clone(), sources));
    parts.spawn(keep_facts(args.agent_directory, health, kvm));
    parts.spawn(device::health::newcomer(HostRoot::real()));

    tracing::info!(node = args.node_name, socket = %socket.display(), "the agent is ready");
    tokio::select! {
        asked = asked_to_exit() => asked?,
        _ = parts.join_next() => anyhow::bail!("a task of the node agent ended; the kubelet restarts the agent"),
    }
    tracing::info!("the node agent exits");
    Ok(())
}

/// Ends when a signal asks this program to exit.
async fn asked_to_exit() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// How the devices are from now on.
fn healths(kvm: Option<&KvmFacts>) -> Healths {
    let is_broken = kvm.is_some_and(|kvm| kvm.state == KvmState::Broken);
    Resource::ALL.map(|resource| {
        // It opens, and runs no guest: no pod is to be scheduled for it.
        let never = is_broken && resource == Resource::Kvm;
        (resource, if never { device::health::unhealthy() } else { device::health::watch(HostRoot::real(), resource) })
    })
}

fn plugins(args: &Args, health: &Healths) -> Plugins {
    Plugins {
        directory: args.kubelet_directory.clone(),
        count: args.devices,
        agent_directory: args.agent_directory.clone(),
        health: health.to_vec(),
    }
}

/// The directory is mounted into pods: it is never created again, or running pods would keep the old one.
///
/// # Errors
/// The kernel's error.
pub fn prepare(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("prepare {}", directory.display()))
}

type Healths = [(Resource, watch::Receiver<Health>); 3];

fn write_facts(directory: &Path, health: &Healths, kvm: Option<&KvmFacts>) -> anyhow::Result<()> {
    let health_of = |wanted| {
        let found = health.iter().find(|(resource, _)| *resource == wanted);
        found.map_or(Health::Unhealthy, |(_, health)| *health.borrow())
    };
    facts::write(directory, &facts::facts(health_of, kvm))
        .with_context(|| format!("write the node's facts to {}", directory.display()))
}

/// Writes the facts again whenever a device comes or goes.
async fn keep_facts(directory: std::path::PathBuf, mut health: Healths, measured: Option<KvmFacts>) {
    loop {
        let [(_, kvm), (_, tun), (_, vhost)] = &mut health;
        let changed = tokio::select! {
            changed = kvm.changed() => changed,
            changed = tun.changed() => changed,
            changed = vhost.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        if let Err(error) = write_facts(&directory, &health, measured.as_ref()) {
            tracing::warn!(error = format!("{error:#}"), "probe of this node failed; its earlier facts are used");
        }
    }
}

fn launchers(api: ApiServer, node: String, mirror: Arc<Mirror<LauncherPod>>) -> Launchers {
    Launchers::new(mirror, move || {
        let (api, node) = (api.clone(), node.clone());
        async move { api.launcher_pods(&node).await }
    })
}

/// Keeps a mirror of the launcher pods of a node, for ever.
pub async fn watch_pods(client: Client, node: String, mirror: Arc<Mirror<LauncherPod>>) {
    let (fields, labels) = pods::selectors(&node);
    let wanted = watcher::Config::default().fields(&fields).labels(&labels);
    let mut events = pin!(watcher(Api::<Pod>::all(client), wanted).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => mirror.apply(event, |pod: Pod| {
                let read = contained("a pod", || launcher_pod(&pod, &node)).flatten();
                (pod.metadata.uid.unwrap_or_default(), read)
            }),
            Err(error) => tracing::warn!(error = %ErrorChain(&error), "watch of launcher pods failed; tried again"),
        }
    }
}

/// The VMIs that the controller has placed on a node.
#[derive(Clone, Default)]
pub struct Vmis {
    /// Those that can be read.
    pub whole: Arc<Mirror<Arc<VirtualMachineInstance>>>,
    /// All, and of the others as much as can be read.
    pub legible: Arc<Mirror<Arc<VirtualMachineInstance>>>,
}

/// Keeps mirrors of the VMIs that the controller has placed on a node, for ever.
pub async fn watch_vmis(client: Client, node: String, vmis: Vmis) {
    let wanted = watcher::Config::default().labels(&format!("{}={node}", label::NODE_NAME));
    let mut events = pin!(watcher(Api::<WatchedVmi>::all(client), wanted).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                warn_of_unreadable(&event);
                vmis.legible.apply(event.clone(), WatchedVmi::legible);
                vmis.whole.apply(event, WatchedVmi::whole);
            }
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), "watch of VirtualMachineInstances failed; tried again")
            }
        }
    }
}

/// The controller writes on the VMI what is wrong.
fn warn_of_unreadable(event: &watcher::Event<WatchedVmi>) {
    if let watcher::Event::Apply(vmi) | watcher::Event::InitApply(vmi) = event
        && !vmi.is_whole()
    {
        let (namespace, name) = (&vmi.meta().namespace, &vmi.meta().name);
        tracing::warn!(namespace, name, "the VirtualMachineInstance cannot be parsed");
    }
}
