use garboard_protocol::control::ReportedPhase;
use garboard_protocol::exit::ExitCause;
pub(crate) use garboard_protocol::testing::running as report;
use serde_json::json;

use super::*;
use crate::pods::launcher_pod;
use crate::pods::tests::{POD, VMI, example};

pub(crate) fn pod() -> LauncherPod {
    launcher_pod(&example(), "node-1").unwrap()
}

pub(crate) fn vmi(status: serde_json::Value) -> VirtualMachineInstance {
    serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "namespace": "default", "uid": VMI, "resourceVersion": "7"},
        "spec": {"domain": {"cpu": {"cores": 2}, "devices": {"interfaces": [{"name": "default", "masquerade": {}}]}}},
        "status": status,
    }))
    .unwrap()
}

pub(crate) fn scheduled() -> serde_json::Value {
    json!({"phase": "Scheduled", "nodeName": "node-1", "activePods": {POD: "node-1"},
        "conditions": [{"type": "Ready", "status": "False"}]})
}

pub(crate) fn ended(cause: ExitCause) -> Status {
    let message = cause.message();
    Status {
        phase: ReportedPhase::Failed,
        ended: Some(Ended { cause, message, report: None, at_ms: 5_000 }),
        ..report(9)
    }
}

fn next(report: &Status, vmi: &VirtualMachineInstance) -> Option<VirtualMachineInstanceStatus> {
    next_status(report, &pod(), vmi, "node-1", Timestamp::from_second(60).unwrap())
}

#[test]
fn what_is_not_ours_is_not_written() {
    let mut elsewhere = scheduled();
    elsewhere["nodeName"] = json!("node-2");
    let mut another_pod = scheduled();
    another_pod["activePods"] = json!({"ffffffff-0000-0000-0000-000000000000": "node-1"});
    let mut unscheduled = scheduled();
    unscheduled.as_object_mut().unwrap().remove("nodeName");
    for status in [elsewhere, another_pod, unscheduled] {
        assert_eq!(next(&report(1), &vmi(status.clone())), None, "{status}");
    }
    let mut reborn = vmi(scheduled());
    reborn.metadata.uid = Some("another".into());
    assert_eq!(next(&report(1), &reborn), None);
    let mut bare = vmi(scheduled());
    bare.status = None;
    assert_eq!(next(&report(1), &bare), None);
}

#[test]
fn only_pods_that_the_controller_counts_are_believed() {
    for active in [json!({}), json!({"99999999-7c1f-4d57-9c5e-6f0c7d6a1b2c": "node-1"})] {
        let status = json!({"phase": "Scheduled", "nodeName": "node-1", "activePods": active});
        assert_eq!(next(&report(1), &vmi(status)), None);
    }
}

#[test]
fn a_report_is_cut_to_what_a_launcher_would_send() {
    let long = "\u{e4}".repeat(10_000);
    let mut reported = ended(ExitCause::GuestPanic);
    reported.ended.as_mut().unwrap().message.clone_from(&long);
    reported.machine.clone_from(&long);
    (reported.ended_helper, reported.pause_message) = (Some(long.clone()), Some(long.clone()));
    reported.taints = vec![long.clone(); 100];
    reported.access_credentials = Some(CredentialsStatus { synchronized: false, message: long.clone() });
    let addresses = vec!["10.0.2.2".to_owned(); 100];
    reported.interfaces = vec![InterfaceStatus { name: long.clone(), addresses, ..InterfaceStatus::default() }; 100];
    reported.guest = Some(GuestStatus { missing_commands: vec![long; 100], ..GuestStatus::default() });
    let reported = bounded(reported);
    let missing = &reported.guest.as_ref().unwrap().missing_commands;
    assert_eq!((missing.len(), missing[0].chars().count()), (12, 256));
    assert_eq!((reported.interfaces.len(), reported.interfaces[0].addresses.len()), (64, 64));
    assert_eq!(reported.interfaces[0].name.chars().count(), 256);
    assert_eq!((reported.taints.len(), reported.taints[0].chars().count()), (16, 256));
    let length = |text: Option<String>| text.unwrap().chars().count();
    assert_eq!((length(reported.ended_helper), length(reported.pause_message)), (256, 1024));
    assert_eq!(length(reported.access_credentials.map(|tried| tried.message)), 1024);
    assert_eq!((reported.machine.chars().count(), reported.ended.unwrap().message.chars().count()), (256, 1024));
    assert_eq!(bounded(report(3)), report(3));
}
