//! The status of a VirtualMachine, from what was observed. Pure.

use std::time::Duration;

use garboard_api::conditions::{self, ConditionStatus, NewCondition, Reason, VmConditionType, VmiConditionType};
use garboard_api::metadata::annotation;
use garboard_api::run_strategy::RunStrategy;
use garboard_api::v1::{
    VirtualMachineCondition, VirtualMachineInstanceCondition, VirtualMachineStatus, VolumeSnapshotStatus,
};
use garboard_api::{Phase, PrintableStatus, VirtualMachine, VirtualMachineInstance};

use super::decide::{World, carried, ends, filled, instance, start_is_due};
use super::revision;
use crate::data_volumes::{self, DataVolumeProgress, Foreign};
use crate::events::NewEvent;
use crate::time::{QUICK, at_latest, elapsed};

/// Fills in what follows from the world; `starts`: an instance is made with this decision.
pub(super) fn fill(world: &World, starts: bool, status: &mut VirtualMachineStatus) {
    let vmi = world.vmi.as_ref();
    status.created = (vmi.is_some() || starts).then_some(true);
    status.ready = vmi.is_some_and(is_ready).then_some(true);
    status.printable_status = Some(printable(world, starts, status).name().to_owned());
    status.desired_generation = world.vm.metadata.generation;
    status.volume_snapshot_statuses = snapshots(&world.vm);
    if let Some(stored) = vmi.and_then(|vmi| vmi.status.as_ref()?.stored_machine.as_ref()) {
        status.stored_machine = Some(stored.clone());
    }
    if let Some(vmi) = vmi {
        status.observed_generation = made_from(vmi);
    }
    status.conditions = conditions(world, &status.conditions);
}

/// That no volume can be part of a snapshot: clients show it beside each, and wait for it where the list is empty.
fn snapshots(vm: &VirtualMachine) -> Vec<VolumeSnapshotStatus> {
    let reason = "Garboard makes no snapshots of machines; use those of the storage";
    let volumes = vm.spec.template.spec.iter().flat_map(|spec| &spec.volumes);
    let of = |name: String| VolumeSnapshotStatus { enabled: false, name, reason: Some(reason.to_owned()) };
    volumes.map(|volume| of(volume.name.clone())).collect()
}

/// For how long a start is not reported: a machine that is Running within [`QUICK`] is reported once. What has to be
/// remembered whatever comes is written at once, and so is a start that follows upon a failure.
pub(super) fn quiet_for(world: &World, starts: bool, status: &VirtualMachineStatus) -> Option<Duration> {
    let before = world.vm.status.clone().unwrap_or_default();
    let printed = |status: &VirtualMachineStatus| status.printable_status.as_deref().map(PrintableStatus::from_name);
    let was_calm = matches!(printed(&before), None | Some(Some(PrintableStatus::Stopped)))
        && before.start_failure.is_none()
        && conditions::find(&before.conditions, VmConditionType::Failure).is_none();
    // This strategy looks at what was started before.
    let may_forget = RunStrategy::of(&world.vm) != Some(RunStrategy::RerunOnFailure);
    let remembers =
        |status: &VirtualMachineStatus| (status.state_change_requests.clone(), status.start_failure.clone());
    let begins = printed(status) == Some(Some(PrintableStatus::Starting));
    if !was_calm || !begins || !may_forget || remembers(&before) != remembers(status) {
        return None;
    }
    let created = world.vmi.as_ref().and_then(|vmi| vmi.metadata.creation_timestamp.as_ref()).map(at_latest);
    let since = if starts { world.now } else { created? };
    Some(QUICK.saturating_sub(elapsed(since, world.now))).filter(|rest| !rest.is_zero())
}

