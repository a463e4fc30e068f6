//! The debug broker: many clients beside the supervisor, each within its access.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "clippy exempts tests, but not their helper functions")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use garboard_qmp::broker::{Audit, AuditOutcome, AuditSink, Broker, ClientAccess, EVENTS_LOST, Grant, PeerIdentity};
use garboard_qmp::testing::{Behaviour, FakeMonitor};
use garboard_qmp::{ConnectError, ConnectOptions, Monitor, qmp};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Audits(Mutex<Vec<Audit>>);

impl AuditSink for Audits {
    fn record(&self, audit: &Audit) {
        self.0.lock().unwrap().push(audit.clone());
    }
}

struct Fixture {
    broker: Arc<Broker>,
    fake: FakeMonitor,
    monitor: Monitor,
    audits: Arc<Audits>,
}

struct Client {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl Fixture {
    async fn new() -> Self {
        let (fake, stream) = FakeMonitor::pair().unwrap();
        let (monitor, _) = Monitor::connect(stream, ConnectOptions::default()).await.unwrap();
        let audits = Arc::new(Audits::default());
        let broker = Arc::new(Broker::new(monitor.clone(), audits.clone()));
        Self { broker, fake, monitor, audits }
    }

    async fn client(&self, grant: impl Into<Grant>) -> Client {
        let mut client = self.silent_client(grant);
        assert!(client.next().await["QMP"]["version"]["qemu"]["major"].is_u64());
        client
    }

    fn serve(&self, grant: impl Into<Grant>) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let broker = Arc::clone(&self.broker);
        let (grant, peer) = (grant.into(), PeerIdentity { uid: 1000, pid: Some(42) });
        tokio::spawn(async move { broker.serve_client(ours, grant, peer).await });
        theirs
    }

    fn silent_client(&self, grant: impl Into<Grant>) -> Client {
        let (reader, writer) = self.serve(grant).into_split();
        Client { lines: BufReader::new(reader).lines(), writer }
    }

    async fn open_client(&self, grant: impl Into<Grant>) -> Client {
        let mut client = self.client(grant).await;
        assert_eq!(client.ask(json!({"execute": "qmp_capabilities"})).await, json!({"return": {}}));
        client
    }

    fn audits(&self) -> Vec<Audit> {
        self.audits.0.lock().unwrap().clone()
    }
}

impl Client {
    async fn try_next(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("a line in time");
        line.ok().flatten().map(|line| serde_json::from_str(&line).expect("a line of JSON"))
    }

    async fn next(&mut self) -> Value {
        self.try_next().await.expect("the broker goes on")
    }

    async fn write(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, message: Value) -> Value {
        self.write(&message.to_string()).await;
        self.next().await
    }
}

#[tokio::test]
async fn a_client_is_served_as_qemu_would() {
    let fixture = Fixture::new().await;
    let mut client = fixture.client(ClientAccess::ReadOnly).await;
    let early = client.ask(json!({"execute": "query-status", "id": 1})).await;
    assert_eq!((&early["error"]["class"], &early["id"]), (&json!("CommandNotFound"), &json!(1)));
    assert_eq!(client.ask(json!({"execute": "qmp_capabilities", "id": "x"})).await, json!({"return": {}, "id": "x"}));
    let again = client.ask(json!({"execute": "qmp_capabilities"})).await;
    assert_eq!(again["error"]["class"], "CommandNotFound");
    let status = client.ask(json!({"execute": "query-status", "id": {"any": [1]}})).await;
    assert_eq!((&status["return"]["status"], &status["id"]), (&json!("prelaunch"), &json!({"any": [1]})));
    let unknown = client.ask(json!({"execute": "query-balloon"})).await;
    assert_eq!(unknown["error"]["class"], "DeviceNotActive", "a refusal of QEMU is passed on");
}

#[tokio::test]
async fn mistakes_of_a_client_are_answered_and_it_goes_on() {
    let fixture = Fixture::new().await;
    let mut client = fixture.open_client(ClientAccess::ReadOnly).await;
    for (mistake, expected) in [
        ("help\n", "JSON"),
        ("{\"execute\": 5}", "string"),
        ("{\"execute\": \"query-status\", \"bogus\": 1}", "bogus"),
        ("{'execute': 'query-status'}", "JSON parse error"),
        ("{\"execute\": \"query-status\"]\n", "bracket"),
    ] {
        client.write(mistake).await;
        let answer = client.next().await;
        assert!(answer["error"]["desc"].as_str().unwrap().contains(expected), "{mistake}: {answer}");
    }
    assert_eq!(client.ask(json!({"execute": "query-status"})).await["return"]["running"], false);
}

