//! Requests that go down to a supervisor: the real connection of an agent, and a supervisor that is played.

use std::sync::{Arc, Mutex};

use futures::{SinkExt, StreamExt};
use garboard_protocol::control::{
    Asked, ConsoleAccess, ControlReply, ControlRequest, PauseReason, QmpAccess, Session, Status, StopMode,
};
use garboard_protocol::guest::{GuestReport, GuestSubject, GuestUser};
use garboard_protocol::part::{NoPart, PartHead, RecordPart};
use garboard_protocol::position::{Begun, Position, Resume};
use garboard_protocol::testing::AUDIT_ID;
use garboard_protocol::{session, wire};
use garboard_tunnel::agent::{Opened, Refusal, Supervisors};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tracing_subscriber::layer::SubscriberExt;

use super::forward::answered;
use super::{Api, Peer, START, api, played, pod, vm, vmi};

pub(super) const NODE: &str = "node-1";
pub(super) const POD: &str = "6f1d9f7c-0b0e-4d0c-8a3f-0d6f2b7f1a11";
pub(super) const BASE: &str = "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm";

/// What begins and ends as a PNG does.
pub(super) const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\nsome pixels, and then the last chunk\0\0\0\0IEND\xaeB`\x82";

/// Every part of its record.
pub(super) const PART: &[u8] = b"{\"argv\":[\"qemu\"]}\n";

/// A supervisor with one guest: what it was asked, and by whom.
#[derive(Clone, Default)]
pub(super) struct Played {
    pub(super) asked: Arc<Mutex<Vec<Asked>>>,
    paused: Arc<Mutex<bool>>,
    /// All slots for USB devices have clients: the first one takes them all.
    slots_are_taken: Arc<Mutex<bool>>,
    /// Of a version before sessions.
    is_old: bool,
}

impl Supervisors for Played {
    async fn open(&self, pod_uid: &str) -> Result<Opened, Refusal> {
        played::open(pod_uid, |socket| self.clone().answer(socket))
    }
}

impl Played {
    /// One of an earlier version.
    pub(super) fn old() -> Self {
        Self { is_old: true, ..Self::default() }
    }

    async fn answer(self, stream: UnixStream) {
        let (from, mut to) = stream.into_split();
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        from.read_until(b'\n', &mut line).await.unwrap();
        let asked: Asked = wire::decode(&line).unwrap();
        self.asked.lock().unwrap().push(asked.clone());
        let reply = match asked.request {
            ControlRequest::Pause => {
                *self.paused.lock().unwrap() = true;
                ControlReply::Queued
            }
            ControlRequest::Status | ControlRequest::Watch => ControlReply::Status(Box::new(self.status())),
            ControlRequest::Console { .. } if self.is_old => ControlReply::Streaming,
            ControlRequest::Console { resume: Some(_), .. } => ControlReply::Resumed(begun()),
            ControlRequest::Console { session: Session::None, .. } => ControlReply::Streaming,
            ControlRequest::Console { .. } | ControlRequest::Vnc { session: Session::Replace } => ControlReply::Session,
            ControlRequest::Vnc { session: Session::Only } => {
                ControlReply::Denied { reason: "Active VNC connection. Request denied.".to_owned() }
            }
            ControlRequest::UsbRedir if *self.slots_are_taken.lock().unwrap() => {
                ControlReply::Denied { reason: "All USB devices are in use".to_owned() }
            }
            ControlRequest::UsbRedir => {
                *self.slots_are_taken.lock().unwrap() = true;
                ControlReply::Streaming
            }
            ControlRequest::Screenshot { .. } => ControlReply::Streaming,
            ControlRequest::Qmp { access: QmpAccess::Dangerous } => {
                ControlReply::Denied { reason: "8 read-write QMP clients are connected".to_owned() }
            }
            ControlRequest::Qmp { .. } => ControlReply::Streaming,
            ControlRequest::Reset => ControlReply::Denied { reason: "the guest is being stopped".to_owned() },
            ControlRequest::Prolong { .. } if self.is_old => {
                ControlReply::Denied { reason: "unknown variant `prolong`".to_owned() }
            }
            ControlRequest::SoftReboot | ControlRequest::Prolong { .. } | ControlRequest::Stop { .. } => {
                ControlReply::Queued
            }
            ControlRequest::Freeze { .. } => ControlReply::Done,
            ControlRequest::Unfreeze => {
                ControlReply::Denied { reason: "the QEMU guest agent is not connected".to_owned() }
            }
            ControlRequest::Guest { about: GuestSubject::Users } => {
                let user = GuestUser { user: "root".to_owned(), ..GuestUser::default() };
                ControlReply::Guest(Box::new(GuestReport { users: vec![user], ..GuestReport::default() }))
            }
            ControlRequest::Guest { .. } => ControlReply::Denied { reason: "the agent is busy".to_owned() },
            ControlRequest::Show { .. } if self.is_old => {
                ControlReply::Denied { reason: "the peer sent a line that is not a `Asked` message".to_owned() }
            }
            ControlRequest::Show { part: RecordPart::Exit } => ControlReply::NoPart { why: NoPart::Missing },
            ControlRequest::Show { part: RecordPart::Facts } => ControlReply::NoPart { why: NoPart::Busy },
            ControlRequest::Show { part } => {
                let left_out = if part.grows() { 7 } else { 0 };
                ControlReply::Part(PartHead { bytes: PART.len() as u64, left_out })
            }
            ControlRequest::Unpause
            | ControlRequest::Statistics
            | ControlRequest::LogVerbosity { .. }
            | ControlRequest::Vnc { session: Session::None }
            | ControlRequest::Probe { .. }
            | ControlRequest::BackupHook { .. } => panic!("no test sends {asked:?}"),
        };
        to.write_all(&wire::encode(&reply).unwrap()).await.unwrap();
        if let ControlRequest::Screenshot { move_cursor } = asked.request {
            // A machine that was taken over, or whose supervisor ended: half a picture.
            let length = if move_cursor { PICTURE.len() / 2 } else { PICTURE.len() };
            return to.write_all(&PICTURE[..length]).await.unwrap();
        }
        if let (ControlRequest::Show { part }, ControlReply::Part(_)) = (&asked.request, &reply) {
            // One that was taken over, or whose supervisor ended, and one that does not end.
            let sent = match part {
                RecordPart::Qemu => PART[..PART.len() / 2].to_vec(),
                RecordPart::Serial => [PART, PART].concat(),
                RecordPart::Plan | RecordPart::Facts | RecordPart::Options | RecordPart::Qmp | RecordPart::Exit => {
                    PART.to_vec()
                }
            };
            return to.write_all(&sent).await.unwrap();
        }
        if let (ControlRequest::Qmp { access }, ControlReply::Streaming) = (&asked.request, &reply) {
            let access = *access;
            return broker(access, from, to).await;
        }
        if reply == ControlReply::Streaming {
            to.write_all(b"login: ").await.unwrap();
            let _ = tokio::io::copy(&mut from, &mut to).await;
        }
        if matches!(reply, ControlReply::Session | ControlReply::Resumed(_)) {
            let mut sent = Vec::new();
            session::encode(b"login: ", &mut sent);
            to.write_all(&sent).await.unwrap();
            let mut typed = [0; 5];
            from.read_exact(&mut typed).await.unwrap();
            sent.clear();
            session::encode(&typed, &mut sent);
            session::encode_end("another client", &mut sent).unwrap();
            to.write_all(&sent).await.unwrap();
        }
    }

    fn status(&self) -> Status {
        let paused = self.paused.lock().unwrap().then_some(PauseReason::PausedByUser);
        let status: Status = serde_json::from_value(json!({
            "generation": 1, "namespace": "ns", "name": "vm", "uid": "12345678-9", "phase": "Running", "phaseSinceMs": 0,
            "paused": null, "stopping": false, "softwareEmulation": false, "machine": "pc-q35-10.0", "memoryBytes": 1,
            "vcpus": 1, "interfaces": [], "guest": null, "taints": [], "supervisorPid": 1, "resets": 0, "ended": null,
        }))
        .unwrap();
        Status { paused, ..status }
    }
}

/// A broker that knows one command of each level, and has an event before each answer.
async fn broker(access: QmpAccess, mut from: BufReader<OwnedReadHalf>, mut to: OwnedWriteHalf) {
    to.write_all(b"{\"QMP\": {\"capabilities\": []}}\r\n").await.unwrap();
    let mut line = String::new();
    while from.read_line(&mut line).await.unwrap() > 0 {
        let asked: Value = serde_json::from_str(&line).unwrap();
        line.clear();
        let mut reply = match (asked["execute"].as_str().unwrap(), access) {
            ("qmp_capabilities", _) => json!({"return": {}}),
            ("query-status", _) => json!({"return": {"status": "running", "asked": asked["arguments"]}}),
            ("stop", QmpAccess::ReadWrite) => json!({"return": {}}),
            _ => json!({"error": {"class": "GenericError", "desc": "Garboard rejected it"}}),
        };
        reply["id"] = asked["id"].clone();
        to.write_all(format!("{}\r\n{reply}\r\n", json!({"event": "STOP"})).as_bytes()).await.unwrap();
    }
}

/// The API, with a node whose agent is connected.
pub(super) async fn connected(vmi: Value) -> (Api, Played) {
    connected_to(vmi, Played::default()).await
}

pub(super) async fn connected_to(vmi: Value, played: Played) -> (Api, Played) {
    let api = api(true, vm("Always"), Some(vmi));
    drop(played::connect(&api, played.clone()).await);
    (api, played)
}

/// An instance that runs on the node.
pub(super) fn running() -> Value {
    let mut vmi = vmi();
    vmi["status"]["activePods"] = json!({ POD: NODE });
    vmi
}

pub(super) fn of_ada(request: ControlRequest) -> Asked {
    Asked { request, claimed_user: Some("ada".to_owned()), audit_id: Some(AUDIT_ID.to_owned()), number: None }
}

#[tokio::test]
async fn a_pause_reaches_the_supervisor_and_is_answered_when_it_is_done() {
    let (api, played) = connected(running()).await;
    assert_eq!(api.put(&format!("{BASE}/pause"), json!({"dryRun": ["All"]})).await.0, 200);
    assert!(played.asked.lock().unwrap().is_empty(), "a dry run asks nothing");
    assert_eq!(api.put(&format!("{BASE}/pause"), Value::Null).await.0, 200);
    let asked = played.asked.lock().unwrap().clone();
    assert_eq!(asked, [ControlRequest::Status, ControlRequest::Pause, ControlRequest::Watch].map(of_ada));
}

/// What is logged, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_request_is_followed_by_its_audit_id_from_the_api_server_to_the_supervisor() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
    // A callsite that another test meets first is not cached as switched off: every thread has a subscriber.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines));
    let (api, played) = connected(running()).await;
    assert_eq!(api.put(&format!("{BASE}/pause"), Value::Null).await.0, 200);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let done =
        text.lines().find(|line| line.contains("instance change carried out")).unwrap_or_else(|| panic!("{text}"));
    for field in ["subresource{", "object=\"vm\"", "user=\"ada\"", &format!("audit_id=\"{AUDIT_ID}\"")] {
        assert!(done.contains(field), "{field}: {done}");
    }
    // From this line on it is followed by the supervisor's own test.
    assert_eq!(played.asked.lock().unwrap().get(1), Some(&of_ada(ControlRequest::Pause)));
}

#[tokio::test]
async fn what_the_supervisor_refuses_is_a_conflict() {
    let (api, _) = connected(running()).await;
    let (code, status) = api.put(&format!("{BASE}/reset"), Value::Null).await;
    assert_eq!(code, 409);
    assert!(status["message"].as_str().unwrap().ends_with("the guest is being stopped"), "{status}");
}

#[tokio::test]
async fn a_soft_reboot_is_answered_when_the_guest_is_about_to_be_asked() {
    let (api, played) = connected(running()).await;
    assert_eq!(api.put(&format!("{BASE}/softreboot"), Value::Null).await, (200, Value::Null));
    assert_eq!(played.asked.lock().unwrap().clone(), [ControlRequest::Status, ControlRequest::SoftReboot].map(of_ada));
}

#[tokio::test]
async fn a_stop_with_more_time_gives_it_to_the_guest_and_its_instance_first() {
    let (api, played) = connected(running()).await;
    let stop = START.replace("/start", "/stop");
    assert_eq!(api.put(&stop, json!({"gracePeriod": 600, "dryRun": ["All"]})).await.0, 202);
    assert!(played.asked.lock().unwrap().is_empty(), "a dry run asks nothing");
    api.asked.lock().unwrap().clear();
    assert_eq!(api.put(&stop, json!({"gracePeriod": 600})).await, (202, Value::Null));
    let asked = played.asked.lock().unwrap().clone();
    assert_eq!(asked, [ControlRequest::Status, ControlRequest::Prolong { grace_seconds: 600 }].map(of_ada));
    let writes = api.writes();
    let [(_, instance, time), (_, machine, stopped)] = writes.as_slice() else { panic!("{writes:?}") };
    assert!(
        instance.contains("/virtualmachineinstances/vm?") && machine.contains("/virtualmachines/vm?"),
        "{writes:?}"
    );
    assert_eq!((&time[2]["value"], &stopped[1]["value"]), (&json!(600), &json!("Halted")));
}

#[tokio::test]
async fn a_machine_whose_launcher_cannot_give_more_time_is_not_stopped() {
    let (api, _) = connected_to(running(), Played::old()).await;
    let (code, status) = api.put(&START.replace("/start", "/stop"), json!({"gracePeriod": 600})).await;
    let message = status["message"].as_str().unwrap();
    assert!(code == 409 && message.contains("gracePeriod 600"), "{code} {message}");
    assert_eq!(api.writes(), []);
}

/// The same pod, once its deletion has begun.
fn ending_pod() -> Value {
    let mut pod = pod();
    pod["metadata"]["deletionTimestamp"] = json!("2026-11-27T00:00:00Z");
    pod
}

#[tokio::test]
async fn a_stop_with_less_time_than_one_that_is_under_way_asks_the_supervisor_too() {
    let (api, played) = connected(running()).await;
    let stop = START.replace("/start", "/stop");
    *api.pod.lock().unwrap() = Some(pod());
    assert_eq!(api.put(&stop, json!({"gracePeriod": 5})).await, (202, Value::Null));
    assert!(played.asked.lock().unwrap().is_empty(), "the kubelet has not begun, and gives the pod this time");
    *api.pod.lock().unwrap() = Some(ending_pod());
    assert_eq!(api.put(&stop, json!({"gracePeriod": 5, "dryRun": ["All"]})).await.0, 202);
    assert!(played.asked.lock().unwrap().is_empty(), "a dry run asks nothing");
    api.asked.lock().unwrap().clear();
    assert_eq!(api.put(&stop, json!({"gracePeriod": 0})).await, (202, Value::Null));
    let mode = StopMode::Graceful { within_seconds: Some(1) };
    let asked = played.asked.lock().unwrap().clone();
    assert_eq!(asked, [ControlRequest::Status, ControlRequest::Stop { mode }].map(of_ada));
    let writes = api.writes();
    let [_, (delete, _, options), (_, instance, time)] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!((delete.as_str(), &options["preconditions"]), ("DELETE", &json!({"uid": "p"})));
    assert!(instance.contains("/virtualmachineinstances/vm?") && time[2]["value"] == json!(0), "{instance} {time}");
}

#[tokio::test]
async fn a_restart_by_force_hastens_a_stop_that_is_under_way() {
    let (api, played) = connected(running()).await;
    *api.pod.lock().unwrap() = Some(ending_pod());
    assert_eq!(api.put(&START.replace("/start", "/restart"), json!({"gracePeriodSeconds": 0})).await.0, 202);
    let mode = StopMode::Graceful { within_seconds: Some(1) };
    assert_eq!(played.asked.lock().unwrap().last(), Some(&of_ada(ControlRequest::Stop { mode })));
}

#[tokio::test(start_paused = true)]
async fn less_time_that_does_not_reach_the_launcher_is_no_success_and_may_be_asked_for_again() {
    let api = api(true, vm("Always"), Some(running()));
    *api.pod.lock().unwrap() = Some(ending_pod());
    let (code, status) = api.put(&START.replace("/start", "/stop"), json!({"gracePeriod": 5})).await;
    let message = status["message"].as_str().unwrap();
    assert!(code == 500 && message.contains("within 5 s") && message.ends_with("ask again"), "{code} {message}");
    let is_of_instance = |path: &str| path.contains("/virtualmachineinstances/");
    assert!(!api.writes().iter().any(|(_, path, _)| is_of_instance(path)), "it is decided on the time of before");
}

#[tokio::test]
async fn a_freeze_has_its_time_and_is_answered_when_it_is_done() {
    let (api, played) = connected(running()).await;
    for (body, thaw_after_seconds) in [
        (Value::Null, Some(300)),
        (json!({"unfreezeTimeout": "1m0s"}), Some(60)),
        (json!({"unfreezeTimeout": "0s"}), None),
    ] {
        assert_eq!(api.put(&format!("{BASE}/freeze"), body).await, (200, Value::Null));
        let asked = played.asked.lock().unwrap().pop().unwrap();
        assert_eq!(asked, of_ada(ControlRequest::Freeze { thaw_after_seconds }));
    }
    assert_eq!(api.put(&format!("{BASE}/freeze"), json!({"unfreezeTimeout": "later"})).await.0, 400);
    let (code, status) = api.put(&format!("{BASE}/unfreeze"), Value::Null).await;
    let message = "Internal error occurred: command Unfreeze failed: the QEMU guest agent is not connected";
    assert_eq!((code, status["message"].as_str().unwrap()), (500, message));
}

#[tokio::test]
async fn a_screenshot_is_passed_on_whole_or_not_at_all() {
    let (api, played) = connected(running()).await;
    let answer = api.ask("GET", &format!("{BASE}/vnc/screenshot"), Value::Null).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["content-type"]), (200, &"image/png".parse().unwrap()));
    assert_eq!(axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap(), PICTURE);
    assert_eq!(played.asked.lock().unwrap().pop(), Some(of_ada(ControlRequest::Screenshot { move_cursor: false })));
    let half = api.ask("GET", &format!("{BASE}/vnc/screenshot?moveCursor=true"), Value::Null).await;
    assert!(axum::body::to_bytes(half.into_body(), 1 << 20).await.is_err(), "the client learns that it is not whole");
    assert_eq!(played.asked.lock().unwrap().pop(), Some(of_ada(ControlRequest::Screenshot { move_cursor: true })));
    let mut blind = running();
    blind["spec"]["domain"]["devices"]["autoattachGraphicsDevice"] = json!(false);
    let (api, _) = connected(blind).await;
    assert_eq!(api.ask("GET", &format!("{BASE}/vnc/screenshot"), Value::Null).await.status().as_u16(), 400);
}

#[tokio::test]
async fn what_the_guest_agent_reports_is_read_while_it_is_connected() {
    let read = async |vmi: Value, route: &str| {
        let (api, _) = connected(vmi).await;
        api.send(&["front-proxy-client"], &format!("GET {BASE}/{route}"), Some("ada"), Value::Null).await
    };
    let mut with_agent = running();
    with_agent["status"]["conditions"] = json!([{"type": "AgentConnected", "status": "True"}]);
    let (code, list) = read(with_agent.clone(), "userlist").await;
    assert_eq!((code, &list["items"][0]["userName"]), (200, &json!("root")));
    // As KubeVirt answers: an error of the server, whose text is the message of a conflict.
    let missing = read(running(), "userlist").await;
    let refused = read(with_agent, "guestosinfo").await;
    for ((code, status), message) in
        [(missing, "VMI does not have guest agent connected"), (refused, "the agent is busy")]
    {
        assert_eq!(code, 500);
        assert!(status.as_str().unwrap().ends_with(message), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_agent_is_not_connected_is_named() {
    let api = api(true, vm("Always"), Some(running()));
    let (code, status) = api.put(&format!("{BASE}/pause"), Value::Null).await;
    let message = status["message"].as_str().unwrap();
    assert_eq!(code, 500);
    assert!(message.contains("the agent of node node-1 is not connected"), "{message}");
}

/// The websocket of a stream.
async fn stream(api: &Api, path: &str) -> WebSocketStream<TcpStream> {
    stream_at(api, &format!("{BASE}/{path}")).await
}

/// The same of a whole path.
pub(super) async fn stream_at(api: &Api, path: &str) -> WebSocketStream<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer = Peer { common_names: vec!["front-proxy-client".to_owned()] };
    let routes = api.routes.clone().layer(axum::Extension(peer));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    request.headers_mut().insert("X-Remote-User", "ada".parse().unwrap());
    request.headers_mut().insert("Audit-ID", AUDIT_ID.parse().unwrap());
    request.headers_mut().insert("Sec-WebSocket-Protocol", "plain.kubevirt.io".parse().unwrap());
    let connection = TcpStream::connect(address).await.unwrap();
    let (socket, answer) = tokio_tungstenite::client_async(request, connection).await.unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "plain.kubevirt.io");
    socket
}

#[tokio::test]
async fn a_session_is_a_websocket_of_plain_bytes_and_its_client_reads_why_it_ended() {
    let console = |access, session| ControlRequest::Console { access, session, resume: None };
    let (access, session, resume) = (ConsoleAccess::View, Session::None, Some(Resume::New));
    let table = [
        ("console", console(ConsoleAccess::TakeOver, Session::Replace)),
        ("console?preserveSession=true", console(ConsoleAccess::Write, Session::Only)),
        ("vnc", ControlRequest::Vnc { session: Session::Replace }),
        // Not a session, and beside it.
        ("console?view=true", ControlRequest::Console { access, session, resume }),
    ];
    for (path, wanted) in table {
        let (api, played) = connected(running()).await;
        let mut socket = stream(&api, path).await;
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary("login: "));
        socket.send(Message::binary("root\r")).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary("root\r"));
        let Message::Close(Some(frame)) = socket.next().await.unwrap().unwrap() else { panic!("no close frame") };
        assert_eq!((frame.code, frame.reason.as_str()), (CloseCode::Away, "EOF: another client"));
        let asked = played.asked.lock().unwrap().clone();
        assert_eq!(asked, [of_ada(wanted)]);
    }
}

/// With what a console begins that is asked for with a place.
fn begun() -> Begun {
    Begun { position: Position { epoch: "5e1f".to_owned(), offset: 1007 }, resumed: true, missed: 0 }
}

#[tokio::test]
async fn a_console_that_goes_on_begins_with_its_place() {
    let (access, session) = (ConsoleAccess::Write, Session::Only);
    for (place, resume) in [("new", Resume::New), ("5e1f.1007", Resume::After(begun().position))] {
        let (api, played) = connected(running()).await;
        let mut socket = stream(&api, &format!("console?preserveSession=true&position={place}")).await;
        let text = r#"{"position":"5e1f.1007","resumed":true,"missed":0}"#;
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(text));
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary("login: "));
        socket.send(Message::binary("root\r")).await.unwrap();
        let asked = played.asked.lock().unwrap().clone();
        assert_eq!(asked, [of_ada(ControlRequest::Console { access, session, resume: Some(resume) })]);
    }
    let (api, played) = connected(running()).await;
    let line = format!("GET {BASE}/console?position=here");
    let (code, status) = api.send(&["front-proxy-client"], &line, Some("ada"), Value::Null).await;
    assert!(code == 400 && status["message"].as_str().unwrap().contains("position: "), "{status}");
    assert!(played.asked.lock().unwrap().is_empty());
    // A supervisor of a version before says nothing of places.
    let (api, _) = connected_to(running(), Played::old()).await;
    let mut socket = stream(&api, "console?position=new").await;
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary("login: "));
}

#[tokio::test]
async fn a_supervisor_that_has_no_sessions_is_one_of_several() {
    let (api, _) = connected_to(running(), Played::old()).await;
    let mut socket = stream(&api, "console").await;
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary("login: "));
    socket.send(Message::binary("root\r")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary("root\r"));
}

#[tokio::test]
async fn a_stream_that_is_refused_is_a_status_and_no_upgrade() {
    let mut stopped = running();
    stopped["status"]["phase"] = json!("Scheduled");
    let (api, _) = connected(stopped).await;
    let line = format!("GET {BASE}/console");
    let (code, status) = api.send(&["front-proxy-client"], &line, Some("ada"), Value::Null).await;
    assert_eq!((code, &status["message"]), (400, &json!("VMI is not running")));
    let (api, _) = connected(running()).await;
    let (code, status) = api.send(&["front-proxy-client"], &line, Some("ada"), Value::Null).await;
    assert_eq!(code, 400);
    assert!(status["message"].as_str().unwrap().starts_with("this is a websocket"), "{status}");
    let line = format!("GET {BASE}/vnc?preserveSession=maybe");
    let (code, status) = api.send(&["front-proxy-client"], &line, Some("ada"), Value::Null).await;
    assert!(code == 400 && status["message"].as_str().unwrap().contains("write true or false"), "{status}");
    for parameter in ["view=true", "position=new"] {
        let line = format!("GET {BASE}/vnc?{parameter}");
        let (code, status) = api.send(&["front-proxy-client"], &line, Some("ada"), Value::Null).await;
        assert!(code == 400 && status["message"].as_str().unwrap().contains("only a console"), "{status}");
    }
}

#[tokio::test]
async fn a_screen_whose_session_is_to_be_preserved_is_refused_while_there_is_one() {
    let (api, played) = connected(running()).await;
    let (code, message) = answered(&api, &format!("{BASE}/vnc?preserveSession=true")).await;
    assert_eq!((code, message.as_str()), (503, "Active VNC connection. Request denied."));
    let asked = played.asked.lock().unwrap().clone();
    let request = ControlRequest::Vnc { session: Session::Only };
    assert_eq!(asked, [Asked { audit_id: None, ..of_ada(request) }]);
}

#[tokio::test]
async fn a_usb_device_has_a_slot_that_it_does_not_take_from_another() {
    let mut machine = running();
    machine["spec"]["domain"]["devices"]["clientPassthrough"] = json!({});
    let (api, played) = connected(machine).await;
    let mut socket = stream(&api, "usbredir").await;
    // What the played supervisor prints on any stream; the bytes are not read on the way.
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary("login: "));
    socket.send(Message::binary(&b"\0\0\0\0D\0\0\0"[..])).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary(&b"\0\0\0\0D\0\0\0"[..]));
    let (code, message) = answered(&api, &format!("{BASE}/usbredir")).await;
    assert_eq!((code, message.as_str()), (503, "All USB devices are in use (websocket: bad handshake)"));
    socket.send(Message::binary("more")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::binary("more"));
    let asked = played.asked.lock().unwrap().clone();
    let second = Asked { audit_id: None, ..of_ada(ControlRequest::UsbRedir) };
    assert_eq!(asked, [of_ada(ControlRequest::UsbRedir), second]);
}

#[tokio::test]
async fn an_instance_without_slots_has_no_usb_redirection() {
    let (api, played) = connected(running()).await;
    let (code, message) = answered(&api, &format!("{BASE}/usbredir")).await;
    assert!(code == 409 && message.ends_with(": Not configured with USB Redirection"), "{code} {message}");
    assert!(played.asked.lock().unwrap().is_empty(), "the supervisor is not asked");
}
