//! From what a launcher reports to the status of its VMI. Pure; for the node agent, and for the controller as long as a
//! machine is not the agent's to write (`condition`).
//!
//! A report has what only the machine's node can know: the phases `Running`, `Succeeded` and `Failed`, addresses, what
//! the guest agent reports, and the conditions that the agent writes. Everything else in a status is the controller's and stays as it
//! is.

mod agent;
pub mod claims;
pub mod condition;

use std::borrow::Cow;

use garboard_api::conditions::{
    self, ConditionChange, ConditionStatus, ConditionWriter, NewCondition, Reason, VmiConditionType,
};
use garboard_api::defaults::RUNTIME_USER;
use garboard_api::v1::{
    CPUTopology, Machine, MemoryStatus, PersistentVolumeClaimInfo, SupervisorStatus, VirtualMachineInstance,
    VirtualMachineInstanceCondition, VirtualMachineInstanceGuestOSInfo, VirtualMachineInstanceNetworkInterface,
    VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus, Volume, VolumeStatus,
};
use garboard_api::{Phase, Quantity};
use garboard_plan::StoredMachine;
use garboard_protocol::control::{self, CredentialsStatus, Ended, InterfaceStatus, Link, PauseReason, Status};
use garboard_protocol::exit::{Account, EndReason, ExitCause};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::events::EventType;

use self::claims::Claims;

/// The reason of an end that only the pod can explain ([`ExitCause::MachineKilled`]).
pub const MACHINE_KILLED: &str = EndReason::MachineKilled.as_str();
/// The most characters of QEMU's message of an I/O error.
const LONGEST_PAUSE_MESSAGE: usize = 400;
/// The condition, and the event, of a guest whose owner expects the node's own speed.
const KVM_INTERPRETS: &str = "KVM on this node interprets guest code instead of running it on the processor, which is slow; the node \
                              is probably a virtual machine without nested virtualization";
/// The condition whose changes have events.
const SYNCHRONIZED: VmiConditionType = VmiConditionType::AccessCredentialsSynchronized;
/// The pod's link to its network.
const POD_INTERFACE: &str = garboard_protocol::agent::UPLINK;

/// Everything that decides.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The launcher's report.
    pub report: &'a Status,
    /// The addresses of the launcher's pod, the first one first.
    pub addresses: &'a [String],
    /// The controller's report of the claims, on the pod.
    pub claims: &'a Claims,
    /// The VMI as the API server has it.
    pub vmi: &'a VirtualMachineInstance,
    /// Now.
    pub now: Timestamp,
}

/// The status the VMI should have; nothing if it has it already, or its run is over.
#[must_use]
pub fn next_status(seen: &Seen<'_>) -> Option<VirtualMachineInstanceStatus> {
    let report = seen.report;
    if Phase::of(seen.vmi).is_final() || is_empty(report) {
        return None;
    }
    let old = seen.vmi.status.as_ref()?;
    let mut new = old.clone();
    match (&report.ended, report.phase) {
        // Before QEMU runs the controller's phases hold.
        (
            None,
            control::ReportedPhase::Scheduled | control::ReportedPhase::Succeeded | control::ReportedPhase::Failed,
        ) => return None,
        (None, control::ReportedPhase::Running) => {
            enter(&mut new, Phase::Running, report.phase_since_ms, seen.now);
            describe_machine(&mut new, seen);
        }
        (Some(ended), _) => end(&mut new, ended, seen.now),
    }
    set_conditions(&mut new.conditions, seen);
    (new != *old).then_some(new)
}

/// What the pod's readiness gate should be; nothing if the report does not decide it.
#[must_use]
pub fn unpaused(report: &Status) -> Option<bool> {
    let is_known = report.phase == control::ReportedPhase::Running && report.ended.is_none() && !is_empty(report);
    is_known.then_some(report.paused.is_none())
}

/// A supervisor that was started again reports before it has found its QEMU: what is empty then is not reported.
fn is_empty(report: &Status) -> bool {
    report.ended.is_none() && report.machine.is_empty()
}

