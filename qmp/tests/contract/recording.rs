//! Sessions recorded from real QEMUs, replayed byte for byte: what QEMU really sends, also where none is installed.
//!
//! `tests/recordings/*.jsonl` has one object per line: `{"client": {…}}` is a command, `{"qemu": "…"}` a line QEMU
//! wrote. Made by `GARBOARD_TEST_RECORD=FILE cargo test -p garboard-qmp --test contract record`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;

use garboard_qmp::{ConnectOptions, Interest, Monitor, Notice, Request, ShutdownCause};
use serde_json::{Value, json};

use crate::backend::{Which, start_qemu};

#[derive(Debug, Clone, PartialEq)]
enum Line {
    Client(Value),
    Qemu(String),
}

fn read(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|line| match line["qemu"].as_str() {
            Some(sent) => Line::Qemu(sent.to_owned()),
            None => Line::Client(line["client"].clone()),
        })
        .collect()
}

/// Plays QEMU: sends the recorded lines after the recorded commands.
fn play(stream: UnixStream, lines: Vec<Line>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut commands = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut ids: Vec<(Value, Value)> = Vec::new();
        for line in lines {
            match line {
                Line::Client(expected) => {
                    let command: Value = serde_json::from_str(&commands.next().unwrap().unwrap()).unwrap();
                    assert_eq!(command["execute"], expected["execute"]);
                    ids.push((expected["id"].clone(), command["id"].clone()));
                }
                Line::Qemu(recorded) => {
                    let mut line = recorded;
                    if let Some((recorded, actual)) = ids.last() {
                        line = line.replace(&format!("\"id\": {recorded}"), &format!("\"id\": {actual}"));
                    }
                    (&stream).write_all(format!("{line}\r\n").as_bytes()).unwrap();
                }
            }
        }
    })
}

async fn replay(path: &Path) {
    let lines = read(path);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let qemu = play(theirs, lines.clone());
    let (monitor, _) = Monitor::connect(ours, ConnectOptions::named("replay")).await.unwrap();
    let mut events = monitor.subscribe(Interest::All);
    let commands = lines.iter().filter_map(|line| match line {
        Line::Client(command) if command["execute"] != "qmp_capabilities" => Some(command),
        Line::Client(_) | Line::Qemu(_) => None,
    });
    let mut count = 0;
    for command in commands {
        let name = command["execute"].as_str().unwrap();
        let answer = lines.iter().find_map(|line| match line {
            Line::Qemu(line) => {
                let message: Value = serde_json::from_str(line).unwrap();
                (message["id"] == command["id"]).then_some(message)
            }
            Line::Client(_) => None,
        });
        let answer = answer.expect("every recorded command has its answer");
        let mut request = Request::new(name.to_owned());
        if let Some(arguments) = command.get("arguments") {
            request = request.arguments(arguments);
        }
        match monitor.send(request).await {
            Ok(reply) => assert_eq!(serde_json::from_str::<Value>(reply.get()).unwrap(), answer["return"], "{name}"),
            Err(error) => {
                assert!(error.is_refusal_of_class(answer["error"]["class"].as_str().unwrap()), "{name}: {error:?}")
            }
        }
        count += 1;
    }
    assert!(count > 20, "{count} commands");
    let mut names = Vec::new();
    let reason = loop {
        match events.next().await {
            Some(Notice::Event(event)) => names.push(event.name.clone()),
            Some(Notice::Closed { reason }) => break reason,
            other => panic!("{other:?}"),
        }
    };
    let sent: Vec<_> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Qemu(line) => serde_json::from_str::<Value>(line).unwrap()["event"].as_str().map(ToOwned::to_owned),
            Line::Client(_) => None,
        })
        .collect();
    assert_eq!(names, sent);
    assert_eq!(reason.unwrap().cause, ShutdownCause::HostQmpQuit);
    qemu.join().unwrap();
}

#[tokio::test]
async fn recorded_sessions_are_understood() {
    let directory = Path::new("tests/recordings");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        replay(&entry.unwrap().path()).await;
        count += 1;
    }
    assert!(count >= 1, "no recordings");
}

/// The session that is recorded: what a supervisor sends in the life of a machine.
fn session() -> Vec<(&'static str, Value)> {
    let node = json!({"driver": "null-co", "node-name": "disk0", "size": 1 << 30});
    let disk = json!({"driver": "usb-storage", "id": "stick0", "bus": "usb.0", "drive": "disk0"});
    vec![
        ("query-version", Value::Null),
        ("query-status", Value::Null),
        ("query-kvm", Value::Null),
        ("query-name", Value::Null),
        ("query-uuid", Value::Null),
        ("query-current-machine", Value::Null),
        ("query-chardev", Value::Null),
        ("query-iothreads", Value::Null),
        ("query-cpus-fast", Value::Null),
        ("query-hotpluggable-cpus", Value::Null),
        ("query-memory-size-summary", Value::Null),
        ("query-memory-devices", Value::Null),
        ("query-pci", Value::Null),
        ("query-balloon", Value::Null),
        ("query-migrate", Value::Null),
        ("qom-list", json!({"path": "/machine/peripheral"})),
        ("blockdev-add", node),
        ("query-named-block-nodes", Value::Null),
        ("device_add", disk.clone()),
        ("device_add", disk),
        ("query-block", Value::Null),
        ("cont", Value::Null),
        ("query-status", Value::Null),
        ("device_del", json!({"id": "stick0"})),
        ("device_del", json!({"id": "stick0"})),
        ("blockdev-del", json!({"node-name": "disk0"})),
        ("never-commands-of", Value::Null),
        ("stop", Value::Null),
        ("system_reset", Value::Null),
        ("query-jobs", Value::Null),
        ("query-fdsets", Value::Null),
        ("quit", Value::Null),
    ]
}

#[test]
fn record() {
    let Some(target) = std::env::var_os("GARBOARD_TEST_RECORD") else { return };
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("qmp.sock");
    let Some(_qemu) = start_qemu(Which::Installed, &socket, &[]) else { return };
    let stream = UnixStream::connect(&socket).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut out = std::fs::File::create(target).unwrap();
    let mut read_message = |out: &mut std::fs::File| {
        let line = lines.next()?.unwrap();
        writeln!(out, "{}", json!({ "qemu": line })).unwrap();
        Some(serde_json::from_str::<Value>(&line).unwrap())
    };
    read_message(&mut out).expect("a greeting");
    let commands = std::iter::once(("qmp_capabilities", Value::Null)).chain(session());
    for (number, (name, arguments)) in commands.enumerate() {
        let mut command = json!({"execute": name, "id": number});
        if !arguments.is_null() {
            command["arguments"] = arguments;
        }
        writeln!(out, "{}", json!({ "client": command })).unwrap();
        (&stream).write_all(format!("{command}\n").as_bytes()).unwrap();
        while let Some(message) = read_message(&mut out) {
            if message["id"] == number {
                break;
            }
        }
    }
    while read_message(&mut out).is_some() {}
}
