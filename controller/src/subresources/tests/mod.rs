//! From a request to its answer: who is let in, and what reaches the API server.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use garboard_api::cluster::Emulation;
use garboard_subresources::caller::RequestHeader;
use garboard_tunnel::controller::Nodes;
use kube::client::Body;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::leaving::Replica;
use super::limits::STREAMS;
use super::peer::Peer;
use super::server::{Serving, routes};
use super::shares::{Most, Rates, Requests};

mod bench;
mod faults;
mod forward;
mod hostile;
mod instance;
mod numbered;
mod played;
mod qmp;
mod record;
mod tenants;
use crate::context::Context;
use crate::settings::{Defaults, Settings};
use crate::shutdown::{Stage, stages};

const START: &str = "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachines/vm/start";

/// The API, and what it asked the API server: method, path with query, body.
struct Api {
    routes: Router,
    context: Context,
    asked: Arc<Mutex<Vec<(String, String, Value)>>>,
    /// What users and namespaces have under way.
    requests: Requests,
    /// How often they have asked.
    rates: Rates,
    /// The nodes whose agents are connected.
    nodes: Nodes,
    /// Sets the stage of the process.
    stage: tokio::sync::watch::Sender<Stage>,
    replica: Replica,
    /// The launcher pod, if it is there.
    pod: Arc<Mutex<Option<Value>>>,
    /// How many of the next patches meet an object that was changed meanwhile.
    overtaken: Arc<Mutex<usize>>,
}

