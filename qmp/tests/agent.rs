//! The guest agent client against honest and hostile agents.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "clippy exempts tests, but not their helper functions")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use garboard_qmp::TranscriptSink;
use garboard_qmp::agent::{Agent, AgentOptions, FREEZE_LIMIT, GuestAgentError, ShutdownAnswer, ShutdownMode};
use garboard_qmp::testing::{AgentBehaviour, FakeAgent};
use serde_json::json;

async fn channel(first_bytes: &[u8]) -> (Agent, FakeAgent) {
    hurried_channel(first_bytes, Duration::from_secs(60)).await
}

async fn hurried_channel(first_bytes: &[u8], limit: Duration) -> (Agent, FakeAgent) {
    let (fake, stream) = FakeAgent::pair(first_bytes).unwrap();
    let agent = Agent::connect(stream, AgentOptions { limit, ..AgentOptions::default() }).await.unwrap();
    (agent, fake)
}

#[tokio::test]
async fn answers_are_typed() {
    let (agent, fake) = channel(b"").await;
    fake.on("guest-get-osinfo", AgentBehaviour::Reply(json!({"id": "debian", "kernel-release": "6.1.0"})));
    fake.on("guest-get-host-name", AgentBehaviour::Reply(json!({"host-name": "hello"})));
    fake.on("guest-get-timezone", AgentBehaviour::Reply(json!({"zone": "CEST", "offset": 7200})));
    fake.on("guest-get-users", AgentBehaviour::Reply(json!([{"user": "root", "login-time": 1.5}])));
    fake.on("guest-info", AgentBehaviour::Reply(json!({"version": "7.2.22", "supported_commands": []})));
    fake.on(
        "guest-get-fsinfo",
        AgentBehaviour::Reply(json!([{"name": "vda1", "mountpoint": "/", "type": "ext4",
        "used-bytes": 1, "total-bytes": 2, "disk": [{"bus-type": "virtio", "serial": "root"}]}])),
    );
    fake.on(
        "guest-network-get-interfaces",
        AgentBehaviour::Reply(json!([{"name": "eth0", "ip-addresses":
        [{"ip-address-type": "ipv4", "ip-address": "10.0.2.2", "prefix": 24}]}])),
    );
    agent.ping().await.unwrap();
    let os = agent.os_info().await.unwrap();
    assert_eq!((os.id.unwrap().as_str(), os.kernel_release.unwrap().as_str()), ("debian", "6.1.0"));
    assert_eq!(agent.host_name().await.unwrap().as_str(), "hello");
    assert_eq!(agent.timezone().await.unwrap().offset_seconds, 7200);
    assert_eq!(agent.users().await.unwrap().items()[0].user.as_str(), "root");
    assert_eq!(agent.info().await.unwrap().version.as_str(), "7.2.22");
    assert_eq!(agent.filesystems().await.unwrap().items()[0].disks.items()[0].bus.as_str(), "virtio");
    assert_eq!(agent.interfaces().await.unwrap().items()[0].addresses.items()[0].ip.to_string(), "10.0.2.2");
    let handshakes = fake.received().iter().filter(|command| *command == "guest-sync-delimited").count();
    assert_eq!(handshakes, 1, "as long as all is well one handshake is enough");
}

#[tokio::test]
async fn stale_bytes_before_the_first_command_are_skipped() {
    let stale =
        b"half an answer\xff{\"return\": 1}\n{\"return\": {\"host-name\": \"stale\"}}\n\xff\xff{\"return\": 2}\n{\"ret";
    let (agent, fake) = channel(stale).await;
    fake.on("guest-get-host-name", AgentBehaviour::Reply(json!({"host-name": "fresh"})));
    assert_eq!(agent.host_name().await.unwrap().as_str(), "fresh");
}

// Time passes only while nothing else is left to do, however busy the machine.
#[tokio::test(start_paused = true)]
async fn a_late_answer_is_not_taken_for_the_next_one() {
    let (agent, fake) = hurried_channel(b"", Duration::from_millis(1500)).await;
    agent.ping().await.unwrap();
    fake.on("guest-get-host-name", AgentBehaviour::Silence);
    assert!(matches!(agent.host_name().await, Err(GuestAgentError::TimedOut { .. })));
    // The late answer arrives together with the one to the next handshake.
    fake.on(
        "guest-get-osinfo",
        AgentBehaviour::Raw(b"{\"return\": {\"id\": \"fresh\"}}\n{\"return\": {\"id\": \"stale\"}}\n".to_vec()),
    );
    assert_eq!(agent.os_info().await.unwrap().id.unwrap().as_str(), "fresh");
    fake.on("guest-get-osinfo", AgentBehaviour::Reply(json!({"id": "fresh again"})));
    assert_eq!(agent.os_info().await.unwrap().id.unwrap().as_str(), "fresh again");
}