#[tokio::test]
async fn a_read_only_client_reads_and_gets_the_way_to_more_rights() {
    let fixture = Fixture::new().await;
    let mut client = fixture.open_client(ClientAccess::ReadOnly).await;
    for command in ["cont", "quit", "getfd", "no-such-command"] {
        let answer = client.ask(json!({"execute": command})).await;
        assert_eq!(answer["error"]["class"], "GenericError", "{command}");
    }
    let answer = client.ask(json!({"execute": "cont"})).await;
    assert!(answer["error"]["desc"].as_str().unwrap().contains("--allow-write"), "{answer}");
    let sent: Vec<_> = fixture.fake.received().into_iter().map(|received| received.command).collect();
    assert_eq!(sent, ["qmp_capabilities"], "nothing of it reached QEMU");
    assert!(
        fixture.audits().iter().all(|audit| matches!(audit.outcome, AuditOutcome::Denied { .. }) && !audit.tainted)
    );
}

#[tokio::test]
async fn a_client_may_ask_for_more_up_to_its_ceiling() {
    let fixture = Fixture::new().await;
    let grant = Grant { start: ClientAccess::ReadOnly, ceiling: ClientAccess::ReadWrite };
    let mut client = fixture.silent_client(grant);
    assert_eq!(client.next().await["QMP"]["capabilities"], json!(["__dev.garboard_write"]));
    let enable = |what: &str| json!({"execute": "qmp_capabilities", "arguments": {"enable": [what]}});
    for beyond in ["__dev.garboard_dangerous", "oob"] {
        assert_eq!(client.ask(enable(beyond)).await["error"]["class"], "GenericError");
    }
    assert_eq!(client.ask(enable("__dev.garboard_write")).await, json!({"return": {}}));
    client.write("{\"execute\": \"cont\"}").await;
    assert_eq!(client.next().await["event"], "RESUME");
    assert_eq!(client.next().await, json!({"return": {}}));
    assert_eq!(client.ask(json!({"execute": "quit"})).await["error"]["class"], "GenericError");
}

#[tokio::test]
async fn our_own_client_asks_for_access_when_it_connects() {
    let fixture = Fixture::new().await;
    let grant = Grant { start: ClientAccess::ReadOnly, ceiling: ClientAccess::ReadWrite };
    for (wanted, may_write) in [(ClientAccess::ReadOnly, false), (ClientAccess::ReadWrite, true)] {
        let stream = fixture.serve(grant).into_std().unwrap();
        let options = ConnectOptions { access: wanted, ..ConnectOptions::default() };
        let (client, _) = Monitor::connect(stream, options).await.unwrap();
        assert_eq!(client.call(&qmp::cont {}).await.is_ok(), may_write);
    }
    let stream = fixture.serve(grant).into_std().unwrap();
    let options = ConnectOptions { access: ClientAccess::Dangerous, ..ConnectOptions::default() };
    let error = Monitor::connect(stream, options).await.unwrap_err();
    assert!(matches!(error, ConnectError::Negotiation { .. }), "{error:?}");
}

#[tokio::test]
async fn every_call_is_one_audit_with_redacted_arguments_and_taint() {
    let fixture = Fixture::new().await;
    let mut client = fixture.open_client(ClientAccess::Dangerous).await;
    client.ask(json!({"execute": "query-status"})).await;
    client
        .ask(json!({"execute": "object-add", "arguments": {"qom-type": "secret", "id": "s", "data": "hunter2"}}))
        .await;
    client.ask(json!({"execute": "device_del", "arguments": {"id": "none"}})).await;
    client.ask(json!({"execute": "getfd", "arguments": {"fdname": "x"}})).await;
    let audits = fixture.audits();
    let shown: Vec<_> = audits.iter().map(|audit| (&*audit.command, audit.tainted)).collect();
    let expected = [("query-status", false), ("object-add", true), ("device_del", false), ("getfd", false)];
    assert_eq!(shown, expected, "what QEMU refused has changed nothing");
    assert!(audits[1].arguments.contains("<redacted>") && !audits[1].to_line().contains("hunter2"));
    assert!(matches!(audits[2].outcome, AuditOutcome::Refused { .. }));
    assert!(matches!(audits[3].outcome, AuditOutcome::Denied { .. }));
    assert!(audits.iter().all(|audit| (audit.uid, audit.pid, audit.client) == (1000, Some(42), 1)));
}

