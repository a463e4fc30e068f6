//! What the status of a VirtualMachine says, from what was observed. Pure.

use std::time::Duration;

use garboard_api::metadata::annotation;
use garboard_api::run_strategy::RunStrategy;
use garboard_api::v1::{VirtualMachineCondition, VirtualMachineInstanceCondition, VirtualMachineStatus};
use garboard_api::{Phase, VirtualMachine, VirtualMachineInstance};
use jiff::Timestamp;

use super::decide::{World, carried, instance, wants_start};
use crate::data_volumes::{self, DataVolumeProgress};
use crate::time::{at_latest, elapsed, stamp};
use crate::vmi::decide::QUICK;

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
    /// Its instance says what this release does not know.
    pub const UNKNOWN: &str = "Unknown";
    /// A claim it names does not exist.
    pub const NO_CLAIM: &str = "ErrorPvcNotFound";
    /// A DataVolume cannot be filled.
    pub const DATA_VOLUME_ERROR: &str = "DataVolumeError";
    /// A DataVolume is being filled.
    pub const PROVISIONING: &str = "Provisioning";
    /// A DataVolume waits for a first consumer.
    pub const WAITS_FOR_BINDING: &str = "WaitingForVolumeBinding";
    /// An image cannot be pulled.
    pub const IMAGE_PULL: &str = "ErrImagePull";
    /// An image could not be pulled several times.
    pub const IMAGE_BACK_OFF: &str = "ImagePullBackOff";
    /// No node can take it.
    pub const UNSCHEDULABLE: &str = "ErrorUnschedulable";
    /// It is on its way.
    pub const STARTING: &str = "Starting";
    /// It failed to start and is tried again.
    pub const CRASH_LOOP: &str = "CrashLoopBackOff";
    /// It does not run and is not meant to.
    pub const STOPPED: &str = "Stopped";
}

/// KubeVirt's condition for what could not be done.
const FAILURE: &str = "Failure";
/// KubeVirt's reason for an instance, or a pod, that could not be made.
pub(crate) const FAILED_CREATE: &str = "FailedCreate";

/// Fills in what follows from the world; `starts` says that an instance is made with this decision.
pub(super) fn fill(world: &World, starts: bool, status: &mut VirtualMachineStatus) {
    let vmi = world.vmi.as_ref();
    status.created = (vmi.is_some() || starts).then_some(true);
    status.ready = vmi.is_some_and(is_ready).then_some(true);
    status.printable_status = Some(printable(world, starts, status).to_owned());
    status.desired_generation = world.vm.metadata.generation;
    if let Some(stored) = vmi.and_then(|vmi| vmi.status.as_ref()?.stored_machine.as_ref()) {
        status.stored_machine = Some(stored.clone());
    }
    if let Some(vmi) = vmi {
        status.observed_generation = made_from(vmi);
    }
    status.conditions = conditions(world, &status.conditions);
}

/// For how long a start is left without a word: a machine that is Running within [`QUICK`] is told of once. What has to be
/// remembered whatever comes is written at once, and so is a start that follows upon a failure.
pub(super) fn quiet_for(world: &World, starts: bool, status: &VirtualMachineStatus) -> Option<Duration> {
    let before = world.vm.status.clone().unwrap_or_default();
    let was_calm = matches!(before.printable_status.as_deref(), None | Some(word::STOPPED))
        && before.start_failure.is_none()
        && before.conditions.iter().all(|each| each.r#type != FAILURE);
    // This strategy looks at what was started before.
    let may_forget = RunStrategy::of(&world.vm) != Some(RunStrategy::RerunOnFailure);
    let remembers =
        |status: &VirtualMachineStatus| (status.state_change_requests.clone(), status.start_failure.clone());
    let begins = status.printable_status.as_deref() == Some(word::STARTING);
    if !was_calm || !begins || !may_forget || remembers(&before) != remembers(status) {
        return None;
    }
    let created = world.vmi.as_ref().and_then(|vmi| vmi.metadata.creation_timestamp.as_ref()).map(at_latest);
    let since = if starts { world.now } else { created? };
    Some(QUICK.saturating_sub(elapsed(since, world.now))).filter(|rest| !rest.is_zero())
}

fn printable(world: &World, starts: bool, status: &VirtualMachineStatus) -> &'static str {
    if world.vm.metadata.deletion_timestamp.is_some() {
        return word::TERMINATING;
    }
    let Some(vmi) = &world.vmi else {
        let is_wanted = RunStrategy::of(&world.vm).is_some_and(|strategy| wants_start(world, strategy));
        let counts = |word: &&str| is_wanted || ![word::NO_CLAIM, word::WAITS_FOR_BINDING].contains(word);
        if let Some(word) = obstacle(world).filter(counts) {
            return word;
        }
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
        Phase::Unknown => word::UNKNOWN,
        Phase::Pending | Phase::Scheduling | Phase::Scheduled if unsynchronized(vmi).is_some() => {
            unsynchronized(vmi).unwrap_or(word::STARTING)
        }
        _ if is_unschedulable(vmi) => word::UNSCHEDULABLE,
        Phase::Pending | Phase::Scheduling | Phase::Scheduled => word::STARTING,
        Phase::Succeeded | Phase::Failed if has_failed(status) => word::CRASH_LOOP,
        Phase::Succeeded | Phase::Failed => word::STOPPED,
    }
}