fn enter(status: &mut VirtualMachineInstanceStatus, phase: Phase, since_ms: i64, now: Timestamp) {
    let phase = phase.name();
    status.phase = Some(phase.to_owned());
    let entered = status.phase_transition_timestamps.iter().any(|one| one.phase.as_deref() == Some(phase));
    if !entered {
        let since = Timestamp::from_millisecond(since_ms).unwrap_or(now);
        status.phase_transition_timestamps.push(VirtualMachineInstancePhaseTransitionTimestamp {
            phase: Some(phase.to_owned()),
            phase_transition_timestamp: Some(Time(since)),
        });
    }
}

fn end(status: &mut VirtualMachineInstanceStatus, ended: &Ended, now: Timestamp) {
    status.fs_freeze_status = None;
    if ended.cause.is_success() {
        enter(status, Phase::Succeeded, ended.at_ms, now);
    } else {
        enter(status, Phase::Failed, ended.at_ms, now);
        status.reason = Some(ended.cause.reason().to_string());
    }
}

/// A launcher that was taken over may report anything, and what is kept is given to every later start, which refuses what it cannot
/// read: so only what a plan of this version would read is kept. Of a newer launcher's that is not yet.
fn is_plannable(stored: &&serde_json::Value) -> bool {
    serde_json::from_value::<StoredMachine>((*stored).clone()).is_ok_and(|stored| stored.check().is_ok())
}

fn supervisor(info: &control::SupervisorInfo) -> SupervisorStatus {
    let started = Timestamp::from_millisecond(info.started_at_ms).and_then(|at| Timestamp::from_second(at.as_second()));
    SupervisorStatus { started_at: started.ok().map(Time), version: Some(info.version.clone()) }
}

