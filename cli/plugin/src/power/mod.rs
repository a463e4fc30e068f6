//! `kubectl garboard start | stop | restart`: what is to run, asked of the API as KubeVirt's clients do, and seen through.
//!
//! ```text
//!   VirtualMachine, instance ──decide (pure)──► subresource start, stop or restart ──► wait ──► result
//! ```

mod decide;

use std::time::{Duration, Instant};

use garboard_api::{Phase, VirtualMachine, VirtualMachineInstance};
use serde_json::json;

use crate::args::{PowerArgs, StopArgs};
use crate::exit::{FAILED, NOT_FOUND, REFUSED, exit_error};
use crate::failure::Failure;
use crate::find;
use crate::kubectl::{Kubectl, failed};
use crate::output::{note, outln};
use crate::several;
use crate::subresource::{Resource, Subresource};
use decide::{BEING_STOPPED, Change, Decision, PowerAction, decide, lasting};

/// The controller writes the same objects; they are read again this often before a conflict is an error.
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
    let grace_seconds = if args.force { Some(0) } else { args.grace_period };
    several::each(&args.power.machines, |name| {
        bring_about(kubectl, &args.power, name, PowerAction::Stop, grace_seconds)
    })
}

/// One action on one machine.
struct Asking<'a> {
    kubectl: &'a Kubectl,
    name: &'a str,
    action: PowerAction,
    /// How long the guest may take to stop, seconds; its specification's time without it.
    grace_seconds: Option<u64>,
    is_waited_for: bool,
    timeout_seconds: u64,
    deadline: Instant,
}

fn bring_about(
    kubectl: &Kubectl,
    args: &PowerArgs,
    name: &str,
    action: PowerAction,
    grace_seconds: Option<u64>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    let (is_waited_for, timeout_seconds) = (!args.no_wait, args.timeout);
    let asking = Asking { kubectl, name, action, grace_seconds, is_waited_for, timeout_seconds, deadline };
    let Asked { machine, before, already } = ask(&asking)?;
    if let Some(state) = already {
        return outln!("{machine} {state} already");
    }
    if args.no_wait {
        return outln!("{machine} is to {}", action.verb());
    }
    loop {
        let (_, vmi) = find::objects(kubectl, name).map_err(failed)?;
        match seen(action, vmi.as_ref(), before.as_deref()) {
            Seen::Done(state) => return outln!("{machine} {state}"),
            Seen::Over(state) => {
                let text = format!("{machine} {state}; `kubectl garboard why {name}` shows why");
                return Err(exit_error(FAILED, text));
            }
            Seen::NotYet if Instant::now() >= deadline => return Err(asking.too_late(&machine)),
            Seen::NotYet => crate::pause::between_questions(),
        }
    }
}