#[tokio::test]
async fn silence_runs_out_of_time_and_the_channel_lives_on() {
    let (agent, fake) = hurried_channel(b"", Duration::from_millis(100)).await;
    fake.on("guest-sync-delimited", AgentBehaviour::Silence);
    assert!(matches!(agent.ping().await, Err(GuestAgentError::TimedOut { .. })));
    fake.on("guest-sync-delimited", AgentBehaviour::Raw(b"\xff{\"return\": \"lies\"}\n".to_vec()));
    assert!(matches!(agent.ping().await, Err(GuestAgentError::TimedOut { .. })));
}

#[tokio::test]
async fn refusals_of_the_agent_are_bounded_and_escaped() {
    let (agent, fake) = channel(b"").await;
    assert!(agent.host_name().await.unwrap_err().is_unsupported());
    fake.on("guest-get-host-name", AgentBehaviour::Refuse("GenericError", "\u{1b}[2J\u{1b}[H"));
    let error = agent.host_name().await.unwrap_err().to_string();
    assert!(!error.contains('\u{1b}') && error.contains("guest-get-host-name"), "{error}");
}

#[tokio::test]
async fn floods_end_in_an_error_without_eating_memory() {
    let endless_line = AgentBehaviour::Flood(vec![b'x'; 4096]);
    let endless_lines = AgentBehaviour::Flood(b"{\"return\": {}}\n\xff{\"return\": 0}\n".repeat(100));
    for flood in [endless_line.clone(), endless_lines] {
        let (agent, fake) = channel(b"").await;
        fake.on("guest-sync-delimited", flood);
        assert!(matches!(agent.ping().await, Err(GuestAgentError::Flood { .. })));
    }
    let (agent, fake) = channel(b"").await;
    fake.on("guest-get-osinfo", endless_line);
    let error = agent.os_info().await.unwrap_err();
    assert!(matches!(error, GuestAgentError::Flood { bytes, limit, .. } if bytes < limit + 8192), "{error:?}");
}

#[tokio::test]
async fn a_guest_that_never_stops_answering_is_read_only_while_a_call_waits() {
    let (agent, fake) = channel(b"").await;
    fake.on("guest-ping", AgentBehaviour::Flood(b"{\"return\": {}}\n".repeat(100)));
    agent.ping().await.unwrap();
    assert!(matches!(agent.ping().await, Err(GuestAgentError::Flood { .. } | GuestAgentError::TimedOut { .. })));
}

#[tokio::test]
async fn nonsense_is_an_error_and_the_next_command_works() {
    let deep = format!("{{\"return\": {}{}}}\n", "[".repeat(1_000), "]".repeat(1_000)).into_bytes();
    let long = format!("{{\"return\": \"{}\"}}\n", "x".repeat(300_000)).into_bytes();
    let nonsense = [b"\x00\x01\x02\n".to_vec(), b"[1]\n".to_vec(), b"{\"return\": 5}\n".to_vec(), deep, long];
    let (agent, fake) = channel(b"").await;
    for bytes in nonsense {
        fake.on("guest-get-osinfo", AgentBehaviour::Raw(bytes));
        let error = agent.os_info().await.unwrap_err();
        assert!(matches!(error, GuestAgentError::Nonsense { .. }), "{error:?}");
        assert!(error.to_string().len() < 1_000);
        agent.ping().await.unwrap();
    }
}

#[tokio::test]
async fn lists_and_strings_of_a_guest_are_bounded() {
    let (agent, fake) = channel(b"").await;
    let many: Vec<_> = (0..500).map(|number| json!({"name": format!("veth{number}\u{7}")})).collect();
    fake.on("guest-network-get-interfaces", AgentBehaviour::Reply(json!(many)));
    let interfaces = agent.interfaces().await.unwrap();
    assert_eq!((interfaces.items().len(), interfaces.left_out()), (64, 436));
    assert_eq!(interfaces.items()[0].name.as_str(), "veth0\\u{7}");
}

