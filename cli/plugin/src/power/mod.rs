//! `kubectl garboard start | stop | restart`: what is to run, asked of the API as KubeVirt's clients do, and seen through.
//!
//! ```text
//!   VirtualMachine, instance ──decide (pure)──► spec.runStrategy, or status.stateChangeRequests ──► wait ──► result
//! ```

mod decide;

use std::time::{Duration, Instant};

use garboard_api::run_strategy::RunStrategy;
use garboard_api::{Phase, VirtualMachine, VirtualMachineInstance};
use garboard_protocol::control::{ControlRequest, StopMode};
use serde_json::json;

use crate::args::{PowerArgs, StopArgs};
use crate::exit::{FAILED, NOT_FOUND, REFUSED, exit_error};
use crate::failure::Failure;
use crate::find;
use crate::kubectl::{Kubectl, failed};
use crate::link::Link;
use crate::output::{note, outln};
use crate::several;
use decide::{Change, Decision, PowerAction, decide, lasting};

/// The controller writes the same status; it is read again this often before that is given up.
const ATTEMPTS: u32 = 10;

/// `kubectl garboard start MACHINE…`.
pub(super) fn start(kubectl: &Kubectl, args: &PowerArgs) -> anyhow::Result<u8> {
    several::each(&args.machines, |name| bring_about(kubectl, args, name, PowerAction::Start, None))
}

/// `kubectl garboard restart MACHINE…`.
pub(super) fn restart(kubectl: &Kubectl, args: &PowerArgs) -> anyhow::Result<u8> {
    several::each(&args.machines, |name| bring_about(kubectl, args, name, PowerAction::Restart, None))
}

/// `kubectl garboard stop MACHINE…`.
pub(super) fn stop(kubectl: &Kubectl, args: &StopArgs) -> anyhow::Result<u8> {
    let mode = match (args.force, args.grace_period) {
        (true, _) => Some(StopMode::Force),
        (false, Some(seconds)) => Some(StopMode::Graceful { within_seconds: Some(seconds) }),
        (false, None) => None,
    };
    several::each(&args.power.machines, |name| bring_about(kubectl, &args.power, name, PowerAction::Stop, mode))
}

fn bring_about(
    kubectl: &Kubectl,
    args: &PowerArgs,
    name: &str,
    action: PowerAction,
    mode: Option<StopMode>,
) -> anyhow::Result<()> {
    let Asked { machine, before, already } = ask(kubectl, name, action)?;
    if let Some(state) = already {
        return outln!("{machine} {state} already");
    }
    if let Some(mode) = mode {
        hasten(kubectl, name, mode);
    }
    if args.no_wait {
        return outln!("{machine} is to {}", action.verb());
    }
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    loop {
        let (_, vmi) = find::objects(kubectl, name).map_err(failed)?;
        match seen(action, vmi.as_ref(), before.as_deref()) {
            Seen::Done(state) => return outln!("{machine} {state}"),
            Seen::Over(state) => {
                let text = format!("{machine} {state}; `kubectl garboard why {name}` shows why");
                return Err(exit_error(FAILED, text));
            }
            Seen::NotYet if Instant::now() >= deadline => {
                let text = format!(
                    "{machine} is to {}, and did not within {} s; `kubectl garboard why {name}` shows what it waits for",
                    action.verb(),
                    args.timeout
                );
                return Err(exit_error(FAILED, text));
            }
            Seen::NotYet => crate::pause::between_questions(),
        }
    }
}

/// What was asked of the cluster.
struct Asked {
    /// `NAMESPACE/NAME`.
    machine: String,
    /// The UID of the instance that there was.
    before: Option<String>,
    /// The machine is so already.
    already: Option<&'static str>,
}

fn ask(kubectl: &Kubectl, name: &str, action: PowerAction) -> anyhow::Result<Asked> {
    for _ in 0..ATTEMPTS {
        let (vm, vmi) = find::objects(kubectl, name).map_err(failed)?;
        let Some(vm) = vm else { return Err(without_vm(kubectl, name, vmi.as_ref(), action)) };
        let asked = Asked {
            machine: format!("{}/{name}", vm.metadata.namespace.clone().unwrap_or_default()),
            before: vmi.as_ref().and_then(|vmi| vmi.metadata.uid.clone()),
            already: None,
        };
        match decide(action, &vm, vmi.as_ref()) {
            Decision::Already(state) => return Ok(Asked { already: Some(state), ..asked }),
            Decision::Wait => return Ok(asked),
            Decision::Refused(message) => return Err(exit_error(REFUSED, format!("{}: {message}", asked.machine))),
            Decision::Change(change) => match apply(kubectl, &vm, name, &change) {
                Ok(()) => {
                    if let Some(text) = lasting(action, RunStrategy::of(&vm), &change) {
                        note!("garboard: {}: {text}", asked.machine);
                    }
                    return Ok(asked);
                }
                Err(Failure::Other(text)) if text.contains("has been modified") => {}
                Err(failure) => return Err(failed(failure)),
            },
        }
    }
    Err(exit_error(FAILED, format!("{name} changes all the time; try again")))
}

