//! Many machines without a guest: plays what is missing on nodes of KWOK, and starts machines there. `tests/e2e/cluster/scale`
//! is what uses it.
//!
//! KWOK reports that pods run. What it does not play is done here: the devices and labels of nodes, and the reports of machines
//! that run, which are written by the node agent's own code with the token of its own account. Results go to standard
//! output.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "what it has measured is its result")]

mod agents;
mod handler;
mod nodes;
mod report;
mod start;

use clap::{Parser, Subcommand};
use garboard_cluster::requests::Requests;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Plays nodes with many machines; the cluster is that of KUBECONFIG.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Gives the nodes kwok-1 to kwok-N the devices, the room and the labels that machines ask for.
    Nodes {
        /// N.
        number: u16,
    },
    /// Plays Garboard's node agent on kwok-1 to kwok-N: every launcher pod that runs has a guest that runs. Until it is
    /// ended.
    Agents {
        /// N.
        number: u16,
    },
    /// Plays KubeVirt's virt-handler on all such nodes, in the same way.
    Handler,
    /// Starts VirtualMachines, and waits until all of them run.
    Start(start::Request),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = lines.with_filter(garboard_cluster::log::discreet());
    tracing_subscriber::registry().with(lines).with(LevelFilter::WARN).init();
    // Fails only if a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = garboard_cluster::client(&Requests::default()).await?;
    match cli.command {
        Command::Nodes { number } => nodes::equip(&client, number).await,
        Command::Agents { number } => agents::play(&client, number).await,
        Command::Handler => handler::play(client).await,
        Command::Start(request) => {
            println!("{}", start::start(client, &request).await?);
            Ok(())
        }
    }
}