fn describe_machine(status: &mut VirtualMachineInstanceStatus, seen: &Seen<'_>) {
    let report = seen.report;
    status.interfaces = report.interfaces.iter().map(|interface| network_interface(interface, seen)).collect();
    status.machine = Some(Machine { r#type: Some(report.machine.clone()) });
    let bytes = Quantity::from_bytes(report.memory_bytes);
    let memory = status.memory.get_or_insert_default();
    set_memory(memory, &bytes);
    memory.memory_overhead = (report.overhead_bytes > 0).then(|| Quantity::from_bytes(report.overhead_bytes));
    status.stored_machine = report.stored.as_ref().filter(is_plannable).cloned().or(status.stored_machine.take());
    status.volume_status = volumes(seen);
    status.supervisor = report.supervisor.as_ref().map(supervisor);
    status.runtime_user = Some(u64::from(RUNTIME_USER));
    let cpu = seen.vmi.spec.domain.cpu.as_ref();
    let topology = cpu.map(|cpu| (cpu.cores.unwrap_or(1), cpu.sockets.unwrap_or(1), cpu.threads.unwrap_or(1)));
    let (cores, sockets, threads) = topology.unwrap_or((1, 1, 1));
    // A guest has what it was started with; a specification that was changed since is not it.
    if cores.saturating_mul(sockets).saturating_mul(threads) == report.vcpus {
        let topology = CPUTopology { cores: Some(cores), sockets: Some(sockets), threads: Some(threads) };
        status.current_cpu_topology = Some(topology);
    }
    status.fs_freeze_status = report.frozen.then(|| FROZEN.to_owned());
    status.guest_os_info = report.guest.as_ref().map(|guest| VirtualMachineInstanceGuestOSInfo {
        id: guest.system.id.clone(),
        kernel_release: guest.kernel.clone(),
        kernel_version: guest.system.kernel_version.clone(),
        machine: guest.system.machine.clone(),
        name: guest.system.name.clone(),
        pretty_name: guest.os.clone(),
        version: guest.system.version.clone(),
        version_id: guest.system.version_id.clone(),
    });
}

/// KubeVirt's `fsFreezeStatus` while file systems are frozen; otherwise there is none.
const FROZEN: &str = "frozen";

/// All volumes by their names, also those that are no disk of the guest.
fn volumes(seen: &Seen<'_>) -> Vec<VolumeStatus> {
    let mut all: Vec<_> = seen.vmi.spec.volumes.iter().map(|volume| volume_status(volume, seen)).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

fn volume_status(volume: &Volume, seen: &Seen<'_>) -> VolumeStatus {
    let disk = seen.report.disks.iter().find(|disk| disk.volume == volume.name);
    let named = |name: &str| PersistentVolumeClaimInfo { claim_name: Some(name.to_owned()), ..Default::default() };
    let claim = |name: &str| seen.claims.get(name).cloned().unwrap_or_else(|| named(name));
    VolumeStatus {
        name: volume.name.clone(),
        target: disk.map(|disk| disk.target.clone()).unwrap_or_default(),
        persistent_volume_claim_info: volume.claim().map(claim),
        ..VolumeStatus::default()
    }
}

fn set_memory(memory: &mut MemoryStatus, bytes: &Quantity) {
    memory.guest_at_boot.get_or_insert_with(|| bytes.clone());
    memory.guest_requested.get_or_insert_with(|| bytes.clone());
    memory.guest_current = Some(bytes.clone());
}

fn network_interface(interface: &InterfaceStatus, seen: &Seen<'_>) -> VirtualMachineInstanceNetworkInterface {
    let known = (!interface.name.is_empty()).then(|| interface.name.clone());
    let specified = seen.vmi.spec.domain.devices.interfaces.iter().find(|one| Some(&one.name) == known.as_ref());
    // Behind address translation the guest is reached at the address of its pod, and does not know it.
    let translated = specified.is_some_and(|one| one.masquerade.is_some());
    let addresses = if translated { seen.addresses } else { &interface.addresses };
    // A supervisor of a version before reports no link: then it is as its specification had it plugged at the start.
    let planned =
        || if specified.is_some_and(|one| one.state.as_deref() == Some("down")) { Link::Down } else { Link::Up };
    let link = interface.link.unwrap_or_else(planned);
    let primary = specified.is_some_and(|one| one.masquerade.is_some() || one.bridge.is_some());
    VirtualMachineInstanceNetworkInterface {
        info_source: Some(interface.info_source.clone()).filter(|source| !source.is_empty()),
        interface_name: interface.interface_name.clone(),
        ip_address: addresses.first().cloned(),
        ip_addresses: addresses.to_vec(),
        link_state: known.is_some().then(|| link.name().to_owned()),
        mac: Some(interface.mac.clone()).filter(|mac| !mac.is_empty()),
        pod_interface_name: primary.then(|| POD_INTERFACE.to_owned()),
        queue_count: i32::try_from(interface.queues).ok().filter(|queues| *queues > 0),
        name: known,
    }
}

fn set_conditions(conditions: &mut Vec<VirtualMachineInstanceCondition>, seen: &Seen<'_>) {
    let report = seen.report;
    // A supervisor that was just started has not asked the guest yet: what the one before it reported stays.
    let is_known = |kind: &VmiConditionType| {
        *kind != VmiConditionType::AccessCredentialsSynchronized
            || report.access_credentials.is_some()
            || report.ended.is_some()
    };
    let all = VmiConditionType::ALL.iter().copied();
    let kinds = all.filter(|kind| kind.writer() == ConditionWriter::Agent).filter(is_known);
    let changes =
        kinds.map(|kind| condition_of(kind, seen).map_or(ConditionChange::Remove(kind), ConditionChange::Set));
    conditions::change(conditions, changes, seen.now);
}

/// What a report has about a condition of the agent's, while it holds.
fn condition_of<'a>(kind: VmiConditionType, seen: &Seen<'a>) -> Option<Holding<'a>> {
    let report = seen.report;
    let condition = match kind {
        VmiConditionType::Ended => return report.ended.as_ref().map(ended),
        VmiConditionType::Paused => paused(report),
        VmiConditionType::AgentConnected => agent_connected(report),
        VmiConditionType::UnsupportedAgent => unsupported_agent(seen),
        VmiConditionType::AccessCredentialsSynchronized => access_credentials(report),
        VmiConditionType::SoftwareEmulation => slow(report),
        VmiConditionType::Unresponsive => unresponsive(report),
        VmiConditionType::NetworkLost => network_lost(report),
        // Others write these.
        VmiConditionType::Ready
        | VmiConditionType::PodScheduled
        | VmiConditionType::Synchronized
        | VmiConditionType::DataVolumesReady
        | VmiConditionType::LiveMigratable
        | VmiConditionType::StorageLiveMigratable
        | VmiConditionType::Provisioning
        | VmiConditionType::EvictionRequested
        | VmiConditionType::OutdatedLauncher => None,
    };
    // All but the first are about a guest that runs.
    condition.filter(|_| report.ended.is_none())
}

/// A condition that holds; one that does not is not there.
type Holding<'a> = NewCondition<'a, VmiConditionType>;

fn holding<'a>(kind: VmiConditionType, reason: Reason, message: impl Into<Cow<'a, str>>) -> Holding<'a> {
    NewCondition::new(kind, true, reason, message)
}

