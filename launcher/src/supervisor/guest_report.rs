//! What a user asks about a guest, put to its agent. The answers are the guest's claims: the agent client has escaped and
//! bounded them.

use std::time::Duration;

use garboard_protocol::causes::ErrorChain;
use garboard_protocol::control::{ControlReply, GuestStatus, Status};
use garboard_protocol::guest::{
    GuestCommand, GuestFileSystem, GuestFileSystemDisk, GuestReport, GuestSubject, GuestTimezone, GuestUser,
};
use garboard_protocol::wire;
use garboard_qmp::agent::{Agent, Filesystem, FilesystemDisk, GuestAgentError};
use tokio::sync::watch;
use tokio::time::timeout;

use super::guest_agent::{names, shown};

/// How long all questions together may take: a client waits for the answer.
const WITHIN: Duration = Duration::from_secs(5);

/// Asks; the error is a message.
pub(super) async fn ask(
    about: GuestSubject,
    agent: &watch::Receiver<Option<Agent>>,
    status: &watch::Receiver<Status>,
) -> Result<ControlReply, String> {
    if status.borrow().paused.is_some() {
        return Err("the guest's vCPUs are stopped, so that its agent cannot answer".to_owned());
    }
    let agent = agent.borrow().clone().ok_or("no guest agent is connected")?;
    let known = status.borrow().guest.clone().unwrap_or_default();
    let asking = async {
        match about {
            GuestSubject::Info => info(&agent, known).await,
            GuestSubject::Users => Ok(GuestReport { users: users(&agent).await?, ..GuestReport::default() }),
            GuestSubject::FileSystems => {
                Ok(GuestReport { file_systems: file_systems(&agent).await?, ..GuestReport::default() })
            }
        }
    };
    let report = timeout(WITHIN, asking)
        .await
        .map_err(|_| format!("the guest agent took longer than {} s", WITHIN.as_secs()))?
        .map_err(|error| ErrorChain(&error).to_string())?;
    let reply = ControlReply::Guest(Box::new(report));
    // Escaped, the answers of a hostile guest may become longer than what it sent.
    let length = wire::encode(&reply).map_or(usize::MAX, |line| line.len());
    if length > wire::LONGEST_ANSWER_BYTES { Err("the guest agent's answer is too long".to_owned()) } else { Ok(reply) }
}

/// Everything. Each answer is used without the others: an agent may have commands switched off. While file systems are frozen it
/// refuses most of them; then names and versions are those that are known.
async fn info(agent: &Agent, known: GuestStatus) -> Result<GuestReport, GuestAgentError> {
    let info = agent.info().await?;
    let frozen = agent.is_frozen().await.ok();
    let guest = if frozen == Some(true) { known } else { names(agent, Some(&info)).await };
    let timezone = agent.timezone().await.ok();
    let commands = info.commands.into_items().into_iter();
    Ok(GuestReport {
        guest,
        commands: commands
            .map(|command| GuestCommand { name: command.name.to_string(), enabled: command.enabled })
            .collect(),
        timezone: timezone
            .map(|zone| GuestTimezone { zone: shown(zone.zone.as_ref()), offset_seconds: zone.offset_seconds }),
        users: users(agent).await.unwrap_or_default(),
        file_systems: file_systems(agent).await.unwrap_or_default(),
        frozen,
    })
}

async fn users(agent: &Agent) -> Result<Vec<GuestUser>, GuestAgentError> {
    let users = agent.users().await?.into_items().into_iter();
    Ok(users
        .map(|user| GuestUser {
            user: user.user.to_string(),
            domain: shown(user.domain.as_ref()),
            login_time_seconds: user.login_time_seconds,
        })
        .collect())
}

async fn file_systems(agent: &Agent) -> Result<Vec<GuestFileSystem>, GuestAgentError> {
    Ok(agent.filesystems().await?.into_items().into_iter().map(file_system).collect())
}

fn file_system(found: Filesystem) -> GuestFileSystem {
    let disk =
        |disk: FilesystemDisk| GuestFileSystemDisk { bus: disk.bus.to_string(), serial: shown(disk.serial.as_ref()) };
    GuestFileSystem {
        name: found.name.to_string(),
        mountpoint: found.mountpoint.to_string(),
        kind: found.kind.to_string(),
        used_bytes: found.used_bytes,
        total_bytes: found.total_bytes,
        disks: found.disks.into_items().into_iter().map(disk).collect(),
    }
}

#[cfg(test)]
mod tests {
    use garboard_protocol::control::PauseReason;
    use garboard_protocol::testing::running;
    use garboard_qmp::agent::AgentOptions;
    use garboard_qmp::testing::{AgentBehaviour, FakeAgent};
    use serde_json::json;

    use super::*;

