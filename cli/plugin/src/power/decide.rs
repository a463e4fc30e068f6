//! Whether a requested action is asked for, and how. Pure. What the subresources start, stop and restart refuse, although it comes by
//! itself or comes later, is not asked for; the rest is theirs to decide (`subresources/src/power`).

use garboard_api::run_strategy::RunStrategy;
use garboard_api::{Phase, VirtualMachine, VirtualMachineInstance};
use serde_json::{Value, json};

/// What a user requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PowerAction {
    /// That it runs.
    Start,
    /// That it does not run.
    Stop,
    /// That it is started again.
    Restart,
}

impl PowerAction {
    /// For `is to …`.
    pub(super) const fn verb(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision {
    /// Nothing: it is so.
    Already(&'static str),
    /// Nothing: it comes by itself.
    Wait,
    /// Nothing yet: the instance that is there has to go first.
    Later,
    /// This is to be written.
    Change(Change),
    /// It is not possible: the message has what to do instead.
    Refused(String),
}

/// How it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// By the subresource of the action.
    Subresource {
        /// The strategy of the machine from then on, where it is another one.
        becomes: Option<RunStrategy>,
    },
    /// By `status.stateChangeRequests`, all of it: what a stop takes back before there is anything to stop, which the
    /// subresource refuses.
    Requests(Vec<Value>),
}

const BY_SUBRESOURCE: Change = Change::Subresource { becomes: None };

/// Decides.
pub(super) fn decide(action: PowerAction, vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>) -> Decision {
    let Some(strategy) = RunStrategy::of(vm) else {
        let written = vm.spec.run_strategy.clone().unwrap_or_else(|| "none".to_owned());
        return Decision::Refused(format!("its runStrategy is {written}, which is not followed here"));
    };
    let alive = vmi.filter(|vmi| vmi.metadata.deletion_timestamp.is_none() && !Phase::of(vmi).is_final());
    let world = World { vm, vmi, alive };
    match action {
        PowerAction::Start => start(&world, strategy),
        PowerAction::Stop => stop(&world, strategy),
        PowerAction::Restart => restart(&world, strategy),
    }
}

struct World<'a> {
    vm: &'a VirtualMachine,
    vmi: Option<&'a VirtualMachineInstance>,
    /// The instance, if it is to go on.
    alive: Option<&'a VirtualMachineInstance>,
}

impl World<'_> {
    /// Whether the subresource takes its guest for one that runs, also where it is on its way out.
    fn is_active(&self) -> bool {
        let phase = self.vmi.and_then(|vmi| vmi.status.as_ref()).and_then(|status| status.phase.as_deref());
        let is_known = phase.is_some_and(|phase| !phase.is_empty());
        is_known && self.vmi.map(Phase::of).is_some_and(|phase| !phase.is_final() && phase != Phase::Unknown)
    }

    fn asks(&self, action: &str) -> bool {
        let requests = self.vm.status.iter().flat_map(|status| &status.state_change_requests);
        requests.into_iter().any(|request| request.action == action)
    }
}

fn start(world: &World<'_>, strategy: RunStrategy) -> Decision {
    if strategy == RunStrategy::Halted {
        let always = Change::Subresource { becomes: Some(RunStrategy::Always) };
        return if world.is_active() { Decision::Later } else { Decision::Change(always) };
    }
    if let Some(vmi) = world.alive {
        return match (world.asks("Stop"), world.asks("Start"), Phase::of(vmi)) {
            (true, false, _) => Decision::Refused(BEING_STOPPED.to_owned()),
            (false, _, Phase::Running) => Decision::Already("runs"),
            _ => Decision::Wait,
        };
    }
    match strategy {
        RunStrategy::Manual | RunStrategy::RerunOnFailure => request_start(world, strategy),
        RunStrategy::Once if is_over(world) => Decision::Refused(format!("its run is over, {ONCE}")),
        RunStrategy::Once | RunStrategy::Always | RunStrategy::Halted => Decision::Wait,
    }
}

fn request_start(world: &World<'_>, strategy: RunStrategy) -> Decision {
    if world.asks("Start") {
        return Decision::Wait;
    }
    if world.is_active() {
        return Decision::Later;
    }
    // Another run follows one that failed.
    let has_failed = world.vmi.is_some_and(|vmi| Phase::of(vmi) == Phase::Failed);
    if has_failed && strategy == RunStrategy::RerunOnFailure {
        return Decision::Wait;
    }
    Decision::Change(BY_SUBRESOURCE)
}