impl Asking<'_> {
    fn too_late(&self, machine: &str) -> anyhow::Error {
        let (verb, name) = (self.action.verb(), self.name);
        let text = format!(
            "{machine} is to {verb}, and did not within {} s; `kubectl garboard why {name}` shows what it waits for",
            self.timeout_seconds
        );
        exit_error(FAILED, text)
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

fn ask(asking: &Asking<'_>) -> anyhow::Result<Asked> {
    let Asking { kubectl, name, action, .. } = *asking;
    let mut attempts = 0..ATTEMPTS;
    loop {
        let (vm, vmi) = find::objects(kubectl, name).map_err(failed)?;
        let Some(vm) = vm else { return Err(without_vm(kubectl, name, vmi.as_ref(), action)) };
        let asked = Asked {
            machine: format!("{}/{name}", vm.metadata.namespace.clone().unwrap_or_default()),
            before: vmi.as_ref().and_then(|vmi| vmi.metadata.uid.clone()),
            already: None,
        };
        match decide(action, &vm, vmi.as_ref()) {
            Decision::Already(state) => return Ok(Asked { already: Some(state), ..asked }),
            Decision::Wait => {
                hasten(asking, &vm, vmi.as_ref());
                return Ok(asked);
            }
            Decision::Refused(message) => return Err(exit_error(REFUSED, format!("{}: {message}", asked.machine))),
            Decision::Later if !asking.is_waited_for => {
                return Err(exit_error(REFUSED, format!("{}: {BEING_STOPPED}", asked.machine)));
            }
            Decision::Later if Instant::now() >= asking.deadline => return Err(asking.too_late(&asked.machine)),
            Decision::Later => crate::pause::between_questions(),
            Decision::Change(change) => match apply(asking, &vm, &change) {
                Ok(()) => {
                    if let Some(text) = lasting(action, &vm, &change) {
                        note!("garboard: {}: {text}", asked.machine);
                    }
                    return Ok(asked);
                }
                Err(failure) if is_conflict(&failure) && attempts.next().is_some() => crate::pause::between_questions(),
                Err(failure) => return Err(failed(failure)),
            },
        }
    }
}

/// Whether it may have been decided on what is no longer so: it is decided anew.
fn is_conflict(failure: &Failure) -> bool {
    match failure {
        Failure::Refused(_) => true,
        Failure::Other(text) => text.contains("has been modified"),
        Failure::NoProgram { .. }
        | Failure::Unreachable(_)
        | Failure::Unauthorized(_)
        | Failure::Forbidden(_)
        | Failure::NotInstalled(_)
        | Failure::NotFound(_)
        | Failure::NotRunning(_)
        | Failure::Conflict(_)
        | Failure::Lost(_)
        | Failure::NotServed(_)
        | Failure::NoController(_)
        | Failure::Interrupted(_)
        | Failure::NoAnswer(_) => false,
    }
}

fn subresource(action: PowerAction, vm: &VirtualMachine) -> Subresource {
    Subresource {
        resource: Resource::Machine,
        namespace: vm.metadata.namespace.clone().unwrap_or_default(),
        name: vm.metadata.name.clone().unwrap_or_default(),
        verb: action.verb(),
    }
}

fn apply(asking: &Asking<'_>, vm: &VirtualMachine, change: &Change) -> Result<(), Failure> {
    match change {
        Change::Subresource { .. } => by_subresource(asking, vm),
        Change::Requests(requests) => {
            // Only onto what was looked at: a request that came meanwhile is not written over.
            let version = json!({ "resourceVersion": vm.metadata.resource_version });
            let status = json!({ "stateChangeRequests": requests });
            let patch = json!({ "metadata": version, "status": status }).to_string();
            let object = format!("virtualmachines.kubevirt.io/{}", asking.name);
            let arguments = ["patch", &object, "--type=merge", "-p", &patch, "--subresource=status"];
            asking.kubectl.run(&arguments).map(|_| ())
        }
    }
}

fn by_subresource(asking: &Asking<'_>, vm: &VirtualMachine) -> Result<(), Failure> {
    let wanted = subresource(asking.action, vm);
    let Some(seconds) = asking.grace_seconds else { return wanted.put(asking.kubectl, &json!({}), None) };
    match wanted.put(asking.kubectl, &json!({ "gracePeriod": seconds }), None) {
        // The rest of the request is possible.
        Err(Failure::Refused(text)) if text.contains("gracePeriod") => {
            wanted.put(asking.kubectl, &json!({}), None)?;
            note_own_time(asking.name, &text);
            Ok(())
        }
        other => other,
    }
}

/// A stop is under way, and is to be a faster one. That it goes on as it is, is no failure.
fn hasten(asking: &Asking<'_>, vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>) {
    let (PowerAction::Stop, Some(seconds)) = (asking.action, asking.grace_seconds) else { return };
    // An earlier stop gave it this time.
    let own = vmi.and_then(|vmi| vmi.spec.termination_grace_period_seconds);
    if own.is_some_and(|own| u64::try_from(own) == Ok(seconds)) {
        return;
    }
    let asked = subresource(asking.action, vm).put(asking.kubectl, &json!({ "gracePeriod": seconds }), None);
    if let Err(failure) = asked {
        note_own_time(asking.name, &failure.to_string());
    }
}

fn note_own_time(name: &str, why: &str) {
    note!("garboard: {name} stops, but in its own time: {why}");
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
