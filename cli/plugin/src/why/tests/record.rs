//! Machines whose pod is gone, and the events with it: the record of the run is what is left.

use serde_json::{Value, json};

use super::super::diagnosis::DiagnosisVerdict;
use super::{judge, situation, vmi};
use crate::why::diagnose::diagnose;

fn runs(reason: &str, message: &str) -> Value {
    let run = |name: &str, reason: &str, message: &str, at: &str| {
        json!({"kind": "MachineRun", "metadata": {"name": name}, "spec": {"machine": "hello", "reason": reason,
            "message": message, "endedAt": at, "qemuOutput": "qemu: one\nqemu: no lock\n"}})
    };
    json!([
        run("hello-2", reason, message, "2026-01-01T00:55:00.000Z"),
        run("hello-1", "GuestShutdown", "the guest powered itself off", "2026-01-01T00:10:00.000Z"),
    ])
}

#[test]
fn a_run_that_ended_badly_is_explained_when_nothing_else_is_left() {
    let differs = json!({"vm": {"spec": {"runStrategy": "Manual"}}, "runs": runs("GuestPanic", "the kernel panicked")});
    let diagnosis = judge(differs);
    assert_eq!(diagnosis.verdict, DiagnosisVerdict::of_bad_end(garboard_protocol::exit::EndReason::GuestPanic));
    assert!(diagnosis.cause.contains("the kernel panicked"), "{diagnosis:?}");
    assert_eq!(diagnosis.evidence[0].object, "machinerun/hello-2");
    assert!(diagnosis.next.iter().any(|command| command == "kubectl garboard logs hello --last"), "{diagnosis:?}");
}

#[test]
fn what_qemu_printed_last_is_a_part_of_why_it_gave_up() {
    let differs = json!({"vm": {"spec": {"runStrategy": "Manual"}}, "runs": runs("QemuFailed", "QEMU gave up")});
    let diagnosis = judge(differs);
    assert!(diagnosis.cause.ends_with("QEMU gave up: qemu: no lock"), "{diagnosis:?}");
}

#[test]
fn a_halted_machine_is_halted_and_its_last_run_is_a_remark() {
    let differs = json!({"vm": {"spec": {"runStrategy": "Halted"}}, "runs": runs("GuestShutdown", "it was shut down")});
    let diagnosis = judge(differs);
    assert_eq!(diagnosis.verdict, DiagnosisVerdict::Halted);
    let remark = "its last run, 5 min ago: it was shut down; `kubectl garboard logs hello --last` has its record";
    assert!(diagnosis.also.iter().any(|also| also == remark), "{diagnosis:?}");
}

#[test]
fn the_record_of_an_earlier_instance_explains_no_other() {
    let mut all = runs("GuestPanic", "the kernel panicked");
    let failed = |runs: &Value| judge(json!({"vm": null, "vmi": vmi("Failed", json!([])), "runs": runs}));
    assert_eq!(failed(&all).verdict, DiagnosisVerdict::RunFailed);
    all[0]["spec"]["instanceUID"] = json!("u");
    assert!(failed(&all).cause.contains("the kernel panicked"));
}

#[test]
fn a_machine_that_is_no_more_has_left_a_record() {
    let mut facts = situation(json!({"runs": runs("OutOfMemory", "it used more memory than its limit")}));
    facts.vm = None;
    let diagnosis = diagnose(&facts);
    assert_eq!(diagnosis.verdict, DiagnosisVerdict::NotFound);
    assert_eq!(diagnosis.evidence[0].object, "machinerun/hello-2");
}