fn header() -> RequestHeader {
    let data = [
        ("requestheader-client-ca-file", "PEM"),
        ("requestheader-allowed-names", r#"["front-proxy-client"]"#),
        ("requestheader-username-headers", r#"["X-Remote-User"]"#),
        ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
    ];
    let data: BTreeMap<String, String> = data.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    RequestHeader::read(&data).unwrap()
}

/// Few streams of a user.
const FEW_STREAMS: Most = Most { of_a_user: 2, ..STREAMS };

fn api(allowed: bool, vm: Value, vmi: Option<Value>) -> Api {
    api_with(allowed, vm, vmi, FEW_STREAMS)
}

/// The API server that is played here never answers for namespaces whose names begin with `hanging`.
fn api_with(allowed: bool, vm: Value, vmi: Option<Value>, streams: Most) -> Api {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let overtaken: Arc<Mutex<usize>> = Arc::default();
    let overtakes = Arc::clone(&overtaken);
    let pod: Arc<Mutex<Option<Value>>> = Arc::default();
    let pods = Arc::clone(&pod);
    let serve = move |request: http::Request<Body>| {
        let (seen, vm, vmi, overtaken) = (Arc::clone(&seen), vm.clone(), vmi.clone(), Arc::clone(&overtakes));
        let pod = pods.lock().unwrap().clone();
        async move {
            let (head, body) = request.into_parts();
            let body = http_body_util::BodyExt::collect(body).await?.to_bytes();
            let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
            if path.contains("/namespaces/hanging") {
                std::future::pending::<()>().await;
            }
            let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"});
            let (code, answer) = match (path.as_str(), vmi) {
                (path, _) if path.contains("tokenreviews") => (201, reviewed(&body)),
                (path, _) if path.contains("subjectaccessreviews") => {
                    (201, json!({"spec": {}, "status": {"allowed": allowed}}))
                }
                (path, Some(vmi)) if path.contains("virtualmachineinstances") => (200, vmi),
                (path, None) if path.contains("virtualmachineinstances") => (404, missing),
                (path, _) if path.contains("/pods/") => pod.map_or((404, missing), |pod| (200, pod)),
                (path, _) if path.contains("/nodes/") => (200, json!({"metadata": {"name": "node-1"}})),
                _ if head.method == http::Method::PATCH && is_overtaken(&overtaken) => {
                    let message = "the server rejected our request due to an error in our request";
                    (
                        422,
                        json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": message}),
                    )
                }
                _ => (200, vm),
            };
            seen.lock().unwrap().push((
                head.method.to_string(),
                path,
                serde_json::from_slice(&body).unwrap_or_default(),
            ));
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, tower::BoxError>(http::Response::builder().status(code).body(answer)?)
        }
    };
    let client = kube::Client::new(tower::service_fn(serve), "ns");
    let defaults = Defaults { emulation: Emulation::Refused, image_pull_policy: "Never".to_owned() };
    let (_keeps, settings) = tokio::sync::watch::channel(Settings::of([], "garboard", &defaults));
    let (context, _no_events) = Context::new(client, "launcher:1".to_owned(), settings, "garboard".to_owned(), "0.1.0");
    let (_keeps, header) = tokio::sync::watch::channel(Arc::new(header()));
    let nodes = Nodes::default();
    let (stage, stages) = stages();
    let replica = Replica::new(stages);
    let mut serving = Serving::new(context.clone(), header, nodes.clone(), streams, replica.clone());
    serving.dialled = to_loopback;
    let (requests, rates) = (serving.requests.clone(), serving.rates.clone());
    Api { routes: routes(serving), context, asked, requests, rates, nodes, stage, replica, pod, overtaken }
}

/// A token is the name of its node.
fn reviewed(review: &[u8]) -> Value {
    let review: Value = serde_json::from_slice(review).unwrap();
    let extra = json!({"authentication.kubernetes.io/node-name": [review["spec"]["token"]]});
    let user = json!({"username": "system:serviceaccount:garboard:garboard-node", "extra": extra});
    json!({"spec": {}, "status": {"authenticated": true, "audiences": ["garboard-controller"], "user": user}})
}

/// There is no network of pods here: guests that are played listen at this host's own addresses.
fn to_loopback(address: SocketAddr) -> SocketAddr {
    let own: IpAddr = if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    SocketAddr::new(own, address.port())
}

/// Whether this patch is one of those.
fn is_overtaken(left: &Mutex<usize>) -> bool {
    let mut left = left.lock().unwrap();
    let is_one = *left > 0;
    *left = left.saturating_sub(1);
    is_one
}

impl Api {
    /// A request (`METHOD PATH`) of a user over a connection whose certificate has these names.
    async fn send(&self, peer: &[&str], line: &str, user: Option<&str>, body: Value) -> (u16, Value) {
        let answer = self.answer(peer, line, user, body).await;
        let code = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let text = || match String::from_utf8(body.to_vec()).unwrap() {
            empty if empty.is_empty() => Value::Null,
            text => Value::String(text),
        };
        (code, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
    }

    /// The same; the answer as it is.
    async fn answer(&self, peer: &[&str], line: &str, user: Option<&str>, body: Value) -> axum::response::Response {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = http::Request::builder().method(method).uri(path);
        if let Some(user) = user {
            request = request.header("X-Remote-User", user).header("X-Remote-Group", "system:authenticated");
            request = request.header("Audit-ID", garboard_protocol::testing::AUDIT_ID);
        }
        let common_names = peer.iter().map(|&name| name.to_owned()).collect();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut request = request.body(axum::body::Body::from(body)).unwrap();
        request.extensions_mut().insert(Peer { common_names });
        self.routes.clone().oneshot(request).await.unwrap()
    }

    /// A request of Ada's, by an API server.
    async fn ask(&self, method: &str, path: &str, body: Value) -> axum::response::Response {
        self.answer(&["front-proxy-client"], &format!("{method} {path}"), Some("ada"), body).await
    }

    async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.send(&["front-proxy-client"], &format!("PUT {path}"), Some("ada"), body).await
    }

    fn writes(&self) -> Vec<(String, String, Value)> {
        let asked = self.asked.lock().unwrap();
        let is_write =
            |(method, path, _): &&(String, String, Value)| method != "GET" && !path.contains("subjectaccessreviews");
        asked.iter().filter(is_write).cloned().collect()
    }
}

fn vm(strategy: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
        "spec": {"runStrategy": strategy, "template": {"spec": {"domain": {"devices": {}}}}}, "status": {},
    })
}

fn vmi() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "ns", "uid": "12345678-9"},
        "spec": {"domain": {"devices": {}}, "terminationGracePeriodSeconds": 60}, "status": {"phase": "Running"},
    })
}

#[tokio::test]
async fn a_start_is_a_review_and_a_patch() {
    let api = api(true, vm("Manual"), None);
    assert_eq!(api.put(START, Value::Null).await, (202, Value::Null));
    let asked = api.asked.lock().unwrap().clone();
    let (_, path, review) = &asked[0];
    assert!(path.starts_with("/apis/authorization.k8s.io/v1/subjectaccessreviews"), "{path}");
    assert_eq!(review["spec"]["resourceAttributes"]["subresource"], "start");
    assert_eq!(
        (&review["spec"]["user"], &review["spec"]["groups"][0]),
        (&json!("ada"), &json!("system:authenticated"))
    );
    let writes = api.writes();
    let [(method, path, patch)] = writes.as_slice() else { panic!("{writes:?}") };
    assert_eq!(method, "PATCH");
    assert!(path.contains("/virtualmachines/vm/status"), "{path}");
    assert_eq!(patch[1]["value"], json!([{"action": "Start"}]));
}