fn paused(report: &Status) -> Option<Holding<'_>> {
    let (reason, message) = match report.paused? {
        PauseReason::PausedIOError => (Reason::PausedIoError, "VMI was paused, low-level IO error detected"),
        PauseReason::PausedByUser => (Reason::PausedByUser, "VMI was paused by user"),
    };
    let bounded = |more: &String| more.chars().take(LONGEST_PAUSE_MESSAGE).collect::<String>();
    let more = report.pause_message.as_ref().map(|more| format!("{message}: {}", bounded(more)));
    Some(holding(VmiConditionType::Paused, reason, more.unwrap_or_else(|| message.to_owned())))
}

fn agent_connected(report: &Status) -> Option<Holding<'_>> {
    report.guest.is_some().then(|| NewCondition::bare(VmiConditionType::AgentConnected, true))
}

/// KubeVirt's has its text as the reason. Of an agent whose commands are not known nothing is reported.
fn unsupported_agent<'a>(seen: &Seen<'a>) -> Option<Holding<'a>> {
    let missing = agent::missing(seen.report.guest.as_ref()?, seen.vmi);
    let message = format!("the guest agent does not have these commands, or may not use them: {}", missing.join(", "));
    let condition = NewCondition::bare(VmiConditionType::UnsupportedAgent, true);
    (!missing.is_empty()).then(|| NewCondition { message: message.into(), ..condition })
}

/// KubeVirt's has no reason, and a message while it is False.
fn access_credentials(report: &Status) -> Option<Holding<'_>> {
    let CredentialsStatus { synchronized, message } = report.access_credentials.as_ref()?;
    let condition = NewCondition::bare(VmiConditionType::AccessCredentialsSynchronized, *synchronized);
    Some(NewCondition { message: message.as_str().into(), ..condition })
}

fn unresponsive(report: &Status) -> Option<Holding<'_>> {
    let message = "QEMU does not answer on its monitor; the state of the guest is the last one that QEMU reported";
    report.unresponsive.then(|| holding(VmiConditionType::Unresponsive, Reason::MonitorTimeout, message))
}

fn network_lost(report: &Status) -> Option<Holding<'_>> {
    let name = report.ended_helper.as_deref()?;
    let message = format!("the program {name} ended; the guest has no network until its next start");
    Some(holding(VmiConditionType::NetworkLost, Reason::HelperEnded, message))
}

fn ended(ended: &Ended) -> Holding<'_> {
    NewCondition {
        kind: VmiConditionType::Ended,
        status: ConditionStatus::True,
        reason: ended.cause.reason().as_str().into(),
        message: message(&ended.cause, &ended.message).into(),
    }
}

/// Why a guest is many times slower than its node's processor.
fn slow(report: &Status) -> Option<Holding<'static>> {
    let (reason, message) = if report.software_emulation {
        (Reason::NoKvm, "the guest's processors are emulated in software (TCG), which is slow")
    } else if report.interpreted_by_kvm {
        (Reason::KvmInterpretsGuestCode, KVM_INTERPRETS)
    } else {
        return None;
    };
    Some(holding(VmiConditionType::SoftwareEmulation, reason, message))
}

/// How a run ended, for people: a text about it, and what to do where that is known.
#[must_use]
pub fn message(cause: &ExitCause, text: &str) -> String {
    cause.remedy().map_or_else(|| text.to_owned(), |remedy| format!("{text}; {remedy}"))
}

/// An event on a VMI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceEvent {
    /// Whether it is a warning.
    pub kind: EventType,
    /// Its reason.
    pub reason: Reason,
    /// The note, for a person.
    pub note: String,
}

impl InstanceEvent {
    fn normal(reason: Reason, note: impl Into<String>) -> Self {
        Self { kind: EventType::Normal, reason, note: note.into() }
    }
}

