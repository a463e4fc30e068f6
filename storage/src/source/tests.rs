//! The real QEMU takes what is opened here as descriptors, and opens no path.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::{Value, json};

use super::*;
use crate::seed::NoCloud;

/// Starts QEMU without a machine, gives it the disks as fd sets and the nodes over QMP, and returns what it reports of them.
/// `None`, with a message, without QEMU.
fn nodes(disks: &[&Disk], nodes: &[Value], then: &[Value]) -> Option<Value> {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-nodefaults", "-no-user-config", "-machine", "none", "-display", "none", "-qmp", "stdio"]);
    for (set, disk) in disks.iter().enumerate() {
        fcntl(&disk.opened.fd, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        command.arg("-add-fd").arg(format!("fd={},set={}", disk.opened.fd.as_raw_fd(), set + 1));
    }
    for node in nodes {
        command.arg("-blockdev").arg(node.to_string());
    }
    let mut child = match command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!("skipped: qemu-system-x86_64: {error}");
            return None;
        }
    };
    for disk in disks {
        fcntl(&disk.opened.fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    }
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut input = child.stdin.take().unwrap();
    let mut ask = |command: &Value| -> Option<Value> {
        writeln!(input, "{command}").ok()?;
        loop {
            let line = answers.next()?.ok()?;
            let Ok(answer) = serde_json::from_str::<Value>(&line) else {
                // `qemu-io` inside QEMU writes to standard output.
                assert!(!line.contains("failed") && !line.contains("rror"), "{line}");
                continue;
            };
            if answer.get("return").is_some() || answer.get("error").is_some() {
                return Some(answer);
            }
        }
    };
    let mut last = ask(&json!({ "execute": "qmp_capabilities" }));
    for command in then.iter().chain([&json!({ "execute": "query-named-block-nodes" })]) {
        last = ask(command);
        assert!(last.as_ref().is_none_or(|answer| answer.get("error").is_none()), "{command}: {last:?}");
    }
    ask(&json!({ "execute": "quit" }));
    let out = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{errors}");
    Some(last.unwrap_or_else(|| panic!("{errors}"))["return"].take())
}

fn file_node(name: &str, set: usize, disk: &Disk) -> Value {
    json!({
        "driver": "file",
        "node-name": name,
        "filename": format!("/dev/fdset/{set}"),
        "read-only": disk.opened.access == DiskAccess::ReadOnly,
        "cache": { "direct": disk.opened.direct },
    })
}

fn format_node(name: &str, disk: &Disk, more: Value) -> Value {
    let mut node = json!({
        "driver": disk.facts.format.driver(),
        "node-name": name,
        "read-only": disk.opened.access == DiskAccess::ReadOnly,
        "cache": { "direct": disk.opened.direct },
    });
    for (key, value) in more.as_object().unwrap() {
        node[key] = value.clone();
    }
    node
}

fn size_of(nodes: &Value, name: &str) -> u64 {
    let node = nodes.as_array().unwrap().iter().find(|node| node["node-name"] == name).unwrap();
    node["image"]["virtual-size"].as_u64().unwrap()
}

#[test]
fn qemu_runs_an_overlay_over_a_container_disk_from_descriptors() {
    let room = tempfile::tempdir().unwrap();
    std::fs::create_dir(room.path().join("disk")).unwrap();
    std::fs::write(room.path().join("disk/a.raw"), vec![0x42; 4 << 20]).unwrap();
    let dir = Dir::open(room.path()).unwrap();
    for direct in [Direct::Off, Direct::IfSupported] {
        let base = container_disk::open(&dir, None, direct).unwrap();
        let layered = ephemeral::over(base, Placement::Nameless { dir: &dir }, direct).unwrap();
        let scratch = empty_disk::create(Placement::Nameless { dir: &dir }, 1 << 30, direct).unwrap();
        let (top, base) = (&layered.overlay, &layered.base);
        let graph = [
            file_node("base-file", 1, base),
            format_node("base", base, json!({ "file": "base-file" })),
            file_node("top-file", 2, top),
            format_node("top", top, json!({ "file": "top-file", "backing": "base" })),
            file_node("scratch-file", 3, &scratch),
            format_node("scratch", &scratch, json!({ "file": "scratch-file" })),
        ];
        // A backup job reads all of it: from the base, through the overlay, into the scratch disk.
        let write = json!({ "execute": "human-monitor-command", "arguments": { "command-line": "qemu-io top \"write -P 7 64k 4k\"" } });
        let read = json!({ "execute": "human-monitor-command", "arguments": { "command-line": "qemu-io top \"read -P 66 1M 1M\"" } });
        let Some(known) = nodes(&[base, top, &scratch], &graph, &[write, read]) else { return };
        assert_eq!(size_of(&known, "top"), 4 << 20);
        assert_eq!(size_of(&known, "scratch"), 1 << 30);
        // What was written is in the overlay, and the base is as it was.
        assert_eq!(std::fs::read(room.path().join("disk/a.raw")).unwrap(), vec![0x42; 4 << 20]);
    }
    assert_eq!(std::fs::read_dir(room.path()).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn qemu_reads_a_disc_from_sealed_memory_and_a_claim_from_its_file() {
    let room = tempfile::tempdir().unwrap();
    let dir = Dir::open(room.path()).unwrap();
    let seed = NoCloud { instance_id: "1".into(), user_data: b"#cloud-config\n".to_vec(), ..NoCloud::default() };
    let disc = disc::of_tree(&seed.tree().unwrap(), &NoCloud::label(), DiskAccess::ReadOnly).unwrap();
    let claim = pvc::open_or_create(&dir, 64 << 20, pvc::Tolerance::default(), Direct::IfSupported).unwrap();
    let host = host_disk::open(
        &room.path().join("host.img"),
        host_disk::Existence::CreateIfMissing { capacity_bytes: 32 << 20 },
        DiskAccess::ReadWrite,
        Direct::Off,
    )
    .unwrap();
    let graph = [
        file_node("disc-file", 1, &disc),
        format_node("disc", &disc, json!({ "file": "disc-file" })),
        file_node("claim-file", 2, &claim),
        format_node("claim", &claim, json!({ "file": "claim-file" })),
        file_node("host-file", 3, &host),
        format_node("host", &host, json!({ "file": "host-file" })),
    ];
    let Some(known) = nodes(&[&disc, &claim, &host], &graph, &[]) else { return };
    assert_eq!(size_of(&known, "disc"), disc.facts.virtual_bytes);
    assert_eq!(size_of(&known, "claim"), 64 << 20);
    assert_eq!(size_of(&known, "host"), 32 << 20);
}