fn stop(world: &World<'_>, strategy: RunStrategy) -> Decision {
    match strategy {
        RunStrategy::Always => Decision::Change(Change::Subresource { becomes: Some(RunStrategy::Halted) }),
        RunStrategy::Once if !is_over(world) => {
            Decision::Change(Change::Subresource { becomes: Some(RunStrategy::Halted) })
        }
        RunStrategy::Manual | RunStrategy::RerunOnFailure => request_stop(world, strategy),
        RunStrategy::Once | RunStrategy::Halted => is_down(world),
    }
}

fn request_stop(world: &World<'_>, strategy: RunStrategy) -> Decision {
    let stays = world.vmi.filter(|vmi| vmi.metadata.deletion_timestamp.is_none());
    // A run that failed is followed by another one, unless its end is asked for.
    let is_between =
        |vmi: &VirtualMachineInstance| strategy == RunStrategy::RerunOnFailure && Phase::of(vmi) == Phase::Failed;
    let is_due = |vmi: &&VirtualMachineInstance| !Phase::of(vmi).is_final() || is_between(vmi);
    match (stays.filter(is_due), world.asks("Stop"), world.asks("Start")) {
        (Some(_), true, false) => Decision::Wait,
        (Some(vmi), ..) if is_between(vmi) => Decision::Change(Change::Requests(vec![stop_of(vmi)])),
        (Some(_), ..) => Decision::Change(BY_SUBRESOURCE),
        (None, _, true) => Decision::Change(Change::Requests(Vec::new())),
        (None, _, false) => is_down(world),
    }
}

/// There is nothing to stop, or it is on its way out.
fn is_down(world: &World<'_>) -> Decision {
    match world.vmi {
        Some(vmi) if world.alive.is_some() || vmi.metadata.deletion_timestamp.is_some() => Decision::Wait,
        Some(_) | None => Decision::Already("does not run"),
    }
}

fn restart(world: &World<'_>, strategy: RunStrategy) -> Decision {
    match (strategy, world.alive) {
        (RunStrategy::Once, _) => Decision::Refused(format!("its runStrategy is Once, {ONCE}")),
        (RunStrategy::Halted, _) | (_, None) if !comes_again(world, strategy) => {
            let name = world.vm.metadata.name.clone().unwrap_or_default();
            Decision::Refused(format!("it does not run; `kubectl garboard start {name}` starts it"))
        }
        (_, None) => Decision::Wait,
        (_, Some(_)) if world.asks("Stop") => Decision::Wait,
        (_, Some(_)) => Decision::Change(BY_SUBRESOURCE),
    }
}

/// Whether a run follows by itself.
fn comes_again(world: &World<'_>, strategy: RunStrategy) -> bool {
    strategy == RunStrategy::Always || (strategy != RunStrategy::Halted && world.asks("Start"))
}

/// Why a machine is not started now.
pub(super) const BEING_STOPPED: &str = "it is being stopped; start it once it is";

/// What to do about a machine that has one run.
const ONCE: &str = "and runs once; write runStrategy Manual into it to start it at will";

/// Whether its run has ended and its instance stays. Under `Once` one that is taken away is made again.
fn is_over(world: &World<'_>) -> bool {
    world.vmi.is_some_and(|vmi| vmi.metadata.deletion_timestamp.is_none() && Phase::of(vmi).is_final())
}

fn stop_of(vmi: &VirtualMachineInstance) -> Value {
    json!({ "action": "Stop", "uid": vmi.metadata.uid })
}

