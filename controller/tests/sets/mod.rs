//! Sets of instances: what is asked for and written, whichever number of instances there is.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use super::*;

fn set(replicas: u32) -> Value {
    json!({
        "metadata": {"name": "set", "namespace": "ns", "uid": "set-uid", "resourceVersion": "5", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}}, "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}},
        }},
    })
}

/// One of its instances, by its number.
fn replica(number: u32) -> Value {
    let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "name": "set",
        "uid": "set-uid", "controller": true, "blockOwnerDeletion": true}]);
    json!({
        "metadata": {"name": name(number), "namespace": "ns", "uid": format!("uid-{number}"), "resourceVersion": "6",
            "labels": {"app": "x"}, "ownerReferences": owner, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}},
        "status": {"phase": "Running", "nodeName": "n", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn name(number: u32) -> String {
    let set = serde_json::from_value(set(0)).unwrap();
    garboard_api::set::name(&set, number.into())
}

/// A controller whose watches know these instances, while those of `there` are really there.
async fn with(replicas: u32, known: Vec<Value>, there: Vec<Value>) -> Server {
    run([(MACHINES, vec![]), (INSTANCES, known), (PODS, vec![])], |state| {
        state.listed.insert(SETS, vec![set(replicas)]);
        state.stored.insert(SET.to_owned(), set(replicas));
        state.listed.insert(VMIS, there);
    })
    .await
}

fn created(server: &Server) -> Vec<String> {
    let bodies = server.asked(&Method::POST, VMIS);
    bodies.iter().map(|body| body["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn of_the_set(server: &Server) -> Vec<String> {
    server.reads().into_iter().filter(|path| path == SET).collect()
}

#[tokio::test(start_paused = true)]
async fn missing_instances_are_created_with_the_names_of_their_numbers() {
    let server = with(3, vec![], vec![]).await;
    let mut names = created(&server);
    names.sort();
    let mut expected: Vec<String> = (0..3).map(name).collect();
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(of_the_set(&server).len(), 1, "the set is read once for all of them");
    let owner = &server.asked(&Method::POST, VMIS)[0]["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&json!("set-uid"), &json!(true)));
    let status = &server.asked(&Method::PATCH, &format!("{SET}/status"))[0]["status"];
    assert_eq!((&status["replicas"], &status["labelSelector"]), (&json!(0), &json!("app=x")));
}

#[tokio::test(start_paused = true)]
async fn what_the_watch_has_not_delivered_yet_is_not_created_again() {
    let server = with(2, vec![replica(0)], vec![replica(0), replica(1)]).await;
    assert_eq!(created(&server), [] as [String; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_set_that_has_what_it_wants_costs_one_write_and_no_read() {
    let both = || vec![replica(0), replica(1)];
    let server = with(2, both(), both()).await;
    assert_eq!((created(&server).len(), of_the_set(&server).len()), (0, 0));
    let written = server.asked(&Method::PATCH, &format!("{SET}/status"));
    let status = &written[0]["status"];
    assert_eq!((&status["replicas"], &status["readyReplicas"]), (&json!(2), &json!(2)));
    // The watch does not deliver what was written, so each look at the set writes the same again.
    assert!(written.iter().all(|each| each["status"] == *status), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_creation_is_a_condition_and_one_request() {
    let server = run([(MACHINES, vec![]), (INSTANCES, vec![]), (PODS, vec![])], |state| {
        state.listed.insert(SETS, vec![set(100)]);
        state.stored.insert(SET.to_owned(), set(100));
        state.listed.insert(VMIS, vec![]);
        state.refused.insert(VMIS.to_owned(), (500, "exceeded quota"));
    })
    .await;
    let condition = server.asked(&Method::PATCH, &format!("{SET}/status"))[0]["status"]["conditions"][0].clone();
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("ReplicaFailure"), &json!("FailedCreate")));
    assert!(condition["message"].as_str().unwrap().contains("exceeded quota"), "{condition}");
    let attempts = of_the_set(&server).len();
    assert_eq!(server.asked(&Method::POST, VMIS).len(), attempts, "each attempt sends one request, not a hundred");
}

#[tokio::test(start_paused = true)]
async fn one_more_of_many_costs_one_request_beside_the_two_that_look() {
    let all = || (0..300).map(replica).collect();
    let server = with(301, all(), all()).await;
    let created = created(&server);
    assert!(!created.is_empty() && created.iter().all(|each| *each == name(300)), "{created:?}");
    assert_eq!(created.len(), of_the_set(&server).len());
}