#[tokio::test]
async fn a_mutation_cut_off_half_way_is_audited_as_unknown_and_taints() {
    let fixture = Fixture::new().await;
    fixture.fake.script("set_link", Behaviour::Silence);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let broker = Arc::clone(&fixture.broker);
    let peer = PeerIdentity { uid: 0, pid: None };
    let serving = tokio::spawn(async move { broker.serve_client(ours, ClientAccess::ReadWrite, peer).await });
    let (_reader, mut writer) = theirs.into_split();
    let commands = r#"{"execute": "qmp_capabilities"}{"execute": "set_link", "arguments": {"name": "n", "up": true}}"#;
    writer.write_all(commands.as_bytes()).await.unwrap();
    fixture.fake.until_received("set_link", 1).await;
    serving.abort();
    let _ = serving.await;
    let audits = fixture.audits();
    assert_eq!(audits.len(), 1);
    assert!(matches!(audits[0].outcome, AuditOutcome::Unknown { .. }) && audits[0].tainted);
}

#[tokio::test]
async fn events_reach_every_client_that_has_negotiated() {
    let fixture = Fixture::new().await;
    let mut first = fixture.open_client(ClientAccess::ReadOnly).await;
    let mut second = fixture.open_client(ClientAccess::ReadOnly).await;
    let mut waiting = fixture.client(ClientAccess::ReadOnly).await;
    fixture.fake.emit("NIC_RX_FILTER_CHANGED", json!({"name": "net0"}));
    for client in [&mut first, &mut second] {
        let event = client.next().await;
        assert_eq!((&event["event"], &event["data"]["name"]), (&json!("NIC_RX_FILTER_CHANGED"), &json!("net0")));
        assert_eq!(event["timestamp"], json!({"seconds": 1_700_000_000, "microseconds": 42}));
    }
    assert_eq!(waiting.ask(json!({"execute": "qmp_capabilities"})).await, json!({"return": {}}));
}

