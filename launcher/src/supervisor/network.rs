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

/// Part of each domain of a cluster's Services.
const OF_SERVICES: &str = ".svc.";

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
    serve(interfaces, plan, Environment::Pod).await;
}

fn not_served(error: NodeAgentError) -> Vec<Plumbed> {
    tracing::error!(error = %ErrorChain(&error), "DHCP server failed; the guest keeps its lease until it restarts");
    Vec::new()
}

/// Serves every interface until the supervisor goes.
pub(crate) async fn serve(interfaces: Vec<Plumbed>, plan: Arc<LaunchPlan>, environment: Environment) {
    for plumbed in interfaces {
        let Some(interface) = plan.interfaces.iter().find(|interface| interface.name == plumbed.interface.name) else {
            continue;
        };
        serve_one(plumbed, interface, environment);
    }
}

fn serve_one(plumbed: Plumbed, plan: &InterfacePlan, environment: Environment) {
    let mac = match plan.mac.parse() {
        Ok(mac) => mac,
        Err(error) => {
            tracing::error!(interface = plan.name, error = %ErrorChain(&error), "the plan's MAC address cannot be used");
            return;
        }
    };
    let options = options(&plumbed, plan, environment);
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

/// What DHCP sends beside its addresses.
fn options(plumbed: &Plumbed, plan: &InterfacePlan, environment: Environment) -> DhcpOptions {
    let dhcp = &plan.dhcp;
    let searches = searches(dhcp.subdomain.as_deref(), &plumbed.interface.searches, environment);
    let private = dhcp.private_options.iter().map(|(code, value)| PrivateOption { code: *code, value: value.clone() });
    DhcpOptions {
        hostname: Some(dhcp.hostname.clone()),
        domain: longest(searches.iter()).cloned(),
        searches,
        nameservers: plumbed.interface.nameservers.iter().filter_map(|text| text.parse().ok()).collect(),
        boot_file_name: dhcp.boot_file_name.clone(),
        tftp_server_name: dhcp.tftp_server_name.clone(),
        ntp_servers: dhcp.ntp_servers.iter().filter_map(|text| text.parse().ok()).collect(),
        private: private.collect(),
    }
}

/// The search domains of a guest: those of where it runs, behind the one with its subdomain. In a pod only the domain of Services has
/// subdomains, as in KubeVirt: where there is none, or the name servers are others', nobody would answer for one.
fn searches(subdomain: Option<&str>, given: &[String], environment: Environment) -> Vec<String> {
    let has_subdomains = |domain: &&String| match environment {
        Environment::Pod => domain.contains(OF_SERVICES),
        Environment::Host => true,
    };
    let own = subdomain.zip(longest(given.iter().filter(has_subdomains))).and_then(|(subdomain, domain)| {
        let whole = format!("{subdomain}.{domain}");
        (!domain.starts_with(&format!("{subdomain}."))).then_some(whole)
    });
    own.into_iter().chain(given.iter().cloned()).collect()
}

/// The longest domain, which says most; the first of those that are as long.
fn longest<'a>(domains: impl DoubleEndedIterator<Item = &'a String>) -> Option<&'a String> {
    domains.rev().max_by_key(|domain| domain.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(subdomain: Option<&str>, given: &[&str], environment: Environment) -> (Option<String>, Vec<String>) {
        let given: Vec<String> = given.iter().map(|&domain| domain.to_owned()).collect();
        let searches = searches(subdomain, &given, environment);
        (longest(searches.iter()).cloned(), searches)
    }

    fn expected(domain: &str, searches: &[&str]) -> (Option<String>, Vec<String>) {
        (Some(domain.to_owned()), searches.iter().map(|&search| search.to_owned()).collect())
    }

    #[test]
    fn a_subdomain_belongs_to_the_domain_of_services() {
        let cluster = ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local"];
        let with = ["web.ns.svc.cluster.local", "ns.svc.cluster.local", "svc.cluster.local", "cluster.local"];
        assert_eq!(of(None, &cluster, Environment::Pod), expected(cluster[0], &cluster));
        assert_eq!(of(Some("web"), &cluster, Environment::Pod), expected(with[0], &with));
        assert_eq!(of(Some("web"), &with, Environment::Pod), expected(with[0], &with), "it is there already");
        let behind = ["a-long-name-of-the-node.example.org", "ns.svc.cluster.local"];
        let (_, searches) = of(Some("web"), &behind, Environment::Pod);
        assert_eq!(searches[0], "web.ns.svc.cluster.local");
    }

    #[test]
    fn other_domains_have_subdomains_on_a_bare_host_alone() {
        let given = ["example.org", "example.com"];
        assert_eq!(of(Some("web"), &given, Environment::Pod), expected("example.org", &given));
        let with = ["web.example.org", "example.org", "example.com"];
        assert_eq!(of(Some("web"), &given, Environment::Host), expected("web.example.org", &with));
        assert_eq!(of(Some("web"), &[], Environment::Host), (None, Vec::new()));
    }
}
