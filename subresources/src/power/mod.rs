//! What a start, stop or restart comes to: KubeVirt's table (`pkg/virt-api/rest/lifecycle.go`). A machine that runs by its strategy
//! is started and stopped by the strategy, another by a request in its status. Pure.

use std::cmp::Ordering;

use garboard_api::defaults::GRACE_PERIOD_SECONDS;
use garboard_api::run_strategy::RunStrategy;
use garboard_api::{Phase, VirtualMachine, VirtualMachineInstance};
use serde_json::{Value, json};

use crate::options::{RestartOptions, StartOptions, StopOptions};
use crate::refusal::Refusal;

/// What is done for a request, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// The guest has more time than it was started with.
    pub longer: Option<Longer>,
    /// JSON patch of the VirtualMachine, and to what part it goes. It tests what was decided on: where another request was
    /// faster it does not apply, and that is a conflict.
    pub patch: Option<(Part, Value)>,
    /// The instance's pod is deleted, with so many seconds for the guest. Where that was begun with more, the supervisor is asked to end the
    /// guest within them.
    pub end_within: Option<i64>,
    /// JSON patch of the instance, after everything else: its guest has less time than it had.
    pub instance_patch: Option<Value>,
}

/// More time for a guest. It is given before the machine is stopped: its supervisor and its pod have to know when they are asked to end.
#[derive(Clone, Debug, PartialEq)]
pub struct Longer {
    /// Seconds; the supervisor is asked first, if a guest runs.
    pub seconds: u64,
    /// JSON patch of the instance, from which the pod is given the time.
    pub instance_patch: Value,
}

/// A part of a VirtualMachine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `spec`, by the object itself.
    Spec,
    /// `status`, by its subresource.
    Status,
}

/// The machine and its instance.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// The VirtualMachine.
    pub vm: &'a VirtualMachine,
    /// Its instance, whatever state it is in.
    pub vmi: Option<&'a VirtualMachineInstance>,
}

const NOT_RUNNING: &str = "VM is not running";
/// The shortest time for a pod: its containers get a signal before they are killed (KubeVirt's value for a forced restart).
const SHORTEST_GRACE: i64 = 1;
/// The longest time that a stop may ask for beyond the instance's own: what PID 1 of a launcher waits at most, 366 days.
const LONGEST_GRACE: i64 = 366 * 24 * 3600;
/// A condition of another controller: volumes have to be repaired by hand first.
const MANUAL_RECOVERY: &str = "ManualRecoveryRequired";
/// A condition of another controller: volumes are being copied to other claims. A restart would leave them half copied.
const VOLUMES_CHANGE: &str = "VolumesChange";
const RECOVERY: &str = "VM recovery required: a volume migration failed, and its volumes have to be put right by hand";
/// It begins as KubeVirt's does, which is that of a migration that has failed.
const RECOVERY_LATER: &str = "VM recovery required if it is restarted now: its volumes are being copied to other claims, and would be half there; restart it when they are";

impl Machine<'_> {
    fn strategy(&self) -> Result<RunStrategy, Refusal> {
        RunStrategy::of(self.vm).ok_or_else(|| {
            let written = self.vm.spec.run_strategy.clone().unwrap_or_else(|| "none".to_owned());
            Refusal::Conflict(format!("runStrategy {written} is not supported; write another one"))
        })
    }

    /// The instance, unless its run is over.
    fn alive(&self) -> Option<&VirtualMachineInstance> {
        self.vmi.filter(|vmi| !Phase::of(vmi).is_final())
    }

    /// Whether a guest runs or is about to. An instance of which nothing is known yet, or nothing can be known, is none.
    fn is_active(&self) -> bool {
        let phase = self.vmi.and_then(|vmi| vmi.status.as_ref()).and_then(|status| status.phase.as_deref());
        let is_unset = phase.is_none_or(str::is_empty);
        self.alive().is_some_and(|vmi| !is_unset && Phase::of(vmi) != Phase::Unknown)
    }

    fn is_true(&self, condition: &str) -> bool {
        let mut conditions = self.vm.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|each| each.r#type == condition && each.status == "True")
    }
}

