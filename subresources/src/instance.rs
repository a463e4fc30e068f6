//! What is asked of a running instance, and when it is refused: KubeVirt's checks (`pkg/virt-api/rest/lifecycle.go`, `console.go`,
//! `vnc.go`, `usbredir.go`, `subresource.go`). Pure.

use garboard_api::conditions::VmiConditionType;
use garboard_api::{Phase, VirtualMachine, VirtualMachineInstance};

use crate::refusal::Refusal;
use crate::routes::{Question, Stream};

/// The wording of `pause`, `freeze` and `softreboot`, which speak of a VM.
pub(crate) const VM_NOT_RUNNING: &str = "VM is not running";
pub(crate) const VMI_NOT_RUNNING: &str = "VMI is not running";
const NO_AGENT: &str = "VMI does not have guest agent connected";
/// The wording is KubeVirt's, and its tests look for it.
const NO_WAY_TO_REBOOT: &str = "VMI neither have the agent connected nor the ACPI feature enabled";
const SNAPSHOT_IN_PROGRESS: &str = "VM snapshot is in progress";

pub(crate) fn is_running(vmi: &VirtualMachineInstance) -> bool {
    Phase::of(vmi) == Phase::Running
}

/// Whether the condition is there, whatever its status.
fn has(vmi: &VirtualMachineInstance, kind: VmiConditionType) -> bool {
    let mut conditions = vmi.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.r#type == kind.name())
}

pub(crate) fn is_paused(vmi: &VirtualMachineInstance) -> bool {
    has(vmi, VmiConditionType::Paused)
}

pub(crate) fn conflict(message: &str) -> Refusal {
    Refusal::Conflict(message.to_owned())
}

pub(crate) fn bad(message: &str) -> Refusal {
    Refusal::BadRequest(message.to_owned())
}

/// Whether a supervisor may be asked this.
///
/// # Errors
/// The instance is not in a state for it.
pub fn may_ask(question: Question, vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    match question {
        Question::Pause => pause(vmi),
        Question::Unpause => unpause(vmi),
        Question::Reset => reset(vmi),
        Question::SoftReboot => soft_reboot(vmi),
        Question::Freeze => thaw_or_freeze(vmi, VM_NOT_RUNNING),
        Question::Unfreeze => thaw_or_freeze(vmi, VMI_NOT_RUNNING),
    }
}

/// Whether what is done to the VirtualMachine of an instance leaves room for a question. While a snapshot is made of it, its guest
/// stays paused.
///
/// # Errors
/// It does not.
pub fn machine_permits(question: Question, vm: Option<&VirtualMachine>) -> Result<(), Refusal> {
    let is_snapshot = || {
        let status = vm.and_then(|vm| vm.status.as_ref());
        status.is_some_and(|status| status.snapshot_in_progress.is_some())
    };
    if question == Question::Unpause && is_snapshot() {
        return Err(Refusal::MachineConflict(SNAPSHOT_IN_PROGRESS.to_owned()));
    }
    Ok(())
}

/// Whether the guest agent may be asked.
///
/// # Errors
/// The instance does not run, or no agent is connected.
pub fn may_read(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    let conflict = |message: &str| Err(Refusal::ConflictAsError(message.to_owned()));
    if !is_running(vmi) {
        return conflict(VMI_NOT_RUNNING);
    }
    if has(vmi, VmiConditionType::AgentConnected) { Ok(()) } else { conflict(NO_AGENT) }
}

/// Whether a stream may be opened.
///
/// # Errors
/// The instance has none of the kind, or does not run.
pub fn may_open(stream: Stream, vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    match stream {
        Stream::Console => console(vmi),
        Stream::Vnc => vnc(vmi),
        Stream::UsbRedir => usb_redir(vmi),
    }
}

/// A liveness probe over the network would fail while the guest is paused, and end it. Probes of the guest agent are
/// answered by the supervisor, also then.
fn pause(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if !is_running(vmi) {
        return Err(conflict(VM_NOT_RUNNING));
    }
    if vmi.spec.liveness_probe.as_ref().is_some_and(|probe| probe.tcp_socket.is_some() || probe.http_get.is_some()) {
        return Err(Refusal::Forbidden("Pausing VMIs with LivenessProbe is currently not supported".to_owned()));
    }
    if is_paused(vmi) {
        return Err(conflict("VMI is already paused"));
    }
    Ok(())
}

