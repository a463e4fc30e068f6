//! Two tenants: one floods, and the other one is answered as if it were alone.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use futures::{StreamExt, stream};
use garboard_subresources::options::{LONGEST_BODY, LONGEST_OPTIONS};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use super::super::limits::{
    LARGE_BODIES, RATE_OF_A_NAMESPACE, RATE_OF_A_USER, REQUESTS_OF_A_NAMESPACE, REQUESTS_OF_A_USER, TURN_WITHIN,
    WAITING_OF_A_USER,
};
use super::super::server::fair;
use super::{Api, Peer, START, api, vm};

const BASE: &str = "/apis/subresources.kubevirt.io/v1/namespaces";
/// How soon who is alone is answered.
const SOON: Duration = Duration::from_secs(1);
/// Requests of a flood.
const MANY: usize = 400;

fn put(path: &str, user: &str, body: Body) -> Request<Body> {
    let mut request = Request::put(path).header("X-Remote-User", user).body(body).unwrap();
    request.extensions_mut().insert(Peer { common_names: vec!["front-proxy-client".to_owned()] });
    request
}

/// Sends all at once; returns when each waits for something.
async fn flood(api: &Api, requests: impl Iterator<Item = Request<Body>>) -> Vec<JoinHandle<Response>> {
    let send = |request: Request<Body>| {
        let routes = api.routes.clone();
        tokio::spawn(async move { routes.oneshot(request).await.unwrap() })
    };
    let sent = requests.map(send).collect();
    // Time stands still until nothing else can be done.
    sleep(Duration::from_millis(1)).await;
    sent
}

/// The `Status` of a refusal, with what its code asks for.
async fn refusal(answer: Response) -> Value {
    let code = answer.status().as_u16();
    let retry = answer.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(code)), "{status}");
    let seconds = status["details"]["retryAfterSeconds"].as_u64();
    assert_eq!(retry, seconds.map(|seconds| seconds.to_string()), "{status}");
    assert_eq!(retry.is_some(), code == 429, "{status}");
    status
}

/// How many were refused with each code.
async fn refused(flood: Vec<JoinHandle<Response>>) -> BTreeMap<u64, usize> {
    let mut codes: BTreeMap<u64, usize> = BTreeMap::new();
    for answer in flood {
        let status = refusal(answer.await.unwrap()).await;
        *codes.entry(status["code"].as_u64().unwrap()).or_default() += 1;
    }
    codes
}

