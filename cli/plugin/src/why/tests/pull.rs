//! Images that are being pulled, and those that cannot be.

use serde_json::{Value, json};

use super::super::diagnosis::{DiagnosisVerdict, Health};
use super::super::text::screen;
use super::{event, judge, waiting, with};

/// What the container runtime answers, and a part of what a person does about it.
#[test]
fn an_image_that_cannot_be_pulled_has_advice_by_the_cause() {
    let pull = "Failed to pull image \"r.example/guest:1\": failed to resolve reference \"r.example/guest:1\": ";
    let table = [
        ("dial tcp: lookup r.example on 10.0.0.10:53: i/o timeout", "node-1 does not reach the registry"),
        ("dial tcp 10.0.0.9:443: connect: connection refused", "node-1 does not reach the registry"),
        ("unexpected status: 401 unauthorized", "give a pull secret"),
        ("pull access denied, repository does not exist or may require authorization", "give a pull secret"),
        ("r.example/guest:1: not found", "correct its name or its tag"),
        ("manifest unknown", "correct its name or its tag"),
        ("something else", "correct the image, or give a pull secret"),
    ];
    for (cause, advice) in table {
        let failed = event("Pod", "Failed", "Warning", &format!("{pull}{}{cause}", "mirror: ".repeat(60)));
        let diagnosis = judge(with(waiting("launcher", "PodInitializing", ""), json!({"events": failed})));
        assert_eq!(diagnosis.verdict, DiagnosisVerdict::ImagePull);
        assert!(diagnosis.next[0].contains(advice), "{cause}: {:?}", diagnosis.next);
        let screen = screen(&diagnosis, jiff::Timestamp::default());
        let shown = cause.split(' ').next_back().unwrap();
        assert!(screen.lines().any(|line| line.contains("pod/") && line.contains(shown)), "{screen}");
    }
}

/// While the kubelet pulls there is no launcher whose log could be read.
#[test]
fn an_image_that_is_being_pulled_is_named_until_it_is_there() {
    let pulling = |others: &[Value]| {
        let begun = event("Pod", "Pulling", "Normal", "Pulling image \"r.example/guest:1\"")[0].clone();
        let events: Vec<Value> = [begun].into_iter().chain(others.iter().cloned()).collect();
        judge(with(waiting("launcher", "PodInitializing", ""), json!({"events": events})))
    };
    let diagnosis = pulling(&[]);
    assert_eq!((diagnosis.verdict, diagnosis.health), (DiagnosisVerdict::Starting, Health::Waiting));
    assert_eq!(diagnosis.cause, "node-1 is pulling the image r.example/guest:1, for 5 min");
    assert!(diagnosis.next.iter().all(|next| !next.contains("logs")), "{:?}", diagnosis.next);
    let pulled = |message: &str| event("Pod", "Pulled", "Normal", message)[0].clone();
    let over = pulling(&[pulled("Successfully pulled image \"r.example/guest:1\" in 3s")]);
    assert_eq!(over.cause, "its pod's containers are being made");
    let other = pulling(&[pulled("Container image \"garboard/launcher:0.1.0\" already present on machine")]);
    assert_eq!(other.cause, diagnosis.cause, "another image");
}
