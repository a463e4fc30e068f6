//! A request is followed in what a supervisor writes: from the socket to QEMU's answer.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use garboard_log::Levels;
use garboard_plan::LaunchPlan;
use garboard_protocol::control::{Asked, ControlRequest};
use garboard_protocol::journal::Journal;
use garboard_protocol::paths::{self, Layout};
use garboard_protocol::testing::AUDIT_ID;
use garboard_qmp::testing::FakeMonitor;
use garboard_qmp::{ConnectOptions, Monitor};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tracing_subscriber::layer::SubscriberExt;

use super::super::attach::{ControlReceivers, LoggedTranscript, open_channels};
use super::super::driver::{Driver, DriverSeed, Input, Inputs};
use super::super::prepare::sockets::listen_async;
use super::super::{control, journal};
use super::*;
use crate::vm::{Life, Memory, OnReady, RunState, State};

const UID: &str = "3e0a6d1c-8f0b-4c7e-9a43-5d1f6a2b7c90";
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn writer(&self) -> impl Fn() -> Self + use<> {
        let log = self.clone();
        move || log.clone()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A machine's directory as a supervisor leaves it that has launched it.
fn launched(room: &Path) -> Layout {
    let layout = Layout::new(room);
    std::fs::create_dir(layout.supervisor()).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/many-disks/plan.json");
    let mut plan: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    plan["argv"] = json!([]);
    plan["identity"] = json!({"namespace": "default", "name": "vm", "uid": UID});
    let plan: LaunchPlan = serde_json::from_value(plan).unwrap();
    std::fs::write(layout.supervisor().join(paths::PLAN), serde_json::to_vec(&plan).unwrap()).unwrap();
    assert!(journal::write(&layout.supervisor(), &Journal { launched: true, started: true, ..Journal::default() }));
    layout
}

/// A driver whose guest runs in a simulated QEMU, and its control socket.
async fn driven(layout: &Layout) -> (FakeMonitor, ControlReceivers, mpsc::Sender<Input>) {
    let (happened, inbox) = mpsc::channel(4);
    let (requests, request_inbox) = mpsc::channel(4);
    let (to_init, _) = mpsc::channel(4);
    let status = garboard_protocol::testing::running(1);
    let (publish, published) = watch::channel(status.clone());
    let life = Life::unplanned(State::Launched, Memory { has_run: true, ..Memory::default() });
    let shared = layout.supervisor();
    let seed = DriverSeed { life, journal: Journal::default(), status, on_ready: OnReady::Leave, shared };
    tokio::spawn(Driver::new(seed, to_init, publish).run(Inputs { happened: inbox, requests: request_inbox }));
    let (senders, receivers) = open_channels(requests, published, Levels::fixed(), layout);
    let socket = listen_async(&layout.supervisor(), paths::CONTROL_SOCKET).unwrap();
    tokio::spawn(control::serve(socket, senders));
    let (fake, stream) = FakeMonitor::pair().unwrap();
    let options = ConnectOptions { transcript: Some(Arc::new(LoggedTranscript::beside(None))), ..Default::default() };
    let (monitor, _) = Monitor::connect(stream, options).await.unwrap();
    happened.send(Input::MonitorUp { monitor, run_state: RunState::Running }).await.ok().unwrap();
    (fake, receivers, happened)
}

async fn asks(layout: &Layout, request: &Value) -> Value {
    let stream = UnixStream::connect(layout.supervisor().join(paths::CONTROL_SOCKET)).await.unwrap();
    let mut stream = BufReader::new(stream);
    stream.write_all(format!("{request}\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_line(&mut answer).await.unwrap();
    serde_json::from_str(&answer).unwrap()
}

/// Lines of the transcript of a command: kind, and the whole line of the log.
fn entries_of(log: &Log, command: &str) -> Vec<(String, Value)> {
    let entry = |line: &Value| serde_json::from_str::<Value>(line["fields"]["entry"].as_str()?).ok();
    let entries = |line: Value| {
        let entry = entry(&line).filter(|entry| entry["name"] == command)?;
        Some((entry["kind"].as_str()?.to_owned(), line))
    };
    log.lines().into_iter().filter_map(entries).collect()
}

#[tokio::test]
async fn a_request_is_followed_to_qemus_answer() {
    let (log, text) = (Log::default(), Log::default());
    let plain = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(text.writer());
    let subscriber = tracing_subscriber::registry().with(crate::log::lines(log.writer())).with(plain);
    // A callsite that another test meets first is not cached as switched off: every thread has a subscriber.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let _subscriber = tracing::subscriber::set_default(subscriber);
    let room = tempfile::tempdir().unwrap();
    let layout = launched(room.path());
    let _vm = span(&layout).unwrap().entered();
    let (_fake, _receivers, _happened) = driven(&layout).await;

    // The line that the controller sends; its own test goes there from the API server's request.
    let [claimed_user, audit_id] = ["ada", AUDIT_ID].map(|claim| Some(claim.to_owned()));
    let asked = Asked { request: ControlRequest::Pause, claimed_user, audit_id, number: None };
    let answer = asks(&layout, &serde_json::to_value(asked).unwrap()).await;
    assert_eq!(answer["answer"], "queued", "{answer}");
    let answered = async {
        while entries_of(&log, "stop").len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("{}", log.text()));

    // docs/debugging.md shows these lines.
    if let Some(path) = std::env::var_os("GARBOARD_TRACE") {
        std::fs::write(path, log.text()).unwrap();
    }
    let lines = log.lines();
    let request = lines.iter().find(|line| line["fields"]["message"] == "request decided").unwrap();
    let number = &request["spans"][1]["request"];
    assert!(number.is_u64(), "{request}");
    let entries = entries_of(&log, "stop");
    assert_eq!(entries.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), ["command", "reply"]);
    for line in entries.iter().map(|(_, line)| line).chain([request]) {
        let (vm, asked) = (&line["spans"][0], &line["spans"][1]);
        assert_eq!((&vm["name"], &vm["vmi_uid"], &vm["vmi"]), (&json!("vm"), &json!(UID), &json!("vm")), "{line}");
        assert_eq!((&asked["request"], &asked["ask"]), (number, &json!("pause")), "{line}");
        assert_eq!((&asked["claimed_user"], &asked["audit_id"]), (&json!("ada"), &json!(AUDIT_ID)), "{line}");
    }
    let (_, command) = &entries[0];
    let entry: Value = serde_json::from_str(command["fields"]["entry"].as_str().unwrap()).unwrap();
    let qmp = &command["spans"][2];
    assert_eq!((&qmp["command"], &qmp["id"]), (&json!("stop"), &entry["id"]), "{command}");
    assert!(entry["by"].as_str().unwrap().starts_with(&format!("request {number} ")), "{entry}");
    // What the supervisor does for itself is in no request.
    let own =
        lines.iter().find(|line| line["fields"]["entry"].as_str().is_some_and(|entry| entry.contains("connected")));
    assert_eq!(own.unwrap()["spans"].as_array().unwrap().len(), 1);

    let plain = text.text();
    let line = plain.lines().find(|line| line.contains("\\\"name\\\":\\\"stop\\\"")).expect(&plain);
    assert!(line.contains(UID) && line.contains(&format!("request{{request={number}")), "{line}");
}

#[tokio::test]
async fn an_audit_id_is_escaped_and_bounded() {
    let log = Log::default();
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let _subscriber =
        tracing::subscriber::set_default(tracing_subscriber::registry().with(crate::log::lines(log.writer())));
    let room = tempfile::tempdir().unwrap();
    let layout = launched(room.path());
    let (_fake, _receivers, _happened) = driven(&layout).await;
    let forged = format!("\u{1b}[2J\n{}", "x".repeat(10_000));
    let answer = asks(&layout, &json!({"ask": "reset", "auditId": forged})).await;
    assert_eq!(answer["answer"], "queued", "{answer}");
    let lines = log.lines();
    let request = lines.iter().find(|line| line["fields"]["message"] == "request decided").unwrap();
    let shown = request["spans"][0]["audit_id"].as_str().unwrap();
    assert!(shown.starts_with("\\u{1b}[2J\\n") && shown.chars().count() < 200, "{shown}");
}
