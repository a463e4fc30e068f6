//! The guest agent: asked now and then, and trusted only within bounds. Everything it reports
//! is guest-controlled text, escaped and cut by the agent client.

use std::time::Duration;

use garboard_api::MacAddr;
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::{GuestStatus, GuestSystem, InterfaceStatus};
use garboard_protocol::guest::expected_commands;
use garboard_protocol::paths;
use garboard_qmp::agent::{Agent, AgentInfo, AgentOptions, GuestText, OsInfo};
use garboard_qmp::{Interest, Monitor, Notice, Subscription};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::timeout;

use super::driver::Input;
use super::run::Context;

/// Name of the guest agent's port in the guest.
const PORT: &str = "org.qemu.guest_agent.0";
/// How often a connected agent is asked what changed.
const POLL: Duration = Duration::from_secs(10);
/// How often a silent agent is tried again: the event of its opened port may have been missed.
const RETRY: Duration = Duration::from_secs(5);
/// How long an agent may take to answer after its port was closed.
const REOPEN: Duration = Duration::from_secs(2);

/// Follows the agent for as long as QEMU runs.
pub(crate) async fn run(
    context: Context,
    mut monitor: watch::Receiver<Option<Monitor>>,
    connected: watch::Sender<Option<Agent>>,
) {
    let Ok(seen) = monitor.wait_for(Option::is_some).await.map(|seen| seen.clone()) else { return };
    let Some(monitor) = seen else { return };
    let mut port = monitor.subscribe(Interest::Named(&["VSERPORT_CHANGE"]));
    drop(monitor);
    loop {
        if let Some(agent) = connect(&context).await {
            connected.send_replace(Some(agent.clone()));
            follow(&context, agent, &mut port).await;
            connected.send_replace(None);
        }
        if !wait_for_port(&mut port).await {
            return;
        }
    }
}

async fn connect(context: &Context) -> Option<Agent> {
    let socket = context.layout.supervisor().join(paths::GUEST_AGENT_SOCKET);
    // The channel opens whether or not an agent listens in the guest; only an answer shows that.
    let agent = Agent::connect(socket, AgentOptions::default()).await;
    let answered = match agent {
        Ok(agent) => agent.ping().await.map(|()| agent),
        Err(error) => Err(error),
    };
    match answered {
        Ok(agent) => Some(agent),
        Err(error) => {
            tracing::debug!(error = %ErrorChain(&error), "the guest agent is not connected yet");
            None
        }
    }
}

/// Forwards what the agent reports until it stops answering.
async fn follow(context: &Context, agent: Agent, port: &mut Subscription) {
    tracing::info!("the guest agent is connected");
    if context.happened.send(Input::AgentUp(Some(agent.clone()))).await.is_err() {
        return;
    }
    loop {
        match ask(&agent).await {
            Ok(report) => {
                if context.happened.send(report).await.is_err() {
                    return;
                }
            }
            Err(reason) => {
                tracing::info!(reason, "the guest agent disconnected");
                break;
            }
        }
        let closed = match timeout(POLL, port_change(port)).await {
            Ok(Port::Closed) => !answers(&agent).await,
            Ok(Port::MonitorClosed) => true,
            Ok(Port::Opened) | Err(_) => false,
        };
        if closed {
            tracing::info!("the guest agent closed its port");
            break;
        }
    }
    let _ = context.happened.send(Input::AgentUp(None)).await;
}

/// Whether it answers although its port was closed. A guest that reboots closes the port and opens it again, and this event may be
/// read after the agent of after the reboot has answered: QEMU holds back events of ports for up to a second.
async fn answers(agent: &Agent) -> bool {
    matches!(timeout(REOPEN, agent.ping()).await, Ok(Ok(())))
}

/// What it reports: [`Input::GuestAgentReported`].
async fn ask(agent: &Agent) -> Result<Input, String> {
    agent.ping().await.map_err(|error| ErrorChain(&error).to_string())?;
    let frozen = agent.is_frozen().await.ok();
    if frozen == Some(true) {
        // It refuses all that follows until file systems are thawed.
        return Ok(Input::GuestAgentReported { guest: None, frozen, interfaces: None });
    }
    // Each answer is used without the others: an agent may have commands switched off.
    let info = agent.info().await.ok();
    let guest = Some(Box::new(names(agent, info.as_ref()).await));
    let interfaces = agent.interfaces().await.ok();
    let interfaces = interfaces.map(|list| list.items().iter().filter_map(interface_status).collect());
    Ok(Input::GuestAgentReported { guest, frozen, interfaces })
}

