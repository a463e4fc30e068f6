//! What is to be done about a VirtualMachine. Pure.
//!
//! ```text
//!                 no instance          instance runs       instance succeeded      instance failed
//!   Always        create (back-off)    leave               delete, then create     delete, then create (back-off)
//!   RerunOnFail.  create if new        leave               delete, stay down       delete, then create (back-off)
//!   Once          create               leave               leave                   leave
//!   Manual        leave                leave               leave                   leave
//!   Halted        leave                delete              delete                  delete
//! ```
//!
//! KubeVirt's table (its VM controller, `syncRunStrategy`); a request in `status.stateChangeRequests` comes before it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use garboard_api::conditions::{Reason, VmiConditionType};
use garboard_api::metadata::{annotation, finalizer};
use garboard_api::run_strategy::{RunStrategy, backoff};
use garboard_api::v1::{
    VirtualMachineSpec, VirtualMachineStartFailure, VirtualMachineStateChangeRequest, VirtualMachineStatus,
};
use garboard_api::{ClusterConfig, Identity, Phase, VirtualMachine, VirtualMachineInstance, default_vmi, vmi_of};
use jiff::Timestamp;

use super::kept::{self, Keeping};
use super::sizes::{self, Sizes};
pub use super::step::Step;
use super::{revision, status};
use crate::data_volumes::{self, DataVolumeProgress, Foreign, ProgressByName};
use crate::descheduler;
use crate::time::stamp;

/// How often a DataVolume is looked at that waiting does not help, while its machine is not to run or may not use it.
const STUCK: Duration = Duration::from_secs(60);

/// Everything a decision depends on.
#[derive(Clone, Debug)]
pub struct World {
    /// The machine.
    pub vm: VirtualMachine,
    /// The instance of its name, also if another client made it.
    pub vmi: Option<VirtualMachineInstance>,
    /// What the machine was when its instance was started; asked only while the machine is newer than that, and the instance is not to
    /// end.
    pub started_from: Option<VirtualMachineSpec>,
    /// How far the DataVolumes are that it names, those of its templates among them; asked only while there is no instance.
    pub data_volumes: ProgressByName,
    /// What has the name of a DataVolume of its templates and is not its own, which is not among them. It is neither made nor used.
    pub foreign: Option<Foreign>,
    /// Of those that it brings along and that are still to be made: the claim that each copies, if it does not exist.
    pub absent_sources: BTreeMap<String, String>,
    /// When it was looked at.
    pub now: Timestamp,
    /// Any number: it spreads the pauses of machines that fail together.
    pub chance: u64,
    /// The cluster's settings.
    pub config: Arc<ClusterConfig>,
    /// The instancetype and the preference of the machine; looked for only where they are needed.
    pub sizes: Sizes,
}