fn apply(kubectl: &Kubectl, vm: &VirtualMachine, name: &str, change: &Change) -> Result<(), Failure> {
    let object = format!("virtualmachines.kubevirt.io/{name}");
    let (patch, subresource) = match change {
        Change::Spec(spec) => (json!({ "spec": spec }), None),
        // Only onto what was looked at: a request that came meanwhile is not written over.
        Change::Requests(requests) => {
            let version = json!({ "resourceVersion": vm.metadata.resource_version });
            let status = json!({ "stateChangeRequests": requests });
            (json!({ "metadata": version, "status": status }), Some("--subresource=status"))
        }
    };
    let patch = patch.to_string();
    let mut arguments = vec!["patch", &object, "--type=merge", "-p", &patch];
    arguments.extend(subresource);
    kubectl.run(&arguments).map(|_| ())
}

fn without_vm(
    kubectl: &Kubectl,
    name: &str,
    vmi: Option<&VirtualMachineInstance>,
    action: PowerAction,
) -> anyhow::Error {
    if vmi.is_none() {
        return exit_error(NOT_FOUND, find::unknown(kubectl, name));
    }
    let instead = match action {
        PowerAction::Stop => format!("`kubectl delete vmi {name}` ends it"),
        PowerAction::Start | PowerAction::Restart => "make a VirtualMachine of it to start it again".to_owned(),
    };
    exit_error(REFUSED, format!("{name} is an instance without a VirtualMachine, which is one run; {instead}"))
}

/// Sends the supervisor how long the guest may take. The stop itself is under way, so that this is no failure.
fn hasten(kubectl: &Kubectl, name: &str, mode: StopMode) {
    let asked = find::place(kubectl, name).and_then(|place| {
        let Link { mut line, exec } = Link::open(kubectl, &place)?;
        let outcome = line.request(ControlRequest::Stop { mode }).map(|_| ());
        drop(line);
        exec.close(outcome)
    });
    if let Err(error) = asked {
        note!("garboard: {name} stops, but in its own time: {error:#}");
    }
}

/// How far it is.
#[derive(Debug, PartialEq)]
enum Seen {
    Done(&'static str),
    Over(&'static str),
    NotYet,
}

/// Judges an instance by the requested action, and by the one that there was before. Pure.
fn seen(action: PowerAction, vmi: Option<&VirtualMachineInstance>, before: Option<&str>) -> Seen {
    let phase = vmi.map(Phase::of);
    let is_new = vmi.is_some_and(|vmi| vmi.metadata.uid.as_deref() != before);
    let leaves = vmi.is_some_and(|vmi| vmi.metadata.deletion_timestamp.is_some());
    match (action, phase) {
        (PowerAction::Stop, None) => Seen::Done("stopped"),
        // The instance of before is gone; another client requested the new one.
        (PowerAction::Stop, Some(_)) if is_new => Seen::Done("stopped"),
        (PowerAction::Stop, Some(_)) | (PowerAction::Start | PowerAction::Restart, None) => Seen::NotYet,
        (PowerAction::Restart, Some(_)) if !is_new => Seen::NotYet,
        (PowerAction::Start | PowerAction::Restart, Some(_)) if leaves => Seen::NotYet,
        (PowerAction::Start, Some(Phase::Running)) => Seen::Done("runs"),
        (PowerAction::Restart, Some(Phase::Running)) => Seen::Done("runs again"),
        (PowerAction::Start | PowerAction::Restart, Some(Phase::Failed)) if is_new => {
            Seen::Over("was started, and its run failed")
        }
        (PowerAction::Start | PowerAction::Restart, Some(Phase::Succeeded)) if is_new => {
            Seen::Done("ran, and its run is over")
        }
        (PowerAction::Start | PowerAction::Restart, Some(_)) => Seen::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(uid: &str, phase: &str, leaves: bool) -> VirtualMachineInstance {
        let at = leaves.then_some("2026-01-01T00:00:00Z");
        let value = json!({"metadata": {"uid": uid, "deletionTimestamp": at}, "status": {"phase": phase}});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn it_is_waited_for_the_instance_that_was_wished_for() {
        let old = Some("old");
        let table = [
            (PowerAction::Stop, Some(vmi("old", "Running", true)), old, Seen::NotYet),
            (PowerAction::Stop, None, old, Seen::Done("stopped")),
            (PowerAction::Stop, Some(vmi("new", "Pending", false)), old, Seen::Done("stopped")),
            (PowerAction::Start, None, None, Seen::NotYet),
            (PowerAction::Start, Some(vmi("new", "Scheduling", false)), None, Seen::NotYet),
            (PowerAction::Start, Some(vmi("new", "Running", false)), None, Seen::Done("runs")),
            (PowerAction::Start, Some(vmi("old", "Failed", false)), old, Seen::NotYet),
            (PowerAction::Start, Some(vmi("new", "Failed", false)), old, Seen::Over("was started, and its run failed")),
            (PowerAction::Restart, Some(vmi("old", "Running", false)), old, Seen::NotYet),
            (PowerAction::Restart, Some(vmi("new", "Running", true)), old, Seen::NotYet),
            (PowerAction::Restart, Some(vmi("new", "Running", false)), old, Seen::Done("runs again")),
        ];
        for (action, vmi, before, expected) in table {
            assert_eq!(seen(action, vmi.as_ref(), before), expected, "{action:?} {vmi:?}");
        }
    }
}
