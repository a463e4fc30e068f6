//! What the status of a VirtualMachine says, from what was observed. Pure.

use garboard_api::VirtualMachineInstance;
use garboard_api::run_strategy::RunStrategy;
use garboard_api::v1::{VirtualMachineCondition, VirtualMachineInstanceCondition, VirtualMachineStatus};

use super::decide::World;
use crate::time::stamp;
use crate::vmi::phase::Phase;

/// The words of `status.printableStatus` that this controller can say (KubeVirt's, first match wins).
pub mod word {
    /// It is being deleted.
    pub const TERMINATING: &str = "Terminating";
    /// Its guest is being shut down.
    pub const STOPPING: &str = "Stopping";
    /// Its vCPUs are stopped.
    pub const PAUSED: &str = "Paused";
    /// Its guest runs.
    pub const RUNNING: &str = "Running";
    /// No node can take it.
    pub const UNSCHEDULABLE: &str = "ErrorUnschedulable";
    /// It is on its way.
    pub const STARTING: &str = "Starting";
    /// It failed to start and is tried again.
    pub const CRASH_LOOP: &str = "CrashLoopBackOff";
    /// It does not run and is not meant to.
    pub const STOPPED: &str = "Stopped";
}

/// Fills in what follows from the world; `starts` says that an instance is made with this decision.
pub(super) fn fill(world: &World, starts: bool, status: &mut VirtualMachineStatus) {
    let vmi = world.vmi.as_ref();
    status.created = (vmi.is_some() || starts).then_some(true);
    status.ready = vmi.is_some_and(is_ready).then_some(true);
    status.printable_status = Some(printable(world, starts, status).to_owned());
    status.desired_generation = world.vm.metadata.generation;
    if let Some(vmi) = vmi {
        let made_from = vmi.metadata.annotations.as_ref().and_then(|all| all.get("kubevirt.io/vm-generation"));
        status.observed_generation = made_from.and_then(|text| text.parse().ok());
    }
    status.conditions = conditions(world, &status.conditions);
}

fn printable(world: &World, starts: bool, status: &VirtualMachineStatus) -> &'static str {
    if world.vm.metadata.deletion_timestamp.is_some() {
        return word::TERMINATING;
    }
    let Some(vmi) = &world.vmi else {
        return match (starts, has_failed(status), wants_to_run(world)) {
            (true, false, _) => word::STARTING,
            (_, true, true) => word::CRASH_LOOP,
            (true, true, false) | (false, ..) => word::STOPPED,
        };
    };
    let phase = Phase::of(vmi);
    let leaves = vmi.metadata.deletion_timestamp.is_some() || RunStrategy::of(&world.vm) == Some(RunStrategy::Halted);
    match phase {
        _ if !phase.is_final() && leaves => word::STOPPING,
        Phase::Running if has(vmi, "Paused") => word::PAUSED,
        Phase::Running => word::RUNNING,
        _ if is_unschedulable(vmi) => word::UNSCHEDULABLE,
        Phase::Pending | Phase::Scheduling | Phase::Scheduled => word::STARTING,
        Phase::Succeeded | Phase::Failed if has_failed(status) => word::CRASH_LOOP,
        Phase::Succeeded | Phase::Failed => word::STOPPED,
    }
}

fn has_failed(status: &VirtualMachineStatus) -> bool {
    let failure = status.start_failure.as_ref();
    failure.and_then(|failure| failure.consecutive_fail_count).is_some_and(|count| count > 0)
}

fn wants_to_run(world: &World) -> bool {
    matches!(RunStrategy::of(&world.vm), Some(RunStrategy::Always | RunStrategy::RerunOnFailure))
}

fn is_ready(vmi: &VirtualMachineInstance) -> bool {
    has(vmi, "Ready")
}

fn has(vmi: &VirtualMachineInstance, condition: &str) -> bool {
    conditions_of(vmi).any(|each| each.r#type == condition && each.status == "True")
}

fn is_unschedulable(vmi: &VirtualMachineInstance) -> bool {
    conditions_of(vmi).any(|each| {
        each.r#type == "PodScheduled" && each.status == "False" && each.reason.as_deref() == Some("Unschedulable")
    })
}

fn conditions_of(vmi: &VirtualMachineInstance) -> impl Iterator<Item = &VirtualMachineInstanceCondition> {
    vmi.status.iter().flat_map(|status| &status.conditions)
}

/// The instance's conditions, mirrored; without an instance only `Ready` is left, and it says why it is not.
fn conditions(world: &World, before: &[VirtualMachineCondition]) -> Vec<VirtualMachineCondition> {
    let Some(vmi) = &world.vmi else {
        return vec![not_ready(world, before, "VMINotExists", "there is no VirtualMachineInstance")];
    };
    let mirrored: Vec<_> = conditions_of(vmi).map(|condition| mirror(condition, before)).collect();
    if mirrored.iter().any(|condition| condition.r#type == "Ready") {
        return mirrored;
    }
    let missing = not_ready(world, before, "VMIConditionMissing", "the VirtualMachineInstance does not say yet");
    std::iter::once(missing).chain(mirrored).collect()
}

fn mirror(condition: &VirtualMachineInstanceCondition, before: &[VirtualMachineCondition]) -> VirtualMachineCondition {
    let mirrored = VirtualMachineCondition {
        last_probe_time: condition.last_probe_time.clone(),
        last_transition_time: condition.last_transition_time.clone(),
        message: condition.message.clone(),
        reason: condition.reason.clone(),
        status: condition.status.clone(),
        r#type: condition.r#type.clone(),
    };
    keep_time(mirrored, before)
}

fn not_ready(
    world: &World,
    before: &[VirtualMachineCondition],
    reason: &str,
    message: &str,
) -> VirtualMachineCondition {
    let condition = VirtualMachineCondition {
        last_probe_time: None,
        last_transition_time: Some(stamp(world.now)),
        message: Some(message.to_owned()),
        reason: Some(reason.to_owned()),
        status: "False".to_owned(),
        r#type: "Ready".to_owned(),
    };
    keep_time(condition, before)
}

/// A condition that says what it said before changed when it changed before.
fn keep_time(mut condition: VirtualMachineCondition, before: &[VirtualMachineCondition]) -> VirtualMachineCondition {
    let same = before
        .iter()
        .find(|old| old.r#type == condition.r#type && old.status == condition.status && old.reason == condition.reason);
    if let Some(old) = same {
        condition.last_transition_time.clone_from(&old.last_transition_time);
    }
    condition
}
