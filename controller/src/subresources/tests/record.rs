//! Parts of a machine's record through our own group.

use garboard_protocol::control::ControlRequest;
use garboard_protocol::part::RecordPart;
use serde_json::{Value, json};

use super::Api;
use super::instance::{PART, Played, connected, connected_to, of_ada, running};

pub(super) const OWN: &str = "/apis/subresources.garboard.dev/v1/namespaces/ns/virtualmachineinstances/vm";

/// Code and message of a refusal.
async fn refused(api: &Api, tail: &str) -> (u16, String) {
    let (code, status) =
        api.send(&["front-proxy-client"], &format!("GET {OWN}/{tail}"), Some("ada"), Value::Null).await;
    (code, status["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_part_is_passed_on_with_its_length_and_its_reader_learns_what_is_left_out() {
    let table = [
        ("plan", RecordPart::Plan, "application/json", None),
        ("plan/options", RecordPart::Options, "application/json", None),
        (
            "logs/qmp",
            RecordPart::Qmp,
            "text/plain; charset=utf-8",
            Some("299 - \"garboard: the first 7 bytes are left out\""),
        ),
        // It sends more than it has announced.
        (
            "logs/serial",
            RecordPart::Serial,
            "text/plain; charset=utf-8",
            Some("299 - \"garboard: the first 7 bytes are left out\""),
        ),
    ];
    let (api, played) = connected(running()).await;
    for (tail, part, media, warning) in table {
        let answer = api.ask("GET", &format!("{OWN}/{tail}"), Value::Null).await;
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(answer.status().as_u16(), 200, "{tail}");
        assert_eq!((header("content-type").as_deref(), header("warning").as_deref()), (Some(media), warning), "{tail}");
        assert_eq!(header("content-length"), Some(PART.len().to_string()), "{tail}");
        assert_eq!(axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap(), PART, "{tail}");
        assert_eq!(played.asked.lock().unwrap().pop(), Some(of_ada(ControlRequest::Show { part })), "{tail}");
    }
}

#[tokio::test]
async fn a_part_that_ends_before_its_end_is_an_error_and_no_shorter_part() {
    let (api, _) = connected(running()).await;
    let half = api.ask("GET", &format!("{OWN}/logs/qemu"), Value::Null).await;
    assert!(axum::body::to_bytes(half.into_body(), 1 << 20).await.is_err());
}

#[tokio::test]
async fn what_is_not_there_yet_is_not_found_and_what_may_come_later_says_so() {
    let (api, _) = connected(running()).await;
    assert_eq!(refused(&api, "logs/exit").await, (404, "this run has no exit.json yet".to_owned()));
    let (code, message) = refused(&api, "plan/facts").await;
    assert!(code == 503 && message.ends_with("try again"), "{code} {message}");
}

#[tokio::test]
async fn a_supervisor_of_an_earlier_version_is_named_with_the_way_that_it_has() {
    let (api, _) = connected_to(running(), Played::old()).await;
    for (tail, file) in [("plan", "plan.json"), ("logs/serial", "serial0.log")] {
        let (code, message) = refused(&api, tail).await;
        let way = format!(
            "kubectl exec -n ns virt-launcher-vm-12345678 -c launcher -- /usr/bin/garboard-launcher --show {file}"
        );
        assert!(
            code == 409 && message.contains("of an earlier version") && message.ends_with(&way),
            "{code} {message}"
        );
    }
}

#[tokio::test]
async fn a_machine_is_looked_into_before_its_guest_runs_and_not_when_its_run_is_over() {
    let of_phase = |phase: &str| {
        let mut vmi = running();
        vmi["status"]["phase"] = json!(phase);
        vmi
    };
    let (api, _) = connected(of_phase("Scheduled")).await;
    assert_eq!(api.ask("GET", &format!("{OWN}/logs/qmp"), Value::Null).await.status().as_u16(), 200);
    let (api, played) = connected(of_phase("Failed")).await;
    let (code, message) = refused(&api, "logs/qmp").await;
    assert!(code == 409 && message.contains("MachineRun with spec.machine=vm"), "{code} {message}");
    let mut nowhere = of_phase("Scheduling");
    nowhere["status"]["activePods"] = json!({});
    let (elsewhere, _) = connected(nowhere).await;
    let (code, message) = refused(&elsewhere, "plan").await;
    assert!(code == 409 && message.ends_with("no launcher pod on a node yet"), "{code} {message}");
    for tail in ["logs", "logs/vmi", "plan/serial"] {
        assert_eq!(refused(&api, tail).await.0, 400, "{tail}");
    }
    assert!(played.asked.lock().unwrap().is_empty(), "no supervisor is asked");
}