impl World {
    /// The machine as its instance is made of it: with instancetype and preference in its template.
    pub(super) fn whole(&self) -> &VirtualMachine {
        self.sizes.sized.as_deref().unwrap_or(&self.vm)
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// In this order.
    pub steps: Vec<Step>,
    /// What the machine's status is to be.
    pub status: VirtualMachineStatus,
    /// When to look again although nothing happened.
    pub recheck: Option<Duration>,
}

/// Decides.
#[must_use]
pub fn decide(world: &World) -> Decision {
    if !is_ours(world) && adoption(world).is_none() && world.vm.metadata.deletion_timestamp.is_some() {
        // Another's instance of this name is nothing to this machine.
        return decide(&World { vmi: None, ..world.clone() });
    }
    let mut decision = Decision { steps: Vec::new(), status: carried(world), recheck: None };
    if world.vm.metadata.deletion_timestamp.is_some() {
        leave(world, &mut decision);
    } else if let Some(step) = adoption(world) {
        decision.steps.push(step);
    } else if is_ours(world) && sizes::refuse(world, &mut decision) {
        return decision;
    } else if is_ours(world) && sizes::settle(world, &mut decision) {
        // The watch brings what was written, and then the machine is started.
        status::fill(world, false, &mut decision.status);
        return decision;
    } else if is_ours(world) {
        follow_strategy(world, &mut decision);
        if let Err(message) = kept::stored(&world.vm)
            && starts(&decision)
        {
            decision.steps.retain(|step| !matches!(step, Step::CreateVmi(_) | Step::RecordRevision { .. }));
            decision.status = status::because(world, Reason::FailedCreate, &message);
            return decision;
        }
    } else {
        decision.status = beside_another(world);
        return decision;
    }
    let starts = starts(&decision);
    status::fill(world, starts, &mut decision.status);
    if !starts {
        keep(world, &mut decision);
    }
    if let Some(rest) = status::quiet_for(world, starts, &decision.status) {
        decision.status = world.vm.status.clone().unwrap_or_default();
        decision.recheck = Some(rest);
    }
    decision
}

fn starts(decision: &Decision) -> bool {
    decision.steps.iter().any(|step| matches!(step, Step::CreateVmi(_)))
}

/// Has what is stored of the machine written where it outlives the status; once its start is over, for that has its writes counted.
fn keep(world: &World, decision: &mut Decision) {
    match kept::keeping(world, decision.status.stored_machine.as_ref()) {
        Keeping::Done => {}
        Keeping::Later(wait) => decision.recheck = Some(decision.recheck.map_or(wait, |recheck| recheck.min(wait))),
        Keeping::Now(value) => decision.steps.push(Step::Keep { value }),
    }
}

/// What a machine reports while another's instance has its name: nothing of that instance, and why it has none of its own.
fn beside_another(world: &World) -> VirtualMachineStatus {
    let alone = World { vmi: None, ..world.clone() };
    let name = world.vm.metadata.name.as_deref().unwrap_or_default();
    let leaves = world.vmi.as_ref().is_some_and(|vmi| vmi.metadata.deletion_timestamp.is_some());
    let message = match leaves {
        true => format!("an earlier VirtualMachineInstance {name} is being removed"),
        false => format!(
            "the VirtualMachineInstance {name} belongs to another controller and not to this machine; delete it there"
        ),
    };
    status::because(&alone, Reason::FailedCreate, &message)
}

/// The status with what this controller remembers in it.
pub(super) fn carried(world: &World) -> VirtualMachineStatus {
    let mut status = world.vm.status.clone().unwrap_or_default();
    let counts = !matches!(RunStrategy::of(&world.vm), Some(RunStrategy::Manual | RunStrategy::Halted) | None);
    match vmi_phase(world) {
        _ if !counts => status.start_failure = None,
        Some(Phase::Running) => status.start_failure = None,
        Some(phase) if phase.is_final() => count_failure(world, &mut status),
        Some(_) | None => {}
    }
    status
}

/// A run that ended before its guest ran counts, once.
fn count_failure(world: &World, status: &mut VirtualMachineStatus) {
    let Some(vmi) = &world.vmi else { return };
    if Phase::Running.was_seen(vmi) {
        status.start_failure = None;
        return;
    }
    let before = status.start_failure.clone().unwrap_or_default();
    if before.last_failed_vmiuid == vmi.metadata.uid {
        return;
    }
    let count = before.consecutive_fail_count.unwrap_or(0).saturating_add(1);
    let pause = backoff(u32::try_from(count).unwrap_or(0), world.chance);
    let retry = world.now.checked_add(pause).unwrap_or(world.now);
    status.start_failure = Some(VirtualMachineStartFailure {
        consecutive_fail_count: Some(count),
        last_failed_vmiuid: vmi.metadata.uid.clone(),
        retry_after_timestamp: Some(stamp(retry)),
    });
}

/// The object is being deleted: its instance goes first, unless the request is to leave it (then it is not ours any more).
fn leave(world: &World, decision: &mut Decision) {
    if is_owned(world) && world.vmi.is_some() && !orphans(world) {
        delete(world, decision);
        return;
    }
    let finalizers = world.vm.metadata.finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|name| name == finalizer::CONTROLLER) {
        let rest = finalizers.into_iter().filter(|name| name != finalizer::CONTROLLER).collect();
        decision.steps.push(Step::RemoveFinalizer { rest });
    }
}

/// `--cascade=orphan`: the garbage collector is still to take our name off the instance.
fn orphans(world: &World) -> bool {
    let finalizers = world.vm.metadata.finalizers.iter().flatten();
    finalizers.into_iter().any(|name| name == "orphan")
}

