//! What only a real QEMU can show.

use std::time::Duration;

use garboard_qmp::broker::Policy;
use garboard_qmp::{CallError, Interest, Monitor, Notice, Request, ShutdownCause, qmp};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::backend::Backend;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn every_command_of_this_qemu_is_classed() {
    let Some(backend) = Backend::qemu().await else { return };
    let rules = Policy::default().rules();
    let commands = backend.monitor.call(&qmp::query_commands {}).await.unwrap();
    let unclassed: Vec<_> =
        commands.iter().filter(|command| !rules.iter().any(|rule| rule.command == command.name)).collect();
    assert!(unclassed.is_empty(), "add to broker/table.rs: {unclassed:?}");
    assert!(commands.len() > 200);
}

#[tokio::test]
async fn a_qemu_that_hangs_for_a_while_costs_one_call_and_no_connection() {
    let Some(backend) = Backend::qemu().await else { return };
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

#[tokio::test]
async fn a_terminated_qemu_says_so_and_a_killed_one_does_not() {
    let Some(backend) = Backend::qemu().await else { return };
    let cause = how_it_ended(&backend.monitor, || backend.signal(Signal::SIGTERM)).await;
    assert_eq!(cause, Some(ShutdownCause::HostSignal));
    let Some(backend) = Backend::qemu().await else { return };
    assert_eq!(how_it_ended(&backend.monitor, || backend.signal(Signal::SIGKILL)).await, None);
}

/// Replies the generated types (QEMU 9.1) cannot hold: 7.2 has the capability `compress`, which is gone since. Decode
/// these with a struct of your own.
const UNDECODABLE: &[&str] = &["query-migrate-capabilities"];

/// These decode with every QEMU we support, apart from the ones above.
#[tokio::test]
async fn typed_replies_decode() {
    let Some(backend) = Backend::qemu().await else { return };
    let monitor = &backend.monitor;
    let node = json!({"driver": "null-co", "node-name": "node0", "size": 4096});
    monitor.call_raw("blockdev-add", Some(node), Vec::new()).await.unwrap();
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

#[tokio::test]
async fn the_schema_answers_what_a_planner_asks() {
    let Some(backend) = Backend::qemu().await else { return };
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

#[tokio::test]
async fn a_broken_command_of_another_writer_fails_no_call_of_ours() {
    let Some(backend) = Backend::qemu().await else { return };
    // Non-ASCII, quotes and long strings arrive as they were sent.
    for text in ["ä\u{1f600}\"\\\u{7}", &"x".repeat(100_000)] {
        let error = backend.monitor.call_raw("device_del", Some(json!({ "id": text })), Vec::new()).await.unwrap_err();
        assert!(error.is_refusal_of_class("DeviceNotFound"), "{error:?}");
    }
    let wrong = backend.monitor.call_raw("query-status", Some(json!([1])), Vec::new()).await.unwrap_err();
    assert!(matches!(wrong, CallError::Refused { .. }), "{wrong:?}");
    backend.monitor.call(&qmp::query_status {}).await.unwrap();
}
