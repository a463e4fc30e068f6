//! The services a guest needs from its link: DHCP and router advertisements, from sockets that a process
//! with the privilege to do so bound for us.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use garboard_agent::client::{AgentClient, Ask, NodeAgentError, Plumbed, until_answered};
use garboard_net::Sockets;
use garboard_net::dhcp::{DhcpOptions, GuestService, PrivateOption, serve as serve_guest};
use garboard_plan::{InterfacePlan, LaunchPlan};
use garboard_protocol::agent::SocketKind;
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::paths;

use super::run::{Context, Environment};

/// How long a running machine is not looked at because the node agent is away.
const PATIENCE: Duration = Duration::from_secs(2);

/// The sockets again, for a supervisor that finds its machine running. A node agent that is away is waited for in the
/// background.
pub(crate) async fn regain(context: &Context, plan: &Arc<LaunchPlan>) -> Vec<Plumbed> {
    let socket = context.layout.order().join(paths::AGENT_SOCKET);
    if context.environment == Environment::Pod {
        let answered = tokio::time::timeout(PATIENCE, until_answered(&socket, Ask::Sockets, &plan.interfaces));
        return match answered.await {
            Ok(regained) => regained.unwrap_or_else(not_served),
            Err(_) => {
                tokio::spawn(regain_in_pod(socket, Arc::clone(plan)));
                Vec::new()
            }
        };
    }
    if !socket.exists() {
        return Vec::new();
    }
    let regained = match AgentClient::connect(&socket, context.environment.network_place()).await {
        Ok(mut agent) => agent.sockets(&plan.interfaces).await,
        Err(error) => Err(error),
    };
    regained.unwrap_or_else(not_served)
}

async fn regain_in_pod(socket: PathBuf, plan: Arc<LaunchPlan>) {
    let interfaces = until_answered(&socket, Ask::Sockets, &plan.interfaces).await.unwrap_or_else(not_served);
    serve(interfaces, plan).await;
}

fn not_served(error: NodeAgentError) -> Vec<Plumbed> {
    tracing::error!(error = %ErrorChain(&error), "DHCP server failed; the guest keeps its lease until it restarts");
    Vec::new()
}

/// Serves every interface until the supervisor goes.
pub(crate) async fn serve(interfaces: Vec<Plumbed>, plan: Arc<LaunchPlan>) {
    for plumbed in interfaces {
        let Some(interface) = plan.interfaces.iter().find(|interface| interface.name == plumbed.interface.name) else {
            continue;
        };
        serve_one(plumbed, interface);
    }
}

fn serve_one(plumbed: Plumbed, plan: &InterfacePlan) {
    let mac = match plan.mac.parse() {
        Ok(mac) => mac,
        Err(error) => {
            tracing::error!(interface = plan.name, error = %ErrorChain(&error), "the plan's MAC address cannot be used");
            return;
        }
    };
    let options = options(&plumbed, plan);
    let mut sockets = Sockets::default();
    for (kind, socket) in plumbed.interface.sockets.iter().zip(plumbed.sockets) {
        match kind {
            SocketKind::Dhcp4 => sockets.dhcp4 = Some(socket),
            SocketKind::Dhcp6 => sockets.dhcp6 = Some(socket),
            SocketKind::RouterAdvertisement => sockets.router_advertisement = Some(socket),
            SocketKind::Unknown => drop(socket),
        }
    }
    let service = GuestService { mac, addresses: plumbed.interface.addresses, options };
    let interface = plan.name.clone();
    tokio::spawn(async move {
        match serve_guest(sockets, &service).await {
            Err(error) => {
                tracing::error!(interface, error = %ErrorChain(&error), "DHCP server of this interface failed")
            }
            Ok(never) => match never {},
        }
    });
}

/// What DHCP sends beside its addresses. Subdomains come before the host's own search domains, as in a pod.
fn options(plumbed: &Plumbed, plan: &InterfacePlan) -> DhcpOptions {
    let dhcp = &plan.dhcp;
    let searches = &plumbed.interface.searches;
    let subdomain =
        dhcp.subdomain.iter().flat_map(|subdomain| searches.first().map(|domain| format!("{subdomain}.{domain}")));
    let private = dhcp.private_options.iter().map(|(code, value)| PrivateOption { code: *code, value: value.clone() });
    DhcpOptions {
        hostname: Some(dhcp.hostname.clone()),
        domain: searches.first().cloned(),
        searches: subdomain.chain(searches.iter().cloned()).collect(),
        nameservers: plumbed.interface.nameservers.iter().filter_map(|text| text.parse().ok()).collect(),
        boot_file_name: dhcp.boot_file_name.clone(),
        tftp_server_name: dhcp.tftp_server_name.clone(),
        ntp_servers: dhcp.ntp_servers.iter().filter_map(|text| text.parse().ok()).collect(),
        private: private.collect(),
    }
}
