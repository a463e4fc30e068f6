//! What a machine was when it was started is written down (`ControllerRevision`), and no start or stop depends on it.

use super::*;

const REVISIONS: &str = "/apis/apps/v1/namespaces/ns/controllerrevisions";

#[tokio::test(start_paused = true)]
async fn a_start_is_recorded_before_it_begins_and_the_records_of_earlier_ones_go() {
    let mut again = machine("vm");
    again["metadata"]["generation"] = json!(2);
    again["status"] = json!({"observedGeneration": 1});
    let server = run([(MACHINES, vec![again]), (INSTANCES, vec![]), (PODS, vec![])], |_| {}).await;
    let state = server.0.lock().unwrap_or_else(PoisonError::into_inner);
    let changed = state.asked.iter().filter(|(_, path, _)| [REVISIONS, VMIS].contains(&path.as_str()));
    let changed: Vec<_> = changed.map(|(method, path, _)| (method.as_str(), path.as_str())).take(3).collect();
    assert_eq!(changed, [("POST", REVISIONS), ("DELETE", REVISIONS), ("POST", VMIS)]);
}

/// The name of the record in the instance that was made.
fn named_record(server: &Server) -> Vec<Value> {
    let made = server.asked(&Method::POST, VMIS).into_iter();
    made.map(|vmi| vmi["status"]["virtualMachineRevisionName"].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_record_is_refused_is_begun_without_it() {
    for (code, message) in [(403, "exceeded quota"), (422, "invalid"), (400, "denied the request")] {
        let refuse = |state: &mut State| {
            state.refused.insert(REVISIONS.to_owned(), (code, message));
        };
        let server = run([(MACHINES, vec![machine("vm")]), (INSTANCES, vec![]), (PODS, vec![])], refuse).await;
        assert_eq!(named_record(&server), [Value::Null], "{code}: the machine was started, once");
        let written = server.asked(&Method::PATCH, &format!("{VM}/status"));
        assert!(!written.iter().any(|body| body.to_string().contains("FailedCreate")), "{code}: {written:?}");
    }
    let server = run([(MACHINES, vec![machine("vm")]), (INSTANCES, vec![]), (PODS, vec![])], |_| {}).await;
    assert_eq!(named_record(&server), ["revision-start-vm-vm-uid-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_for_an_api_server_that_cannot_record_it_now_and_its_machine_reports_why() {
    let refuse = |state: &mut State| {
        state.refused.insert(REVISIONS.to_owned(), (500, "no leader"));
    };
    let server = run([(MACHINES, vec![machine("vm")]), (INSTANCES, vec![]), (PODS, vec![])], refuse).await;
    assert_eq!(server.asked(&Method::POST, VMIS), [] as [Value; 0]);
    let written = server.asked(&Method::PATCH, &format!("{VM}/status"));
    let failure = written[0]["status"]["conditions"].as_array().unwrap().iter().find(|each| each["type"] == "Failure");
    assert_eq!(failure.unwrap()["reason"], "FailedCreate");
    assert!(failure.unwrap()["message"].as_str().unwrap().contains("no leader"), "{failure:?}");
}

/// The record of this start, which is there already, with the UID of its controller.
fn is_there(state: &mut State, owner: &str) {
    state.refused.insert(REVISIONS.to_owned(), (409, "there is one"));
    let owners = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": owner, "controller": true}]);
    let name = "revision-start-vm-vm-uid-2";
    let metadata = json!({"name": name, "namespace": "ns", "ownerReferences": owners});
    let record = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "revision": 2});
    state.stored.insert(format!("{REVISIONS}/{name}"), record);
}

#[tokio::test(start_paused = true)]
async fn a_record_of_another_owner_keeps_its_machine_from_its_start_and_the_machine_reports_it() {
    let mut again = machine("vm");
    again["metadata"]["generation"] = json!(2);
    let taken = |state: &mut State| is_there(state, "another-uid");
    let server = run([(MACHINES, vec![again]), (INSTANCES, vec![]), (PODS, vec![])], taken).await;
    assert_eq!(server.asked(&Method::POST, VMIS), [] as [Value; 0]);
    assert_eq!(server.asked(&Method::DELETE, REVISIONS), [] as [Value; 0]);
    let written = server.asked(&Method::PATCH, &format!("{VM}/status"));
    let failure = written[0]["status"]["conditions"].as_array().unwrap().iter().find(|each| each["type"] == "Failure");
    assert_eq!(failure.unwrap()["reason"], "FailedCreate");
    let message = failure.unwrap()["message"].as_str().unwrap();
    assert!(
        message.ends_with("revision-start-vm-vm-uid-2 exists and belongs to another owner; delete it"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_deleted_since_is_made_anew() {
    let taken = |state: &mut State| {
        state.refused.insert(REVISIONS.to_owned(), (409, "there is one"));
    };
    let server = run([(MACHINES, vec![machine("vm")]), (INSTANCES, vec![]), (PODS, vec![])], taken).await;
    assert_eq!(server.asked(&Method::POST, VMIS), [] as [Value; 0]);
    assert!(server.asked(&Method::POST, REVISIONS).len() > 1, "it is tried again");
    let written = server.asked(&Method::PATCH, &format!("{VM}/status"));
    assert!(!written.iter().any(|body| body.to_string().contains("FailedCreate")), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn records_of_earlier_starts_go_also_where_this_ones_is_there_already() {
    let deletions = async |observed: i64| {
        let mut again = machine("vm");
        again["metadata"]["generation"] = json!(2);
        again["status"] = json!({"observedGeneration": observed});
        let known = |state: &mut State| is_there(state, "vm-uid");
        let server = run([(MACHINES, vec![again]), (INSTANCES, vec![]), (PODS, vec![])], known).await;
        assert_eq!(named_record(&server), ["revision-start-vm-vm-uid-2"]);
        server.asked(&Method::DELETE, REVISIONS).len()
    };
    assert_eq!(deletions(2).await, 0, "the same start again");
    assert_eq!(deletions(1).await, 1);
}

/// A machine that was changed since its instance was started, whose record cannot be read.
async fn changed(strategy: &str) -> Server {
    let mut vm = machine("vm");
    vm["metadata"]["generation"] = json!(2);
    vm["spec"]["runStrategy"] = json!(strategy);
    vm["spec"]["template"]["spec"]["hostname"] = json!("another");
    let mut vmi = instance(true);
    vmi["metadata"]["annotations"] = json!({"kubevirt.io/vm-generation": "1"});
    vmi["status"]["virtualMachineRevisionName"] = json!("revision-start-vm-vm-uid-1");
    run([(MACHINES, vec![vm]), (INSTANCES, vec![vmi]), (PODS, vec![])], |state| {
        state.refused.insert(format!("{REVISIONS}/revision-start-vm-vm-uid-1"), (500, "no leader"));
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_keeps_no_machine_from_its_stop_or_its_status() {
    let is_read = |server: &Server| server.reads().iter().any(|path| path.starts_with(REVISIONS));
    let halted = changed("Halted").await;
    assert!(!halted.asked(&Method::DELETE, VMI).is_empty(), "it is stopped");
    assert!(!is_read(&halted), "and nothing is asked for that");
    let runs = changed("Always").await;
    assert!(is_read(&runs));
    let written = runs.asked(&Method::PATCH, &format!("{VM}/status"));
    assert!(written.iter().any(|body| body.to_string().contains("RestartRequired")), "{written:?}");
}
