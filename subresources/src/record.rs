//! Parts of a machine's record while it runs: which is asked for, and when none can be. The plan has what a machine is made of, logs what QEMU
//! and the guest have printed. When the run is over, its `MachineRun` has what is left. Pure.

use garboard_api::{Phase, VirtualMachineInstance};

use crate::refusal::Refusal;
use crate::route::Call;
use crate::routes::Shown;

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The plan that was executed.
    Plan,
    /// What the planner saw of the node.
    Facts,
    /// What else it was given.
    Options,
    /// What was sent on QEMU's monitor.
    Qmp,
    /// What QEMU printed.
    Qemu,
    /// What the guest printed on its serial console.
    Serial,
    /// How QEMU ended.
    Exit,
}

/// What follows `plan`.
const OF_PLAN: [(&str, Part); 2] = [("facts", Part::Facts), ("options", Part::Options)];
/// What follows `logs`.
const OF_LOGS: [(&str, Part); 4] =
    [("qmp", Part::Qmp), ("qemu", Part::Qemu), ("serial", Part::Serial), ("exit", Part::Exit)];

impl Part {
    /// That of a call.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn of(shown: Shown, call: &Call<'_>) -> Result<Self, Refusal> {
        let name = call.parameters.first().copied();
        let parts: &[(&str, Self)] = match (shown, name) {
            (Shown::Plan, None) => return Ok(Self::Plan),
            (Shown::Plan, Some(_)) => &OF_PLAN,
            (Shown::Logs, _) => &OF_LOGS,
        };
        let found = parts.iter().find(|(each, _)| Some(*each) == name);
        found.map(|(_, part)| *part).ok_or_else(|| {
            let base = call.route.subresource;
            let paths: Vec<String> = parts.iter().map(|(each, _)| format!("{base}/{each}")).collect();
            let whole = if shown == Shown::Plan { "plan, " } else { "" };
            Refusal::BadRequest(format!("there is no such part of the record: write {whole}{}", paths.join(", ")))
        })
    }

    /// Whether it is a JSON document; others are lines of text.
    #[must_use]
    pub const fn is_document(self) -> bool {
        match self {
            Self::Plan | Self::Facts | Self::Options | Self::Exit => true,
            Self::Qmp | Self::Qemu | Self::Serial => false,
        }
    }
}

/// Whether a supervisor may be asked: also one whose guest does not run yet.
///
/// # Errors
/// The run is over.
pub fn may_show(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    match Phase::of(vmi) {
        Phase::Pending | Phase::Scheduling | Phase::Scheduled | Phase::Running | Phase::Unknown => Ok(()),
        Phase::Succeeded | Phase::Failed => {
            let name = vmi.metadata.name.as_deref().unwrap_or_default();
            let text = format!(
                "the run is over; its record is the newest MachineRun with spec.machine={name} (kubectl get machineruns)"
            );
            Err(Refusal::Conflict(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::group::OWN_GROUP;
    use crate::route::{Endpoint, endpoint};
    use crate::routes::Action;

    fn part(tail: &str) -> Result<Part, Refusal> {
        let path = format!("/apis/{OWN_GROUP}/v1/namespaces/n/virtualmachineinstances/a/{tail}");
        let Ok(Endpoint::Call(call)) = endpoint("GET", &path) else { panic!("{path}") };
        let Action::Show(shown) = call.route.action else { panic!("{call:?}") };
        Part::of(shown, &call)
    }

    #[test]
    fn a_part_is_named_by_what_follows_the_subresource() {
        let table = [
            ("plan", Part::Plan),
            ("plan/facts", Part::Facts),
            ("plan/options", Part::Options),
            ("logs/qmp", Part::Qmp),
            ("logs/qemu", Part::Qemu),
            ("logs/serial", Part::Serial),
            ("logs/exit", Part::Exit),
        ];
        for (tail, expected) in table {
            assert_eq!(part(tail), Ok(expected), "{tail}");
        }
    }

    #[test]
    fn what_is_no_part_is_refused_with_those_that_are() {
        // Not by the other right, and no file of another name.
        for (tail, expected) in [
            ("plan/qmp", "write plan, plan/facts, plan/options"),
            ("plan/plan", "write plan, plan/facts, plan/options"),
            ("plan/vmi.json", "write plan, plan/facts, plan/options"),
            ("logs", "write logs/qmp, logs/qemu, logs/serial, logs/exit"),
            ("logs/plan", "write logs/qmp, logs/qemu, logs/serial, logs/exit"),
            ("logs/..%2fjournal.json", "write logs/qmp, logs/qemu, logs/serial, logs/exit"),
        ] {
            let Err(Refusal::BadRequest(message)) = part(tail) else { panic!("{tail}") };
            assert!(message.ends_with(expected), "{tail}: {message}");
        }
    }

    #[test]
    fn a_run_that_is_over_has_another_record() {
        for phase in Phase::ALL {
            let vmi = json!({"metadata": {"name": "web"}, "spec": {"domain": {"devices": {}}},
                "status": {"phase": phase.name()}});
            let refused = may_show(&serde_json::from_value(vmi).unwrap()).err();
            assert_eq!(refused.is_some(), phase.is_final(), "{phase:?}");
            if let Some(Refusal::Conflict(message)) = refused {
                assert!(message.contains("spec.machine=web"), "{message}");
            }
        }
    }
}