#[tokio::test]
async fn a_start_that_was_overtaken_is_decided_anew_some_times() {
    let api = api(true, vm("Manual"), None);
    *api.overtaken.lock().unwrap() = 2;
    assert_eq!(api.put(START, Value::Null).await, (202, Value::Null));
    assert_eq!(api.writes().len(), 3);
    *api.overtaken.lock().unwrap() = 100;
    let (code, status) = api.put(START, Value::Null).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    assert_eq!(api.writes().len(), 3 + 4);
}

#[tokio::test]
async fn only_an_api_server_may_name_the_user() {
    let api = api(true, vm("Manual"), None);
    for (peer, user) in [(&[][..], Some("ada")), (&["kubernetes-admin"], Some("ada")), (&["front-proxy-client"], None)]
    {
        let (code, status) = api.send(peer, &format!("PUT {START}"), user, Value::Null).await;
        assert_eq!(
            (code, &status["kind"], &status["reason"]),
            (401, &json!("Status"), &json!("Unauthorized")),
            "{peer:?}"
        );
    }
    assert!(api.asked.lock().unwrap().is_empty(), "something was asked for one who is not known");
}

#[tokio::test]
async fn who_has_no_right_changes_nothing() {
    let api = api(false, vm("Manual"), None);
    let (code, status) = api.put(START, Value::Null).await;
    let message = status["message"].as_str().unwrap();
    assert_eq!(code, 401);
    assert_eq!(message, r#"user "ada" cannot update virtualmachines/start in namespace "ns""#);
    assert_eq!(api.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_stop_that_hurries_also_deletes_the_pod_and_writes_its_time() {
    let api = api(true, vm("Always"), Some(vmi()));
    *api.pod.lock().unwrap() = Some(pod());
    let stop = START.replace("/start", "/stop");
    assert_eq!(api.put(&stop, json!({"gracePeriod": 5, "dryRun": ["All"]})).await.0, 202);
    let writes = api.writes();
    let [(patch, at, _), (delete, pod, options), (shorten, instance, time)] = writes.as_slice() else {
        panic!("{writes:?}")
    };
    assert_eq!((patch.as_str(), delete.as_str(), shorten.as_str()), ("PATCH", "DELETE", "PATCH"));
    assert!(instance.contains("/virtualmachineinstances/vm?") && instance.contains("dryRun=All"), "{instance}");
    let (tested, written) = (&time[1]["value"], &time[2]["value"]);
    assert_eq!((tested, written), (&json!(60), &json!(5)));
    assert!(at.contains("/virtualmachines/vm?") && at.contains("dryRun=All"), "{at}");
    assert!(pod.contains("/pods/virt-launcher-vm-12345678"), "{pod}");
    assert_eq!((&options["gracePeriodSeconds"], &options["dryRun"]), (&json!(5), &json!(["All"])));
    // Its deletion may begin with more time while this one is on its way.
    assert_eq!(options["preconditions"], json!({"uid": "p", "resourceVersion": "7"}));
}

/// A launcher pod that is not being deleted.
fn pod() -> Value {
    json!({"metadata": {"name": "virt-launcher-vm-12345678", "uid": "p", "resourceVersion": "7"}})
}

#[tokio::test]
async fn refusals_have_their_codes_and_are_statuses() {
    let api = api(true, vm("Always"), Some(vmi()));
    let base = "/apis/subresources.kubevirt.io/v1alpha3/namespaces/ns";
    let table = [
        (START.to_owned(), Value::Null, 409),
        (format!("{base}/virtualmachines/vm/restart"), json!({"gracePeriodSeconds": 7}), 400),
        (format!("{base}/virtualmachines/vm/stop"), json!([]), 400),
        (format!("{base}/virtualmachines/vm/stop"), json!({"dryRun": ["Some"]}), 400),
        (format!("{base}/virtualmachines/vm/nothing"), Value::Null, 404),
        (format!("{base}/virtualmachines/vm/expand-spec"), Value::Null, 405),
        (format!("{base}/virtualmachineinstances/vm/backup"), Value::Null, 409),
        (format!("{base}/virtualmachineinstances/vm/unpause"), Value::Null, 409),
        (format!("{base}/expand-vm-spec"), json!({"kind": "Pod"}), 400),
        (format!("{base}/expand-vm-spec"), Value::Null, 400),
    ];
    for (path, body, expected) in table {
        let (code, status) = api.put(&path, body).await;
        assert_eq!((code, &status["kind"], &status["code"]), (expected, &json!("Status"), &json!(expected)), "{path}");
    }
    assert_eq!(api.writes(), []);
}

#[tokio::test]
async fn an_expansion_is_the_machine_itself() {
    let api = api(true, vm("Always"), None);
    let line = format!("GET {}", START.replace("/start", "/expand-spec"));
    let (code, answer) = api.send(&["front-proxy-client"], &line, Some("ada"), Value::Null).await;
    assert_eq!(
        (code, &answer["kind"], &answer["spec"]["runStrategy"]),
        (200, &json!("VirtualMachine"), &json!("Always"))
    );
    let template = json!({"spec": {"domain": {"devices": {}}}});
    let mut carried = json!({"metadata": {"name": "b"}, "spec": {"runStrategy": "Halted", "template": template}});
    let path = "/apis/subresources.kubevirt.io/v1/namespaces/ns/expand-vm-spec";
    let (code, answer) = api.put(path, carried.clone()).await;
    let kind = json!("VirtualMachine");
    assert_eq!((code, &answer["kind"], &answer["metadata"]["namespace"]), (200, &kind, &json!("ns")), "{answer}");
    carried["spec"]["template"]["spec"]["domain"]["cpus"] = json!(2);
    let (code, status) = api.put(path, carried).await;
    let field = &status["details"]["causes"][0]["field"];
    assert_eq!((code, field), (400, &json!("spec.template.spec.domain.cpus")), "{status}");
}

#[tokio::test]
async fn a_migration_without_an_instance_is_answered_with_what_is_missing() {
    let api = api(true, vm("Always"), None);
    let (_, status) = api.put(&START.replace("/start", "/migrate"), Value::Null).await;
    assert_eq!(status["message"], r#"virtualmachineinstance.kubevirt.io "vm" not found"#);
}

#[tokio::test]
async fn a_guest_is_not_unpaused_while_a_snapshot_is_made_of_its_machine() {
    let mut busy = vm("Always");
    busy["status"]["snapshotInProgress"] = json!("daily");
    let mut paused = vmi();
    paused["status"]["conditions"] = json!([{"type": "Paused", "status": "True"}]);
    let api = api(true, busy, Some(paused));
    let path = START.replace("virtualmachines", "virtualmachineinstances").replace("/start", "/unpause");
    let (code, status) = api.put(&path, Value::Null).await;
    let message = r#"Operation cannot be fulfilled on virtualmachine.kubevirt.io "vm": VM snapshot is in progress"#;
    assert_eq!((code, &status["message"]), (409, &json!(message)));
}

#[tokio::test]
async fn routes_of_the_group_that_nothing_serves_answer_with_a_text() {
    let api = api(false, vm("Always"), None);
    let table = [
        ("guestfs", 501, "garboard.dev/guestfs-image"),
        ("start-cluster-profiler", 403, "feature gate must be enabled"),
        ("stop-cluster-profiler", 403, "feature gate must be enabled"),
        ("dump-cluster-profiler", 403, "feature gate must be enabled"),
    ];
    for (route, expected, text) in table {
        let path = format!("/apis/subresources.kubevirt.io/v1/{route}");
        let answer = api.answer(&["front-proxy-client"], &format!("GET {path}"), None, Value::Null).await;
        // A client of Go shows a body of this type, and no other.
        assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/"), "{route}");
        assert_eq!(answer.status().as_u16(), expected, "{route}");
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        assert!(String::from_utf8_lossy(&body).contains(text), "{route}: {body:?}");
    }
}

#[tokio::test]
async fn discovery_needs_no_user() {
    let api = api(false, vm("Always"), None);
    let group = "/apis/subresources.kubevirt.io";
    let (v1, first) = (format!("{group}/v1"), format!("{group}/v1alpha2"));
    let of_v1 = format!("/openapi/v3{v1}");
    let own = "/apis/subresources.garboard.dev";
    let (own_v1, of_own) = (format!("{own}/v1"), format!("/openapi/v3{own}/v1"));
    let documents = ["/openapi/v2", "/openapi/v3", &of_v1, &of_own];
    for path in ["/", "/apis", group, &v1, &first, own, &own_v1].into_iter().chain(documents) {
        let (code, answer) = api.send(&["front-proxy-client"], &format!("GET {path}"), None, Value::Null).await;
        assert!(code == 200 && answer.is_object(), "{path}: {code}");
    }
    let version = "GET /apis/subresources.kubevirt.io/v1/version";
    let (_, answer) = api.send(&[], version, None, Value::Null).await;
    assert_eq!(answer["gitVersion"], "v1.7.0+garboard.0.1.0");
    assert!(api.asked.lock().unwrap().is_empty());
    let (code, health) = api.send(&[], &version.replace("/version", "/healthz"), None, Value::Null).await;
    assert_eq!((code, &health["apiserver"]["connectivity"]), (200, &json!("ok")));
    assert_eq!(api.asked.lock().unwrap().len(), 1, "the API server was asked");
}

#[tokio::test]
async fn a_start_by_get_needs_the_right_to_change() {
    let line = format!("GET {}", START.replace("/v1/", "/v1alpha2/"));
    let front = ["front-proxy-client"];
    let api = api(true, vm("Manual"), None);
    assert_eq!(api.send(&front, &line, Some("ada"), Value::Null).await.0, 202);
    let review = api.asked.lock().unwrap()[0].2.clone();
    assert_eq!(review["spec"]["resourceAttributes"]["verb"], "update");
    assert_eq!(api.writes().len(), 1);
    let (code, status) = api.send(&front, &format!("{line}?dryRun=All"), Some("ada"), Value::Null).await;
    assert_eq!((code, api.writes().len()), (400, 1), "{status}");
    assert_eq!(api.put(&START.replace("/v1/", "/v1alpha2/"), Value::Null).await.0, 405);
    assert_eq!(api.send(&front, &format!("GET {START}"), Some("ada"), Value::Null).await.0, 405);
}

#[tokio::test]
async fn a_viewer_starts_nothing_by_get() {
    let api = api(false, vm("Manual"), None);
    let line = format!("GET {}", START.replace("/v1/", "/v1alpha2/"));
    assert_eq!(api.send(&["front-proxy-client"], &line, Some("eve"), Value::Null).await.0, 401);
    assert_eq!(api.writes(), []);
}

#[tokio::test]
async fn what_is_not_in_this_version_is_answered_as_where_it_is_switched_off() {
    let (there, gone) = (api(true, vm("Always"), Some(vmi())), api(true, vm("Always"), None));
    let base = "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachine";
    let table = [
        ("PUT", "s/vm/migrate", 400, 404),
        ("PUT", "s/vm/addvolume", 400, 400),
        ("PUT", "s/vm/addinterface", 404, 404),
        ("PUT", "instances/vm/removeinterface", 404, 404),
        ("PUT", "s/vm/removememorydump", 409, 409),
        ("GET", "s/vm/objectgraph", 400, 400),
        ("GET", "instances/vm/vsock", 400, 400),
        ("PUT", "instances/vm/backup", 409, 404),
        ("GET", "instances/vm/sev/fetchcertchain", 400, 400),
    ];
    for (method, tail, with_instance, without) in table {
        let line = format!("{method} {base}{tail}");
        for (api, expected) in [(&there, with_instance), (&gone, without)] {
            let (code, status) = api.send(&["front-proxy-client"], &line, Some("ada"), Value::Null).await;
            assert_eq!((code, &status["kind"]), (expected, &json!("Status")), "{line}: {status}");
        }
    }
    assert_eq!((there.writes(), gone.writes()), (vec![], vec![]));
}

#[tokio::test]
async fn an_evacuation_is_taken_back() {
    let path = "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm/evacuate/cancel";
    let unmarked = api(true, vm("Always"), Some(vmi()));
    assert_eq!(unmarked.put(path, json!({"evacuationNodeName": "node-1"})).await.0, 200);
    assert_eq!(unmarked.writes(), []);
    let mut marked = vmi();
    marked["status"]["evacuationNodeName"] = json!("node-1");
    let marked = api(true, vm("Always"), Some(marked));
    assert_eq!(marked.put(path, json!({"evacuationNodeName": "node-1", "dryRun": ["All"]})).await.0, 200);
    let writes = marked.writes();
    let [(method, at, patch)] = writes.as_slice() else { panic!("{writes:?}") };
    assert!(method == "PATCH" && at.contains("/virtualmachineinstances/vm?") && at.contains("dryRun=All"), "{at}");
    assert_eq!(
        (&patch[0]["op"], &patch[0]["value"], &patch[1]["op"]),
        (&json!("test"), &json!("node-1"), &json!("remove"))
    );
}
