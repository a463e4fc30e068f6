//! The monitor connection against the scripted monitor: what must survive, and what must be reported.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "clippy exempts tests, but not their helper functions")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use garboard_qmp::testing::{Behaviour, FakeMonitor, GuestUnplug};
use garboard_qmp::{
    CallError, ConnectError, ConnectOptions, Interest, JobError, JobStatus, Monitor, Notice, Request, ShutdownCause,
    Subscription, TranscriptSink, UnplugError, Unplugged, qmp,
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

async fn connected() -> (Monitor, FakeMonitor) {
    let (fake, stream) = FakeMonitor::pair().unwrap();
    let (monitor, _) = Monitor::connect(stream, ConnectOptions::named("test")).await.unwrap();
    (monitor, fake)
}

async fn next(subscription: &mut Subscription) -> Option<Notice> {
    tokio::time::timeout(PATIENCE, subscription.next()).await.expect("a notice in time")
}

async fn next_event(subscription: &mut Subscription) -> (String, Value) {
    match next(subscription).await {
        Some(Notice::Event(event)) => (event.name.clone(), serde_json::from_str(event.data_text()).unwrap()),
        other => panic!("no event but {other:?}"),
    }
}

#[tokio::test]
async fn the_greeting_is_given_to_the_caller() {
    let (_fake, stream) = FakeMonitor::pair().unwrap();
    let (monitor, greeting) = Monitor::connect(stream, ConnectOptions::default()).await.unwrap();
    assert_eq!(greeting.version.to_string(), "7.2.0 (fake)");
    assert_eq!(monitor.greeting(), &greeting);
}

#[tokio::test]
async fn typed_and_raw_calls_give_their_replies() {
    let (monitor, fake) = connected().await;
    assert!(!monitor.call(&qmp::query_status {}).await.unwrap().running);
    monitor.call(&qmp::cont {}).await.unwrap();
    let reply = monitor.send(Request::new("query-status")).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(reply.get()).unwrap()["status"], "running");
    let ids: Vec<_> = fake.received().into_iter().map(|received| received.command).collect();
    assert_eq!(ids, ["qmp_capabilities", "query-status", "cont", "query-status"]);
}

#[tokio::test]
async fn a_refusal_has_class_and_message() {
    let (monitor, _fake) = connected().await;
    let error = monitor.send(Request::new("bogus").arguments(&json!({"a": 1}))).await.unwrap_err();
    assert!(error.is_refusal_of_class("CommandNotFound"), "{error:?}");
    assert_eq!(error.to_string(), "QEMU refused `bogus`: The command bogus has not been found");
}

// The first trap of habit 5: with `qapi` 0.15 this ended the connection for good.
#[tokio::test]
async fn after_a_command_that_ran_out_of_time_later_ones_still_work() {
    let (monitor, fake) = connected().await;
    fake.script("query-block", Behaviour::Hold);
    let slow = Request::new("query-block").within(Duration::from_millis(30));
    assert!(matches!(monitor.send(slow).await, Err(CallError::TimedOut { .. })));
    monitor.call(&qmp::query_status {}).await.expect("before the late reply");
    fake.release("query-block");
    for _ in 0..3 {
        monitor.call(&qmp::query_status {}).await.expect("after the late reply");
    }
    assert!(!monitor.is_closed());
}

#[tokio::test]
async fn a_dropped_call_disturbs_no_other() {
    let (monitor, fake) = connected().await;
    fake.script("query-block", Behaviour::Hold);
    let caller = monitor.clone();
    let dropped = tokio::spawn(async move { caller.send(Request::new("query-block")).await });
    fake.until_received("query-block", 1).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    fake.release("query-block");
    monitor.call(&qmp::query_status {}).await.unwrap();
}

// The second trap of habit 5.
#[tokio::test]
async fn an_unknown_event_is_passed_on_and_survived() {
    let (monitor, fake) = connected().await;
    let mut events = monitor.subscribe(Interest::All);
    fake.emit("IN_NO_SCHEMA", json!({"new": [1, {"deep": null}]}));
    let (name, data) = next_event(&mut events).await;
    assert_eq!((&*name, &data["new"][0]), ("IN_NO_SCHEMA", &json!(1)));
    monitor.call(&qmp::query_status {}).await.unwrap();
}

