//! `garboard-controller`: wiring only.

use std::process::ExitCode;

use clap::Parser;
use garboard_api::ClusterConfig;
use garboard_controller::context::Context;
use garboard_controller::{health, vm, vmi};
use garboard_launcher::vm::Chain;

/// The controller of Garboard: makes VirtualMachineInstances of VirtualMachines, and pods of them.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Image of the two containers of each launcher pod.
    #[arg(long, env = "GARBOARD_LAUNCHER_IMAGE")]
    launcher_image: String,
    /// Interpret vCPUs where a node has no KVM (useEmulation).
    #[arg(long, env = "GARBOARD_EMULATION")]
    emulation: bool,
    /// How container disks reach their machine.
    #[arg(long, env = "GARBOARD_CONTAINER_DISKS", value_enum, default_value_t = ContainerDisks::ImageVolume)]
    container_disks: ContainerDisks,
    /// Where /healthz and /readyz are served.
    #[arg(long, default_value = "0.0.0.0:8081")]
    health: std::net::SocketAddr,
}

/// How container disks reach their machine.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ContainerDisks {
    /// As image volumes: Kubernetes 1.36, or 1.33 with the feature gate ImageVolume.
    ImageVolume,
    /// By a program of ours in a container of each image.
    Helper,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).init();
    // One provider for the whole process, before the first connection.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let args = Args::parse();
    let client = match kube::Client::try_default().await {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(error = %Chain(&error), "there is no way to an API server");
            return ExitCode::FAILURE;
        }
    };
    let mut config = ClusterConfig::offline();
    if args.emulation {
        config.emulation = garboard_api::cluster::Emulation::Permitted;
    }
    if args.container_disks == ContainerDisks::Helper {
        config = config.without(garboard_api::cluster::Gate::ImageVolume);
    }
    let context = Context::new(client, args.launcher_image, config);
    let mut terminate = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => {
            tracing::error!(%error, "signals cannot be received");
            return ExitCode::FAILURE;
        }
    };
    tracing::info!("the controller runs");
    tokio::select! {
        outcome = health::serve(args.health) => {
            tracing::error!(?outcome, "the kubelet cannot be answered");
            ExitCode::FAILURE
        }
        () = vm::run(context.clone()) => ExitCode::FAILURE,
        () = vmi::run(context) => ExitCode::FAILURE,
        _ = terminate.recv() => ExitCode::SUCCESS,
        _ = tokio::signal::ctrl_c() => ExitCode::SUCCESS,
    }
}
