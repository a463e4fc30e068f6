//! The reconcilers against an API server that is a list of answers: what is asked for, what is written, and what is not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use garboard_api::cluster::Emulation;
use garboard_controller::context::Context;
use garboard_controller::settings::{Defaults, Settings};
use garboard_controller::{kubevirt, reconcilers};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::BoxError;

mod pools;
mod records;
mod sets;

const MACHINES: &str = "/apis/kubevirt.io/v1/virtualmachines";
const INSTANCES: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";
const PODS: &str = "/api/v1/pods";
const CLAIMS: &str = "/api/v1/persistentvolumeclaims";
const SETS: &str = "/apis/kubevirt.io/v1/virtualmachineinstancereplicasets";
const SET: &str = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstancereplicasets/set";
const POOLS: &str = "/apis/pool.kubevirt.io/v1beta1/virtualmachinepools";
const POOL: &str = "/apis/pool.kubevirt.io/v1beta1/namespaces/ns/virtualmachinepools/p";
const VMS: &str = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines";
const VM: &str = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/vm";
const VMI: &str = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances";

/// What the API server answers, and what it was asked.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// What lists have: what the watches know.
    listed: BTreeMap<&'static str, Vec<Value>>,
    /// What is really there, by its path.
    stored: BTreeMap<String, Value>,
    /// What is answered instead.
    refused: BTreeMap<String, (u16, &'static str)>,
    /// Method, path and body of every request but lists and watches.
    asked: Vec<(Method, String, Value)>,
    /// The account that each of them is to be judged as, if it is not the controller's own.
    as_account: Vec<Option<String>>,
}

/// A watch in which nothing happens.
struct Quiet;

impl Server {
    fn asked(&self, method: &Method, path: &str) -> Vec<Value> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let matching = state.asked.iter().filter(|(how, what, _)| how == method && what == path);
        matching.map(|(_, _, body)| body.clone()).collect()
    }

    /// What was read, in order. Whether the cluster has DataVolumes is asked once for all machines, and is not among it.
    fn reads(&self) -> Vec<String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read =
            state.asked.iter().filter(|(method, path, _)| method == Method::GET && !path.contains("datavolumes"));
        read.map(|(_, path, _)| path.clone()).collect()
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Either<Full<Bytes>, Quiet>>, BoxError> {
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or_default();
        let (path, query) = (head.uri.path().to_owned(), head.uri.query().unwrap_or_default().to_owned());
        if query.contains("watch=true") {
            return Ok(Response::new(Either::Right(Quiet)));
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (&Method::GET, Some(items)) = (&head.method, state.listed.get(path.as_str())) {
            return Ok(answer(200, &json!({"kind": "List", "metadata": {"resourceVersion": "9"}, "items": items})));
        }
        state.asked.push((head.method.clone(), path.clone(), body.clone()));
        let account = head.headers.get("impersonate-user").and_then(|value| value.to_str().ok());
        state.as_account.push(account.map(str::to_owned));
        if let Some((code, message)) = state.refused.get(&path) {
            return Ok(answer(*code, &failure(*code, message)));
        }
        Ok(match (head.method, state.stored.get(&path)) {
            (Method::GET, None) => answer(404, &failure(404, "not found")),
            (Method::GET, Some(object)) => answer(200, object),
            (Method::POST, _) => answer(201, &body),
            (_, Some(object)) => answer(200, object),
            (_, None) => answer(200, &json!({"metadata": {"name": "x"}})),
        })
    }
}

fn failure(code: u16, message: &str) -> Value {
    let reason = match code {
        404 => "NotFound",
        409 => "AlreadyExists",
        _ => "InternalError",
    };
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": reason})
}

fn answer(code: u16, body: &Value) -> Response<Either<Full<Bytes>, Quiet>> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body.to_string()))));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
    response
}

impl http_body::Body for Quiet {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        std::task::Poll::Pending
    }
}

fn machine(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-uid"), "resourceVersion": "5", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"]},
        "spec": {"runStrategy": "Always",
            "template": {"spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}}},
    })
}