/// A start.
///
/// # Errors
/// It runs, its strategy starts it anyhow, or another request is under way.
pub fn start(machine: &Machine<'_>, options: &StartOptions) -> Result<Change, Refusal> {
    if machine.is_active() {
        return Err(Refusal::Conflict("VM is already running".to_owned()));
    }
    if machine.is_true(MANUAL_RECOVERY) {
        return Err(Refusal::Conflict(RECOVERY.to_owned()));
    }
    let strategy = machine.strategy()?;
    let phase = machine.vmi.map(Phase::of);
    match (strategy, phase) {
        // The controller makes it Always when it reads the request.
        (RunStrategy::Halted, _) if options.paused => request(machine, &[start_request(true)]),
        (RunStrategy::Halted, _) => Ok(strategy_patch(machine.vm, RunStrategy::Always)),
        (RunStrategy::RerunOnFailure, Some(Phase::Failed)) => {
            Err(Refusal::Conflict("RerunOnFailure does not support starting VM from failed state".to_owned()))
        }
        (RunStrategy::RerunOnFailure | RunStrategy::Manual, Some(phase)) if phase.is_final() => {
            let over = machine.vmi.map(stop_request);
            request(machine, &[over.unwrap_or_default(), start_request(options.paused)])
        }
        (RunStrategy::RerunOnFailure | RunStrategy::Manual, _) => request(machine, &[start_request(options.paused)]),
        (RunStrategy::Always | RunStrategy::Once, _) => {
            Err(Refusal::Conflict(format!("{} does not support manual start requests", strategy.name())))
        }
    }
}

/// A stop.
///
/// # Errors
/// It does not run, is stopped already in no longer a time, or the time is none, or more than can be given.
pub fn stop(machine: &Machine<'_>, options: &StopOptions) -> Result<Change, Refusal> {
    let time = time(machine, options.grace_period)?;
    let strategy = machine.strategy()?;
    let change = match (strategy, machine.alive()) {
        (RunStrategy::Always | RunStrategy::Once, _) => strategy_patch(machine.vm, RunStrategy::Halted),
        (_, None) => return Err(Refusal::Conflict(NOT_RUNNING.to_owned())),
        // It is being stopped as it is.
        (RunStrategy::Halted, Some(_)) if matches!(time, Time::Less(_)) => Change::default(),
        (RunStrategy::Halted, Some(_)) => {
            let message = "Halted only supports manual stop requests with a shorter graceperiod";
            return Err(Refusal::Conflict(message.to_owned()));
        }
        (RunStrategy::Manual | RunStrategy::RerunOnFailure, Some(vmi)) => request(machine, &[stop_request(vmi)])?,
    };
    Ok(match time {
        Time::Own => change,
        Time::Less(hurry) => Change { patch: change.patch, ..hurry },
        Time::More(longer) => Change { longer: Some(longer), ..change },
    })
}

/// A restart.
///
/// # Errors
/// There is no instance, its strategy has one run or none, or its volumes are being copied.
pub fn restart(machine: &Machine<'_>, options: &RestartOptions) -> Result<Change, Refusal> {
    let at_once = match options.grace_period_seconds {
        None => false,
        Some(0) => true,
        Some(1..) => return Err(bad("For force restart, only gracePeriod=0 is supported for now")),
        Some(_) => return Err(bad("gracePeriod has to be greater or equal to 0")),
    };
    if machine.is_true(VOLUMES_CHANGE) {
        return Err(Refusal::Conflict(RECOVERY_LATER.to_owned()));
    }
    let strategy = machine.strategy()?;
    if matches!(strategy, RunStrategy::Halted | RunStrategy::Once) {
        // The misspelling is KubeVirt's, and clients look for it.
        let message = format!("RunStategy {} does not support manual restart requests", strategy.name());
        return Err(Refusal::Conflict(message));
    }
    let vmi = machine.vmi.ok_or_else(|| Refusal::Conflict("VM is not running: Halted".to_owned()))?;
    let change = request(machine, &[stop_request(vmi), start_request(false)])?;
    Ok(Change { end_within: at_once.then_some(SHORTEST_GRACE), ..change })
}

fn bad(message: &str) -> Refusal {
    Refusal::BadRequest(message.to_owned())
}

/// The time of a stop, beside the instance's.
enum Time {
    /// The same, or none is asked for.
    Own,
    /// Less, and what is done for it beside the stop.
    Less(Change),
    /// More, and what is done for it before the stop.
    More(Longer),
}