#[tokio::test(start_paused = true)]
async fn file_systems_are_frozen_and_thawed_in_their_own_time() {
    let (agent, fake) = hurried_channel(b"", Duration::from_millis(1500)).await;
    fake.on("guest-fsfreeze-freeze", AgentBehaviour::Reply(json!(3)));
    fake.on("guest-fsfreeze-thaw", AgentBehaviour::Reply(json!(3)));
    for status in ["frozen", "thawed"] {
        fake.on("guest-fsfreeze-status", AgentBehaviour::Reply(json!(status)));
        assert_eq!(agent.is_frozen().await.unwrap(), status == "frozen");
    }
    assert_eq!((agent.freeze().await.unwrap(), agent.thaw().await.unwrap()), (3, 3));
    fake.on("guest-fsfreeze-freeze", AgentBehaviour::Silence);
    let begun = tokio::time::Instant::now();
    let error = agent.freeze().await.unwrap_err();
    assert!(matches!(error, GuestAgentError::TimedOut { after: FREEZE_LIMIT, .. }) && error.may_have_taken_effect());
    assert!(begun.elapsed() >= FREEZE_LIMIT, "a guest that writes much to disk needs more than other commands");
    fake.on("guest-fsfreeze-freeze", AgentBehaviour::Refuse("GenericError", "no"));
    assert!(!agent.freeze().await.unwrap_err().may_have_taken_effect());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_answer_is_a_success_if_the_agent_lives() {
    let (agent, fake) = hurried_channel(b"", Duration::from_millis(1500)).await;
    fake.on("guest-shutdown", AgentBehaviour::Silence);
    assert_eq!(agent.shut_down(ShutdownMode::PowerDown).await.unwrap(), ShutdownAnswer::Silent);
    fake.on("guest-shutdown", AgentBehaviour::Refuse("GenericError", "not allowed"));
    assert!(matches!(agent.shut_down(ShutdownMode::Reboot).await, Err(GuestAgentError::Refused { .. })));
    fake.on("guest-sync-delimited", AgentBehaviour::Silence);
    fake.on("guest-shutdown", AgentBehaviour::HangUp);
    drop(fake);
    assert!(matches!(agent.shut_down(ShutdownMode::Halt).await, Err(GuestAgentError::Disconnected { .. })));
}

#[tokio::test]
async fn commands_of_many_tasks_go_one_after_the_other() {
    let (agent, fake) = channel(b"").await;
    fake.on("guest-get-host-name", AgentBehaviour::Reply(json!({"host-name": "h"})));
    let asking = (0..20).map(|_| {
        let agent = agent.clone();
        tokio::spawn(async move { agent.host_name().await.map(|name| name.as_str().to_owned()) })
    });
    for asked in asking.collect::<Vec<_>>() {
        assert_eq!(asked.await.unwrap().unwrap(), "h");
    }
}

#[tokio::test]
async fn a_call_dropped_half_way_leaves_a_usable_channel() {
    let (agent, fake) = channel(b"").await;
    fake.on("guest-get-host-name", AgentBehaviour::Silence);
    let asked = tokio::time::timeout(Duration::from_millis(50), agent.host_name()).await;
    assert!(asked.is_err());
    fake.on("guest-get-host-name", AgentBehaviour::Reply(json!({"host-name": "h"})));
    assert_eq!(agent.host_name().await.unwrap().as_str(), "h");
}

#[tokio::test]
async fn keys_and_passwords_are_sent_and_not_written_down() {
    let lines = Arc::new(Lines::default());
    let (fake, stream) = FakeAgent::pair(b"").unwrap();
    let transcript = Some(Arc::clone(&lines) as Arc<dyn TranscriptSink>);
    let options = AgentOptions { limit: Duration::from_secs(60), transcript };
    let agent = Agent::connect(stream, options).await.unwrap();
    for command in ["guest-ssh-add-authorized-keys", "guest-set-user-password"] {
        fake.on(command, AgentBehaviour::Reply(json!({})));
    }
    agent.set_authorized_keys("ada", &["ssh-ed25519 AAAA ada".to_owned()]).await.unwrap();
    agent.set_password("root", b"hunter2").await.unwrap();
    let keys = json!({"username": "ada", "keys": ["ssh-ed25519 AAAA ada"], "reset": true});
    assert_eq!(fake.arguments("guest-ssh-add-authorized-keys"), [keys]);
    let password = json!({"username": "root", "password": "aHVudGVyMg==", "crypted": false});
    assert_eq!(fake.arguments("guest-set-user-password"), [password]);
    let written = lines.0.lock().unwrap().join("\n");
    assert!(written.contains("guest-set-user-password") && written.contains("ada"), "{written}");
    for secret in ["hunter2", "aHVudGVyMg", "AAAA"] {
        assert!(!written.contains(secret), "{secret} is in {written}");
    }
}

/// A transcript in memory.
#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl TranscriptSink for Lines {
    fn record(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
}