/// What a DataVolume keeps a machine from.
fn obstacle(world: &World) -> Option<&'static str> {
    let (name, progress) = data_volumes::obstacle(&world.data_volumes)?;
    let mut brought =
        world.vm.spec.data_volume_templates.iter().filter_map(|each| each.metadata.as_ref()?.name.as_deref());
    match progress {
        DataVolumeProgress::Missing if !brought.any(|each| each == name) => Some(word::NO_CLAIM),
        DataVolumeProgress::Failed(_) => Some(word::DATA_VOLUME_ERROR),
        DataVolumeProgress::WaitsForConsumer => Some(word::WAITS_FOR_BINDING),
        DataVolumeProgress::Missing | DataVolumeProgress::UnderWay(_) => Some(word::PROVISIONING),
        DataVolumeProgress::Done => None,
    }
}

/// What keeps an instance from its pod, or the pod from its images.
fn unsynchronized(vmi: &VirtualMachineInstance) -> Option<&'static str> {
    let is_false = |kind| conditions_of(vmi).find(|each| each.r#type == kind && each.status == "False");
    match is_false("Synchronized").and_then(|found| found.reason.as_deref()) {
        Some("FailedPvcNotFound") => Some(word::NO_CLAIM),
        Some("FailedDataVolumeImport") => Some(word::DATA_VOLUME_ERROR),
        Some("ErrImagePull") => Some(word::IMAGE_PULL),
        Some("ImagePullBackOff") => Some(word::IMAGE_BACK_OFF),
        _ => is_false("DataVolumesReady").map(|_| word::PROVISIONING),
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
        let missing = not_ready(world, before, "VMINotExists", "there is no VirtualMachineInstance");
        return std::iter::once(missing).chain(unfilled(world, before)).collect();
    };
    let mut mirrored: Vec<_> = conditions_of(vmi).map(mirror).collect();
    if needs_restart(world, vmi) {
        let message = "the template has changed since the machine was started; restart it for the change to count";
        let condition = condition(world.now, ("RestartRequired", "True"), ("TemplateChanged", message));
        mirrored.push(keep_time(condition, before));
    }
    if mirrored.iter().any(|condition| condition.r#type == "Ready") {
        return mirrored;
    }
    let missing =
        not_ready(world, before, "VMIConditionMissing", "the VirtualMachineInstance has no Ready condition yet");
    std::iter::once(missing).chain(mirrored).collect()
}

/// What the machine waits for, of the DataVolumes it names.
fn unfilled(world: &World, before: &[VirtualMachineCondition]) -> Option<VirtualMachineCondition> {
    let (name, progress) = data_volumes::obstacle(&world.data_volumes)?;
    let sentence = data_volumes::sentence(name, progress);
    let (kind, reason) = match progress {
        DataVolumeProgress::Failed(_) => ((FAILURE, "True"), "FailedDataVolumeImport"),
        DataVolumeProgress::Missing
        | DataVolumeProgress::Done
        | DataVolumeProgress::UnderWay(_)
        | DataVolumeProgress::WaitsForConsumer => (("DataVolumesReady", "False"), "NotAllDVsReady"),
    };
    Some(keep_time(condition(world.now, kind, (reason, &sentence)), before))
}