fn adoption(world: &World) -> Option<Step> {
    let vmi = world.vmi.as_ref()?;
    let has_controller = vmi.metadata.owner_references.iter().flatten().any(|owner| owner.controller == Some(true));
    if has_controller || vmi.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut owners = vmi.metadata.owner_references.clone().unwrap_or_default();
    owners.push(vmi_of(&world.vm).metadata.owner_references?.pop()?);
    let resource_version = vmi.metadata.resource_version.clone();
    Some(Step::AdoptVmi { uid: vmi.metadata.uid.clone()?, resource_version, owners })
}

/// No instance, or one that we own: that of another owner is not changed.
fn is_ours(world: &World) -> bool {
    world.vmi.is_none() || is_owned(world)
}

fn is_owned(world: &World) -> bool {
    let owners = world.vmi.iter().flat_map(|vmi| vmi.metadata.owner_references.iter().flatten());
    owners.into_iter().any(|owner| owner.controller == Some(true) && Some(&owner.uid) == world.vm.metadata.uid.as_ref())
}

fn follow_strategy(world: &World, decision: &mut Decision) {
    let Some(strategy) = RunStrategy::of(&world.vm) else { return };
    if let Some(vmi) = &world.vmi {
        if vmi.metadata.deletion_timestamp.is_some() {
            return;
        }
        decision.status.run_strategy = Some(strategy.name().to_owned());
        cross_out_answered(strategy, vmi, &mut decision.status);
        if end_is_due(world, strategy, vmi) {
            remember_failure(strategy, vmi, &mut decision.status);
            delete(world, decision);
        } else {
            decision.steps.extend(annotate(world, vmi));
        }
        return;
    }
    bring_data_volumes(world, decision);
    let is_unhalted = strategy == RunStrategy::Halted && unhalts(world);
    answer_requests(strategy == RunStrategy::Halted && !is_unhalted, &mut decision.status);
    if is_unhalted {
        decision.steps.push(Step::Unhalt);
        decision.status.run_strategy = Some(RunStrategy::Always.name().to_owned());
    } else if matches!(strategy, RunStrategy::Halted | RunStrategy::Manual) {
        decision.status.run_strategy = Some(strategy.name().to_owned());
    }
    if start_is_due(world, strategy) {
        start(world, decision);
    }
}

/// An instance that is what the machine would make now is as new as the machine, and has the template's annotations for a descheduler.
fn annotate(world: &World, vmi: &VirtualMachineInstance) -> Option<Step> {
    if Phase::of(vmi).is_final() {
        return None;
    }
    let template = world.vm.spec.template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    let mut annotations = descheduler::changes(template, vmi.metadata.annotations.as_ref());
    // Labels and annotations of the template need no restart, and still reach an instance with the next start only.
    let is_same =
        world.started_from.as_ref().is_none_or(|started| revision::has_same_template(started, &world.vm.spec));
    let is_current = status::is_newer(&world.vm, vmi) && is_same && !status::needs_restart(world, vmi);
    if let Some(generation) = world.vm.metadata.generation.filter(|_| is_current) {
        annotations.insert(annotation::VM_GENERATION.to_owned(), Some(generation.to_string()));
    }
    let uid = vmi.metadata.uid.clone()?;
    (!annotations.is_empty()).then_some(Step::Annotate { uid, annotations })
}

/// Whether the machine is to run or not: its data may take long to come. One that has an instance has its disks, and must not
/// be kept from its stop by a DataVolume that is refused.
fn bring_data_volumes(world: &World, decision: &mut Decision) {
    let mut is_asked_again = false;
    for template in &world.vm.spec.data_volume_templates {
        let name = template.metadata.as_ref().and_then(|metadata| metadata.name.clone()).unwrap_or_default();
        let is_claimed = match world.data_volumes.get(&name) {
            Some(DataVolumeProgress::Missing) => false,
            Some(DataVolumeProgress::Claimed) => true,
            Some(
                DataVolumeProgress::Done
                | DataVolumeProgress::UnderWay(_)
                | DataVolumeProgress::WaitsForConsumer
                | DataVolumeProgress::Failed(_)
                | DataVolumeProgress::GivenUp(_),
            )
            | None => continue,
        };
        let object = Box::new(data_volumes::of_template(&world.vm, template));
        let absent_source = world.absent_sources.get(&name).cloned();
        is_asked_again |= !is_claimed;
        decision.steps.push(Step::CreateDataVolume { name, object, absent_source, is_claimed });
    }
    // Also one that is not to run reports how far they are.
    decision.recheck = match data_volumes::obstacle(&world.data_volumes) {
        Some((
            _,
            DataVolumeProgress::Failed(_) | DataVolumeProgress::GivenUp(_) | DataVolumeProgress::WaitsForConsumer,
        )) => Some(STUCK),
        Some((_, DataVolumeProgress::UnderWay(_))) => Some(data_volumes::ASK_AGAIN),
        Some((_, DataVolumeProgress::Missing | DataVolumeProgress::Claimed | DataVolumeProgress::Done)) | None => {
            is_asked_again.then_some(data_volumes::ASK_AGAIN)
        }
    };
}

