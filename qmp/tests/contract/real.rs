//! What only a real QEMU can show, with each QEMU of this machine.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use garboard_qmp::broker::{Audit, AuditSink, Broker, ClientAccess, CommandRisk, PeerIdentity, Policy};
use garboard_qmp::{
    CallError, ConnectOptions, Interest, Monitor, Notice, Request, ScreenshotError, ShutdownCause, qmp,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::backend::{Backend, Which};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn every_command_of_this_qemu_is_classed(which: Which) {
    let Some(backend) = Backend::qemu(which).await else { return };
    let rules = Policy::default().rules();
    let commands = backend.monitor.call(&qmp::query_commands {}).await.unwrap();
    let unclassed: Vec<_> =
        commands.iter().filter(|command| !rules.iter().any(|rule| rule.command == command.name)).collect();
    assert!(unclassed.is_empty(), "add to broker/table.rs: {unclassed:?}");
    assert!(commands.len() > 200);
}

/// Members of arguments by which QEMU opens a file, a socket or a device.
const NAMES_SOMETHING_TO_OPEN: &[&str] = &[
    "addr",
    "addresses",
    "dev",
    "device_path",
    "file",
    "filename",
    "host",
    "hostname",
    "ifname",
    "mem-path",
    "path",
    "protocol",
    "script",
    "snapshot-file",
    "uri",
];

/// Commands that have such a member and open nothing by it, and why.
const OPENS_NOTHING: &[&str] = &[
    // The path of an object inside of QEMU.
    "qom-get",
    "qom-list",
    "x-query-virtio-queue-element",
    "x-query-virtio-queue-status",
    "x-query-virtio-status",
    "x-query-virtio-vhost-queue-status",
    // A kind of display; the change is reported to the display's client.
    "client_migrate_info",
    "expire_password",
    "set_password",
    // Named by the broker.
    "screendump",
];

pub(crate) async fn what_reaches_files_and_sockets_by_name_is_dangerous(which: Which) {
    let Some(backend) = Backend::qemu(which).await else { return };
    let schema = backend.monitor.schema().await.unwrap();
    let policy = Policy::default();
    let reaches = |command: &&str| {
        let names = schema.member_names(command);
        NAMES_SOMETHING_TO_OPEN.iter().any(|name| names.contains(name)) && !OPENS_NOTHING.contains(command)
    };
    let reaching: Vec<_> = schema.commands().filter(reaches).collect();
    for command in ["blockdev-add", "chardev-add", "netdev_add", "object-add", "pmemsave", "migrate"] {
        assert!(reaching.contains(&command), "{command} in {reaching:?}");
    }
    let too_low: Vec<_> = reaching
        .into_iter()
        .filter(|command| policy.rule_for(command, &json!({})).risk < CommandRisk::Dangerous)
        .collect();
    assert!(too_low.is_empty(), "raise in broker/table.rs: {too_low:?}");
}

struct NoAudit;

impl AuditSink for NoAudit {
    fn record(&self, _: &Audit) {}
}

pub(crate) async fn a_picture_of_the_screen_is_written_where_the_broker_names(which: Which) {
    let Some(backend) = Backend::qemu_with(which, &["-device", "VGA"]).await else { return };
    let results = tempfile::tempdir().unwrap();
    let broker = Broker::new(backend.monitor.clone(), Arc::new(NoAudit)).with_results_in(results.path().to_owned());
    let (ours, theirs) = UnixStream::pair().unwrap();
    tokio::spawn(async move {
        broker.serve_client(ours, ClientAccess::ReadWrite, PeerIdentity { uid: 1, pid: None }).await
    });
    let options = ConnectOptions { access: ClientAccess::ReadWrite, ..ConnectOptions::default() };
    let (client, _) = Monitor::connect(theirs.into_std().unwrap(), options).await.unwrap();

    let elsewhere = results.path().join("journal.json");
    let named = json!({"filename": elsewhere});
    let error = client.send(Request::new("screendump").arguments(&named)).await.unwrap_err();
    assert!(error.to_string().contains("leave `filename` out"), "{error}");
    assert!(!elsewhere.exists());
    for _ in 0..3 {
        let reply = client.send(Request::new("screendump")).await.unwrap();
        let path = results.path().join("screendump.ppm");
        assert_eq!(serde_json::from_str::<Value>(reply.get()).unwrap(), json!({"filename": path}));
        assert!(std::fs::read(&path).unwrap().starts_with(b"P6"), "a picture");
    }
    // While a guest is paused QEMU 7.2 gives nothing back: a client cannot use up its descriptors by that.
    let mut refused = None;
    for _ in 0..10 {
        refused = client.send(Request::new("screendump")).await.err().or(refused);
    }
    assert!(refused.is_none_or(|error| error.to_string().contains("resume the guest first")));
    let held = || async { backend.monitor.send(Request::new("query-fdsets")).await.unwrap() };
    assert!(held().await.get().matches("opaque").count() <= 8);
    backend.monitor.call(&qmp::cont {}).await.unwrap();
    client.send(Request::new("screendump")).await.unwrap();
    assert_eq!(held().await.get(), "[]", "no descriptor stays behind");
}

pub(crate) async fn a_client_that_may_write_takes_a_medium_out_and_puts_it_back(which: Which) {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(1 << 20).unwrap();
    let node = format!("driver=file,node-name=image-cd,read-only=on,filename={}", image.path().display());
    let arguments = ["-blockdev", &node, "-device", "ide-cd,id=disk-cd,drive=image-cd"];
    let Some(backend) = Backend::qemu_with(which, &arguments).await else { return };
    let broker = Broker::new(backend.monitor.clone(), Arc::new(NoAudit));
    let (ours, theirs) = UnixStream::pair().unwrap();
    tokio::spawn(async move {
        broker.serve_client(ours, ClientAccess::ReadWrite, PeerIdentity { uid: 1, pid: None }).await
    });
    let options = ConnectOptions { access: ClientAccess::ReadWrite, ..ConnectOptions::default() };
    let (client, _) = Monitor::connect(theirs.into_std().unwrap(), options).await.unwrap();
    let medium = || async {
        let drives = client.send(Request::new("query-blockstats")).await.unwrap();
        let drives: Vec<Value> = serde_json::from_str(drives.get()).unwrap();
        let is_it = |drive: &&Value| drive["qdev"].as_str().is_some_and(|qdev| qdev.contains("disk-cd"));
        drives.iter().find(is_it).unwrap()["node-name"].clone()
    };
    let id = json!({"id": "disk-cd"});
    assert_eq!(medium().await, "image-cd");
    client.send(Request::new("eject").arguments(&id)).await.unwrap();
    assert_eq!(medium().await, Value::Null);
    let again = json!({"id": "disk-cd", "node-name": "image-cd"});
    client.send(Request::new("blockdev-insert-medium").arguments(&again)).await.unwrap();
    client.send(Request::new("blockdev-close-tray").arguments(&id)).await.unwrap();
    assert_eq!(medium().await, "image-cd");
}

pub(crate) async fn a_screenshot_is_a_png_in_memory(which: Which) {
    let Some(backend) = Backend::qemu_with(which, &["-device", "VGA"]).await else { return };
    let monitor = &backend.monitor;
    monitor.call(&qmp::cont {}).await.unwrap();
    for _ in 0..20 {
        monitor.move_pointer().await.unwrap();
        let (mut file, length) = monitor.screenshot().await.unwrap();
        let mut picture = Vec::new();
        file.read_to_end(&mut picture).unwrap();
        assert_eq!(u64::try_from(picture.len()).unwrap(), length);
        assert!(picture.starts_with(b"\x89PNG") && picture.ends_with(b"IEND\xaeB`\x82"), "{length} bytes");
    }
    let held = monitor.send(Request::new("query-fdsets")).await.unwrap();
    let (sets, descriptors) = (held.get().matches("fdset-id").count(), held.get().matches("opaque").count());
    assert!(
        sets <= 1 && descriptors == 0,
        "no descriptor stays behind, and no more than one empty set: {}",
        held.get()
    );
    // While a guest is paused QEMU 7.2 gives nothing back: no descriptors are used up by that.
    monitor.call(&qmp::stop {}).await.unwrap();
    let mut refused = None;
    for _ in 0..10 {
        refused = monitor.screenshot().await.err().or(refused);
    }
    assert!(refused.is_none_or(|error| matches!(error, ScreenshotError::Held(_))));
    let Some(blind) = Backend::qemu(which).await else { return };
    let error = blind.monitor.screenshot().await.unwrap_err();
    assert!(matches!(error, ScreenshotError::Dump(_)), "a machine without a screen: {error:?}");
}

pub(crate) async fn a_qemu_that_hangs_for_a_while_costs_one_call_and_no_connection(which: Which) {
    let Some(backend) = Backend::qemu(which).await else { return };
    backend.signal(Signal::SIGSTOP);
    let hurried = Request::new("query-block").within(Duration::from_millis(50));
    assert!(matches!(backend.monitor.send(hurried).await, Err(CallError::TimedOut { .. })));
    backend.signal(Signal::SIGCONT);
    for _ in 0..5 {
        backend.monitor.call(&qmp::query_status {}).await.unwrap();
    }
}

async fn how_it_ended(monitor: &Monitor, end: impl FnOnce()) -> Option<ShutdownCause> {
    let mut events = monitor.subscribe(Interest::Named(&[]));
    end();
    match tokio::time::timeout(PATIENCE, events.next()).await.unwrap() {
        Some(Notice::Closed { reason }) => reason.map(|reason| reason.cause),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn a_terminated_qemu_reports_it_and_a_killed_one_does_not(which: Which) {
    let Some(backend) = Backend::qemu(which).await else { return };
    let cause = how_it_ended(&backend.monitor, || backend.signal(Signal::SIGTERM)).await;
    assert_eq!(cause, Some(ShutdownCause::HostSignal));
    let Some(backend) = Backend::qemu(which).await else { return };
    assert_eq!(how_it_ended(&backend.monitor, || backend.signal(Signal::SIGKILL)).await, None);
}

/// Replies the generated types (QEMU 9.1) cannot hold: 7.2 has the capability `compress`, which is gone since. Decode
/// these with a struct of your own.
const UNDECODABLE: &[&str] = &["query-migrate-capabilities"];

/// These decode with every QEMU we support, apart from the ones above.
pub(crate) async fn typed_replies_decode(which: Which) {
    let Some(backend) = Backend::qemu(which).await else { return };
    let monitor = &backend.monitor;
    let node = json!({"driver": "null-co", "node-name": "node0", "size": 4096});
    monitor.send(Request::new("blockdev-add").arguments(&node)).await.unwrap();
    let mut failed = Vec::new();
    macro_rules! decodes {
        ($($command:ident),* $(,)?) => {
            $(match monitor.call(&qmp::$command {}).await {
                Ok(_) | Err(CallError::Refused { .. }) => {}
                Err(CallError::Undecodable { command, .. }) if UNDECODABLE.contains(&&*command) => {}
                Err(error) => failed.push(format!("{}: {}", error, std::error::Error::source(&error).unwrap())),
            })*
        };
    }
    decodes!(
        query_status,
        query_version,
        query_name,
        query_uuid,
        query_kvm,
        query_cpus_fast,
        query_hotpluggable_cpus,
        query_memory_devices,
        query_memory_size_summary,
        query_memdev,
        query_iothreads,
        query_chardev,
        query_pci,
        query_block,
        query_block_jobs,
        query_jobs,
        query_fdsets,
        query_balloon,
        query_migrate,
        query_migrate_capabilities,
        query_vnc_servers,
        query_current_machine,
        query_commands,
        query_block_exports,
        query_tpm_models,
        query_migrate_parameters,
        query_target,
        query_mice,
        query_vm_generation_id,
    );
    assert!(failed.is_empty(), "{failed:#?}");
}

pub(crate) async fn the_schema_answers_what_a_planner_asks(which: Which) {
    let Some(backend) = Backend::qemu(which).await else { return };
    let schema = backend.monitor.schema().await.unwrap();
    for (command, path) in [
        ("blockdev-add", "driver=file.aio=io_uring"),
        ("blockdev-add", "driver=qcow2.file.driver=host_device.locking"),
        ("object-add", "qom-type=memory-backend-memfd.hugetlb"),
        ("netdev_add", "type=stream.addr.type=unix"),
        ("migrate-set-capabilities", "capabilities.capability=multifd"),
        ("device_del", "id"),
    ] {
        assert!(schema.accepts(command, path), "{command} {path}");
    }
    assert!(!schema.accepts("blockdev-add", "driver=teleport"));
    assert!(schema.features("device_add").contains(&"json-cli-hotplug".to_owned()));
    let text = schema.describe("blockdev-add").unwrap();
    assert!(text.contains("with driver=qcow2 also") && text.len() < 64 << 10, "{}", text.len());
}

pub(crate) async fn a_broken_command_of_another_writer_fails_no_call_of_ours(which: Which) {
    let Some(backend) = Backend::qemu(which).await else { return };
    // Non-ASCII, quotes and long strings arrive as they were sent.
    for text in ["ä\u{1f600}\"\\\u{7}", &"x".repeat(100_000)] {
        let error =
            backend.monitor.send(Request::new("device_del").arguments(&json!({ "id": text }))).await.unwrap_err();
        assert!(error.is_refusal_of_class("DeviceNotFound"), "{error:?}");
    }
    let wrong = backend.monitor.send(Request::new("query-status").arguments(&json!([1]))).await.unwrap_err();
    assert!(matches!(wrong, CallError::Refused { .. }), "{wrong:?}");
    backend.monitor.call(&qmp::query_status {}).await.unwrap();
}