/// Whether the machine was changed since its instance was made.
pub(super) fn is_newer(world: &World, vmi: &VirtualMachineInstance) -> bool {
    made_from(vmi).is_some_and(|made_from| Some(made_from) != world.vm.metadata.generation)
}

/// Whether the next start would make another machine of the template than the one that runs. A change of the settings of
/// the cluster alone asks for no restart.
pub(super) fn needs_restart(world: &World, vmi: &VirtualMachineInstance) -> bool {
    // First: a machine that is not newer, which is almost every one, needs no other instance to compare with.
    if !is_newer(world, vmi) || Phase::of(vmi).is_final() {
        return false;
    }
    let mut wanted = instance(world);
    // One start may have been asked for with the vCPUs stopped, which the template does not say.
    wanted.spec.start_strategy = wanted.spec.start_strategy.or(vmi.spec.start_strategy.clone());
    // As JSON: what is left out and what is empty are the same there.
    let spec = |vmi: &VirtualMachineInstance| serde_json::to_value(&vmi.spec).ok();
    spec(vmi) != spec(&wanted)
}

/// The generation of the machine that an instance was made from.
fn made_from(vmi: &VirtualMachineInstance) -> Option<i64> {
    vmi.metadata.annotations.as_ref()?.get(annotation::VM_GENERATION)?.parse().ok()
}

/// Says what could not be done, with KubeVirt's reason: a machine that is to run is on its way all the same.
pub(super) fn because(world: &World, reason: (&str, &str)) -> VirtualMachineStatus {
    let mut status = carried(world);
    let before = status.conditions.clone();
    fill(world, false, &mut status);
    let is_wanted = RunStrategy::of(&world.vm).is_some_and(|strategy| wants_start(world, strategy));
    if is_wanted && status.printable_status.as_deref() == Some(word::STOPPED) {
        status.printable_status = Some(word::STARTING.to_owned());
    }
    let failure = keep_time(condition(world.now, (FAILURE, "True"), reason), &before);
    status.conditions.retain(|each| each.r#type != FAILURE);
    status.conditions.push(failure);
    status
}

/// Whether the machine says already why it has no instance.
pub(super) fn is_known(vm: &VirtualMachine, sentence: &str) -> bool {
    let conditions = vm.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|each| each.r#type == FAILURE && each.message.as_deref() == Some(sentence))
}

/// With the instance's own time.
fn mirror(condition: &VirtualMachineInstanceCondition) -> VirtualMachineCondition {
    VirtualMachineCondition {
        last_probe_time: condition.last_probe_time.clone(),
        last_transition_time: condition.last_transition_time.clone(),
        message: condition.message.clone(),
        reason: condition.reason.clone(),
        status: condition.status.clone(),
        r#type: condition.r#type.clone(),
    }
}

fn not_ready(
    world: &World,
    before: &[VirtualMachineCondition],
    reason: &str,
    message: &str,
) -> VirtualMachineCondition {
    keep_time(condition(world.now, ("Ready", "False"), (reason, message)), before)
}

fn condition(now: Timestamp, (kind, value): (&str, &str), (reason, message): (&str, &str)) -> VirtualMachineCondition {
    VirtualMachineCondition {
        last_probe_time: None,
        last_transition_time: Some(stamp(now)),
        message: Some(message.to_owned()),
        reason: Some(reason.to_owned()),
        status: value.to_owned(),
        r#type: kind.to_owned(),
    }
}

/// A transition is one of the status, whatever the reason is (Kubernetes' rule).
fn keep_time(mut condition: VirtualMachineCondition, before: &[VirtualMachineCondition]) -> VirtualMachineCondition {
    let same = before.iter().find(|old| old.r#type == condition.r#type && old.status == condition.status);
    if let Some(old) = same {
        condition.last_transition_time.clone_from(&old.last_transition_time);
    }
    condition
}
