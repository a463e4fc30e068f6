//! `kubectl garboard pause | unpause | reset | soft-reboot | freeze | unfreeze`: subresources of an instance, which the controller
//! answers when the supervisor has done it, or has accepted it.

use std::time::{Duration, Instant};

use garboard_api::VirtualMachineInstance;
use garboard_api::conditions::VmiConditionType;
use serde_json::{Value, json};

use crate::args::GuestActionArgs;
use crate::exit::{FAILED, exit_error};
use crate::failure::Failure;
use crate::find;
use crate::kubectl::{Kubectl, failed};
use crate::output::outln;
use crate::pause;
use crate::several;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestAction {
    /// Its vCPUs are stopped.
    Pause,
    /// They run again.
    Unpause,
    /// Its reset button is pressed.
    Reset,
    /// Its guest is asked to shut down and start again.
    SoftReboot,
    /// Its file systems are frozen.
    Freeze {
        /// After how many seconds they are thawed unasked.
        thaw_after_seconds: Option<u64>,
    },
    /// Its file systems are thawed.
    Unfreeze,
}

impl GuestAction {
    /// The subresource.
    const fn verb(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Unpause => "unpause",
            Self::Reset => "reset",
            Self::SoftReboot => "softreboot",
            Self::Freeze { .. } => "freeze",
            Self::Unfreeze => "unfreeze",
        }
    }

    fn body(self) -> Value {
        match self {
            Self::Freeze { thaw_after_seconds } => {
                json!({ "unfreezeTimeout": format!("{}s", thaw_after_seconds.unwrap_or_default()) })
            }
            Self::Pause | Self::Unpause | Self::Reset | Self::SoftReboot | Self::Unfreeze => json!({}),
        }
    }

    /// The state afterwards, as on a bare host. A guest takes as long as it likes for a reboot, or does not do it.
    const fn result(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Unpause => "running",
            Self::Reset => "reset",
            Self::SoftReboot => "is to reboot",
            Self::Freeze { .. } => "frozen",
            Self::Unfreeze => "thawed",
        }
    }

    /// Whether the instance shows that state; nothing where it shows none.
    fn shows(self, vmi: &VirtualMachineInstance) -> Option<bool> {
        let mut conditions = vmi.status.iter().flat_map(|status| &status.conditions);
        let is_paused = conditions.any(|condition| condition.r#type == VmiConditionType::Paused.name());
        match self {
            Self::Pause => Some(is_paused),
            Self::Unpause => Some(!is_paused),
            Self::Reset | Self::SoftReboot | Self::Freeze { .. } | Self::Unfreeze => None,
        }
    }
}

/// `kubectl garboard pause MACHINE…` and its like.
pub(crate) fn run(kubectl: &Kubectl, args: &GuestActionArgs, action: GuestAction) -> anyhow::Result<u8> {
    let patience = Duration::from_secs(args.timeout);
    several::each(&args.machines, |name| settle(kubectl, name, action, patience))
}

fn settle(kubectl: &Kubectl, name: &str, action: GuestAction, patience: Duration) -> anyhow::Result<()> {
    let running = find::running(kubectl, name)?;
    let (machine, result) = (running.machine(), action.result());
    let deadline = Instant::now() + patience;
    match running.subresource(action.verb()).put(kubectl, &action.body(), Some(patience)) {
        Ok(()) => await_shown(kubectl, name, action, deadline),
        // The controller looks at the same instance: what it refuses because it is so is no failure.
        Err(Failure::Refused(_)) if shown(kubectl, name, action) == Some(true) => {
            return outln!("{machine} is {result} already");
        }
        Err(Failure::NoAnswer(text)) => {
            let question = if action == GuestAction::SoftReboot { result.to_owned() } else { format!("is {result}") };
            return Err(exit_error(FAILED, format!("it is unknown whether {machine} {question}: {text}")));
        }
        Err(failure) => return Err(failed(failure)),
    }
    outln!("{machine} {result}")
}