fn printable(world: &World, starts: bool, status: &VirtualMachineStatus) -> PrintableStatus {
    if world.vm.metadata.deletion_timestamp.is_some() {
        return PrintableStatus::Terminating;
    }
    let Some(vmi) = &world.vmi else {
        let is_wanted = RunStrategy::of(&world.vm).is_some_and(|strategy| start_is_due(world, strategy));
        if is_wanted && world.foreign.is_some() {
            return PrintableStatus::Provisioning;
        }
        let counts = |state: &PrintableStatus| {
            is_wanted || !matches!(state, PrintableStatus::ErrorPvcNotFound | PrintableStatus::WaitingForVolumeBinding)
        };
        if let Some(state) = obstacle(world).filter(counts) {
            return state;
        }
        return match (starts, has_failed(status), is_to_run(world)) {
            (true, false, _) => PrintableStatus::Starting,
            (_, true, true) => PrintableStatus::CrashLoopBackOff,
            (true, true, false) | (false, ..) => PrintableStatus::Stopped,
        };
    };
    let phase = Phase::of(vmi);
    let leaves = vmi.metadata.deletion_timestamp.is_some() || RunStrategy::of(&world.vm) == Some(RunStrategy::Halted);
    match phase {
        _ if !phase.is_final() && leaves => PrintableStatus::Stopping,
        Phase::Running if has(vmi, VmiConditionType::Paused) => PrintableStatus::Paused,
        Phase::Running => PrintableStatus::Running,
        Phase::Unknown => PrintableStatus::Unknown,
        Phase::Pending | Phase::Scheduling | Phase::Scheduled if unsynchronized(vmi).is_some() => {
            unsynchronized(vmi).unwrap_or(PrintableStatus::Starting)
        }
        _ if is_unschedulable(vmi) => PrintableStatus::ErrorUnschedulable,
        Phase::Pending | Phase::Scheduling | Phase::Scheduled => PrintableStatus::Starting,
        Phase::Succeeded | Phase::Failed if has_failed(status) => PrintableStatus::CrashLoopBackOff,
        Phase::Succeeded | Phase::Failed => PrintableStatus::Stopped,
    }
}

/// What a DataVolume keeps a machine from.
fn obstacle(world: &World) -> Option<PrintableStatus> {
    let (name, progress) = data_volumes::obstacle(&world.data_volumes)?;
    let mut brought =
        world.vm.spec.data_volume_templates.iter().filter_map(|each| each.metadata.as_ref()?.name.as_deref());
    match progress {
        DataVolumeProgress::Missing if !brought.any(|each| each == name) => Some(PrintableStatus::ErrorPvcNotFound),
        DataVolumeProgress::Failed(_) | DataVolumeProgress::GivenUp(_) => Some(PrintableStatus::DataVolumeError),
        DataVolumeProgress::WaitsForConsumer => Some(PrintableStatus::WaitingForVolumeBinding),
        DataVolumeProgress::Missing | DataVolumeProgress::UnderWay(_) => Some(PrintableStatus::Provisioning),
        DataVolumeProgress::Done | DataVolumeProgress::Claimed => None,
    }
}

/// What keeps an instance from its pod, or the pod from its images.
fn unsynchronized(vmi: &VirtualMachineInstance) -> Option<PrintableStatus> {
    let is_false = |kind| conditions::find_with(conditions_of(vmi), kind, ConditionStatus::False);
    let reason = is_false(VmiConditionType::Synchronized).and_then(|found| found.reason.as_deref());
    let reason = reason.and_then(Reason::from_name);
    match reason {
        Some(Reason::FailedPvcNotFound) => Some(PrintableStatus::ErrorPvcNotFound),
        Some(Reason::FailedDataVolumeImport) => Some(PrintableStatus::DataVolumeError),
        Some(Reason::ErrImagePull | Reason::ErrImageNeverPull) => Some(PrintableStatus::ErrImagePull),
        Some(Reason::ImagePullBackOff) => Some(PrintableStatus::ImagePullBackOff),
        _ => is_false(VmiConditionType::DataVolumesReady).map(|_| PrintableStatus::Provisioning),
    }
}

fn has_failed(status: &VirtualMachineStatus) -> bool {
    let failure = status.start_failure.as_ref();
    failure.and_then(|failure| failure.consecutive_fail_count).is_some_and(|count| count > 0)
}