/// With an instance a start is done, unless a stop of that instance comes before it: then it is a restart. A stop of another
/// instance is done, too. Nobody can restart a halted machine: a restart of it is older than the halt, which cancels its start.
fn cross_out_answered(strategy: RunStrategy, vmi: &VirtualMachineInstance, status: &mut VirtualMachineStatus) {
    let requests = &mut status.state_change_requests;
    requests.retain(|request| request.action != "Stop" || request.uid == vmi.metadata.uid);
    let stops = strategy != RunStrategy::Halted && requests.iter().any(|request| request.action == "Stop");
    requests.retain(|request| request.action != "Start" || stops);
}

/// Whether the machine's instance goes, or is to go: what it was started from matters no more.
pub(super) fn ends(world: &World) -> bool {
    let Some(vmi) = &world.vmi else { return false };
    let goes = [&world.vm.metadata, &vmi.metadata].iter().any(|each| each.deletion_timestamp.is_some());
    goes || RunStrategy::of(&world.vm).is_some_and(|strategy| end_is_due(world, strategy, vmi))
}

fn end_is_due(world: &World, strategy: RunStrategy, vmi: &VirtualMachineInstance) -> bool {
    let phase = Phase::of(vmi);
    let asked = requests(world).iter().any(|request| request.action == "Stop" && request.uid == vmi.metadata.uid);
    match strategy {
        RunStrategy::Halted => true,
        RunStrategy::Always | RunStrategy::RerunOnFailure => asked || phase.is_final(),
        RunStrategy::Manual => asked,
        RunStrategy::Once => false,
    }
}

/// Once the instance is gone it is not known how it ended: under `RerunOnFailure` a start is asked for here. A guest that
/// was powered down because the cluster evicted its pod did not end by itself.
fn remember_failure(strategy: RunStrategy, vmi: &VirtualMachineInstance, status: &mut VirtualMachineStatus) {
    let failed = Phase::of(vmi) == Phase::Failed || status::has(vmi, VmiConditionType::EvictionRequested);
    let is_due = strategy == RunStrategy::RerunOnFailure && failed;
    let is_asked = status.state_change_requests.iter().any(|request| request.action == "Start");
    let stops = status.state_change_requests.iter().any(|request| request.action == "Stop");
    if is_due && !is_asked && !stops {
        let start = VirtualMachineStateChangeRequest { action: "Start".to_owned(), ..Default::default() };
        status.state_change_requests.push(start);
    }
}

pub(super) fn start_is_due(world: &World, strategy: RunStrategy) -> bool {
    let asked = requests(world).iter().any(|request| request.action == "Start");
    let last = world.vm.status.as_ref().and_then(|status| status.run_strategy.as_deref());
    match strategy {
        // Once: an instance that is over stays, and one that is deleted is made again, as in KubeVirt.
        RunStrategy::Always | RunStrategy::Once => true,
        // A failed run leaves a request behind.
        RunStrategy::RerunOnFailure => asked || last != Some(strategy.name()),
        RunStrategy::Manual => asked,
        RunStrategy::Halted => false,
    }
}

