//! QMP of a machine through our own group.

use futures::{SinkExt, StreamExt};
use garboard_protocol::control::{ControlRequest, QmpAccess};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::instance::{PICTURE, connected, of_ada, running, stream_at};

const OWN: &str = "/apis/subresources.garboard.dev/v1/namespaces/ns/virtualmachineinstances/vm";

#[tokio::test]
async fn a_query_is_a_get_with_one_answer_and_the_supervisor_reads_who_asks() {
    let (api, played) = connected(running()).await;
    let line = format!("GET {OWN}/qmp-read/query-status?arguments=%7B%22deep%22:true%7D");
    let (code, reply) = api.send(&["front-proxy-client"], &line, Some("ada"), Value::Null).await;
    assert_eq!((code, reply), (200, json!({"return": {"status": "running", "asked": {"deep": true}}})));
    let asked = played.asked.lock().unwrap().pop().unwrap();
    let request = ControlRequest::Qmp { access: QmpAccess::ReadOnly };
    assert_eq!((&asked.request, asked.claimed_user.as_deref()), (&request, Some("ada")));
}

#[tokio::test]
async fn a_change_is_a_put_at_the_level_of_its_path() {
    let (api, played) = connected(running()).await;
    assert_eq!(api.put(&format!("{OWN}/qmp-write/stop"), json!({})).await, (200, json!({"return": {}})));
    assert_eq!(played.asked.lock().unwrap().pop(), Some(of_ada(ControlRequest::Qmp { access: QmpAccess::ReadWrite })));
    let (code, status) = api.put(&format!("{OWN}/qmp-write/quit"), Value::Null).await;
    let message = status["message"].as_str().unwrap();
    assert!(code == 409 && message.ends_with("quit: Garboard rejected it"), "{status}");
    let (code, status) = api.put(&format!("{OWN}/qmp-dangerous/quit"), Value::Null).await;
    assert_eq!((code, &status["message"]), (503, &json!("8 read-write QMP clients are connected")));
    assert_eq!(played.asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_session_is_a_websocket_of_qmp_itself() {
    let (api, played) = connected(running()).await;
    let mut socket = stream_at(&api, &format!("{OWN}/qmp-read")).await;
    let greeting = socket.next().await.unwrap().unwrap();
    assert!(greeting.to_text().unwrap().starts_with("{\"QMP\""), "{greeting:?}");
    socket.send(Message::binary("{\"execute\": \"query-status\", \"id\": 7}\n")).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap();
    assert!(answer.to_text().unwrap().contains("\"id\":7"), "{answer:?}");
    let request = ControlRequest::Qmp { access: QmpAccess::ReadOnly };
    assert_eq!(played.asked.lock().unwrap().clone(), [of_ada(request)]);
}

#[tokio::test]
async fn what_does_not_run_has_no_qmp_and_what_is_no_command_reaches_no_supervisor() {
    let mut over = running();
    over["status"]["phase"] = json!("Succeeded");
    let (api, _) = connected(over).await;
    let (code, status) = api.put(&format!("{OWN}/qmp-write/stop"), Value::Null).await;
    assert_eq!((code, &status["message"]), (400, &json!("VMI is not running")));
    let (api, played) = connected(running()).await;
    assert_eq!(api.put(&format!("{OWN}/qmp-write/stop%2fnow"), Value::Null).await.0, 400);
    assert_eq!(api.put(&format!("{OWN}/qmp-write/stop"), json!(["now"])).await.0, 400);
    assert!(played.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_screen_is_a_picture_of_our_group_too() {
    let (api, played) = connected(running()).await;
    let answer = api.ask("GET", &format!("{OWN}/screendump"), Value::Null).await;
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap(), PICTURE);
    assert_eq!(played.asked.lock().unwrap().pop(), Some(of_ada(ControlRequest::Screenshot { move_cursor: false })));
}