fn instance(owned: bool) -> Value {
    let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "vm-uid", "controller": true}]);
    json!({
        "metadata": {"name": "vm", "namespace": "ns", "uid": "0123-vmi", "resourceVersion": "6", "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": if owned { owner } else { json!([]) }, "finalizers": ["foregroundDeleteVirtualMachine"]},
        "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}},
        "status": {"phase": "Running", "nodeName": "n"},
    })
}

/// Runs the reconcilers for some seconds, with what the watches know and what is really there.
async fn run(listed: [(&'static str, Vec<Value>); 3], adapt: impl FnOnce(&mut State)) -> Server {
    let server = Server::default();
    {
        let mut state = server.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (path, items) in &listed {
            let plural = path.rsplit('/').next().unwrap_or_default();
            for item in items {
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                let at = path.replace(plural, &format!("namespaces/ns/{plural}/{name}"));
                state.stored.insert(at, item.clone());
            }
        }
        state.listed = listed.into_iter().collect();
        state.listed.insert(CLAIMS, Vec::new());
        state.listed.insert(SETS, Vec::new());
        state.listed.insert(POOLS, Vec::new());
        adapt(&mut state);
    }
    let (context, _keeps) = controller(&server);
    // Without pauses in between, for time is skipped.
    let _ = tokio::time::timeout(Duration::from_secs(4), reconcilers::run(context)).await;
    server
}

/// A controller of this API server, without events, and what keeps its settings.
fn controller(server: &Server) -> (Context, watch::Sender<Settings>) {
    let answering = server.clone();
    let client = Client::new(tower::service_fn(move |request| answering.clone().answer(request)), "ns");
    let defaults = Defaults { emulation: Emulation::Permitted, image_pull_policy: "Never".to_owned() };
    let (keeps, settings) = watch::channel(Settings::of([], "garboard", &defaults));
    let (context, _no_events) = Context::new(client, "launcher:1".to_owned(), settings, "garboard".to_owned(), "1");
    (context, keeps)
}

#[tokio::test(start_paused = true)]
async fn one_object_that_cannot_be_read_is_its_own_problem() {
    let mut bad = machine("bad");
    bad["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = json!("1e1.5");
    let server = run([(MACHINES, vec![bad, machine("vm")]), (INSTANCES, vec![]), (PODS, vec![])], |_| {}).await;
    assert_eq!(server.asked(&Method::POST, VMIS).len(), 1, "the other machine was started");
    let path = VM.replace("/vm", "/bad") + "/status";
    let written = server.asked(&Method::PATCH, &path);
    let condition = &written[0]["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Failure"), &json!("Unreadable")));
    assert!(condition["message"].as_str().unwrap().contains("spec.template.spec.domain.memory.guest"), "{condition}");
}

#[tokio::test(start_paused = true)]
async fn a_kubevirt_object_that_cannot_be_read_keeps_no_other_from_its_status() {
    let object = |name: &str, configuration: Value| {
        let metadata = json!({"name": name, "namespace": "garboard", "uid": name, "resourceVersion": "5"});
        json!({"metadata": metadata, "spec": {"configuration": configuration}})
    };
    let mut again = object("again", json!({}));
    again["status"] =
        json!({"conditions": [{"type": "Degraded", "status": "True", "reason": "Unreadable", "message": "x"}]});
    let server = Server::default();
    {
        let mut state = server.0.lock().unwrap_or_else(PoisonError::into_inner);
        let objects = vec![object("bad", json!(5)), object("good", json!({})), again];
        state.listed.insert("/apis/kubevirt.io/v1/kubevirts", objects);
        state.listed.insert("/apis/apps/v1/namespaces/garboard/deployments", Vec::new());
        state.listed.insert("/apis/apps/v1/namespaces/garboard/daemonsets", Vec::new());
    }
    let (context, _keeps) = controller(&server);
    let _ = tokio::time::timeout(Duration::from_secs(4), kubevirt::run(context)).await;
    let statuses = |name: &str| {
        server.asked(&Method::PATCH, &format!("/apis/kubevirt.io/v1/namespaces/garboard/kubevirts/{name}/status"))
    };
    assert_eq!(statuses("good")[0]["status"]["conditions"][0]["type"], "Available");
    let condition = statuses("bad")[0]["status"]["conditions"][0].clone();
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Degraded"), &json!("Unreadable")));
    assert!(condition["message"].as_str().unwrap().contains("spec.configuration"), "{condition}");
    let freed = |body: &Value| body.get("status").is_none();
    assert!(statuses("again").iter().any(freed), "one that can be read again loses the condition");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_can_be_read_again_loses_the_condition() {
    let mut repaired = machine("vm");
    repaired["status"] =
        json!({"conditions": [{"type": "Failure", "status": "True", "reason": "Unreadable", "message": "x"}]});
    let server = run([(MACHINES, vec![repaired]), (INSTANCES, vec![]), (PODS, vec![])], |_| {}).await;
    let written = server.asked(&Method::PATCH, &format!("{VM}/status"));
    assert!(written.iter().any(|body| body.get("status").is_none()), "{written:?}");
    assert_eq!(server.asked(&Method::POST, VMIS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_reads_its_machine_once() {
    let server = run([(MACHINES, vec![machine("vm")]), (INSTANCES, vec![]), (PODS, vec![])], |_| {}).await;
    assert_eq!(server.asked(&Method::POST, VMIS).len(), 1);
    assert_eq!(server.reads(), [VM]);
}

/// An instance that has two claims and no pod yet, and those claims.
fn with_claims() -> (Value, Vec<Value>) {
    let mut vmi = instance(true);
    vmi["status"] = json!({});
    // Younger than this leader, or an earlier one may have made its pod.
    vmi["metadata"]["creationTimestamp"] = json!("2999-01-01T00:00:00Z");
    let names = ["root", "data"];
    let volume = |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let disk = |name: &&str| json!({"name": name, "disk": {"bus": "virtio"}});
    vmi["spec"]["volumes"] = names.iter().map(volume).collect();
    vmi["spec"]["domain"]["devices"]["disks"] = names.iter().map(disk).collect();
    let claim = |name: &&str| {
        json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-uid"), "resourceVersion": "7"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
        })
    };
    (vmi, names.iter().map(claim).collect())
}

#[tokio::test(start_paused = true)]
async fn claims_that_are_known_cost_a_start_no_read() {
    let (vmi, claims) = with_claims();
    let listed = [(MACHINES, vec![machine("vm")]), (INSTANCES, vec![vmi]), (PODS, vec![])];
    let server = run(listed, |state| {
        state.listed.insert(CLAIMS, claims);
    })
    .await;
    let made = server.asked(&Method::POST, "/api/v1/namespaces/ns/pods");
    assert_eq!(made.len(), 1, "{:?}", server.0.lock().unwrap().asked);
    assert!(made[0].to_string().contains("volumeDevices"), "the store keeps that they are block devices");
    assert_eq!(server.reads(), [VMI]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_the_watch_does_not_know_yet_is_asked_for() {
    let (vmi, claims) = with_claims();
    let listed = [(MACHINES, vec![machine("vm")]), (INSTANCES, vec![vmi]), (PODS, vec![])];
    let server = run(listed, |state| {
        for claim in claims {
            let name = claim["metadata"]["name"].as_str().unwrap();
            state.stored.insert(format!("/api/v1/namespaces/ns/persistentvolumeclaims/{name}"), claim);
        }
    })
    .await;
    assert_eq!(server.asked(&Method::POST, "/api/v1/namespaces/ns/pods").len(), 1);
    assert!(!server.asked(&Method::GET, "/api/v1/namespaces/ns/persistentvolumeclaims/root").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_another_name_is_not_the_machines_whatever_owner_it_names() {
    let mut other = instance(true);
    (other["metadata"]["name"], other["metadata"]["uid"]) = (json!("a"), json!("4567-vmi"));
    let server = run([(MACHINES, vec![machine("vm")]), (INSTANCES, vec![other]), (PODS, vec![])], |_| {}).await;
    assert_eq!(server.asked(&Method::POST, VMIS).len(), 1, "the machine was started");
    let written = server.asked(&Method::PATCH, &format!("{VM}/status"));
    assert!(!written.iter().any(|body| body["status"]["printableStatus"] == "Running"), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lags_does_not_start_a_machine_that_was_halted() {
    let server = run([(MACHINES, vec![machine("vm")]), (INSTANCES, vec![]), (PODS, vec![])], |state| {
        state.stored.get_mut(VM).unwrap()["spec"]["runStrategy"] = json!("Halted");
    })
    .await;
    assert_eq!(server.asked(&Method::POST, VMIS), [] as [Value; 0]);
    assert_eq!(server.asked(&Method::GET, VM).len(), 1, "it was read afresh");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lags_does_not_adopt_for_a_machine_that_is_deleted() {
    let listed = || [(MACHINES, vec![machine("vm")]), (INSTANCES, vec![instance(false)]), (PODS, vec![])];
    let server = run(listed(), |state| {
        state.stored.get_mut(VM).unwrap()["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:09Z");
    })
    .await;
    let owners = |body: &Value| body["metadata"].get("ownerReferences").is_some();
    assert!(!server.asked(&Method::PATCH, VMI).iter().any(owners), "its guest was to be kept");
    let server = run(listed(), |_| {}).await;
    assert!(server.asked(&Method::PATCH, VMI).iter().any(owners), "this one is to be adopted");
}

#[tokio::test(start_paused = true)]
async fn whatever_keeps_an_instance_from_being_made_is_reported_on_its_machine() {
    let message = "Internal error occurred: failed calling webhook istio";
    let server = run([(MACHINES, vec![machine("vm")]), (INSTANCES, vec![]), (PODS, vec![])], |state| {
        state.refused.insert(VMIS.to_owned(), (500, message));
    })
    .await;
    let written = server.asked(&Method::PATCH, &format!("{VM}/status"));
    let conditions = written[0]["status"]["conditions"].as_array().unwrap();
    let failure = conditions.iter().find(|each| each["type"] == "Failure").unwrap();
    assert!(failure["message"].as_str().unwrap().ends_with(message), "{failure}");
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": "pod-uid", "labels": {"kubevirt.io": "virt-launcher"},
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "0123-vmi", "controller": true}]},
        "spec": {"nodeName": "n", "containers": [{"name": "compute"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_found_by_its_owner_whatever_its_name() {
    let listed = [
        (MACHINES, vec![machine("vm")]),
        (INSTANCES, vec![instance(true)]),
        (PODS, vec![pod("of-an-earlier-release")]),
    ];
    let server = run(listed, |_| {}).await;
    let ready = |body: &Value| {
        body["status"]["conditions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|each| each["type"] == "Ready" && each["status"] == "True"))
    };
    let written = server.asked(&Method::PATCH, VMI);
    let reported = written.iter().find(|body| ready(body)).unwrap_or_else(|| panic!("{written:?}"));
    assert_eq!(reported["metadata"]["annotations"]["kubevirt.io/latest-observed-api-version"], "v1");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_written_keeps_no_instance_from_its_report() {
    let path = "/api/v1/namespaces/ns/pods/virt-launcher-vm-0123";
    for code in [400, 403, 500] {
        let mut vmi = instance(false);
        vmi["metadata"]["annotations"] = json!({"descheduler.alpha.kubernetes.io/evict": "true"});
        let listed = [(MACHINES, vec![]), (INSTANCES, vec![vmi]), (PODS, vec![pod("virt-launcher-vm-0123")])];
        let server = run(listed, |state| {
            state.refused.insert(path.to_owned(), (code, "denied the request"));
        })
        .await;
        assert!(!server.asked(&Method::PATCH, path).is_empty(), "{code}");
        let written = server.asked(&Method::PATCH, VMI);
        assert!(written.iter().any(|body| body.to_string().contains("\"Ready\"")), "{code}: {written:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_whose_pod_the_watch_does_not_know_is_asked_for_before_it_is_given_up() {
    let path = "/api/v1/namespaces/ns/pods";
    let listed = [(MACHINES, vec![machine("vm")]), (INSTANCES, vec![instance(true)]), (PODS, vec![])];
    let server = run(listed, |state| {
        state.stored.insert(path.to_owned(), json!({"metadata": {}, "items": [pod("virt-launcher-vm-0123")]}));
    })
    .await;
    assert!(!server.asked(&Method::GET, path).is_empty());
    let absent = |body: &Value| body.to_string().contains("PodNotExists");
    assert!(!server.asked(&Method::PATCH, VMI).iter().any(absent));
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_leader_asked_an_agent_keeps_a_second_pod_away() {
    let started = async |places: Value| {
        let mut vmi = instance(true);
        vmi["status"] = json!({"phase": "Pending", "nodeName": "n", "activePods": places});
        vmi["metadata"]["labels"] = json!({"kubevirt.io/nodeName": "n"});
        vmi["metadata"]["creationTimestamp"] = json!("2999-01-01T00:00:00Z");
        let node = json!({
            "metadata": {"name": "n", "annotations": {"kubevirt.io/heartbeat": "2999-01-01T00:00:00Z"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let listed = [(MACHINES, vec![machine("vm")]), (INSTANCES, vec![vmi]), (PODS, vec![])];
        let server = run(listed, |state| drop(state.stored.insert("/api/v1/nodes/n".to_owned(), node))).await;
        server.asked(&Method::POST, "/api/v1/namespaces/ns/pods").len()
    };
    assert_eq!(started(json!({"pod-uid": "n"})).await, 0, "its QEMU may run on node n");
    assert_eq!(started(json!({"pod-uid": ""})).await, 1, "the agent has reported that nothing is left");
}

#[tokio::test(start_paused = true)]
async fn data_volumes_alone_are_made_as_the_account_that_may_make_no_pods() {
    let mut bringer = machine("vm");
    bringer["spec"]["template"]["spec"]["volumes"] = json!([{"name": "root", "dataVolume": {"name": "root"}}]);
    bringer["spec"]["dataVolumeTemplates"] = json!([{"metadata": {"name": "root"},
        "spec": {"source": {"pvc": {"namespace": "other", "name": "disk"}}, "storage": {}}}]);
    let listed = [(MACHINES, vec![bringer, machine("plain")]), (INSTANCES, vec![]), (PODS, vec![])];
    let server = run(listed, |_| {}).await;
    let path = "/apis/cdi.kubevirt.io/v1beta1/namespaces/ns/datavolumes";
    let made = server.asked(&Method::POST, path);
    assert_eq!(made[0]["metadata"]["ownerReferences"][0]["uid"], "vm-uid");
    assert_eq!(server.asked(&Method::POST, VMIS).len(), 1, "the machine without a DataVolume was started");
    let state = server.0.lock().unwrap();
    for ((method, asked, _), account) in state.asked.iter().zip(&state.as_account) {
        let makes_one = method == Method::POST && asked == path;
        let wanted = makes_one.then_some("system:serviceaccount:garboard:garboard-datavolumes");
        assert_eq!(account.as_deref(), wanted, "{method} {asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_can_be_deleted() {
    let leaving = |mut object: Value, field: &str| {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
        *object.pointer_mut(field).unwrap() = json!({"guest": "1e1.5"});
        object
    };
    let vm = leaving(machine("vm"), "/spec/template/spec/domain/memory");
    let vmi = leaving(instance(true), "/spec/domain/memory");
    let store = |objects: Vec<(&'static str, Value)>| {
        move |state: &mut State| {
            state.stored.extend(objects.into_iter().map(|(path, object)| (path.to_owned(), object)));
        }
    };
    // First the pod …
    let pods = vec![pod("virt-launcher-vm-0123")];
    let stored = vec![(VM, vm.clone()), (VMI, vmi.clone())];
    let server = run([(MACHINES, vec![vm.clone()]), (INSTANCES, vec![vmi.clone()]), (PODS, pods)], store(stored)).await;
    assert_eq!(server.asked(&Method::DELETE, "/api/v1/namespaces/ns/pods/virt-launcher-vm-0123").len(), 1);
    let frees = |body: &Value| body.to_string().contains("finalizers");
    assert!(
        !server.asked(&Method::PATCH, VMI).iter().any(frees) && !server.asked(&Method::PATCH, VM).iter().any(frees)
    );
    // … then the machine, when nothing is left.
    let server = run([(MACHINES, vec![vm.clone()]), (INSTANCES, vec![]), (PODS, vec![])], store(vec![(VM, vm)])).await;
    assert!(server.asked(&Method::PATCH, VM).iter().any(frees));
}
