//! From a request for metrics to its answer.

use std::sync::{Arc, Mutex};

use axum::body::Body as Answer;
use axum::http::{Request, StatusCode, header};
use garboard_api::cluster::Emulation;
use garboard_protocol::testing::INSTANCE;
use garboard_tunnel::agent::{self, Opened, Refusal, Supervisors};
use garboard_tunnel::controller::Nodes;
use kube::client::Body;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tower::{Layer, ServiceExt};

use super::server::{Serving, routes};
use super::*;
use crate::context::Context;
use crate::health::Servers;
use crate::settings::{Defaults, Settings};

/// The metrics of one replica, and the paths that it asked the API server for.
struct Replica {
    serving: Serving,
    asked: Arc<Mutex<Vec<String>>>,
    _keeps: Vec<watch::Sender<bool>>,
}

/// The API server that is played here knows the token `good`, which may read metrics, and `other`, which may not.
fn replica() -> Replica {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let serve = move |request: http::Request<Body>| {
        let seen = Arc::clone(&seen);
        async move {
            let (head, body) = request.into_parts();
            let body = http_body_util::BodyExt::collect(body).await?.to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let path = head.uri.path().to_owned();
            let answer = if path.contains("tokenreviews") {
                let token = body["spec"]["token"].clone();
                let is_known = ["good", "other"].iter().any(|known| token == *known);
                json!({"spec": {}, "status": {"authenticated": is_known, "user": {"username": token}}})
            } else {
                assert_eq!(body["spec"]["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
                json!({"spec": {}, "status": {"allowed": body["spec"]["user"] == "good"}})
            };
            seen.lock().unwrap().push(path);
            Ok::<_, tower::BoxError>(
                http::Response::builder().status(201).body(Body::from(answer.to_string().into_bytes()))?,
            )
        }
    };
    let requests = Requests::default();
    let client = kube::Client::new(requests.layer().layer(tower::service_fn(serve)), "ns");
    let defaults = Defaults { emulation: Emulation::Permitted, image_pull_policy: "Never".to_owned() };
    let (_, settings) = watch::channel(Settings::of([], "garboard", &defaults));
    let (context, _no_events) = Context::new(client, "launcher:1".to_owned(), settings, "garboard".to_owned(), "0.1.0");
    let context = Context { metrics: Arc::new(Measured::of(requests)), ..context };
    let (webhooks_ready, webhooks) = watch::channel(true);
    let (subresources_ready, subresources) = watch::channel(true);
    let (_, expires) = watch::channel(4_000_000_000.0);
    let serving = Serving::new(context, Nodes::default(), Servers { webhooks, subresources }, expires);
    Replica { serving, asked, _keeps: vec![webhooks_ready, subresources_ready] }
}

impl Replica {
    async fn get(&self, path: &str, token: Option<&str>) -> (StatusCode, String) {
        let mut request = Request::get(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let answer = routes(self.serving.clone()).oneshot(request.body(Answer::empty()).unwrap()).await.unwrap();
        let status = answer.status();
        let body = axum::body::to_bytes(answer.into_body(), 16 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// It leads, of one machine with its instance.
    fn lead(&self) -> Leadership {
        let (machines, mut machine_writer) = Known::<Machines>::new();
        let (instances, mut instance_writer) = Known::<Instances>::new();
        let (pods, _) = Known::<Pods>::new();
        let vm = json!({"metadata": {"name": "vm", "namespace": "ns", "uid": "u"}, "status": {"printableStatus": "Running"}});
        let vmi = json!({
            "metadata": {"name": "vm", "namespace": "ns", "uid": INSTANCE},
            "status": {"phase": "Running", "nodeName": "node-1"},
        });
        for event in [Event::Init, Event::InitApply(serde_json::from_value(vm).unwrap()), Event::InitDone] {
            machine_writer.note(event, &|_: &_| {});
        }
        for event in [Event::Init, Event::InitApply(serde_json::from_value(vmi).unwrap()), Event::InitDone] {
            instance_writer.note(event, &|_: &_| {});
        }
        self.serving.context.metrics.lead(Leading { machines, instances, pods })
    }
}

#[tokio::test]
async fn who_may_not_read_metrics_reaches_none_of_them() {
    let replica = replica();
    for (token, status) in [
        (None, StatusCode::UNAUTHORIZED),
        (Some("unknown"), StatusCode::UNAUTHORIZED),
        (Some("other"), StatusCode::FORBIDDEN),
    ] {
        for path in ["/metrics", "/metrics/nodes/node-1", "/other"] {
            let (found, body) = replica.get(path, token).await;
            assert_eq!(found, status, "{token:?} {path}");
            assert!(!body.contains("kubevirt_"), "{body}");
        }
    }
    let (_, text) = replica.get("/metrics", Some("good")).await;
    for (reason, count) in [("no_token", 3), ("invalid", 3), ("forbidden", 3), ("unknown", 0)] {
        let line = format!("garboard_metrics_requests_refused_total{{reason=\"{reason}\"}} {count}\n");
        assert!(text.contains(&line), "{line} in {text}");
    }
}

#[tokio::test]
async fn a_token_that_was_let_in_is_not_reviewed_with_each_scrape() {
    let replica = replica();
    let mut text = String::new();
    for _ in 0..3 {
        let (status, read) = replica.get("/metrics", Some("good")).await;
        assert_eq!(status, StatusCode::OK);
        text = read;
    }
    assert_eq!(replica.asked.lock().unwrap().len(), 2, "one TokenReview, one SubjectAccessReview");
    for resource in ["tokenreviews", "subjectaccessreviews"] {
        let labels = format!("code=\"201\",method=\"POST\",resource=\"{resource}\",verb=\"CREATE\"");
        let line = format!("kubevirt_rest_client_requests_total{{{labels}}} 1\n");
        assert!(text.contains(&line), "{line} in {text}");
    }
}

#[tokio::test]
async fn machines_are_those_of_the_leader_alone() {
    let replica = replica();
    let (_, text) = replica.get("/metrics", Some("good")).await;
    assert!(text.contains("kubevirt_virt_controller_leading_status 0\n"), "{text}");
    assert!(text.contains("kubevirt_virt_controller_ready_status 1\n") && !text.contains("kubevirt_vm"), "{text}");
    assert!(text.contains("garboard_certificate_expiration_timestamp_seconds 4000000000\n"), "{text}");
    let leads = replica.lead();
    let (_, text) = replica.get("/metrics", Some("good")).await;
    for line in [
        "kubevirt_virt_controller_leading_status 1\n",
        "kubevirt_vm_info{name=\"vm\",namespace=\"ns\",status=\"running\",status_group=\"running\"} 1\n",
        "kubevirt_vmi_info{node=\"node-1\",namespace=\"ns\",name=\"vm\",phase=\"running\",evictable=\"true\",outdated=\"false\"} 1\n",
        "kubevirt_vmi_number_of_outdated 0\n",
        "kubevirt_configuration_emulation_enabled 1\n",
        "kubevirt_workqueue_depth{name=\"virt-controller-vmi\"} 0\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    drop(leads);
    let (_, text) = replica.get("/metrics", Some("good")).await;
    assert!(!text.contains("kubevirt_vm_info"), "{text}");
}

/// The agent of a node without machines.
struct Agent;

impl Supervisors for Agent {
    async fn open(&self, _: &str) -> Result<Opened, Refusal> {
        Err(Refusal::NoSupervisor)
    }

    async fn metrics(&self) -> Option<String> {
        Some("garboard_node_machines{node=\"node-1\"} 0\n".to_owned())
    }
}

#[tokio::test]
async fn the_metrics_of_a_node_are_those_that_its_agent_sends() {
    let replica = replica();
    assert_eq!(replica.get("/metrics/nodes/node-1", Some("good")).await.0, StatusCode::NOT_FOUND);
    let (above, below) = UnixStream::pair().unwrap();
    tokio::spawn(agent::serve(below, Arc::new(Agent)));
    let nodes = replica.serving.nodes.clone();
    tokio::spawn(async move { nodes.serve("node-1", above).await });
    while !replica.serving.nodes.has("node-1") {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let (status, text) = replica.get("/metrics/nodes/node-1", Some("good")).await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "garboard_node_machines{node=\"node-1\"} 0\n"));
    let (_, own) = replica.get("/metrics", Some("good")).await;
    assert!(own.contains("garboard_connected_nodes 1\n"), "{own}");
}
