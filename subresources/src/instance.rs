//! What is asked of a running instance, and when it is refused: KubeVirt's checks (`pkg/virt-api/rest/lifecycle.go`, `console.go`,
//! `vnc.go`). Pure.

use garboard_api::conditions::VmiConditionType;
use garboard_api::{Phase, VirtualMachineInstance};

use crate::refusal::Refusal;

/// The wording of `pause` and `freeze`, which speak of a VM.
const VM_NOT_RUNNING: &str = "VM is not running";
const VMI_NOT_RUNNING: &str = "VMI is not running";

fn is_running(vmi: &VirtualMachineInstance) -> bool {
    Phase::of(vmi) == Phase::Running
}

/// Whether the condition is there, whatever its status.
fn is_paused(vmi: &VirtualMachineInstance) -> bool {
    let mut conditions = vmi.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.r#type == VmiConditionType::Paused.word())
}

fn conflict(message: &str) -> Refusal {
    Refusal::Conflict(message.to_owned())
}

fn bad(message: &str) -> Refusal {
    Refusal::BadRequest(message.to_owned())
}

/// Stops the vCPUs.
///
/// # Errors
/// It does not run, is paused, or has a liveness probe that a paused guest would fail: one over the network. Probes of the
/// guest agent are answered by the supervisor, also while the guest is paused.
pub fn pause(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
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

/// Lets the vCPUs run again.
///
/// # Errors
/// It does not run, or is not paused.
pub fn unpause(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if !is_running(vmi) {
        return Err(conflict(VMI_NOT_RUNNING));
    }
    if !is_paused(vmi) {
        return Err(conflict("VMI is not paused"));
    }
    Ok(())
}

/// Presses the reset button.
///
/// # Errors
/// It does not run.
pub fn reset(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if is_running(vmi) {
        return Ok(());
    }
    let phase = Phase::of(vmi).word();
    Err(Refusal::Internal(format!("Failed to reset non-running VMI with phase {phase}: {VMI_NOT_RUNNING}")))
}

/// Opens the serial console.
///
/// # Errors
/// It has none, or does not run.
pub fn console(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if vmi.spec.domain.devices.autoattach_serial_console == Some(false) {
        return Err(bad("No serial consoles are present."));
    }
    if Phase::of(vmi) == Phase::Failed {
        return Err(conflict("VMI is in failed status"));
    }
    if is_running(vmi) { Ok(()) } else { Err(bad(VMI_NOT_RUNNING)) }
}

/// Opens the screen.
///
/// # Errors
/// It has none, or does not run.
pub fn vnc(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if vmi.spec.domain.devices.autoattach_graphics_device == Some(false) {
        return Err(bad("No graphics devices are present."));
    }
    if is_running(vmi) { Ok(()) } else { Err(bad(VMI_NOT_RUNNING)) }
}