#[tokio::test]
async fn clients_and_supervisor_do_not_see_each_others_replies() {
    let fixture = Fixture::new().await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(fixture.open_client(ClientAccess::ReadOnly).await);
    }
    for round in 0..10 {
        for client in &mut clients {
            client.write(&json!({"execute": "query-status", "id": round}).to_string()).await;
        }
        fixture.monitor.call(&qmp::query_status {}).await.unwrap();
        for client in &mut clients {
            assert_eq!(client.next().await["id"], round);
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_delays_no_other_and_receives_the_number_it_missed() {
    let fixture = Fixture::new().await;
    let mut slow = fixture.open_client(ClientAccess::ReadOnly).await;
    let mut quick = fixture.open_client(ClientAccess::ReadOnly).await;
    let data = json!({"text": "x".repeat(1_000)});
    for _ in 0..3_000 {
        fixture.fake.emit("BULKY", data.clone());
    }
    fixture.monitor.call(&qmp::query_status {}).await.expect("the supervisor is not held up");
    quick.write("{\"execute\": \"query-status\", \"id\": \"q\"}").await;
    while quick.next().await["id"] != "q" {}
    let mut lost = 0;
    let mut seen = 0;
    while seen + lost < 3_000 {
        let message = slow.next().await;
        match message["event"].as_str().unwrap() {
            "BULKY" => seen += 1,
            name => {
                assert_eq!(name, EVENTS_LOST);
                lost += message["data"]["count"].as_u64().unwrap();
            }
        }
    }
    assert!(lost > 0 && seen > 0, "{seen} seen, {lost} lost");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_cut_off() {
    let fixture = Fixture::new().await;
    let (ours, theirs) = UnixStream::pair().unwrap();
    let broker = Arc::clone(&fixture.broker);
    let peer = PeerIdentity { uid: 0, pid: None };
    let serving = tokio::spawn(async move { broker.serve_client(ours, ClientAccess::ReadOnly, peer).await });
    fixture.fake.script("query-block", Behaviour::Reply(json!("x".repeat(2 << 20))));
    theirs.writable().await.unwrap();
    theirs.try_write(b"{\"execute\": \"qmp_capabilities\"}{\"execute\": \"query-block\"}").unwrap();
    tokio::time::timeout(Duration::from_secs(300), serving).await.expect("cut off by itself").unwrap();
}

#[tokio::test]
async fn a_client_that_only_shut_its_sending_side_down_gets_its_answers() {
    let fixture = Fixture::new().await;
    let mut client = fixture.silent_client(ClientAccess::ReadOnly);
    client.write("{\"execute\": \"qmp_capabilities\"}\n{\"execute\": \"query-status\", \"id\": 1}\n").await;
    client.writer.shutdown().await.unwrap();
    assert!(client.next().await["QMP"].is_object());
    assert_eq!(client.next().await, json!({"return": {}}));
    assert_eq!(client.next().await["id"], 1);
    assert!(client.try_next().await.is_none());
}

#[tokio::test]
async fn the_end_of_qemu_reaches_the_client_after_its_last_messages() {
    let fixture = Fixture::new().await;
    let mut client = fixture.open_client(ClientAccess::Dangerous).await;
    client.write("{\"execute\": \"quit\", \"id\": 9}").await;
    let mut received = Vec::new();
    while let Some(message) = client.try_next().await {
        received.push(message);
    }
    assert!(received.iter().any(|message| message["event"] == "SHUTDOWN"), "{received:?}");
    assert!(received.iter().any(|message| message["id"] == 9), "{received:?}");
    assert!(fixture.audits()[0].tainted);
}

#[tokio::test]
async fn a_command_that_runs_out_of_time_is_an_error_and_no_end() {
    let fixture = Fixture::new().await;
    let mut client = fixture.open_client(ClientAccess::ReadOnly).await;
    fixture.fake.script("query-pci", Behaviour::Silence);
    client.write("{\"execute\": \"query-pci\"}").await;
    fixture.fake.until_received("query-pci", 1).await;
    tokio::time::pause();
    let answer = client.next_without_patience().await;
    assert!(answer["error"]["desc"].as_str().unwrap().contains("did not answer"), "{answer}");
    assert!(matches!(fixture.audits()[0].outcome, AuditOutcome::Unknown { .. }));
}

impl Client {
    async fn next_without_patience(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().expect("the broker goes on");
        serde_json::from_str(&line).unwrap()
    }
}

#[tokio::test]
async fn the_listener_admits_by_identity() {
    let fixture = Fixture::new().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qmp.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let us = nix::unistd::getuid().as_raw();
    let admit = move |peer: &PeerIdentity| {
        assert!(peer.uid == us && peer.pid.is_some());
        Some(Grant::from(ClientAccess::ReadOnly))
    };
    let broker = Arc::clone(&fixture.broker);
    let listening = tokio::spawn(async move { broker.listen(listener, admit).await });
    let mut kept = Vec::new();
    for _ in 0..16 {
        // Our own client works through the broker as it does with QEMU.
        let (monitor, greeting) = Monitor::connect(path.as_path(), ConnectOptions::default()).await.unwrap();
        assert_eq!(greeting.version.package, "fake");
        monitor.call(&qmp::query_status {}).await.unwrap();
        kept.push(monitor);
    }
    let mut refused = Client::to(&path).await;
    assert!(refused.next().await["error"]["desc"].as_str().unwrap().contains("too many"));
    listening.abort();
    let _ = listening.await;
    assert!(kept[0].call(&qmp::query_status {}).await.is_err());
}

#[tokio::test]
async fn a_peer_that_is_not_admitted_gets_an_error() {
    let fixture = Fixture::new().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qmp.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let broker = Arc::clone(&fixture.broker);
    tokio::spawn(async move { broker.listen(listener, |_| None).await });
    let mut client = Client::to(&path).await;
    assert!(client.next().await["error"]["desc"].as_str().unwrap().contains("may not use"));
    assert!(client.try_next().await.is_none());
}

impl Client {
    async fn to(path: &std::path::Path) -> Self {
        let (reader, writer) = UnixStream::connect(path).await.unwrap().into_split();
        Self { lines: BufReader::new(reader).lines(), writer }
    }
}