#[tokio::test]
async fn garbage_between_messages_is_survived() {
    let (monitor, fake) = connected().await;
    let garbage: [&[u8]; 8] = [
        b"\xff\xfe\x00\n",
        b"not json\n",
        b"{}\n",
        b"[]\n",
        b"{\"return\": 1, \"event\": \"X\"}\n",
        b"{\"return\": {}, \"id\": 99999}\n",
        b"{\"QMP\": {\"version\": {\"qemu\": {\"major\": 9, \"minor\": 9, \"micro\": 9}}}}\n",
        b"{\"event\": \"HALF\n",
    ];
    for bytes in garbage {
        fake.write(bytes);
        monitor.call(&qmp::query_status {}).await.unwrap();
    }
}

#[tokio::test]
async fn calls_of_many_tasks_get_their_own_replies() {
    let (monitor, fake) = connected().await;
    for number in 0..50 {
        fake.script(&format!("x-number-{number}"), Behaviour::Reply(json!(number)));
    }
    let calls = (0..50).map(|number| {
        let monitor = monitor.clone();
        tokio::spawn(async move {
            let reply = monitor.send(Request::new(format!("x-number-{number}"))).await.unwrap();
            assert_eq!(reply.get(), number.to_string());
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn replies_may_come_in_another_order() {
    let (monitor, fake) = connected().await;
    fake.script("query-block", Behaviour::Hold);
    fake.script("query-block", Behaviour::Refuse("GenericError", "second"));
    let first = tokio::spawn({
        let monitor = monitor.clone();
        async move { monitor.send(Request::new("query-name")).await }
    });
    first.await.unwrap().unwrap();
    let held = tokio::spawn({
        let monitor = monitor.clone();
        async move { monitor.send(Request::new("query-block")).await }
    });
    fake.until_received("query-block", 1).await;
    let second = monitor.send(Request::new("query-block")).await.unwrap_err();
    assert!(second.to_string().ends_with("second"));
    fake.release("query-block");
    // The fake has no disks: what matters is whose answer it is.
    assert_eq!(held.await.unwrap().unwrap().get(), "[]");
}

#[tokio::test]
async fn a_disconnect_fails_every_waiting_call_and_closes_once() {
    let (monitor, fake) = connected().await;
    let mut events = monitor.subscribe(Interest::All);
    fake.script("query-block", Behaviour::Silence);
    let waiting = tokio::spawn({
        let monitor = monitor.clone();
        async move { monitor.send(Request::new("query-block")).await }
    });
    fake.until_received("query-block", 1).await;
    fake.hang_up();
    assert!(matches!(waiting.await.unwrap(), Err(CallError::Disconnected { reason: None, .. })));
    assert!(matches!(next(&mut events).await, Some(Notice::Closed { reason: None })));
    assert!(next(&mut events).await.is_none());
    assert!(matches!(monitor.call(&qmp::query_status {}).await, Err(CallError::Disconnected { .. })));
    assert!(monitor.is_closed());
}

#[tokio::test]
async fn the_end_has_the_reason_qemu_gave() {
    let (monitor, _fake) = connected().await;
    let mut events = monitor.subscribe(Interest::All);
    monitor.call(&qmp::quit {}).await.unwrap();
    assert_eq!(next_event(&mut events).await.0, "SHUTDOWN");
    match next(&mut events).await {
        Some(Notice::Closed { reason: Some(reason) }) => assert_eq!(reason.cause, ShutdownCause::HostQmpQuit),
        other => panic!("{other:?}"),
    }
    match monitor.call(&qmp::cont {}).await {
        Err(CallError::Disconnected { reason: Some(reason), .. }) => assert!(!reason.by_guest),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_machine_that_went_on_has_no_reason_for_a_later_end() {
    let (monitor, fake) = connected().await;
    let mut events = monitor.subscribe(Interest::All);
    fake.emit("SHUTDOWN", json!({"guest": true, "reason": "guest-shutdown"}));
    fake.emit("RESET", json!({"guest": false, "reason": "host-qmp-system-reset"}));
    fake.hang_up();
    next(&mut events).await;
    next(&mut events).await;
    assert!(matches!(next(&mut events).await, Some(Notice::Closed { reason: None })));
    drop(monitor);
}

#[tokio::test]
async fn dropping_the_last_monitor_ends_the_connection() {
    let (monitor, fake) = connected().await;
    let mut events = monitor.subscribe(Interest::All);
    drop(monitor.clone());
    monitor.call(&qmp::query_status {}).await.unwrap();
    drop(monitor);
    assert!(matches!(next(&mut events).await, Some(Notice::Closed { .. })));
    drop(fake);
}

#[tokio::test]
async fn a_slow_subscriber_does_not_hold_the_reader() {
    let (monitor, fake) = connected().await;
    let mut slow = monitor.subscribe(Interest::All);
    for number in 0..5_000 {
        fake.emit("RTC_CHANGE", json!({ "offset": number }));
    }
    monitor.call(&qmp::query_status {}).await.unwrap();
    let Some(Notice::Lagged(lost)) = next(&mut slow).await else { panic!("not reported") };
    let (_, data) = next_event(&mut slow).await;
    assert_eq!(data["offset"], lost, "the oldest are those that go");
}

#[tokio::test]
async fn a_reply_beyond_the_limit_fails_its_call_only() {
    let (monitor, fake) = connected().await;
    let mut huge = b"{\"return\": \"".to_vec();
    huge.resize(9 << 20, b'x');
    huge.extend_from_slice(b"\"}\n");
    fake.script("query-block", Behaviour::Raw(huge));
    let error = monitor.send(Request::new("query-block")).await.unwrap_err();
    assert!(matches!(error, CallError::ReplyTooLong { .. }), "{error:?}");
    monitor.call(&qmp::query_status {}).await.unwrap();
}

#[tokio::test]
async fn a_reply_of_another_form_is_undecodable_and_nothing_worse() {
    let (monitor, fake) = connected().await;
    fake.script("query-status", Behaviour::Reply(json!({"running": "perhaps"})));
    assert!(matches!(monitor.call(&qmp::query_status {}).await, Err(CallError::Undecodable { .. })));
    monitor.call(&qmp::query_status {}).await.unwrap();
}

#[tokio::test]
async fn descriptors_arrive_with_their_commands() {
    use std::os::unix::fs::MetadataExt as _;
    let (monitor, fake) = connected().await;
    let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
    let inodes = files.each_ref().map(|file| file.metadata().unwrap().ino());
    let [first, second] = files.map(std::os::fd::OwnedFd::from);
    monitor.pass_descriptor("disk", first).await.unwrap();
    let added = monitor.add_descriptor(Some(7), "volume root", second).await.unwrap();
    assert_eq!(added.set, 7);
    assert_eq!(fake.machine(|machine| machine.named_descriptor("disk").unwrap().inode), inodes[0]);
    assert_eq!(fake.machine(|machine| machine.descriptor_set(7)[0].inode), inodes[1]);
    let too_many = (0..17).map(|_| tempfile::tempfile().unwrap().into()).collect();
    let error = monitor.send(Request::new("getfd").with_descriptors(too_many)).await.unwrap_err();
    assert!(matches!(error, CallError::TooManyDescriptors { given: 17, limit: 16, .. }));
}

#[tokio::test]
async fn a_descriptor_that_could_not_be_used_is_taken_back() {
    let (monitor, fake) = connected().await;
    fake.script("add_client", Behaviour::Refuse("GenericError", "no display"));
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(monitor.add_vnc_client(ours.into()).await.is_err());
    let commands: Vec<_> = fake.received().into_iter().map(|received| received.command).collect();
    assert_eq!(&commands[1..], ["getfd", "add_client", "closefd"]);
}

#[tokio::test]
async fn unplugging_waits_for_the_guest() {
    let (monitor, fake) = connected().await;
    for id in ["disk1", "disk10"] {
        monitor
            .send(Request::new("device_add").arguments(&json!({"driver": "virtio-blk-pci", "id": id})))
            .await
            .unwrap();
    }
    fake.machine(|machine| machine.guest_unplug = GuestUnplug::Ignores);
    let waiting = tokio::spawn({
        let monitor = monitor.clone();
        async move { monitor.unplug("disk1", PATIENCE).await }
    });
    fake.until_received("device_del", 1).await;
    fake.emit("DEVICE_DELETED", json!({"device": "disk10", "path": "/machine/peripheral/disk10"}));
    monitor.call(&qmp::query_status {}).await.unwrap();
    assert!(!waiting.is_finished(), "another device's event is not ours");
    fake.finish_unplug("disk1");
    assert_eq!(waiting.await.unwrap().unwrap(), Unplugged::Removed);
    assert_eq!(monitor.unplug("disk1", PATIENCE).await.unwrap(), Unplugged::AlreadyGone);
}

#[tokio::test]
async fn a_guest_may_refuse_to_unplug_or_never_answer() {
    let (monitor, fake) = connected().await;
    monitor.send(Request::new("device_add").arguments(&json!({"driver": "x", "id": "nic"}))).await.unwrap();
    fake.machine(|machine| machine.guest_unplug = GuestUnplug::Refuses);
    assert!(matches!(monitor.unplug("nic", PATIENCE).await, Err(UnplugError::GuestRefused { .. })));
    fake.machine(|machine| machine.guest_unplug = GuestUnplug::Ignores);
    for _ in 0..2 {
        let error = monitor.unplug("nic", Duration::from_millis(20)).await.unwrap_err();
        assert!(matches!(error, UnplugError::NoAnswer { .. }), "{error:?}");
    }
    assert!(monitor.has_device("nic").await.unwrap());
}

#[tokio::test]
async fn an_unplug_is_an_error_when_qemu_ends() {
    let (monitor, fake) = connected().await;
    monitor.send(Request::new("device_add").arguments(&json!({"driver": "x", "id": "nic"}))).await.unwrap();
    fake.machine(|machine| machine.guest_unplug = GuestUnplug::Ignores);
    let waiting = tokio::spawn({
        let monitor = monitor.clone();
        async move { monitor.unplug("nic", PATIENCE).await }
    });
    fake.until_received("device_del", 1).await;
    fake.hang_up();
    assert!(matches!(waiting.await.unwrap(), Err(UnplugError::Disconnected { .. })));
}

#[tokio::test]
async fn a_block_job_that_dismisses_itself_reports_its_error() {
    let (monitor, fake) = connected().await;
    let watch = monitor.watch_job("mirror0");
    for status in ["created", "running"] {
        fake.emit("JOB_STATUS_CHANGE", json!({"id": "mirror0", "status": status}));
    }
    fake.emit("BLOCK_JOB_COMPLETED", json!({"device": "other", "type": "mirror", "error": "not ours"}));
    fake.emit(
        "BLOCK_JOB_COMPLETED",
        json!({"device": "mirror0", "type": "mirror", "error": "No space left on device"}),
    );
    fake.emit("JOB_STATUS_CHANGE", json!({"id": "mirror0", "status": "concluded"}));
    match watch.concluded().await {
        Err(JobError::Failed { message, .. }) => assert_eq!(message, "No space left on device"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_mirror_is_ready_before_it_is_concluded() {
    let (monitor, fake) = connected().await;
    let mut watch = monitor.watch_job("mirror0");
    for status in ["created", "running", "no-such-status", "ready"] {
        fake.emit("JOB_STATUS_CHANGE", json!({"id": "mirror0", "status": status}));
    }
    assert_eq!(watch.ready().await.unwrap(), JobStatus::Ready);
    fake.emit("JOB_STATUS_CHANGE", json!({"id": "mirror0", "status": "null"}));
    watch.concluded().await.unwrap();
}

#[tokio::test]
async fn what_does_not_use_qmp_is_named() {
    let greetings = [
        (&b"RFB 003.008\n"[..], "RFB 003.008"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP/1.1"),
        (b"{\"QMP\": {}}\n", "QMP"),
    ];
    for (bytes, shown) in greetings {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut &theirs, bytes).unwrap();
        match Monitor::connect(ours, ConnectOptions::named("vm1")).await {
            Err(error @ ConnectError::NotQmp { .. }) => assert!(error.to_string().contains(shown), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn connecting_to_nothing_or_to_silence_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("qmp.sock");
    let error = Monitor::connect(missing.as_path(), ConnectOptions::default()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Open { .. }), "{error:?}");
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let hurried = ConnectOptions { greeting_limit: Duration::from_millis(20), ..ConnectOptions::default() };
    assert!(matches!(Monitor::connect(ours, hurried).await, Err(ConnectError::NoGreeting { .. })));
    drop(theirs);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(theirs);
    assert!(matches!(
        Monitor::connect(ours, ConnectOptions::default()).await,
        Err(ConnectError::Closed { .. } | ConnectError::Read { .. })
    ));
}

#[tokio::test]
async fn a_reply_owed_to_the_client_before_us_is_not_taken_for_ours() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let greeting = br#"{"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}}, "capabilities": []}}"#;
    let bytes = [b"{\"return\": {\"stale\": true}, \"id\": 1}\n", &greeting[..], b"\n{\"return\": [], \"id\": 1}\n"];
    std::io::Write::write_all(&mut &theirs, &bytes.concat()).unwrap();
    let peer = std::thread::spawn(move || {
        use std::io::{BufRead as _, Write as _};
        let mut lines = std::io::BufReader::new(&theirs).lines();
        for _ in 0..2 {
            let command: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            let reply = json!({"return": {"fresh": true}, "id": command["id"]});
            (&theirs).write_all(format!("{reply}\n").as_bytes()).unwrap();
        }
    });
    let (monitor, _) = Monitor::connect(ours, ConnectOptions::default()).await.unwrap();
    let reply = monitor.send(Request::new("query-status")).await.unwrap();
    assert_eq!(reply.get(), r#"{"fresh":true}"#);
    peer.join().unwrap();
}

#[tokio::test]
async fn a_supervisor_may_connect_again_after_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qmp.sock");
    let fake = FakeMonitor::listen(&path).unwrap();
    for round in 1..4 {
        let (monitor, _) = Monitor::connect(path.as_path(), ConnectOptions::default()).await.unwrap();
        monitor
            .send(Request::new("device_add").arguments(&json!({"driver": "x", "id": format!("d{round}")})))
            .await
            .unwrap();
        assert_eq!(fake.machine(|machine| machine.devices.len()), round);
    }
}

#[derive(Default)]
struct Lines(Mutex<Vec<Value>>);

impl TranscriptSink for Lines {
    fn record(&self, line: &str) {
        self.0.lock().unwrap().push(serde_json::from_str(line).expect("a line of JSON"));
    }
}

#[tokio::test]
async fn the_transcript_contains_what_happened() {
    let lines = Arc::new(Lines::default());
    let (fake, stream) = FakeMonitor::pair().unwrap();
    let options = ConnectOptions { transcript: Some(lines.clone()), ..ConnectOptions::default() };
    let (monitor, _) = Monitor::connect(stream, options).await.unwrap();
    let mut events = monitor.subscribe(Interest::All);
    let secret = json!({"qom-type": "secret", "id": "s", "data": "hunter2"});
    monitor.send(Request::new("object-add").arguments(&secret)).await.unwrap();
    monitor.call(&qmp::query_status {}).await.unwrap();
    fake.write(b"garbage\x1b[31m\n");
    monitor.call(&qmp::query_status {}).await.unwrap();
    monitor.call(&qmp::quit {}).await.unwrap();
    while next(&mut events).await.is_some() {}
    let lines = lines.0.lock().unwrap();
    let shown: Vec<_> =
        lines.iter().map(|line| format!("{} {}", line["kind"], line["name"]).replace('"', "")).collect();
    assert_eq!(
        shown,
        [
            "note connected",
            "command qmp_capabilities",
            "reply qmp_capabilities",
            "command object-add",
            "reply object-add",
            "garbage ",
            "command quit",
            "event SHUTDOWN",
            "reply quit",
            "note disconnected",
        ]
    );
    assert!(!format!("{lines:?}").contains("hunter2"));
}

/// The supervisor's runtime: everything above also on one thread without a work-stealing scheduler is what
/// `tokio::test` gives; this checks that nothing needs more than I/O and time.
#[test]
fn a_current_thread_runtime_is_enough() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().unwrap();
    runtime.block_on(async {
        let (monitor, _fake) = connected().await;
        monitor.call(&qmp::cont {}).await.unwrap();
    });
}