fn unpause(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if !is_running(vmi) {
        return Err(conflict(VMI_NOT_RUNNING));
    }
    if is_paused(vmi) { Ok(()) } else { Err(conflict("VMI is not paused")) }
}

fn reset(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if is_running(vmi) {
        return Ok(());
    }
    let phase = Phase::of(vmi).name();
    Err(Refusal::Internal(format!("Failed to reset non-running VMI with phase {phase}: {VMI_NOT_RUNNING}")))
}

/// An agent can reboot the guest, and so can a power button, after which it is reset.
fn soft_reboot(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if !is_running(vmi) {
        return Err(conflict(VM_NOT_RUNNING));
    }
    if is_paused(vmi) {
        return Err(conflict("VMI is paused"));
    }
    let acpi = vmi.spec.domain.features.as_ref().and_then(|features| features.acpi.as_ref());
    let has_acpi = acpi.and_then(|acpi| acpi.enabled) != Some(false);
    if has_acpi || has(vmi, VmiConditionType::AgentConnected) {
        return Ok(());
    }
    Err(conflict(NO_WAY_TO_REBOOT))
}

/// Whether it has an agent that can do it, its supervisor knows best.
fn thaw_or_freeze(vmi: &VirtualMachineInstance, not_running: &str) -> Result<(), Refusal> {
    if is_running(vmi) { Ok(()) } else { Err(conflict(not_running)) }
}

fn console(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if vmi.spec.domain.devices.autoattach_serial_console == Some(false) {
        return Err(bad("No serial consoles are present."));
    }
    if Phase::of(vmi) == Phase::Failed {
        return Err(conflict("VMI is in failed status"));
    }
    if is_running(vmi) { Ok(()) } else { Err(bad(VMI_NOT_RUNNING)) }
}

fn vnc(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if vmi.spec.domain.devices.autoattach_graphics_device == Some(false) {
        return Err(bad("No graphics devices are present."));
    }
    if is_running(vmi) { Ok(()) } else { Err(bad(VMI_NOT_RUNNING)) }
}

