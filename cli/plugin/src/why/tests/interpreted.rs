//! Guests whose code KVM interprets.

use garboard_protocol::exit::ExitCause;
use serde_json::{Value, json};

use super::super::diagnosis::{DiagnosisVerdict, Health};
use super::{account, ended, event, interpreted, interpreted_and_ended, judge, only_the_event, with};

/// Each way out is named: of the whole cluster where that is not permitted yet, and of this machine.
#[test]
fn a_guest_that_kvm_interprets_is_shown_how_it_gets_faster() {
    let steps = |permitted: bool, has_vm: bool| {
        let setting = json!({"developerConfiguration": {"useEmulation": permitted}});
        let object =
            json!({"metadata": {"namespace": "garboard", "name": "kubevirt"}, "spec": {"configuration": setting}});
        let mut facts = with(interpreted(), json!({"kubevirts": [object]}));
        if !has_vm {
            facts["vm"] = Value::Null;
        }
        let diagnosis = judge(facts);
        assert_eq!((diagnosis.verdict, diagnosis.health), (DiagnosisVerdict::Interpreted, Health::Wrong));
        assert_eq!(diagnosis.also, [] as [&str; 0], "what the verdict says is no remark");
        diagnosis.next.join("\n")
    };
    let of_one = r#"{"annotations":{"garboard.dev/accelerator":"tcg"}}"#;
    let shown = steps(false, true);
    assert!(shown.contains("patch kubevirt") && shown.contains("kubectl garboard restart"), "{shown}");
    assert!(shown.contains(of_one), "{shown}");
    assert!(!steps(true, true).contains("patch kubevirt"));
    let alone = steps(false, false);
    assert!(alone.contains("garboard.dev/accelerator: tcg") && !alone.contains("patch vm"), "{alone}");
}

/// A KVM that interprets gives up at an instruction that it does not know: the way out is the same. The event outlives the instance.
#[test]
fn the_end_of_a_guest_that_kvm_interpreted_is_shown_how_the_next_run_gets_faster() {
    let gave_up = ExitCause::QemuFailed { code: 0 };
    let by_condition = interpreted_and_ended();
    let mut by_event = only_the_event(&account(&gave_up));
    let slow = event("VirtualMachineInstance", "KVMInterpretsGuestCode", "Warning", "KVM on this node")[0].clone();
    by_event["events"].as_array_mut().unwrap().push(slow);
    for (facts, place) in [(by_condition, "conditions[SoftwareEmulation]"), (by_event, "event KVMInterpretsGuestCode")]
    {
        let diagnosis = judge(facts);
        assert_eq!(diagnosis.verdict, DiagnosisVerdict::QemuFailed, "{diagnosis:#?}");
        let next = diagnosis.next.join("\n");
        assert!(next.contains("--emulation") && next.contains("garboard.dev/accelerator"), "{next}");
        assert!(diagnosis.evidence.iter().any(|each| each.field.starts_with(place)), "{diagnosis:#?}");
    }
    let elsewhere = judge(ended(&gave_up, "Manual")).next.join("\n");
    assert!(!elsewhere.contains("garboard.dev/accelerator"), "{elsewhere}");
}
