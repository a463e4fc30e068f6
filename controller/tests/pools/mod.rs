//! Pools of machines: what is asked for and written, whichever number of machines there is.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use garboard_api::VirtualMachinePool;

use super::*;

const REVISIONS: &str = "/apis/apps/v1/namespaces/ns/controllerrevisions";
const REVISION: &str = "kubevirt.io/vm-pool-revision-name";
const DATA_VOLUMES: &str = "/apis/cdi.kubevirt.io/v1beta1/datavolumes";
const DISK: &str = "/apis/cdi.kubevirt.io/v1beta1/namespaces/ns/datavolumes/disk-0";

/// Its machines are halted, so that nothing is asked for their instances.
fn pool(spec: Value) -> Value {
    let mut whole = json!({"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "virtualMachineTemplate": {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}}},
    }});
    json_patch::merge(&mut whole, &spec);
    json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "pool-uid", "resourceVersion": "5", "generation": 1},
        "spec": whole,
    })
}

/// The name of the record of what its machines are made of.
fn revision(pool: &Value) -> String {
    let pool: VirtualMachinePool = serde_json::from_value(pool.clone()).unwrap();
    garboard_api::pool::revision_name(&pool)
}

/// One of its machines, by its number.
fn member(pool: &Value, number: u32) -> Value {
    let owner = json!([{"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "p",
        "uid": "pool-uid", "controller": true, "blockOwnerDeletion": true}]);
    json!({
        "metadata": {"name": format!("p-{number}"), "namespace": "ns", "uid": format!("uid-{number}"), "resourceVersion": "6",
            "generation": 1, "labels": {"app": "x", (REVISION): revision(pool)}, "ownerReferences": owner,
            "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"]},
        "spec": pool["spec"]["virtualMachineTemplate"]["spec"],
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "printableStatus": "Stopped", "runStrategy": "Halted"},
    })
}

/// A controller whose watches know these machines, while those of `there` are really there.
async fn with(pool: &Value, known: Vec<Value>, there: Vec<Value>, adapt: impl FnOnce(&mut State)) -> Server {
    run([(MACHINES, known), (INSTANCES, vec![]), (PODS, vec![])], |state| {
        state.listed.insert(POOLS, vec![pool.clone()]);
        state.stored.insert(POOL.to_owned(), pool.clone());
        state.listed.insert(VMS, there);
        adapt(state);
    })
    .await
}

