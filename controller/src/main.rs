//! `garboard-controller`: wiring only.

use std::process::ExitCode;

use clap::Parser;
use garboard_api::cluster::Emulation;
use garboard_controller::context::Context;
use garboard_controller::lease::Candidate;
use garboard_controller::settings::{self, Settings};
use garboard_controller::{certificates, health, kubevirt, vm, vmi, webhook};
use garboard_launcher::vm::Chain;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

/// The controller of Garboard: admits what is written to its kinds, makes VirtualMachineInstances of VirtualMachines, and
/// pods of them.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Image of the two containers of each launcher pod.
    #[arg(long, env = "GARBOARD_LAUNCHER_IMAGE")]
    launcher_image: String,
    /// Interpret vCPUs (useEmulation) as long as no KubeVirt object says.
    #[arg(long, env = "GARBOARD_EMULATION")]
    emulation: bool,
    /// Where /healthz and /readyz are served.
    #[arg(long, default_value = "0.0.0.0:8081")]
    health: std::net::SocketAddr,
    /// Where the webhooks are served.
    #[arg(long, default_value = "0.0.0.0:8443")]
    webhooks: std::net::SocketAddr,
    /// The namespace of the Lease, the certificates and the node agents.
    #[arg(long, env = "POD_NAMESPACE", default_value = "garboard")]
    namespace: String,
    /// Who this replica is in the election of a leader.
    #[arg(long, env = "POD_NAME", default_value_t = format!("outside-{}", std::process::id()))]
    identity: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).init();
    // One provider for the whole process, before the first connection.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            tracing::error!(problem, "the controller ends");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), String> {
    let no_server = |error| format!("there is no way to an API server: {}", Chain(&error));
    let client = garboard_apiserver::client().await.map_err(no_server)?;
    let emulation = if args.emulation { Emulation::Permitted } else { Emulation::Refused };
    let (sender, settings) = watch::channel(Settings::of([], emulation));
    let (first, listed) = oneshot::channel();
    let following = settings::follow(client.clone(), emulation, sender, first);
    let context = Context::new(client, args.launcher_image, settings, args.namespace);
    let (ready, gate) = watch::channel(false);
    let mut candidate = Candidate::new(&context, args.identity);
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| format!("no signals: {error}"))?;
    tracing::info!("the controller runs");
    let ended = tokio::select! {
        outcome = health::serve(args.health, gate) => Err(format!("the kubelet cannot be answered: {outcome:?}")),
        outcome = webhook::run(context.clone(), args.webhooks, ready) => Err(format!("no webhooks: {outcome:?}")),
        () = following => Err("the settings cannot be followed any more".to_owned()),
        () = lead(&mut candidate, &context, listed) => Err("nobody reconciles any more".to_owned()),
        _ = terminate.recv() => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    candidate.release().await;
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
            () = certificates::run(context.clone()) => {}
            () = kubevirt::run(context.clone()) => {}
            () = vm::run(context.clone()) => {}
            () = vmi::run(context.clone()) => {}
        }
    }
}