fn time(machine: &Machine<'_>, asked: Option<i64>) -> Result<Time, Refusal> {
    let (Some(asked), Some(vmi)) = (asked, machine.alive()) else { return Ok(Time::Own) };
    if asked < 0 {
        return Err(bad("gracePeriod has to be greater or equal to 0"));
    }
    let own = vmi.spec.termination_grace_period_seconds.unwrap_or(i64::from(GRACE_PERIOD_SECONDS));
    match asked.cmp(&own) {
        Ordering::Equal => Ok(Time::Own),
        Ordering::Less => Ok(Time::Less(Change {
            instance_patch: Some(timing(vmi, asked)),
            end_within: Some(asked.max(SHORTEST_GRACE)),
            ..Change::default()
        })),
        Ordering::Greater if asked > LONGEST_GRACE => {
            Err(bad(&format!("gracePeriod has to be less or equal to {LONGEST_GRACE}, which are 366 days")))
        }
        // The deletion of its pod may have begun, and that has no more time any more.
        Ordering::Greater if vmi.metadata.deletion_timestamp.is_some() => {
            let message =
                format!("gracePeriod {asked} is more time than the instance can be given: it is being deleted");
            Err(Refusal::Conflict(message))
        }
        Ordering::Greater => {
            Ok(Time::More(Longer { seconds: asked.unsigned_abs(), instance_patch: timing(vmi, asked) }))
        }
    }
}

/// Writes another time into the instance. Where it has none, it has the default.
fn timing(vmi: &VirtualMachineInstance, seconds: i64) -> Value {
    let path = "/spec/terminationGracePeriodSeconds";
    let mut patch = vec![json!({ "op": "test", "path": "/metadata/uid", "value": vmi.metadata.uid })];
    let own = vmi.spec.termination_grace_period_seconds;
    patch.extend(own.map(|own| json!({ "op": "test", "path": path, "value": own })));
    patch.push(json!({ "op": "add", "path": path, "value": seconds }));
    Value::Array(patch)
}

fn start_request(paused: bool) -> Value {
    if paused { json!({ "action": "Start", "data": { "paused": "true" } }) } else { json!({ "action": "Start" }) }
}

fn stop_request(vmi: &VirtualMachineInstance) -> Value {
    json!({ "action": "Stop", "uid": vmi.metadata.uid })
}

/// Puts requests into the status. A stop comes before what waits there; anything else waits until nothing does.
fn request(machine: &Machine<'_>, requests: &[Value]) -> Result<Change, Refusal> {
    let status = machine.vm.status.as_ref();
    let waiting = status.map_or(&[][..], |status| &status.state_change_requests);
    let is_stop = matches!(requests, [one] if one["action"] == "Stop");
    if !waiting.is_empty() && !is_stop {
        return Err(Refusal::Conflict("unable to complete request: stop/start already underway".to_owned()));
    }
    let mut patch = match status {
        None => vec![json!({ "op": "add", "path": "/status", "value": { "stateChangeRequests": requests } })],
        Some(_) if waiting.is_empty() => vec![
            json!({ "op": "test", "path": "/metadata/resourceVersion", "value": machine.vm.metadata.resource_version }),
            json!({ "op": "add", "path": "/status/stateChangeRequests", "value": requests }),
        ],
        Some(_) => vec![
            json!({ "op": "test", "path": "/status/stateChangeRequests", "value": waiting }),
            json!({ "op": "replace", "path": "/status/stateChangeRequests", "value": requests }),
        ],
    };
    // What a person asks for is not kept waiting by starts that failed.
    if status.is_some_and(|status| status.start_failure.is_some()) {
        patch.push(json!({ "op": "remove", "path": "/status/startFailure" }));
    }
    Ok(Change { patch: Some((Part::Status, Value::Array(patch))), ..Change::default() })
}

/// In the form that the machine has: exactly one of the two.
fn strategy_patch(vm: &VirtualMachine, strategy: RunStrategy) -> Change {
    let (path, before, after) = match vm.spec.running {
        Some(running) => ("/spec/running", json!(running), json!(strategy != RunStrategy::Halted)),
        None => ("/spec/runStrategy", json!(vm.spec.run_strategy), json!(strategy.name())),
    };
    let patch = json!([
        { "op": "test", "path": path, "value": before },
        { "op": "replace", "path": path, "value": after },
    ]);
    Change { patch: Some((Part::Spec, patch)), ..Change::default() }
}

#[cfg(test)]
mod tests;