fn usb_redir(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if vmi.spec.domain.devices.client_passthrough.is_none() {
        return Err(conflict("Not configured with USB Redirection"));
    }
    if is_running(vmi) { Ok(()) } else { Err(bad(VMI_NOT_RUNNING)) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vmi(phase: &str, paused: bool, more: Value) -> VirtualMachineInstance {
        let conditions = if paused { json!([{"type": "Paused", "status": "True"}]) } else { json!([]) };
        let mut vmi = json!({
            "metadata": {"name": "vm"}, "spec": {"domain": {"devices": {}}},
            "status": {"phase": phase, "conditions": conditions},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            vmi["spec"][key] = value.clone();
        }
        serde_json::from_value(vmi).unwrap()
    }

    /// The code of the refusal, 0 for none, and its text.
    fn outcome(refusal: Result<(), Refusal>) -> (u16, String) {
        refusal.map_or_else(|refusal| (refusal.code(), format!("{refusal:?}")), |()| (0, String::new()))
    }

    #[test]
    fn each_question_has_its_states() {
        let http = json!({"livenessProbe": {"httpGet": {"port": 80}}});
        let agent = json!({"livenessProbe": {"guestAgentPing": {}}});
        let table = [
            (Question::Pause, vmi("Running", false, Value::Null), 0, ""),
            (Question::Pause, vmi("Running", true, Value::Null), 409, "VMI is already paused"),
            (Question::Pause, vmi("Scheduled", false, Value::Null), 409, "VM is not running"),
            (Question::Pause, vmi("Running", false, http), 403, "LivenessProbe"),
            (Question::Pause, vmi("Running", false, agent), 0, ""),
            (Question::Unpause, vmi("Running", true, Value::Null), 0, ""),
            (Question::Unpause, vmi("Running", false, Value::Null), 409, "VMI is not paused"),
            (Question::Unpause, vmi("Succeeded", true, Value::Null), 409, "VMI is not running"),
            (Question::Freeze, vmi("Running", false, Value::Null), 0, ""),
            (Question::Freeze, vmi("Failed", false, Value::Null), 409, "VM is not running"),
            (Question::Unfreeze, vmi("Running", false, Value::Null), 0, ""),
            (Question::Unfreeze, vmi("Scheduled", false, Value::Null), 409, "VMI is not running"),
            (Question::Reset, vmi("Running", true, Value::Null), 0, ""),
            (Question::Reset, vmi("Scheduled", false, Value::Null), 500, "phase Scheduled"),
        ];
        for (question, vmi, code, text) in table {
            let found = outcome(may_ask(question, &vmi));
            assert!(found.0 == code && found.1.contains(text), "{question:?}: {found:?}");
        }
    }

    /// An instance that runs with these conditions and features.
    fn with(conditions: &[&str], features: Value) -> VirtualMachineInstance {
        let mut found = vmi("Running", false, json!({"domain": {"devices": {}, "features": features}}));
        let conditions = conditions.iter().map(|kind| json!({"type": kind, "status": "True"}));
        let conditions: Vec<Value> = conditions.collect();
        found.status = serde_json::from_value(json!({"phase": "Running", "conditions": conditions})).unwrap();
        found
    }

    #[test]
    fn a_soft_reboot_needs_a_way_to_ask_the_guest() {
        let no_acpi = || json!({"acpi": {"enabled": false}});
        let table = [
            (with(&[], Value::Null), 0, ""),
            (with(&[], json!({"acpi": {}})), 0, ""),
            (with(&[], no_acpi()), 409, "VMI neither have the agent connected nor the ACPI feature enabled"),
            (with(&["AgentConnected"], no_acpi()), 0, ""),
            (with(&["AgentConnected", "Paused"], Value::Null), 409, "VMI is paused"),
            (vmi("Scheduled", false, Value::Null), 409, "VM is not running"),
        ];
        for (vmi, code, text) in table {
            let found = outcome(may_ask(Question::SoftReboot, &vmi));
            assert!(found.0 == code && found.1.contains(text), "{found:?}");
        }
    }

    #[test]
    fn a_guest_stays_paused_while_a_snapshot_is_made() {
        let vm = |status: Value| -> VirtualMachine {
            serde_json::from_value(json!({"metadata": {"name": "vm"}, "spec": {}, "status": status})).unwrap()
        };
        let (busy, idle) = (vm(json!({"snapshotInProgress": "daily"})), vm(json!({})));
        let table = [
            (Question::Unpause, Some(&busy), 409, "VM snapshot is in progress"),
            (Question::Unpause, Some(&idle), 0, ""),
            (Question::Unpause, None, 0, ""),
            (Question::Pause, Some(&busy), 0, ""),
        ];
        for (question, vm, code, text) in table {
            let found = outcome(machine_permits(question, vm));
            assert!(found.0 == code && found.1.contains(text), "{question:?}: {found:?}");
        }
    }

    #[test]
    fn a_guest_is_read_through_its_agent() {
        let table = [
            (with(&["AgentConnected"], Value::Null), 0, ""),
            (with(&[], Value::Null), 500, "VMI does not have guest agent connected"),
            (vmi("Succeeded", false, Value::Null), 500, "VMI is not running"),
        ];
        for (vmi, code, text) in table {
            let found = outcome(may_read(&vmi));
            assert!(found.0 == code && found.1.contains(text), "{found:?}");
        }
    }

    #[test]
    fn a_stream_needs_its_device_and_a_running_guest() {
        let bare = || {
            let devices = json!({"autoattachSerialConsole": false, "autoattachGraphicsDevice": false});
            vmi("Running", false, json!({"domain": {"devices": devices}}))
        };
        let usb = |phase: &str| vmi(phase, false, json!({"domain": {"devices": {"clientPassthrough": {}}}}));
        let table = [
            (Stream::Console, vmi("Running", false, Value::Null), 0, ""),
            (Stream::Console, bare(), 400, "No serial consoles are present."),
            (Stream::Console, vmi("Failed", false, Value::Null), 409, "failed status"),
            (Stream::Console, vmi("Scheduled", false, Value::Null), 400, "VMI is not running"),
            (Stream::Vnc, vmi("Running", true, Value::Null), 0, ""),
            (Stream::Vnc, bare(), 400, "No graphics devices are present."),
            (Stream::Vnc, vmi("Failed", false, Value::Null), 400, "VMI is not running"),
            (Stream::UsbRedir, usb("Running"), 0, ""),
            (Stream::UsbRedir, usb("Scheduled"), 400, "VMI is not running"),
            (Stream::UsbRedir, vmi("Running", false, Value::Null), 409, "Not configured with USB Redirection"),
            (Stream::UsbRedir, vmi("Scheduled", false, Value::Null), 409, "Not configured with USB Redirection"),
        ];
        for (stream, vmi, code, text) in table {
            let found = outcome(may_open(stream, &vmi));
            assert!(found.0 == code && found.1.contains(text), "{stream:?}: {found:?}");
        }
    }
}
