//! `garboard-node`: the node agent. Wiring only; see the library.

use std::process::ExitCode;

use clap::Parser;
use garboard_node::args::{Args, LogFormat};
use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    let args = Args::parse();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match args.log {
        LogFormat::Json => lines.json().boxed(),
        LogFormat::Text => lines.boxed(),
    };
    tracing_subscriber::registry().with(lines).with(log_levels()).init();
    // Fails only if somebody else chose one, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the agent cannot run");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args) -> anyhow::Result<()> {
    let looker = garboard_node::confine::confine()?;
    // Two threads: work on a network namespace occupies one for milliseconds.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(garboard_node::run::run(args, looker))
}

/// What `GARBOARD_LOG` asks for, `TARGET=LEVEL,…,LEVEL`; else `info`.
fn log_levels() -> Targets {
    let asked = std::env::var("GARBOARD_LOG").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or_else(|| Targets::new().with_default(Level::INFO))
}