fn start(world: &World, decision: &mut Decision) {
    if let Some(foreign) = &world.foreign {
        decision.recheck = Some(match foreign {
            Foreign::Others(_) => STUCK,
            Foreign::Leaves(_) => data_volumes::ASK_AGAIN,
        });
        return;
    }
    if data_volumes::obstacle(&world.data_volumes).is_some() {
        decision.recheck = Some(data_volumes::ASK_AGAIN);
        return;
    }
    let retry = decision.status.start_failure.as_ref().and_then(|failure| failure.retry_after_timestamp.as_ref());
    if let Some(retry) = retry
        && retry.0 > world.now
    {
        let pause = retry.0.duration_since(world.now);
        decision.recheck = Some(Duration::try_from(pause).unwrap_or(Duration::from_secs(1)));
        return;
    }
    decision.status.run_strategy = RunStrategy::of(&world.vm).map(|strategy| strategy.name().to_owned());
    decision.status.state_change_requests.retain(|request| request.action != "Start");
    decision.steps.extend(record(&world.vm));
    decision.steps.push(Step::CreateVmi(Box::new(instance(world))));
}

/// The record of what is started. An observed generation is that of an earlier start.
fn record(vm: &VirtualMachine) -> Option<Step> {
    let started = vm.status.as_ref().and_then(|status| status.observed_generation);
    let replaces = started.is_some_and(|started| Some(started) != vm.metadata.generation);
    Some(Step::RecordRevision { object: Box::new(revision::of(vm)?), replaces })
}

/// The instance as it is created: as its machine is written. What is left out the webhook fills in, after the presets of its
/// namespace have given their parts: of a part that was filled in before they would give nothing.
pub(super) fn instance(world: &World) -> VirtualMachineInstance {
    let mut vmi = vmi_of(world.whole());
    if starts_paused(requests(world)) {
        vmi.spec.start_strategy = Some("Paused".to_owned());
    }
    let status = vmi.status.get_or_insert_default();
    status.phase = Some(Phase::Pending.name().to_owned());
    // What is of no use has kept the machine from its start.
    status.stored_machine = kept::stored(&world.vm).unwrap_or_default();
    status.virtual_machine_revision_name = revision::name(&world.vm);
    // Also where no webhook is asked, its object stays until its pod is gone.
    let finalizers = vmi.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|name| name == finalizer::FOREGROUND_DELETE) {
        finalizers.push(finalizer::FOREGROUND_DELETE.to_owned());
    }
    vmi
}

/// An instance of a machine with everything that the webhook fills in; one that is stored is mostly so already.
pub(super) fn filled(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> VirtualMachineInstance {
    let mut vmi = vmi.clone();
    // Its template has a UUID, or one follows from the machine's name; this one is never used.
    default_vmi(&mut vmi, config, &Identity { firmware_uuid: uuid::Uuid::nil() });
    vmi
}

fn delete(world: &World, decision: &mut Decision) {
    let Some(vmi) = &world.vmi else { return };
    if let (None, Some(uid)) = (&vmi.metadata.deletion_timestamp, &vmi.metadata.uid) {
        decision.steps.push(Step::DeleteVmi { uid: uid.clone() });
    }
}

/// A stop that was asked of an instance that is gone is done. A machine that stays halted does not keep a start for the day on
/// which its strategy is another.
fn answer_requests(stays_halted: bool, status: &mut VirtualMachineStatus) {
    let is_done = |action: &str| action == "Stop" || (stays_halted && action == "Start");
    status.state_change_requests.retain(|request| !is_done(&request.action));
}

/// Whether a halted machine is to run because a start was requested of it. Once: halting it again before it has started cancels the
/// request. A start that is older than the halt is cancelled, too, with its vCPUs stopped or not: `RerunOnFailure` leaves one of its own,
/// a restart has one, and one that was asked of a `Manual` machine may wait for data.
fn unhalts(world: &World) -> bool {
    let last = world.vm.status.as_ref().and_then(|status| status.run_strategy.as_deref());
    let was_halted = last.is_none_or(|last| last == RunStrategy::Halted.name());
    was_halted && requests(world).iter().any(|request| request.action == "Start")
}

/// Whether a start is asked for with its vCPUs stopped.
fn starts_paused(requests: &[VirtualMachineStateChangeRequest]) -> bool {
    let is_paused =
        |request: &VirtualMachineStateChangeRequest| request.data.get("paused").is_some_and(|value| value == "true");
    requests.iter().any(|request| request.action == "Start" && is_paused(request))
}

fn requests(world: &World) -> &[VirtualMachineStateChangeRequest] {
    world.vm.status.as_ref().map_or(&[], |status| &status.state_change_requests)
}

fn vmi_phase(world: &World) -> Option<Phase> {
    world.vmi.as_ref().map(Phase::of)
}