/// Host name, operating system and versions, as far as the agent reports them.
pub(super) async fn names(agent: &Agent, info: Option<&AgentInfo>) -> GuestStatus {
    let os = agent.os_info().await.unwrap_or_default();
    GuestStatus {
        hostname: agent.host_name().await.ok().map(|name| name.to_string()),
        os: shown(os.pretty_name.as_ref()),
        kernel: shown(os.kernel_release.as_ref()),
        agent_version: info.map(|info| info.version.to_string()),
        system: system(&os),
        missing_commands: info.map(missing).unwrap_or_default(),
    }
}

/// The commands that are expected of it and that it does not have, or that are switched off. One that lists none may have all.
fn missing(info: &AgentInfo) -> Vec<String> {
    let is_listed = !info.commands.items().is_empty();
    let missing = expected_commands().filter(|command| is_listed && !info.allows(command));
    missing.map(str::to_owned).collect()
}

/// The operating system, as escaped and bounded text.
fn system(os: &OsInfo) -> GuestSystem {
    GuestSystem {
        id: shown(os.id.as_ref()),
        name: shown(os.name.as_ref()),
        version: shown(os.version.as_ref()),
        version_id: shown(os.version_id.as_ref()),
        kernel_version: shown(os.kernel_version.as_ref()),
        machine: shown(os.machine.as_ref()),
    }
}

pub(super) fn shown(text: Option<&GuestText>) -> Option<String> {
    text.map(ToString::to_string)
}

fn interface_status(seen: &garboard_qmp::agent::Interface) -> Option<InterfaceStatus> {
    let name = seen.name.to_string();
    if name == "lo" {
        return None;
    }
    Some(InterfaceStatus {
        name: String::new(),
        interface_name: Some(name),
        mac: seen.mac.map(|mac| MacAddr::new(mac).to_string()).unwrap_or_default(),
        addresses: seen.addresses.items().iter().map(|address| address.ip.to_string()).collect(),
        info_source: "guest-agent".to_owned(),
        queues: 0,
        link: None,
    })
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

#[cfg(test)]
mod tests {
    use garboard_qmp::testing::{AgentBehaviour, FakeAgent};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn an_agent_whose_file_systems_are_frozen_is_still_there() {
        let (fake, stream) = FakeAgent::pair(b"").unwrap();
        let limit = Duration::from_secs(60);
        let agent = Agent::connect(stream, AgentOptions { limit, ..AgentOptions::default() }).await.unwrap();
        fake.on("guest-get-host-name", AgentBehaviour::Reply(json!({"host-name": "barque"})));
        fake.on("guest-fsfreeze-status", AgentBehaviour::Reply(json!("thawed")));
        let Ok(Input::GuestAgentReported { guest: Some(guest), frozen: Some(false), .. }) = ask(&agent).await else {
            panic!("what it reports is missing")
        };
        assert_eq!(guest.hostname.as_deref(), Some("barque"));
        fake.on("guest-fsfreeze-status", AgentBehaviour::Reply(json!("frozen")));
        let asked = fake.received().len();
        let reported = ask(&agent).await;
        assert!(matches!(
            reported,
            Ok(Input::GuestAgentReported { guest: None, frozen: Some(true), interfaces: None })
        ));
        assert_eq!(fake.received()[asked..], ["guest-ping", "guest-fsfreeze-status"]);
        // One that has no such command is asked for everything else.
        fake.on("guest-fsfreeze-status", AgentBehaviour::Refuse("CommandNotFound", "no"));
        assert!(matches!(ask(&agent).await, Ok(Input::GuestAgentReported { guest: Some(_), frozen: None, .. })));
    }

    #[test]
    fn commands_that_an_agent_does_not_have_or_may_not_use_are_missing() {
        let missing_of = |commands: serde_json::Value| -> Vec<String> {
            missing(&serde_json::from_value(json!({"version": "7.2", "supported_commands": commands})).unwrap())
        };
        let all = || expected_commands().map(|name| json!({"name": name, "enabled": true})).collect::<Vec<_>>();
        assert_eq!(missing_of(json!(all())), [] as [&str; 0]);
        let mut some = all();
        some[9]["enabled"] = json!(false);
        drop(some.remove(1));
        assert_eq!(missing_of(json!(some)), ["guest-get-time", "guest-get-osinfo"]);
        assert_eq!(missing_of(json!([])), [] as [&str; 0], "it lists none");
    }
}