/// What the requested action leaves different from what the user wrote, where it does not go back by itself: `start` makes every
/// machine that is not to run one that always runs.
pub(super) fn lasting(action: PowerAction, vm: &VirtualMachine, change: &Change) -> Option<String> {
    let Change::Subresource { becomes: Some(_) } = change else { return None };
    // Of `running` there are only two values, which start and stop exchange.
    if vm.spec.running.is_some() {
        return None;
    }
    match (action, RunStrategy::of(vm)?) {
        (PowerAction::Start, RunStrategy::Halted) => Some(
            "its runStrategy was Halted and is Always from now on: it is started again whenever its run ends".to_owned(),
        ),
        (PowerAction::Stop, RunStrategy::Once) => Some(
            "its runStrategy was Once and is Halted from now on; `start` will make it Always, so write Once into it for another single run"
                .to_owned(),
        ),
        (
            PowerAction::Start | PowerAction::Stop | PowerAction::Restart,
            RunStrategy::Always
            | RunStrategy::Halted
            | RunStrategy::Manual
            | RunStrategy::RerunOnFailure
            | RunStrategy::Once,
        ) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(strategy: &str, requests: &[&str]) -> VirtualMachine {
        let requests: Vec<Value> = requests.iter().map(|action| json!({ "action": action })).collect();
        let spec = match strategy {
            "true" | "false" => json!({ "running": strategy == "true" }),
            strategy => json!({ "runStrategy": strategy }),
        };
        let status = json!({ "stateChangeRequests": requests, "runStrategy": strategy });
        serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": spec, "status": status })).unwrap()
    }

    /// `Running`, `Failed`, …; `-Running` is being deleted; nothing for none.
    fn vmi(phase: &str) -> Option<VirtualMachineInstance> {
        let (at, phase) = match phase.strip_prefix('-') {
            Some(phase) => (Some("2026-01-01T00:00:00Z"), phase),
            None => (None, phase),
        };
        let value = json!({"metadata": {"uid": "u", "deletionTimestamp": at}, "status": { "phase": phase }});
        (!phase.is_empty()).then(|| serde_json::from_value(value).unwrap())
    }

    /// The decision: its name, the strategy from then on, or the requests that are written.
    fn outcome(action: PowerAction, strategy: &str, phase: &str, requests: &[&str]) -> String {
        match decide(action, &vm(strategy, requests), vmi(phase).as_ref()) {
            Decision::Already(state) => state.to_owned(),
            Decision::Wait => "wait".to_owned(),
            Decision::Refused(_) => "refused".to_owned(),
            Decision::Later => "later".to_owned(),
            Decision::Change(Change::Subresource { becomes: Some(strategy) }) => strategy.name().to_owned(),
            Decision::Change(Change::Subresource { becomes: None }) => "ask".to_owned(),
            Decision::Change(Change::Requests(requests)) => {
                let actions = requests.iter().map(|one| one["action"].as_str().unwrap().to_owned());
                format!("write [{}]", actions.collect::<Vec<_>>().join("+"))
            }
        }
    }

    const NONE: &[&str] = &[];
    const START: &[&str] = &["Start"];
    const STOP: &[&str] = &["Stop"];

    #[test]
    fn a_start_is_a_strategy_or_a_request() {
        let table = [
            ("Halted", "", NONE, "Always"),
            ("false", "", NONE, "Always"),
            ("Halted", "Succeeded", NONE, "Always"),
            ("Halted", "Unknown", NONE, "Always"),
            ("Halted", "Running", NONE, "later"),
            ("Halted", "-Running", NONE, "later"),
            ("Always", "", NONE, "wait"),
            ("Always", "Running", NONE, "runs"),
            ("Manual", "", NONE, "ask"),
            ("Manual", "", START, "wait"),
            ("Manual", "Scheduling", NONE, "wait"),
            ("Manual", "Running", NONE, "runs"),
            ("Manual", "Running", STOP, "refused"),
            ("Manual", "Succeeded", NONE, "ask"),
            ("Manual", "-Running", NONE, "later"),
            ("RerunOnFailure", "", NONE, "ask"),
            ("RerunOnFailure", "Succeeded", NONE, "ask"),
            ("RerunOnFailure", "Failed", NONE, "wait"),
            ("Once", "Succeeded", NONE, "refused"),
            ("Once", "", NONE, "wait"),
            ("Once", "-Running", NONE, "wait"),
            ("WaitAsReceiver", "", NONE, "refused"),
        ];
        for (strategy, phase, requests, expected) in table {
            assert_eq!(
                outcome(PowerAction::Start, strategy, phase, requests),
                expected,
                "{strategy} {phase} {requests:?}"
            );
        }
    }

    /// Of each pair of strategy and action, what the command says that the machine is from now on.
    #[test]
    fn a_strategy_that_another_one_replaces_is_named() {
        let table = [
            (PowerAction::Start, "Halted", "", Some("is Always from now on")),
            (PowerAction::Stop, "Once", "Running", Some("was Once and is Halted from now on")),
            (PowerAction::Stop, "Always", "Running", None),
            (PowerAction::Start, "false", "", None),
            (PowerAction::Start, "Manual", "", None),
        ];
        for (action, strategy, phase, expected) in table {
            let vm = vm(strategy, NONE);
            let Decision::Change(change) = decide(action, &vm, vmi(phase).as_ref()) else { panic!("{strategy}") };
            let text = lasting(action, &vm, &change);
            assert_eq!(text.is_some(), expected.is_some(), "{strategy}: {text:?}");
            assert!(text.unwrap_or_default().contains(expected.unwrap_or_default()), "{strategy}");
        }
    }

    #[test]
    fn a_stop_is_a_strategy_or_a_request() {
        let table = [
            ("Always", "Running", NONE, "Halted"),
            ("Always", "", NONE, "Halted"),
            ("true", "Running", NONE, "Halted"),
            ("Once", "Running", NONE, "Halted"),
            ("Once", "Succeeded", NONE, "does not run"),
            // Another one follows an instance that is taken away.
            ("Once", "", NONE, "Halted"),
            ("Once", "-Running", NONE, "Halted"),
            ("Manual", "Running", NONE, "ask"),
            ("Manual", "Running", STOP, "wait"),
            ("Manual", "Succeeded", NONE, "does not run"),
            ("Manual", "", NONE, "does not run"),
            ("Manual", "", START, "write []"),
            ("RerunOnFailure", "Running", NONE, "ask"),
            // Between two starts, which a request waits for.
            ("RerunOnFailure", "Failed", NONE, "write [Stop]"),
            ("RerunOnFailure", "", START, "write []"),
            ("RerunOnFailure", "", NONE, "does not run"),
            ("Halted", "", NONE, "does not run"),
            ("Halted", "Running", NONE, "wait"),
            ("Manual", "-Running", NONE, "wait"),
        ];
        for (strategy, phase, requests, expected) in table {
            assert_eq!(
                outcome(PowerAction::Stop, strategy, phase, requests),
                expected,
                "{strategy} {phase} {requests:?}"
            );
        }
    }

    #[test]
    fn a_restart_is_a_stop_and_a_start_of_what_runs() {
        let table = [
            ("Always", "Running", NONE, "ask"),
            ("Manual", "Running", NONE, "ask"),
            ("RerunOnFailure", "Running", NONE, "ask"),
            ("Manual", "Running", STOP, "wait"),
            ("Manual", "", NONE, "refused"),
            ("Manual", "", START, "wait"),
            ("Always", "Failed", NONE, "wait"),
            ("Once", "Running", NONE, "refused"),
            ("Halted", "Running", NONE, "refused"),
        ];
        for (strategy, phase, requests, expected) in table {
            assert_eq!(
                outcome(PowerAction::Restart, strategy, phase, requests),
                expected,
                "{strategy} {phase} {requests:?}"
            );
        }
    }

    /// What the controller decides of the same machine: what is asked for is not refused, unless requests wait there.
    #[test]
    fn what_is_asked_for_is_what_the_subresource_does() {
        use garboard_subresources::options::{RestartOptions, StartOptions, StopOptions};
        use garboard_subresources::power;
        let mut asked = 0;
        let strategies = ["Halted", "false", "true", "Always", "Manual", "RerunOnFailure", "Once"];
        let phases = [
            "",
            "Pending",
            "Scheduled",
            "Running",
            "-Running",
            "Succeeded",
            "-Succeeded",
            "Failed",
            "-Failed",
            "Unknown",
        ];
        for (strategy, phase) in strategies.iter().flat_map(|one| phases.iter().map(move |phase| (one, phase))) {
            let (vm, vmi) = (vm(strategy, NONE), vmi(phase));
            let machine = power::Machine { vm: &vm, vmi: vmi.as_ref() };
            let answers = [
                (PowerAction::Start, power::start(&machine, &StartOptions::default())),
                (PowerAction::Stop, power::stop(&machine, &StopOptions::default())),
                (PowerAction::Restart, power::restart(&machine, &RestartOptions::default())),
            ];
            for (action, answer) in answers {
                let Decision::Change(Change::Subresource { becomes }) = decide(action, &vm, vmi.as_ref()) else {
                    continue;
                };
                let change = answer.unwrap_or_else(|refusal| panic!("{action:?} {strategy} {phase}: {refusal:?}"));
                let is_strategy = matches!(change.patch, Some((power::Part::Spec, _)));
                assert_eq!(is_strategy, becomes.is_some(), "{action:?} {strategy} {phase}");
                asked += 1;
            }
        }
        assert!(asked > 20, "{asked}");
    }
}