fn created(server: &Server) -> Vec<String> {
    let bodies = server.asked(&Method::POST, VMS);
    bodies.iter().map(|body| body["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn looks(server: &Server) -> usize {
    server.reads().into_iter().filter(|path| path == POOL).count()
}

fn status(server: &Server) -> Value {
    server.asked(&Method::PATCH, &format!("{POOL}/status"))[0]["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn missing_machines_are_created_with_their_numbers_after_the_record_of_what_they_are_made_of() {
    let pool = pool(json!({"replicas": 3}));
    let server = with(&pool, vec![], vec![], |_| {}).await;
    let mut names = created(&server);
    names.sort();
    assert_eq!(names, ["p-0", "p-1", "p-2"]);
    assert_eq!(looks(&server), 1, "the pool is read once for all of them");
    let machine = &server.asked(&Method::POST, VMS)[0];
    assert_eq!(machine["metadata"]["labels"], json!({"app": "x", (REVISION): revision(&pool)}));
    let owner = &machine["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&json!("pool-uid"), &json!(true)));
    let status = status(&server);
    assert_eq!((&status["replicas"], &status["labelSelector"]), (&json!(0), &json!("app=x")));
    let state = server.0.lock().unwrap();
    let posts = state.asked.iter().filter(|(method, path, _)| method == Method::POST && !path.contains("events"));
    let posts: Vec<&str> = posts.map(|(_, path, _)| path.as_str()).collect();
    assert_eq!(posts, [REVISIONS, VMS, VMS, VMS]);
}

#[tokio::test(start_paused = true)]
async fn what_the_watch_has_not_delivered_yet_is_not_created_again() {
    let pool = pool(json!({}));
    let both = vec![member(&pool, 0), member(&pool, 1)];
    let server = with(&pool, vec![member(&pool, 0)], both, |_| {}).await;
    assert_eq!(created(&server), [] as [String; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_machine_has_is_left_to_it() {
    let pool = pool(json!({}));
    let mut alone = member(&pool, 0);
    alone["metadata"]["labels"] = json!({});
    alone["metadata"]["ownerReferences"] = json!([]);
    let server = with(&pool, vec![alone], vec![], |_| {}).await;
    let mut names = created(&server);
    names.sort();
    assert_eq!(names, ["p-1", "p-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_has_what_it_wants_costs_one_write_and_no_read() {
    let pool = pool(json!({}));
    let both = || vec![member(&pool, 0), member(&pool, 1)];
    let server = with(&pool, both(), both(), |_| {}).await;
    assert_eq!((created(&server).len(), looks(&server)), (0, 0));
    assert_eq!(server.asked(&Method::POST, REVISIONS), [] as [Value; 0]);
    let written = server.asked(&Method::PATCH, &format!("{POOL}/status"));
    let status = &written[0]["status"];
    assert_eq!((&status["replicas"], &status["readyReplicas"]), (&json!(2), &json!(2)));
    // The watch does not deliver what was written, so each look at the pool writes the same again.
    assert!(written.iter().all(|each| each["status"] == *status), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_creation_is_a_condition_and_one_request() {
    let server = with(&pool(json!({"replicas": 100})), vec![], vec![], |state| {
        state.refused.insert(VMS.to_owned(), (500, "exceeded quota"));
    })
    .await;
    let condition = status(&server)["conditions"][0].clone();
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("ReplicaFailure"), &json!("FailedScaleOut")));
    assert!(condition["message"].as_str().unwrap().contains("exceeded quota"), "{condition}");
    assert_eq!(server.asked(&Method::POST, VMS).len(), looks(&server), "each attempt sends one request, not a hundred");
}

#[tokio::test(start_paused = true)]
async fn a_paused_pool_only_reports() {
    let server = with(&pool(json!({"paused": true})), vec![], vec![], |_| {}).await;
    assert_eq!((created(&server).len(), looks(&server)), (0, 0));
    let condition = status(&server)["conditions"][0].clone();
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("ReplicaPaused"), &json!("SuccessfulPaused")));
}

#[tokio::test(start_paused = true)]
async fn machines_become_what_the_template_makes_now() {
    let hostname = |name: &str| {
        pool(json!({"replicas": 1, "virtualMachineTemplate": {"spec": {"template": {"spec": {"hostname": name}}}}}))
    };
    let (before, now) = (hostname("one"), hostname("two"));
    let old = revision(&before);
    let record = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1,
        "metadata": {"name": old, "namespace": "ns"},
        "data": {"virtualMachineTemplate": before["spec"]["virtualMachineTemplate"]}});
    let at = format!("{REVISIONS}/{old}");
    let path = at.clone();
    let server = with(&now, vec![member(&before, 0)], vec![], |state| {
        state.stored.insert(path, record);
        state.listed.remove(VMS);
    })
    .await;
    assert!(
        !server.reads().iter().any(|path| path == VMS),
        "a change names the version of its machine: none is listed"
    );
    assert!(!server.asked(&Method::GET, &at).is_empty(), "what it was made of is looked up");
    let made = &server.asked(&Method::POST, REVISIONS)[0];
    assert_eq!(made["metadata"]["name"], revision(&now));
    let written = server.asked(&Method::PATCH, &format!("{VMS}/p-0"));
    let change = written.iter().find(|body| body.get("spec").is_some()).unwrap();
    assert_eq!(change["spec"]["template"]["spec"]["hostname"], "two");
    assert_eq!(change["metadata"]["labels"], json!({(REVISION): revision(&now)}));
    assert_eq!((&change["metadata"]["uid"], &change["metadata"]["resourceVersion"]), (&json!("uid-0"), &json!("6")));
    assert_eq!(server.asked(&Method::DELETE, &format!("{VMS}/p-0")), [] as [Value; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_many_goes_with_what_it_owns() {
    let order = json!({"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}});
    let pool = pool(json!({"replicas": 1, "scaleInStrategy": order}));
    let both = || vec![member(&pool, 0), member(&pool, 1)];
    let server = with(&pool, both(), both(), |_| {}).await;
    let deletions = server.asked(&Method::DELETE, &format!("{VMS}/p-1"));
    assert_eq!(deletions[0]["propagationPolicy"], "Foreground");
    assert_eq!(deletions[0]["preconditions"], json!({"uid": "uid-1", "resourceVersion": "6"}));
    assert_eq!(server.asked(&Method::DELETE, &format!("{VMS}/p-0")), [] as [Value; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_written_since_it_was_seen_is_not_deleted_for_what_was_seen() {
    let pool = pool(json!({"replicas": 1, "autohealing": {}}));
    let mut failing = member(&pool, 0);
    failing["status"]["startFailure"] = json!({"consecutiveFailCount": 3});
    let path = format!("{VMS}/p-0");
    let server = with(&pool, vec![failing.clone()], vec![failing.clone()], |_| {}).await;
    let deletions = server.asked(&Method::DELETE, &path);
    assert_eq!(deletions[0]["preconditions"], json!({"uid": "uid-0", "resourceVersion": "6"}));
    let mut written = failing.clone();
    written["metadata"]["resourceVersion"] = json!("7");
    let server = with(&pool, vec![failing], vec![written], |_| {}).await;
    assert!(looks(&server) > 0, "it was looked at");
    assert_eq!(server.asked(&Method::DELETE, &path), [] as [Value; 0]);
}

/// A DataVolume that the machine `q-0` of another pool controls.
fn others_disk() -> Value {
    let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "q-0", "uid": "q-0-uid", "controller": true}]);
    json!({
        "metadata": {"name": "disk-0", "namespace": "ns", "uid": "disk-uid", "resourceVersion": "4", "ownerReferences": owner},
        "status": {"phase": "Succeeded"},
    })
}

/// The one machine of a pool whose template names a DataVolume as that of another pool does, beside these machines.
async fn with_others_disk(machines: Vec<Value>) -> Server {
    let storage = json!({"resources": {"requests": {"storage": "1Gi"}}});
    let brought = json!([{"metadata": {"name": "disk"}, "spec": {"source": {"blank": {}}, "storage": storage}}]);
    let devices = json!({"disks": [{"name": "root", "disk": {"bus": "virtio"}}]});
    let volumes = json!([{"name": "root", "dataVolume": {"name": "disk"}}]);
    let template = json!({"spec": {"domain": {"devices": devices}, "volumes": volumes}});
    let spec = json!({"runStrategy": "Always", "dataVolumeTemplates": brought, "template": template});
    let pool = pool(json!({"replicas": 1, "virtualMachineTemplate": {"spec": spec}}));
    let read: VirtualMachinePool = serde_json::from_value(pool.clone()).unwrap();
    let mut own = member(&pool, 0);
    own["spec"] = serde_json::to_value(garboard_api::pool::machine(&read, 0).spec).unwrap();
    let known = [vec![own.clone()], machines].concat();
    with(&pool, known, vec![own], |state| {
        state.listed.insert(DATA_VOLUMES, vec![others_disk()]);
        state.stored.insert(DISK.to_owned(), others_disk());
    })
    .await
}

/// Names of the instances that were made, and the conditions that the pool's machine reports.
fn started_and_reported(server: &Server) -> (Vec<String>, Vec<Value>) {
    let made = server.asked(&Method::POST, VMIS).into_iter();
    let names = made.map(|body| body["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    let written = server.asked(&Method::PATCH, &format!("{VMS}/p-0/status"));
    let conditions = written.iter().filter_map(|body| body["status"]["conditions"].as_array());
    (names, conditions.flatten().cloned().collect())
}

#[tokio::test(start_paused = true)]
async fn a_machine_runs_on_no_disk_of_another_pool_and_says_what_to_write() {
    let server = with_others_disk(vec![machine("q-0")]).await;
    let (started, reported) = started_and_reported(&server);
    assert!(!started.contains(&"p-0".to_owned()), "{started:?}");
    let failure = reported.iter().find(|each| each["type"] == "Failure").unwrap();
    assert_eq!(failure["reason"], "FailedDataVolumeCreate");
    let path = "spec.virtualMachineTemplate.spec.dataVolumeTemplates[0].metadata.name of the VirtualMachinePool p: ";
    let message = failure["message"].as_str().unwrap();
    assert!(message.starts_with(path) && message.contains("belongs to the VirtualMachine q-0"), "{message}");
    let state = server.0.lock().unwrap();
    let mut changes =
        state.asked.iter().filter(|(method, path, _)| method != Method::GET && path.contains("datavolumes"));
    assert_eq!(changes.next(), None, "what is another's is neither made nor written nor deleted");
}

#[tokio::test(start_paused = true)]
async fn a_machine_waits_for_the_end_of_what_a_machine_that_is_gone_has_left() {
    let server = with_others_disk(vec![]).await;
    let (started, reported) = started_and_reported(&server);
    assert_eq!(started, [] as [String; 0]);
    assert!(reported.iter().all(|each| each["type"] != "Failure"), "{reported:?}");
    let waits = reported.iter().find(|each| each["type"] == "DataVolumesReady").unwrap();
    assert!(waits["message"].as_str().unwrap().contains("is being removed"), "{waits}");
}

#[tokio::test(start_paused = true)]
async fn what_keeps_its_volumes_is_halted_and_marked_and_let_go_when_it_is_down() {
    let order =
        json!({"proactive": {"statePreservation": "Offline", "selectionPolicy": {"sortPolicy": "DescendingOrder"}}});
    let pool = pool(json!({"replicas": 1, "scaleInStrategy": order}));
    let path = format!("{VMS}/p-1");
    let both = || vec![member(&pool, 0), member(&pool, 1)];
    let server = with(&pool, both(), both(), |_| {}).await;
    let marked = |body: &Value| body["metadata"]["annotations"]["garboard.dev/leaves-pool"] == "p";
    let written = server.asked(&Method::PATCH, &path);
    let change = written.iter().find(|body| marked(body)).unwrap();
    assert_eq!(change["spec"]["runStrategy"], "Halted");
    assert_eq!(server.asked(&Method::DELETE, &path), [] as [Value; 0]);
    let mut down = member(&pool, 1);
    down["metadata"]["annotations"] = json!({"garboard.dev/leaves-pool": "p"});
    let both = || vec![member(&pool, 0), down.clone()];
    let server = with(&pool, both(), both(), |_| {}).await;
    let deletions = server.asked(&Method::DELETE, &path);
    assert_eq!(deletions[0]["propagationPolicy"], "Orphan");
    assert_eq!(deletions[0]["preconditions"], json!({"uid": "uid-1", "resourceVersion": "6"}));
}