fn is_to_run(world: &World) -> bool {
    matches!(RunStrategy::of(&world.vm), Some(RunStrategy::Always | RunStrategy::RerunOnFailure))
}

fn is_ready(vmi: &VirtualMachineInstance) -> bool {
    has(vmi, VmiConditionType::Ready)
}

/// Whether one of an instance's conditions holds.
pub(super) fn has(vmi: &VirtualMachineInstance, kind: VmiConditionType) -> bool {
    conditions::find_with(conditions_of(vmi), kind, ConditionStatus::True).is_some()
}

fn is_unschedulable(vmi: &VirtualMachineInstance) -> bool {
    let found = conditions::find_with(conditions_of(vmi), VmiConditionType::PodScheduled, ConditionStatus::False);
    found.is_some_and(|each| each.reason.as_deref() == Some(Reason::Unschedulable.name()))
}

fn conditions_of(vmi: &VirtualMachineInstance) -> &[VirtualMachineInstanceCondition] {
    vmi.status.as_ref().map_or(&[], |status| &status.conditions)
}

/// The instance's conditions, mirrored; without an instance only `Ready` is left, and it has the reason.
fn conditions(world: &World, before: &[VirtualMachineCondition]) -> Vec<VirtualMachineCondition> {
    let Some(vmi) = &world.vmi else {
        let missing = not_ready(world, before, Reason::VmiNotExists, "there is no VirtualMachineInstance");
        let storage = foreign(world, before).or_else(|| unfilled(world, before));
        return std::iter::once(missing).chain(storage).collect();
    };
    let mut mirrored: Vec<_> = conditions_of(vmi).iter().map(mirror).collect();
    if needs_restart(world, vmi) {
        let message = "the template has changed since the machine was started; restart it to apply the change";
        let new = NewCondition::new(VmConditionType::RestartRequired, true, Reason::TemplateChanged, message);
        mirrored.push(conditions::made(&new, before, world.now));
    }
    if conditions::find(&mirrored, VmConditionType::Ready).is_some() {
        return mirrored;
    }
    let message = "the VirtualMachineInstance has no Ready condition yet";
    let missing = not_ready(world, before, Reason::VmiConditionMissing, message);
    std::iter::once(missing).chain(mirrored).collect()
}

/// That a DataVolume of its templates is not the machine's own.
fn foreign(world: &World, before: &[VirtualMachineCondition]) -> Option<VirtualMachineCondition> {
    let foreign = world.foreign.as_ref()?;
    let (kind, holds, reason) = match foreign {
        Foreign::Others(_) => (VmConditionType::Failure, true, Reason::FailedDataVolumeCreate),
        Foreign::Leaves(_) => (VmConditionType::DataVolumesReady, false, Reason::NotAllDataVolumesReady),
    };
    let new = NewCondition::new(kind, holds, reason, foreign.message());
    Some(conditions::made(&new, before, world.now))
}

/// What the machine waits for, of the DataVolumes it names.
fn unfilled(world: &World, before: &[VirtualMachineCondition]) -> Option<VirtualMachineCondition> {
    let (name, progress) = data_volumes::obstacle(&world.data_volumes)?;
    let message = data_volumes::message(name, progress);
    let new = match progress {
        DataVolumeProgress::Failed(_) | DataVolumeProgress::GivenUp(_) => {
            NewCondition::new(VmConditionType::Failure, true, Reason::FailedDataVolumeImport, message)
        }
        DataVolumeProgress::Missing
        | DataVolumeProgress::Done
        | DataVolumeProgress::Claimed
        | DataVolumeProgress::UnderWay(_)
        | DataVolumeProgress::WaitsForConsumer => {
            NewCondition::new(VmConditionType::DataVolumesReady, false, Reason::NotAllDataVolumesReady, message)
        }
    };
    Some(conditions::made(&new, before, world.now))
}