/// The events of a report, by the status that the VMI had before and the one that follows from the report. Who writes that status
/// writes them: the agent, or the controller where the report came through the pod.
#[must_use]
pub fn events(
    before: Option<&VirtualMachineInstanceStatus>,
    status: &VirtualMachineInstanceStatus,
) -> Vec<InstanceEvent> {
    let condition = |kind| conditions::find(&status.conditions, kind);
    let phase = Phase::of_status(status);
    let (before, phase_before) = (before.map_or(&[][..], |old| &old.conditions), before.map(Phase::of_status));
    let phase_before = phase_before.unwrap_or(Phase::Pending);
    let credentials = condition(SYNCHRONIZED)
        .filter(|new| {
            let old = conditions::find(before, SYNCHRONIZED);
            // The message has text of the guest, which may be another each time.
            old.is_none_or(|old| old.status != new.status)
        })
        .map(credentials_event);
    if phase == Phase::Running && phase_before < Phase::Running {
        let created = InstanceEvent::normal(Reason::Created, "QEMU was started");
        let started = InstanceEvent::normal(Reason::Started, "the guest was started");
        // Software emulation is configured, so that it needs no event.
        let reason = Reason::KvmInterpretsGuestCode;
        let slow = condition(VmiConditionType::SoftwareEmulation)
            .filter(|each| each.reason.as_deref() == Some(reason.name()))
            .map(|each| InstanceEvent {
                kind: EventType::Warning,
                reason,
                note: each.message.clone().unwrap_or_default(),
            });
        return [created, started].into_iter().chain(slow).chain(credentials).collect();
    }
    if phase == Phase::Running {
        return pause_event(before, &status.conditions).into_iter().chain(credentials).collect();
    }
    let ended = condition(VmiConditionType::Ended).filter(|_| phase.is_final() && !phase_before.is_final());
    let unstarted = ended.filter(|_| phase_before < Phase::Running).and_then(sync_failed);
    credentials.into_iter().chain(unstarted).chain(ended.map(ended_event)).collect()
}

/// The event of a machine that QEMU could not be started with, beside that of its end: KubeVirt's, which clients wait for.
fn sync_failed(ended: &VirtualMachineInstanceCondition) -> Option<InstanceEvent> {
    let reason = EndReason::read(ended.reason.as_deref().unwrap_or_default());
    let note = ended.message.clone().unwrap_or_default();
    matches!(reason, EndReason::NotStarted | EndReason::QemuFailed).then_some(InstanceEvent {
        kind: EventType::Warning,
        reason: Reason::SyncFailed,
        note,
    })
}

/// The event of a change of the condition.
fn credentials_event(condition: &VirtualMachineInstanceCondition) -> InstanceEvent {
    if condition.status == ConditionStatus::True.name() {
        let note = "the guest agent has set the access credentials".to_owned();
        return InstanceEvent { kind: EventType::Normal, reason: Reason::AccessCredentialsSyncSuccess, note };
    }
    let why = condition.message.as_deref().unwrap_or_default();
    let note = format!("not all access credentials are in the guest: {why}");
    InstanceEvent { kind: EventType::Warning, reason: Reason::AccessCredentialsSyncFailed, note }
}

/// The event of a guest whose processors were stopped, or go on.
fn pause_event(
    before: &[VirtualMachineInstanceCondition],
    after: &[VirtualMachineInstanceCondition],
) -> Option<InstanceEvent> {
    let kind = VmiConditionType::Paused;
    let was_paused = conditions::find_with(before, kind, ConditionStatus::True);
    match (was_paused, conditions::find_with(after, kind, ConditionStatus::True)) {
        (None, Some(paused)) => {
            let is_asked = paused.reason.as_deref() == Some(Reason::PausedByUser.name());
            let kind = if is_asked { EventType::Normal } else { EventType::Warning };
            let note = paused.message.clone().unwrap_or_default();
            Some(InstanceEvent { kind, reason: Reason::Paused, note })
        }
        (Some(_), None) => Some(InstanceEvent::normal(Reason::Unpaused, "the guest's processors run again")),
        (Some(_), Some(_)) | (None, None) => None,
    }
}

/// The event of an end: its note is the one of an [`Account`] of the condition's cause and message.
fn ended_event(ended: &VirtualMachineInstanceCondition) -> InstanceEvent {
    let reason = EndReason::read(ended.reason.as_deref().unwrap_or_default());
    let kind = if reason.is_warning() { EventType::Warning } else { EventType::Normal };
    let note = Account { reason, message: ended.message.as_deref().unwrap_or_default() }.note();
    InstanceEvent { kind, reason: Reason::Stopped, note }
}

#[cfg(test)]
pub(crate) mod tests;
