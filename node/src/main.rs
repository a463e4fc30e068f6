//! `garboard-node`: the node agent. Wiring only; see the library.

use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use garboard_log::Levels;
use garboard_log::otlp::{self, Sending};
use garboard_node::args::{Args, LogFormat};
use garboard_node::confine::{Directories, Enforced, confine};
use garboard_protocol::causes::ErrorChain;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How long the kernel's calls that are under way may take at the end. One that looks up the name of a collector, or closes a caller's descriptor,
/// may take longer than the pod has, and the next agent waits for its end.
const LAST_CALLS: Duration = Duration::from_secs(3);

// With `abort` one request would end the agent for every machine of the node.
#[cfg(panic = "abort")]
compile_error!("the agent is built with unwinding: cargo build --profile service --package garboard-node");

fn main() -> ExitCode {
    let version = garboard_protocol::version!();
    let args = match Args::command().version(version).try_get_matches().and_then(|found| Args::from_arg_matches(&found))
    {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match args.log {
        LogFormat::Json => lines.json().with_current_span(false).boxed(),
        LogFormat::Text => lines.boxed(),
    };
    let lines = lines.with_filter(garboard_cluster::log::discreet());
    // The authorities of a collector are read here: later there may be no right to the file.
    let (spans, sending) = otlp::spans("garboard-node", version);
    let (filter, levels) = garboard_log::filter(std::env::var(garboard_log::VARIABLE).ok().as_deref());
    tracing_subscriber::registry().with(lines).with(spans).with(filter).init();
    garboard_node::contain::log_panics();
    // Fails only if one was chosen already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tracing::info!(version, "the node agent starts");
    let sending = sending.unwrap_or_else(|error| {
        tracing::error!(error = %ErrorChain(&error), "no spans are sent");
        None
    });
    match start(args, version, levels, sending) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the node agent failed");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args, version: &'static str, levels: Levels, sending: Option<Sending>) -> anyhow::Result<()> {
    // A rule is for a directory that is there.
    garboard_node::run::prepare(&args.agent_directory)?;
    let directories =
        Directories { agent: &args.agent_directory, kubelet: &args.kubelet_directory, offer: &args.offer };
    let (landlock, _held) = confine(directories)?;
    if landlock == Enforced::FullyEnforced {
        tracing::info!(?landlock, "unused privileges were dropped");
    } else {
        tracing::warn!(
            ?landlock,
            "unused privileges were dropped, but this kernel's Landlock restricts fewer files than newer ones"
        );
    }
    // Two threads: work on a network namespace occupies one for milliseconds.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let exporting = sending.map(Sending::begin);
        let outcome = garboard_node::run::run(args, version, levels).await;
        if let Some(exporting) = exporting {
            exporting.finish().await;
        }
        outcome
    });
    runtime.shutdown_timeout(LAST_CALLS);
    outcome
}