/// Whether the machine was changed since its instance was made.
pub(super) fn is_newer(vm: &VirtualMachine, vmi: &VirtualMachineInstance) -> bool {
    made_from(vmi).is_some_and(|made_from| Some(made_from) != vm.metadata.generation)
}

/// Whether the next start would make another machine of the template than the one that runs. A change of the settings of
/// the cluster alone asks for no restart. What was reported of an instance that is to end stays.
pub(super) fn needs_restart(world: &World, vmi: &VirtualMachineInstance) -> bool {
    // First: a machine that is not newer, which is almost every one, needs no other instance to compare with.
    if !is_newer(&world.vm, vmi) || Phase::of(vmi).is_final() {
        return false;
    }
    // What it was started from is not asked any more; and with its end it is done. Without its instancetype it is not known what
    // would be started.
    if ends(world) || world.sizes.problem.is_some() {
        let reported = world.vm.status.as_ref().map_or(&[][..], |status| &status.conditions);
        return conditions::find(reported, VmConditionType::RestartRequired).is_some();
    }
    let mut wanted = instance(world);
    // One start may have been asked for with the vCPUs stopped, which the template does not have.
    wanted.spec.start_strategy = wanted.spec.start_strategy.or(vmi.spec.start_strategy.clone());
    // As JSON: what is left out and what is empty are the same there. Both filled in: one that was made while no webhook was asked is
    // stored as it was written.
    let spec = |vmi: &VirtualMachineInstance| serde_json::to_value(&filled(vmi, &world.config).spec).ok();
    // A setting of the cluster may have changed beside something of the machine that is not in its template.
    let is_changed = world.started_from.as_ref().is_none_or(|started| revision::differs(started, &world.vm.spec));
    is_changed && spec(vmi) != spec(&wanted)
}

/// The generation of the machine that an instance was made from.
fn made_from(vmi: &VirtualMachineInstance) -> Option<i64> {
    vmi.metadata.annotations.as_ref()?.get(annotation::VM_GENERATION)?.parse().ok()
}

/// Reports what could not be done, with KubeVirt's reason: a machine that is to run is still `Starting`.
pub(super) fn because(world: &World, reason: Reason, message: &str) -> VirtualMachineStatus {
    let mut status = carried(world);
    let before = status.conditions.clone();
    fill(world, false, &mut status);
    let is_wanted = RunStrategy::of(&world.vm).is_some_and(|strategy| start_is_due(world, strategy));
    if is_wanted && status.printable_status.as_deref() == Some(PrintableStatus::Stopped.name()) {
        status.printable_status = Some(PrintableStatus::Starting.name().to_owned());
    }
    let new = NewCondition::new(VmConditionType::Failure, true, reason, message);
    conditions::remove(&mut status.conditions, VmConditionType::Failure);
    status.conditions.push(conditions::made(&new, &before, world.now));
    status
}

/// Whether the machine reports already why it has no instance.
pub(super) fn is_known(vm: &VirtualMachine, message: &str) -> bool {
    let conditions = vm.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let failure = conditions::find(conditions, VmConditionType::Failure);
    failure.is_some_and(|each| each.message.as_deref() == Some(message))
}

/// That a DataVolume cannot be filled, or is not the machine's own, unless the machine reports it already.
pub(super) fn failed_volume(vm: &VirtualMachine, after: &VirtualMachineStatus) -> Option<NewEvent> {
    let failure = conditions::find_with(&after.conditions, VmConditionType::Failure, ConditionStatus::True)?;
    let reasons = [Reason::FailedDataVolumeImport, Reason::FailedDataVolumeCreate];
    let reason = reasons.into_iter().find(|reason| failure.reason.as_deref() == Some(reason.name()))?;
    let message = failure.message.clone()?;
    (!is_known(vm, &message)).then(|| NewEvent::warning(reason, message))
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
    reason: Reason,
    message: &'static str,
) -> VirtualMachineCondition {
    conditions::made(&NewCondition::new(VmConditionType::Ready, false, reason, message), before, world.now)
}