    async fn asked(fake: Option<(&FakeAgent, Agent)>, about: GuestSubject) -> Result<GuestReport, String> {
        let (_keeps, agent) = watch::channel(fake.map(|(_, agent)| agent));
        let (_keeps, status) = watch::channel(running(1));
        let reply = ask(about, &agent, &status).await?;
        let ControlReply::Guest(report) = reply else { panic!("{reply:?}") };
        Ok(*report)
    }

    async fn channel() -> (FakeAgent, Agent) {
        let (fake, stream) = FakeAgent::pair(b"").unwrap();
        let limit = Duration::from_secs(60);
        let agent = Agent::connect(stream, AgentOptions { limit, ..AgentOptions::default() }).await.unwrap();
        (fake, agent)
    }

    #[tokio::test]
    async fn what_the_agent_reports_is_passed_on_part_by_part() {
        let (fake, agent) = channel().await;
        let command = json!({"name": "guest-ping", "enabled": true});
        fake.on("guest-info", AgentBehaviour::Reply(json!({"version": "7.2", "supported_commands": [command]})));
        fake.on("guest-get-users", AgentBehaviour::Reply(json!([{"user": "ro\u{1b}ot", "login-time": 1.5}])));
        fake.on("guest-get-timezone", AgentBehaviour::Reply(json!({"zone": "UTC", "offset": 0})));
        fake.on("guest-fsfreeze-status", AgentBehaviour::Reply(json!("thawed")));
        let found = asked(Some((&fake, agent.clone())), GuestSubject::Info).await.unwrap();
        assert_eq!(found.guest.agent_version.as_deref(), Some("7.2"));
        assert_eq!(found.commands, [GuestCommand { name: "guest-ping".into(), enabled: true }]);
        assert_eq!((found.users[0].user.as_str(), found.users[0].login_time_seconds), ("ro\\u{1b}ot", 1.5));
        assert_eq!(found.timezone, Some(GuestTimezone { zone: Some("UTC".into()), offset_seconds: 0 }));
        assert_eq!(found.frozen, Some(false));
        // It does not have the command.
        assert!(found.file_systems.is_empty());
        fake.on("guest-fsfreeze-status", AgentBehaviour::Reply(json!("frozen")));
        let frozen = asked(Some((&fake, agent.clone())), GuestSubject::Info).await.unwrap();
        assert_eq!((frozen.frozen, frozen.guest), (Some(true), GuestStatus::default()), "what its status has");
        let refused = asked(Some((&fake, agent)), GuestSubject::FileSystems).await.unwrap_err();
        assert!(refused.contains("guest-get-fsinfo"), "{refused}");
    }

    #[tokio::test]
    async fn a_list_has_nothing_else() {
        let (fake, agent) = channel().await;
        let disk = json!({"bus-type": "virtio", "serial": "s", "dev": "/dev/vda1"});
        let root = json!({"name": "vda1", "mountpoint": "/", "type": "ext4", "used-bytes": 1, "total-bytes": 2, "disk": [disk]});
        fake.on("guest-get-fsinfo", AgentBehaviour::Reply(json!([root])));
        let found = asked(Some((&fake, agent)), GuestSubject::FileSystems).await.unwrap();
        let disks = vec![GuestFileSystemDisk { bus: "virtio".into(), serial: Some("s".into()) }];
        let expected = GuestFileSystem {
            name: "vda1".into(),
            mountpoint: "/".into(),
            kind: "ext4".into(),
            used_bytes: Some(1),
            total_bytes: Some(2),
            disks,
        };
        assert_eq!(found, GuestReport { file_systems: vec![expected], ..GuestReport::default() });
        assert_eq!(fake.received().last().map(String::as_str), Some("guest-get-fsinfo"));
    }

    #[tokio::test]
    async fn a_guest_that_cannot_answer_is_not_asked() {
        assert_eq!(asked(None, GuestSubject::Users).await.unwrap_err(), "no guest agent is connected");
        let (fake, agent) = channel().await;
        let (_keeps, agent) = watch::channel(Some(agent));
        let paused = Status { paused: Some(PauseReason::PausedByUser), ..running(1) };
        let (_keeps, status) = watch::channel(paused);
        let refused = ask(GuestSubject::Users, &agent, &status).await.unwrap_err();
        assert!(refused.contains("vCPUs are stopped"), "{refused}");
        assert!(fake.received().is_empty());
    }

    // Time passes only while nothing else is left to do, however busy the machine.
    #[tokio::test(start_paused = true)]
    async fn a_guest_that_is_silent_is_given_up() {
        let (fake, agent) = channel().await;
        fake.on("guest-get-users", AgentBehaviour::Silence);
        let refused = asked(Some((&fake, agent)), GuestSubject::Users).await.unwrap_err();
        assert!(refused.contains("took longer"), "{refused}");
    }
}
