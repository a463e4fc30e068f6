//! Probes of a machine as probes of the container `compute`.
//!
//! A kubelet reaches the guest's ports at the pod's address by itself. What goes through the guest agent is a command in
//! `compute` that asks the supervisor (`garboard-launcher --probe`).

use garboard_api::v1::Probe as VmiProbe;
use garboard_protocol::control::GuestQuestion;
use garboard_protocol::probe;
use k8s_openapi::api::core::v1::{ExecAction, Probe};

/// The initial delay in addition to that of the manifest, seconds (KubeVirt's).
const HEAD_START_SECONDS: i32 = 10;
/// The command itself has this much more time than the guest, seconds, so that it can report why.
const COMMAND_SECONDS: i32 = 1;

/// The probe of the container.
pub(super) fn of(vmi: &VmiProbe) -> Probe {
    let within = vmi.timeout_seconds.unwrap_or(1);
    let question = question(vmi);
    let timeout = if question.is_some() { within.saturating_add(COMMAND_SECONDS) } else { within };
    Probe {
        exec: question.map(|question| {
            let within = u32::try_from(within).unwrap_or(1);
            ExecAction { command: Some(probe::command(&question, within)) }
        }),
        http_get: vmi.http_get.clone(),
        tcp_socket: vmi.tcp_socket.clone(),
        initial_delay_seconds: Some(vmi.initial_delay_seconds.unwrap_or(0).saturating_add(HEAD_START_SECONDS)),
        timeout_seconds: Some(timeout),
        period_seconds: vmi.period_seconds,
        success_threshold: vmi.success_threshold,
        failure_threshold: vmi.failure_threshold,
        ..Probe::default()
    }
}

/// What the guest agent is asked.
fn question(vmi: &VmiProbe) -> Option<GuestQuestion> {
    if vmi.guest_agent_ping.is_some() {
        return Some(GuestQuestion::Ping);
    }
    let command = vmi.exec.as_ref()?.command.clone().unwrap_or_default();
    Some(GuestQuestion::Exec { command })
}