async fn is_answered_soon(api: &Api) {
    let begun = Instant::now();
    assert_eq!(api.put(START, Value::Null).await, (202, Value::Null));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_many_accounts_whose_requests_hang_holds_back_no_other_one() {
    let api = api(true, vm("Manual"), None);
    let start = format!("{BASE}/hanging/virtualmachines/vm/start");
    let requests = (0..MANY).map(|number| put(&start, &format!("account-{}", number % 40), Body::empty()));
    let flood = flood(&api, requests).await;
    assert!(api.requests.of_namespace("hanging", Instant::now()).await.is_none(), "it has all that it may");
    is_answered_soon(&api).await;
    let answered = REQUESTS_OF_A_NAMESPACE;
    assert_eq!(refused(flood).await, BTreeMap::from([(429, MANY - answered), (504, answered)]));
}

#[tokio::test(start_paused = true)]
async fn an_account_that_floods_many_namespaces_holds_back_no_other_one() {
    let api = api(true, vm("Manual"), None);
    let path = |number: usize| format!("{BASE}/hanging-{}/virtualmachines/vm/start", number % 100);
    let flood = flood(&api, (0..MANY).map(|number| put(&path(number), "eve", Body::empty()))).await;
    is_answered_soon(&api).await;
    let answered = REQUESTS_OF_A_USER;
    assert_eq!(refused(flood).await, BTreeMap::from([(429, MANY - answered), (504, answered)]));
    is_answered_soon(&api).await;
}

#[tokio::test(start_paused = true)]
async fn slow_and_large_bodies_of_a_tenant_leave_room_for_those_of_another() {
    let api = api(true, vm("Manual"), None);
    let being_read = Arc::new(AtomicUsize::new(0));
    let slow = || {
        let being_read = Arc::clone(&being_read);
        let first = async move {
            being_read.fetch_add(1, Ordering::SeqCst);
            Ok::<_, io::Error>(vec![b' '; 1 << 20])
        };
        Body::from_stream(stream::once(first).chain(stream::pending()))
    };
    let expand = format!("{BASE}/flooded/expand-vm-spec");
    let flood = flood(&api, (0..60).map(|number| put(&expand, &format!("account-{}", number % 30), slow()))).await;
    assert_eq!(being_read.load(Ordering::SeqCst), LARGE_BODIES);
    let begun = Instant::now();
    let (code, answer) = api.put(&format!("{BASE}/ns/expand-vm-spec"), vm("Halted")).await;
    assert!(code == 200 && begun.elapsed() < SOON, "{code} {answer}");
    is_answered_soon(&api).await;
    let codes = refused(flood).await;
    assert_eq!(codes.keys().copied().collect::<Vec<_>>(), [408, 429], "{codes:?}");
    // Two at a time, each for two seconds, as long as the others wait.
    assert!(codes[&408] <= 4 * LARGE_BODIES, "{codes:?}");
}

#[tokio::test(start_paused = true)]
async fn one_request_too_many_waits_for_a_turn_and_then_knows_when_to_come_again() {
    let api = api(true, vm("Manual"), None);
    let mut held = Vec::new();
    for _ in 0..REQUESTS_OF_A_USER {
        held.push(api.requests.of_user("ada", "elsewhere", Instant::now()).await.unwrap());
    }
    let begun = Instant::now();
    let free = async {
        sleep(TURN_WITHIN / 2).await;
        drop(held.pop());
    };
    let (answer, ()) = tokio::join!(api.put(START, Value::Null), free);
    assert_eq!(answer.0, 202);
    assert!(begun.elapsed() < TURN_WITHIN, "{:?}", begun.elapsed());
    held.push(api.requests.of_user("ada", "elsewhere", Instant::now()).await.unwrap());
    let begun = Instant::now();
    let answer = api.ask("PUT", START, Value::Null).await;
    assert_eq!(answer.status().as_u16(), 429);
    assert!(begun.elapsed() >= TURN_WITHIN, "{:?}", begun.elapsed());
    assert_eq!(refusal(answer).await["reason"], "TooManyRequests");
    assert_eq!(api.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_has_no_right_in_a_namespace_takes_no_turn_of_it() {
    let api = api(false, vm("Manual"), None);
    let mut held = Vec::new();
    for _ in 0..REQUESTS_OF_A_NAMESPACE {
        held.push(api.requests.of_namespace("ns", Instant::now()).await.unwrap());
    }
    assert_eq!(api.put(START, Value::Null).await.0, 401);
}

#[tokio::test(start_paused = true)]
async fn who_asks_too_often_knows_when_to_come_again_and_others_are_answered() {
    let api = api(true, vm("Manual"), None);
    let of_a_burst = (0..).take_while(|_| api.rates.of_user("ada", Instant::now()).is_ok()).count();
    assert_eq!(of_a_burst, RATE_OF_A_USER.burst as usize, "a loop over a thousand machines is within it");
    let status = refusal(api.ask("PUT", START, Value::Null).await).await;
    assert_eq!((&status["code"], &status["details"]["retryAfterSeconds"]), (&json!(429), &json!(1)));
    assert!(api.asked.lock().unwrap().is_empty(), "not even her rights are asked for");
    let answer = api.routes.clone().oneshot(put(START, "bob", Body::empty())).await.unwrap();
    assert_eq!(answer.status().as_u16(), 202);
    let (code, answer) = api.put(&format!("{BASE}/ns/expand-vm-spec"), vm("Halted")).await;
    assert_eq!(code, 200, "what changes nothing has no rate: {answer}");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(api.put(START, Value::Null).await, (202, Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_many_accounts_has_one_rate_which_nobody_without_rights_uses_up() {
    let without = api(false, vm("Manual"), None);
    assert_eq!(without.put(START, Value::Null).await.0, 401);
    let left = (0..).take_while(|_| without.rates.of_namespace("ns", Instant::now()).is_ok()).count();
    assert_eq!(left, RATE_OF_A_NAMESPACE.burst as usize);
    let api = api(true, vm("Manual"), None);
    while api.rates.of_namespace("ns", Instant::now()).is_ok() {}
    let answer = api.routes.clone().oneshot(put(START, "account-1", Body::empty())).await.unwrap();
    assert_eq!(refusal(answer).await["reason"], "TooManyRequests");
    assert_eq!(api.writes(), []);
    let other = format!("{BASE}/other/virtualmachines/vm/start");
    let answer = api.routes.clone().oneshot(put(&other, "account-1", Body::empty())).await.unwrap();
    assert_eq!(answer.status().as_u16(), 202);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_a_status_and_one_that_is_not_needed_is_not_read() {
    let api = api(true, vm("Manual"), None);
    let expand = format!("{BASE}/ns/expand-vm-spec");
    for (path, limit) in [(START, LONGEST_OPTIONS), (expand.as_str(), LONGEST_BODY)] {
        let unnamed = Body::from_stream(stream::iter([Ok::<_, io::Error>(vec![b' '; limit]), Ok(vec![b' '])]));
        for body in [Body::from(vec![b' '; limit + 1]), unnamed] {
            let answer = api.routes.clone().oneshot(put(path, "ada", body)).await.unwrap();
            let status = refusal(answer).await;
            assert_eq!(status["reason"], "RequestEntityTooLarge");
            assert_eq!(status["message"], format!("Request entity too large: limit is {limit}"));
        }
    }
    let broken = Body::from_stream(stream::iter([Err::<Vec<u8>, _>(io::Error::other("it broke"))]));
    let answer = api.routes.clone().oneshot(put(START, "ada", broken)).await.unwrap();
    assert_eq!(refusal(answer).await["reason"], "BadRequest");
    let unread = Body::from_stream(stream::poll_fn(|_| -> std::task::Poll<Option<io::Result<Vec<u8>>>> {
        panic!("it was read")
    }));
    let version = Request::get("/apis/subresources.kubevirt.io/v1/version").body(unread).unwrap();
    assert_eq!(api.routes.clone().oneshot(version).await.unwrap().status().as_u16(), 200);
    assert_eq!(api.writes(), []);
}

/// An API server has one connection for the requests of all. Bodies of those that wait lie unread in its window.
#[tokio::test]
async fn unread_bodies_of_a_user_leave_room_in_a_connection_for_those_of_others() {
    let api = api(true, vm("Manual"), None);
    let mut held = Vec::new();
    for _ in 0..REQUESTS_OF_A_USER {
        held.push(api.requests.of_user("eve", "elsewhere", Instant::now()).await.unwrap());
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let peer = Peer { common_names: vec!["front-proxy-client".to_owned()] };
    let routes = api.routes.clone().layer(axum::Extension(peer));
    tokio::spawn(fair(axum_server::from_tcp(listener).unwrap()).serve(routes.into_make_service()));
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let connecting = hyper::client::conn::http2::handshake::<_, _, Body>(TokioExecutor::new(), stream).await;
    let (mut requests, connection) = connecting.unwrap();
    tokio::spawn(connection);
    let padded = || Body::from(json!({"padding": "x".repeat(LONGEST_OPTIONS - 100)}).to_string());
    let uri = format!("http://{address}{START}");
    let waiting: Vec<_> = (0..WAITING_OF_A_USER).map(|_| requests.send_request(put(&uri, "eve", padded()))).collect();
    let waiting = waiting.into_iter().map(|answer| async move { answer.await.unwrap().status().as_u16() });
    let first = futures::future::select_all(waiting.map(Box::pin));
    // Those of eve are refused after five seconds; until then they are in the way of nobody.
    tokio::select! {
        answer = requests.send_request(put(&uri, "ada", padded())) => assert_eq!(answer.unwrap().status().as_u16(), 202),
        (code, ..) = first => panic!("eve was answered first, {code}"),
    }
}