fn shown(kubectl: &Kubectl, name: &str, action: GuestAction) -> Option<bool> {
    find::objects(kubectl, name).ok()?.1.and_then(|vmi| action.shows(&vmi))
}

/// It is done; the instance shows it a moment later. What is asked next is decided by what it shows.
fn await_shown(kubectl: &Kubectl, name: &str, action: GuestAction, deadline: Instant) {
    while matches!(action, GuestAction::Pause | GuestAction::Unpause)
        && shown(kubectl, name, action) == Some(false)
        && Instant::now() < deadline
    {
        pause::between_questions();
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::exit::{REFUSED, code_of};

    /// A cluster with one instance: what it answers to a PUT, and whether its guest is paused.
    fn outcome(action: GuestAction, refusal: &str, is_paused: bool) -> (anyhow::Result<()>, String) {
        let directory = tempfile::tempdir().unwrap();
        let conditions = if is_paused { json!([{"type": "Paused", "status": "True"}]) } else { json!([]) };
        let vmi = json!({"kind": "VirtualMachineInstance", "metadata": {"name": "hello", "namespace": "tenant"},
            "spec": {"domain": {"devices": {}}}, "status": {"phase": "Running", "conditions": conditions}});
        let calls = directory.path().join("calls");
        let put = if refusal.is_empty() { "exit 0".to_owned() } else { format!("echo '{refusal}' >&2; exit 1") };
        let script = format!(
            "case $1 in\nget) echo '{vmi}' ;;\nreplace) echo \"$3\" >>'{0}'; cat >>'{0}'; {put} ;;\nesac",
            calls.display()
        );
        let kubectl = Kubectl::played(directory.path(), &script);
        let outcome = settle(&kubectl, "hello", action, Duration::from_secs(1));
        (outcome, std::fs::read_to_string(calls).unwrap_or_default())
    }

    #[test]
    fn each_action_is_a_subresource_with_its_body() {
        let freeze = GuestAction::Freeze { thaw_after_seconds: Some(30) };
        let table = [
            (GuestAction::Pause, true, "pause\n{}"),
            (GuestAction::Unpause, false, "unpause\n{}"),
            (GuestAction::Reset, false, "reset\n{}"),
            (GuestAction::SoftReboot, false, "softreboot\n{}"),
            (freeze, false, "freeze\n{\"unfreezeTimeout\":\"30s\"}"),
            (GuestAction::Freeze { thaw_after_seconds: None }, false, "freeze\n{\"unfreezeTimeout\":\"0s\"}"),
            (GuestAction::Unfreeze, false, "unfreeze\n{}"),
        ];
        for (action, is_paused, expected) in table {
            let (outcome, asked) = outcome(action, "", is_paused);
            outcome.unwrap();
            assert!(asked.ends_with(&format!("/virtualmachineinstances/hello/{expected}")), "{action:?}: {asked}");
        }
    }

    #[test]
    fn what_is_so_already_is_no_failure_and_what_is_not_is_one() {
        let conflict = |text: &str| {
            format!(
                "Error from server (Conflict): Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"hello\": {text}"
            )
        };
        outcome(GuestAction::Pause, &conflict("VMI is already paused"), true).0.unwrap();
        outcome(GuestAction::Unpause, &conflict("VMI is not paused"), false).0.unwrap();
        let table = [
            (
                GuestAction::Pause,
                conflict("the guest is being stopped"),
                REFUSED,
                "tenant/hello: the guest is being stopped",
            ),
            (GuestAction::Freeze { thaw_after_seconds: None }, conflict("no agent"), REFUSED, "tenant/hello: no agent"),
            (
                GuestAction::Reset,
                "Unable to connect to the server: (Client.Timeout exceeded)".to_owned(),
                FAILED,
                "it is unknown whether tenant/hello is reset: ",
            ),
        ];
        for (action, refusal, code, text) in table {
            let error = outcome(action, &refusal, false).0.unwrap_err();
            assert!(code_of(&error) == code && error.to_string().starts_with(text), "{action:?}: {error:#}");
        }
    }
}
