//! `garboard-controller`: wiring only.

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use garboard_api::cluster::Emulation;
use garboard_cluster::requests::Requests;
use garboard_controller::context::Context;
use garboard_controller::health::Servers;
use garboard_controller::lease::Candidate;
use garboard_controller::metrics::Measured;
use garboard_controller::reconciler::contained;
use garboard_controller::settings::{self, Defaults, Settings};
use garboard_controller::shutdown::{self, Signals, Times};
use garboard_controller::{
    certificates, health, kubevirt, metrics, nodes, reconcilers, subresources, verbosity, webhook,
};
use garboard_log::Levels;
use garboard_log::otlp::{self, Sending};
use garboard_protocol::causes::ErrorChain;
use garboard_tunnel::controller::Nodes;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::sync::{oneshot, watch};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Reading and writing JSON is most of what the controller does, and most of that is to allocate (docs/benchmarks.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The version of this program.
const VERSION: &str = garboard_protocol::version!();
/// What else is known of its build (`scripts/version --build`).
const OF_BUILD: &str = match option_env!("GARBOARD_BUILD") {
    Some(build) => build,
    None => "",
};

/// The controller of Garboard: admits what is written to its kinds, makes VirtualMachineInstances of VirtualMachines, and
/// pods of them.
#[derive(Parser)]
#[command(version = VERSION)]
struct Args {
    /// Image of the two containers of each launcher pod.
    #[arg(long, env = "GARBOARD_LAUNCHER_IMAGE")]
    launcher_image: String,
    /// When a node pulls that image, unless a KubeVirt object sets it: Always, IfNotPresent or Never.
    #[arg(long, env = "GARBOARD_LAUNCHER_PULL_POLICY", default_value = "IfNotPresent",
        value_parser = ["Always", "IfNotPresent", "Never"])]
    launcher_pull_policy: String,
    /// Interpret vCPUs (useEmulation) unless a KubeVirt object sets it.
    #[arg(long, env = "GARBOARD_EMULATION")]
    emulation: bool,
    /// Where /healthz and /readyz are served.
    #[arg(long, default_value = "0.0.0.0:8081")]
    health: std::net::SocketAddr,
    /// Where the webhooks are served.
    #[arg(long, default_value = "0.0.0.0:8443")]
    webhooks: std::net::SocketAddr,
    /// Where the API subresources.kubevirt.io is served, for API servers.
    #[arg(long, default_value = "0.0.0.0:8444")]
    subresources: std::net::SocketAddr,
    /// Where node agents connect.
    #[arg(long, default_value = "0.0.0.0:8445")]
    nodes: std::net::SocketAddr,
    /// Where metrics are served, for who may read them.
    #[arg(long, default_value = "0.0.0.0:8446")]
    metrics: std::net::SocketAddr,
    /// The namespace of the Lease, the certificates and the node agents.
    #[arg(long, env = "POD_NAMESPACE", default_value = "garboard")]
    namespace: String,
    /// Who this replica is in the election of a leader.
    #[arg(long, env = "POD_NAME", default_value_t = format!("outside-{}", std::process::id()))]
    identity: String,
    /// Name of the node it runs on, whose number in logVerbosity.nodeVerbosity it follows.
    #[arg(long, env = "NODE_NAME", default_value = "")]
    node_name: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let lines = tracing_subscriber::fmt::layer().json().with_current_span(false).with_writer(std::io::stderr);
    let lines = lines.with_filter(garboard_cluster::log::discreet());
    let (spans, sending) = otlp::spans("garboard-controller", VERSION);
    let (filter, levels) = garboard_log::filter(std::env::var(garboard_log::VARIABLE).ok().as_deref());
    tracing_subscriber::registry().with(lines).with(spans).with(filter).init();
    // One provider for the whole process, before the first connection.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exporting = sending.unwrap_or_else(|error| {
        tracing::error!(error = %ErrorChain(&error), "no spans are sent");
        None
    });
    let exporting = exporting.map(Sending::begin);
    let outcome = run(Args::parse(), levels).await;
    if let Some(exporting) = exporting {
        exporting.finish().await;
    }
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            tracing::error!(problem, "the controller exits");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args, levels: Levels) -> Result<(), String> {
    // Every machine may have an admission request of its own under way, and the usual limit is for interactive programs.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| format!("no limits: {error}"))?;
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, most, most) {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
    let no_server = |error| format!("the API server's address or credentials are missing: {}", ErrorChain(&error));
    let requests = Requests::default();
    let client = garboard_cluster::client(&requests).await.map_err(no_server)?;
    let emulation = if args.emulation { Emulation::Permitted } else { Emulation::Refused };
    let defaults = Defaults { emulation, image_pull_policy: args.launcher_pull_policy };
    let (sender, settings) = watch::channel(Settings::of([], &args.namespace, &defaults));
    let (first, listed) = oneshot::channel();
    let following = settings::follow(client.clone(), &args.namespace, defaults, sender, first);
    tokio::spawn(verbosity::follow(levels, settings.clone(), args.node_name));
    let (context, publishing) = Context::new(client, args.launcher_image, settings, args.namespace.clone(), VERSION);
    let context = Context { of_build: OF_BUILD, metrics: Arc::new(Measured::of(requests)), ..context };
    tokio::spawn(publishing);
    let (webhooks_ready, webhooks) = watch::channel(false);
    let (subresources_ready, subresources) = watch::channel(false);
    let servers = Servers { webhooks, subresources };
    let mut candidate = Candidate::new(&context, args.identity);
    let mut signals = Signals::new().map_err(|error| format!("no signals: {error}"))?;
    let (stage, stages) = shutdown::stages();
    tracing::info!(version = VERSION, "the controller starts");
    let connected = Nodes::default();
    let webhooks = async {
        let outcome = webhook::run(context.clone(), args.webhooks, webhooks_ready, stages.clone()).await;
        stages.ended("no webhooks", outcome)
    };
    let subresources = async {
        let outcome = subresources::run(
            context.clone(),
            args.subresources,
            connected.clone(),
            subresources_ready,
            stages.clone(),
        )
        .await;
        stages.ended("no subresource API", outcome)
    };
    let mut served = pin!(async {
        tokio::select! {
            outcome = metrics::run(context.clone(), args.metrics, connected.clone(), servers.clone()) => Err(format!("no metrics: {outcome:?}")),
            outcome = health::serve(args.health, servers.clone(), stages.clone(), context.reconciles.clone()) => Err(format!("the server of probes failed: {outcome:?}")),
            // Until the end: what the others are answering needs it.
            outcome = nodes::run(context.clone(), args.nodes, connected.clone()) => Err(format!("no connections of node agents: {outcome:?}")),
            outcome = futures::future::try_join(webhooks, subresources) => outcome.map(|_| ()),
            () = following => Err("the watch of the settings ended".to_owned()),
        }
    });
    let ended = tokio::select! {
        ended = &mut served => Some(ended),
        () = lead(&mut candidate, &context, listed) => Some(Err("the reconcilers have ended".to_owned())),
        () = signals.next() => None,
    };
    // The next leader must find that nothing is reconciled here: `lead` has been dropped.
    let Some(ended) = ended else {
        return shutdown::leave(&stage, Times::USUAL, candidate.release(), served, signals.next()).await;
    };
    let _ = tokio::time::timeout(Times::USUAL.release, candidate.release()).await;
    ended
}

/// Reconciles whenever this replica leads.
async fn lead(candidate: &mut Candidate, context: &Context, settings: oneshot::Receiver<()>) {
    // Before the settings are known, a machine would be made by the wrong ones.
    let _ = settings.await;
    loop {
        let won = candidate.win().await;
        tokio::select! {
            () = candidate.lose(won) => {}
            () = contained("certificates", || certificates::run(context.clone())) => {}
            () = contained("the KubeVirt object", || kubevirt::run(context.clone())) => {}
            () = contained("machines", || reconcilers::run(context.clone())) => {}
        }
    }
}
