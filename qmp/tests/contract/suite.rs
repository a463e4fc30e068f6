//! What every backend must do.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use garboard_qmp::broker::{Audit, AuditSink, Broker, ClientAccess, PeerIdentity};
use garboard_qmp::testing::DescriptorIdentity;
use garboard_qmp::{
    CallError, ConnectOptions, Interest, JobError, Monitor, Notice, Request, ShutdownCause, Subscription, UnplugError,
    Unplugged, qmp,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::backend::Backend;

const PATIENCE: Duration = Duration::from_secs(60);

async fn until_event(events: &mut Subscription, name: &str) -> Value {
    loop {
        match tokio::time::timeout(PATIENCE, events.next()).await.expect("an event in time") {
            Some(Notice::Event(event)) if event.name == name => {
                return serde_json::from_str(event.data_text()).unwrap();
            }
            Some(Notice::Event(_)) => {}
            other => panic!("waiting for {name}: {other:?}"),
        }
    }
}

async fn ask(monitor: &Monitor, command: &str, arguments: Value) -> Result<Value, CallError> {
    let reply = monitor.send(Request::new(command.to_owned()).arguments(&arguments)).await?;
    Ok(serde_json::from_str(reply.get()).unwrap())
}

fn file() -> (std::os::fd::OwnedFd, DescriptorIdentity) {
    use std::os::unix::fs::MetadataExt as _;
    let file = tempfile::tempfile().unwrap();
    let metadata = file.metadata().unwrap();
    (file.into(), DescriptorIdentity { device: metadata.dev(), inode: metadata.ino() })
}

pub(crate) async fn greets_and_reports_its_state(backend: Backend) {
    assert!(backend.monitor.greeting().version.major >= 7);
    assert!(backend.monitor.greeting().capabilities.contains(&"oob".to_owned()));
    let status = backend.monitor.call(&qmp::query_status {}).await.unwrap();
    assert!(!status.running);
    assert_eq!(status.status, qmp::RunState::prelaunch);
    let version = backend.monitor.call(&qmp::query_version {}).await.unwrap();
    assert_eq!(version.qemu.major, i64::from(backend.monitor.greeting().version.major));
}

pub(crate) async fn refuses_what_it_does_not_support(backend: Backend) {
    let error = ask(&backend.monitor, "no-such-command", json!({})).await.unwrap_err();
    assert!(error.is_refusal_of_class("CommandNotFound"), "{error:?}");
    let error = ask(&backend.monitor, "query-balloon", json!({})).await.unwrap_err();
    assert!(error.is_refusal_of_class("DeviceNotActive"), "{error:?}");
    let error = ask(&backend.monitor, "device_del", json!({"id": "none"})).await.unwrap_err();
    assert!(error.is_refusal_of_class("DeviceNotFound"), "{error:?}");
}

pub(crate) async fn resumes_and_pauses_with_events(backend: Backend) {
    let mut events = backend.monitor.subscribe(Interest::Named(&["RESUME", "STOP"]));
    backend.monitor.call(&qmp::cont {}).await.unwrap();
    until_event(&mut events, "RESUME").await;
    assert!(backend.monitor.call(&qmp::query_status {}).await.unwrap().running);
    backend.monitor.call(&qmp::stop {}).await.unwrap();
    until_event(&mut events, "STOP").await;
    assert_eq!(backend.monitor.call(&qmp::query_status {}).await.unwrap().status, qmp::RunState::paused);
}

pub(crate) async fn resets_with_an_event(backend: Backend) {
    let mut events = backend.monitor.subscribe(Interest::All);
    backend.monitor.call(&qmp::system_reset {}).await.unwrap();
    let data = until_event(&mut events, "RESET").await;
    assert_eq!((&data["guest"], &data["reason"]), (&json!(false), &json!("host-qmp-system-reset")));
}

pub(crate) async fn takes_an_action_for_a_guest_that_is_off(backend: Backend) {
    for action in ["pause", "poweroff"] {
        ask(&backend.monitor, "set-action", json!({"shutdown": action})).await.unwrap();
    }
    let error = ask(&backend.monitor, "set-action", json!({"shutdown": "reset"})).await.unwrap_err();
    assert!(error.to_string().contains("does not accept value 'reset'"), "{error}");
}

pub(crate) async fn sets_the_link_of_what_it_has(backend: Backend) {
    let set_link = |name: &str| json!({"name": name, "up": false});
    ask(&backend.monitor, "netdev_add", json!({"type": "hubport", "id": "net0", "hubid": 0})).await.unwrap();
    ask(&backend.monitor, "set_link", set_link("net0")).await.unwrap();
    let error = ask(&backend.monitor, "set_link", set_link("none")).await.unwrap_err();
    assert!(error.is_refusal_of_class("DeviceNotFound"), "{error:?}");
}

pub(crate) async fn takes_descriptors_by_name(backend: Backend) {
    let error = ask(&backend.monitor, "getfd", json!({"fdname": "x"})).await.unwrap_err();
    assert!(error.to_string().contains("No file descriptor supplied via SCM_RIGHTS"), "{error}");
    backend.monitor.pass_descriptor("x", file().0).await.unwrap();
    ask(&backend.monitor, "closefd", json!({"fdname": "x"})).await.unwrap();
    assert!(ask(&backend.monitor, "closefd", json!({"fdname": "x"})).await.is_err());
}

pub(crate) async fn takes_descriptors_into_sets(backend: Backend) {
    // Several at once: each must arrive with its own command.
    let files: Vec<_> = (0..5).map(|_| file()).collect();
    let added = files.into_iter().enumerate().map(|(position, (descriptor, identity))| {
        let monitor = backend.monitor.clone();
        let set = i64::try_from(position).unwrap() + 10;
        tokio::spawn(async move {
            (monitor.add_descriptor(Some(set), &format!("file {set}"), descriptor).await.unwrap(), identity)
        })
    });
    for task in added.collect::<Vec<_>>() {
        let (added, identity) = task.await.unwrap();
        assert_eq!(backend.descriptor_identity(added.set, added.number), identity, "set {}", added.set);
    }
    let sets = ask(&backend.monitor, "query-fdsets", json!({})).await.unwrap();
    let mut opaque: Vec<_> =
        sets.as_array().unwrap().iter().map(|set| set["fds"][0]["opaque"].as_str().unwrap()).collect();
    opaque.sort_unstable();
    assert_eq!(opaque, ["file 10", "file 11", "file 12", "file 13", "file 14"]);
    ask(&backend.monitor, "remove-fd", json!({"fdset-id": 10})).await.unwrap();
    assert!(ask(&backend.monitor, "remove-fd", json!({"fdset-id": 99})).await.is_err());
}

pub(crate) async fn serves_a_vnc_client_by_descriptor(backend: Backend) {
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    backend.monitor.add_vnc_client(theirs.into()).await.unwrap();
    let hello = tokio::task::spawn_blocking(move || {
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut hello = [0; 12];
        ours.read_exact(&mut hello).map(|()| hello)
    });
    assert_eq!(&hello.await.unwrap().unwrap(), b"RFB 003.008\n");
}

pub(crate) async fn unplugs_a_device_and_removes_it(backend: Backend) {
    let tablet = json!({"driver": "usb-tablet", "id": "tablet0", "bus": "usb.0"});
    ask(&backend.monitor, "device_add", tablet.clone()).await.unwrap();
    let error = ask(&backend.monitor, "device_add", tablet).await.unwrap_err();
    assert!(error.to_string().contains("Duplicate device ID 'tablet0'"), "{error}");
    assert!(backend.monitor.has_device("tablet0").await.unwrap());
    assert_eq!(backend.monitor.unplug("tablet0", PATIENCE).await.unwrap(), Unplugged::Removed);
    assert!(!backend.monitor.has_device("tablet0").await.unwrap());
    assert_eq!(backend.monitor.unplug("tablet0", PATIENCE).await.unwrap(), Unplugged::AlreadyGone);
}

pub(crate) async fn waits_in_vain_for_a_guest_that_does_not_answer(backend: Backend) {
    backend.guest_ignores_unplug();
    let rng = json!({"driver": "virtio-rng-pci", "id": "rng0", "bus": "port0"});
    ask(&backend.monitor, "object-add", json!({"qom-type": "rng-builtin", "id": "entropy0"})).await.unwrap();
    ask(&backend.monitor, "device_add", rng).await.unwrap();
    // The second time QEMU reports that a request is open already.
    for _ in 0..2 {
        let error = backend.monitor.unplug("rng0", Duration::from_millis(100)).await.unwrap_err();
        assert!(matches!(error, UnplugError::NoAnswer { .. }), "{error:?}");
    }
    assert!(backend.monitor.has_device("rng0").await.unwrap());
}

pub(crate) async fn follows_a_job_to_its_end(backend: Backend) {
    let path = backend.directory.path().join("disk.raw");
    let watch = backend.monitor.watch_job("create0");
    let options = json!({"driver": "file", "filename": path, "size": 1 << 20});
    ask(&backend.monitor, "blockdev-create", json!({"job-id": "create0", "options": options})).await.unwrap();
    tokio::time::timeout(PATIENCE, watch.concluded()).await.unwrap().unwrap();
    assert_eq!(ask(&backend.monitor, "query-jobs", json!({})).await.unwrap(), json!([]), "the job was dismissed");
}

pub(crate) async fn reports_why_a_job_failed(backend: Backend) {
    let path = backend.directory.path().join("missing").join("disk.raw");
    let watch = backend.monitor.watch_job("create1");
    let options = json!({"driver": "file", "filename": path, "size": 1 << 20});
    ask(&backend.monitor, "blockdev-create", json!({"job-id": "create1", "options": options})).await.unwrap();
    match tokio::time::timeout(PATIENCE, watch.concluded()).await.unwrap() {
        Err(JobError::Failed { message, .. }) => assert!(message.contains("No such file or directory"), "{message}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(ask(&backend.monitor, "query-jobs", json!({})).await.unwrap(), json!([]), "the job was dismissed");
}

pub(crate) async fn quits_with_a_reason(backend: Backend) {
    let mut events = backend.monitor.subscribe(Interest::Named(&[]));
    backend.monitor.call(&qmp::quit {}).await.unwrap();
    match tokio::time::timeout(PATIENCE, events.next()).await.unwrap() {
        Some(Notice::Closed { reason: Some(reason) }) => assert_eq!(reason.cause, ShutdownCause::HostQmpQuit),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn serves_one_supervisor_after_the_other(backend: Backend) {
    let node = json!({"driver": "null-co", "node-name": "kept", "size": 4096});
    ask(&backend.monitor, "blockdev-add", node).await.unwrap();
    let socket = backend.socket();
    // The first supervisor dies with a command on its way.
    let waiting = backend.monitor.clone();
    let call = tokio::spawn(async move { waiting.send(Request::new("query-named-block-nodes")).await });
    call.abort();
    let _ = call.await;
    let (greeting, kind) = (backend.monitor.greeting().clone(), backend);
    drop(kind.monitor);
    let (second, again) = Monitor::connect(socket, ConnectOptions::named("second")).await.unwrap();
    assert_eq!(again, greeting);
    let nodes = ask(&second, "query-named-block-nodes", json!({})).await.unwrap();
    assert_eq!(nodes.as_array().unwrap().len(), 1);
    assert_eq!(nodes[0]["node-name"], "kept");
}

pub(crate) async fn serves_broker_clients(backend: Backend) {
    struct Nowhere;
    impl AuditSink for Nowhere {
        fn record(&self, _: &Audit) {}
    }
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    let monitor = backend.monitor.clone();
    tokio::spawn(async move {
        let peer = PeerIdentity { uid: 0, pid: None };
        Broker::new(monitor, Arc::new(Nowhere)).serve_client(ours, ClientAccess::ReadOnly, peer).await;
    });
    let (client, greeting) =
        Monitor::connect(theirs.into_std().unwrap(), ConnectOptions::named("client")).await.unwrap();
    assert_eq!(greeting.version, backend.monitor.greeting().version);
    assert_eq!(client.call(&qmp::query_status {}).await.unwrap().status, qmp::RunState::prelaunch);
    let error = client.call(&qmp::cont {}).await.unwrap_err();
    assert!(error.to_string().contains("--allow-write"), "{error}");
    let mut events = client.subscribe(Interest::Named(&["RESUME"]));
    backend.monitor.call(&qmp::cont {}).await.unwrap();
    until_event(&mut events, "RESUME").await;
}

pub(crate) async fn lists_its_commands_and_schema(backend: Backend) {
    #[derive(Deserialize)]
    struct Name {
        name: String,
    }
    let commands = ask(&backend.monitor, "query-commands", json!({})).await.unwrap();
    let commands: Vec<Name> = serde_json::from_value(commands).unwrap();
    assert!(commands.iter().any(|command| command.name == "device_del"));
    let schema = backend.monitor.schema().await.unwrap();
    assert!(schema.has_command("stop") && schema.accepts("device_del", "id"));
    assert!(schema.describe("device_del").unwrap().contains("id  string"));
    if backend.is_real() {
        let described = schema.commands().filter(|name| schema.describe(name).is_some()).count();
        assert_eq!(described, commands.len());
    }
}
