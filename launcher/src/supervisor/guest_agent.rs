//! The guest agent: asked now and then, believed only as far as its answers are bounded. Everything it says
//! is guest-controlled text, escaped and cut by the agent client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use garboard_protocol::control::{GuestStatus, InterfaceStatus};
use garboard_protocol::paths;
use garboard_qmp::agent::{Agent, AgentOptions, ShutdownMode};
use garboard_qmp::{Interest, Monitor, Notice, Subscription};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::timeout;

use super::PowerDown;
use super::run::Bench;
use crate::vm::{Chain, Input};

/// Name of the guest agent's port in the guest.
const PORT: &str = "org.qemu.guest_agent.0";
/// How often a connected agent is asked what changed.
const POLL: Duration = Duration::from_secs(10);
/// How often a silent agent is tried again: the event that says that it opened its port may have been missed.
const RETRY: Duration = Duration::from_secs(5);

/// Follows the agent for as long as QEMU runs.
pub(crate) async fn run(
    bench: Bench,
    mut monitor: watch::Receiver<Option<Monitor>>,
    connected: watch::Sender<Option<Agent>>,
) {
    let Ok(seen) = monitor.wait_for(Option::is_some).await.map(|seen| seen.clone()) else { return };
    let Some(monitor) = seen else { return };
    let mut port = monitor.subscribe(Interest::Named(&["VSERPORT_CHANGE"]));
    drop(monitor);
    loop {
        if let Some(agent) = connect(&bench).await {
            connected.send_replace(Some(agent.clone()));
            follow(&bench, Arc::new(agent), &mut port).await;
            connected.send_replace(None);
        }
        if !wait_for_port(&mut port).await {
            return;
        }
    }
}

async fn connect(bench: &Bench) -> Option<Agent> {
    let socket = bench.shared.join(paths::GUEST_AGENT_SOCKET);
    // The channel opens whether or not an agent listens in the guest; only an answer tells.
    let agent = Agent::connect(socket, AgentOptions::default()).await;
    let answered = match agent {
        Ok(agent) => agent.ping().await.map(|()| agent),
        Err(error) => Err(error),
    };
    match answered {
        Ok(agent) => Some(agent),
        Err(error) => {
            tracing::debug!(error = %Chain(&error), "no guest agent yet");
            None
        }
    }
}

/// Tells what the agent says until it stops answering.
async fn follow(bench: &Bench, agent: Arc<Agent>, port: &mut Subscription) {
    tracing::info!("the guest agent is connected");
    let hands: Arc<dyn PowerDown> = Arc::new(AgentHands { agent: Arc::clone(&agent) });
    if bench.happened.send(Input::AgentUp(Some(hands))).await.is_err() {
        return;
    }
    loop {
        match ask(&agent).await {
            Ok((guest, interfaces)) => {
                if bench.happened.send(Input::AgentSaid { guest, interfaces }).await.is_err() {
                    return;
                }
            }
            Err(reason) => {
                tracing::info!(reason, "the guest agent is gone");
                break;
            }
        }
        if let Ok(Port::Closed | Port::MonitorClosed) = timeout(POLL, port_change(port)).await {
            tracing::info!("the guest agent closed its port");
            break;
        }
    }
    let _ = bench.happened.send(Input::AgentUp(None)).await;
}

async fn ask(agent: &Agent) -> Result<(GuestStatus, Option<Vec<InterfaceStatus>>), String> {
    agent.ping().await.map_err(|error| Chain(&error).to_string())?;
    // Each answer is worth having without the others: an agent may have commands switched off.
    let info = agent.info().await.ok();
    let os = agent.os_info().await.ok();
    let guest = GuestStatus {
        hostname: agent.host_name().await.ok().map(|name| name.to_string()),
        os: os.as_ref().and_then(|os| os.pretty_name.as_ref()).map(ToString::to_string),
        kernel: os.as_ref().and_then(|os| os.kernel_release.as_ref()).map(ToString::to_string),
        agent_version: info.map(|info| info.version.to_string()),
    };
    let interfaces = agent.interfaces().await.ok();
    let interfaces = interfaces.map(|list| list.items().iter().filter_map(interface_status).collect());
    Ok((guest, interfaces))
}

fn interface_status(seen: &garboard_qmp::agent::Interface) -> Option<InterfaceStatus> {
    let name = seen.name.to_string();
    if name == "lo" {
        return None;
    }
    Some(InterfaceStatus {
        name: String::new(),
        interface_name: Some(name),
        mac: seen.mac.map(mac_text).unwrap_or_default(),
        addresses: seen.addresses.items().iter().map(|address| address.ip.to_string()).collect(),
        info_source: "guest-agent".to_owned(),
    })
}

fn mac_text(octets: [u8; 6]) -> String {
    octets.map(|octet| format!("{octet:02x}")).join(":")
}

/// What happened to the agent's port.
enum Port {
    Opened,
    Closed,
    MonitorClosed,
}

async fn port_change(port: &mut Subscription) -> Port {
    #[derive(Deserialize)]
    struct Data {
        id: String,
        open: bool,
    }
    loop {
        match port.next().await {
            Some(Notice::Event(event)) => match event.decode::<Data>() {
                Ok(data) if data.id == PORT || data.id.contains("agent") => {
                    return if data.open { Port::Opened } else { Port::Closed };
                }
                Ok(_) | Err(_) => {}
            },
            Some(Notice::Lagged(_)) => return Port::Opened,
            Some(Notice::Closed { .. }) | None => return Port::MonitorClosed,
        }
    }
}

/// Answers false when QEMU is gone.
async fn wait_for_port(port: &mut Subscription) -> bool {
    loop {
        match timeout(RETRY, port_change(port)).await {
            Ok(Port::MonitorClosed) => return false,
            Ok(Port::Opened) | Err(_) => return true,
            Ok(Port::Closed) => {}
        }
    }
}

struct AgentHands {
    agent: Arc<Agent>,
}

impl PowerDown for AgentHands {
    fn power_down(&self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async move {
            let asked = self.agent.shut_down(ShutdownMode::PowerDown).await;
            asked.map(|_| ()).map_err(|error| Chain(&error).to_string())
        })
    }
}
