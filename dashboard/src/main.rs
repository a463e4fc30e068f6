//! `garboard-dashboard`: wiring only.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use garboard_dashboard::guard::Hosts;
use garboard_dashboard::server::Server;
use garboard_dashboard::tls;
use garboard_dashboard::upstream::ApiServer;
use garboard_protocol::causes::ErrorChain;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The page of `kubectl garboard dashboard`, for a cluster's users: each signs in with a token of the cluster, and the page does what that
/// token may. This program has no rights itself.
#[derive(Parser)]
#[command(version = garboard_kubectl::VERSION)]
struct Args {
    /// Where the page is served, by HTTPS.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    listen: SocketAddr,
    /// The directory with the certificate that is shown: tls.crt and tls.key. They are read again when they have changed.
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/garboard/tls")]
    certificate: PathBuf,
    /// The certificates of the API server's authority, PEM.
    #[arg(long, value_name = "FILE", default_value = "/etc/garboard/api-server/ca.crt")]
    api_authority: PathBuf,
    /// The API server's host: a name or an address that its certificate has.
    #[arg(long, value_name = "HOST", env = "KUBERNETES_SERVICE_HOST")]
    api_host: String,
    /// The API server's port.
    #[arg(long, value_name = "PORT", env = "KUBERNETES_SERVICE_PORT", default_value_t = 443)]
    api_port: u16,
    /// A name by which browsers reach the page, beside those of its Service and of a forwarded port; may be given several times.
    #[arg(long = "host", value_name = "NAME", value_parser = garboard_kubectl::host_name)]
    hosts: Vec<String>,
    /// The name of its Service.
    #[arg(long, value_name = "NAME", default_value = "garboard-dashboard")]
    service: String,
    /// The namespace of Garboard.
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", default_value = "garboard")]
    namespace: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let lines = tracing_subscriber::fmt::layer().json().with_current_span(false).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines.with_filter(LevelFilter::INFO)).init();
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            tracing::error!(problem, "the dashboard exits");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), String> {
    let of_tls = |error: tls::TlsError| ErrorChain(&error).to_string();
    let trusted = tls::trusted(&args.api_authority).map_err(of_tls)?;
    let shown = tls::shown(&args.certificate).map_err(of_tls)?;
    let api = ApiServer::new(&args.api_host, args.api_port, trusted)?;
    let hosts = Hosts::new(&args.service, &args.namespace, &args.hosts);
    let no_signals = |error: std::io::Error| format!("no signals: {error}");
    let mut ends = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupts = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let no_address = |error: std::io::Error| format!("cannot listen on {}: {error}", args.listen);
    let listener = TcpListener::bind(args.listen).await.map_err(no_address)?;
    let address = listener.local_addr().map_err(no_address)?;
    tracing::info!(version = garboard_kubectl::VERSION, %address, "the dashboard serves");
    let server = Server::new(hosts, api, &args.namespace);
    tokio::select! {
        () = server.serve(listener, shown) => {}
        _ = ends.recv() => {}
        _ = interrupts.recv() => {}
    }
    // Pages connect again, to another replica or to the next one.
    tracing::info!("the dashboard was asked to end");
    Ok(())
}
