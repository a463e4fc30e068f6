//! From what a launcher reports to the status of its VMI. Pure; for the node agent, and for the controller as long as a
//! machine is not the agent's to write (`condition`).
//!
//! A report has what only the machine's node can know: the phases `Running`, `Succeeded` and `Failed`, addresses, what
//! the guest agent says, and six conditions. Everything else in a status is the controller's and stays as it
//! is.

pub mod claims;
pub mod condition;

use garboard_api::defaults::RUNTIME_USER;
use garboard_api::v1::{
    CPUTopology, Machine, MemoryStatus, PersistentVolumeClaimInfo, VirtualMachineInstance,
    VirtualMachineInstanceCondition, VirtualMachineInstanceGuestOSInfo, VirtualMachineInstanceNetworkInterface,
    VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus, VolumeStatus,
};
use garboard_api::{Phase, Quantity};
use garboard_plan::StoredMachine;
use garboard_protocol::control::{self, DiskStatus, Ended, InterfaceStatus, PauseReason, Status};
use garboard_protocol::exit::ExitCause;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use self::claims::Claims;

const PAUSED: &str = "Paused";
const AGENT_CONNECTED: &str = "AgentConnected";
/// The guest is many times slower than its node's processor.
pub const SOFTWARE_EMULATION: &str = "SoftwareEmulation";
/// Reason of [`SOFTWARE_EMULATION`] and of the event beside it: `/dev/kvm` is there, and slower than TCG.
pub const INTERPRETED_BY_KVM: &str = "KVMInterpretsGuestCode";
/// Not KubeVirt's: QEMU does not answer, so that nothing new is known of the guest.
const UNRESPONSIVE: &str = "Unresponsive";
/// Not KubeVirt's: a program that the guest's network needs has ended.
const NETWORK_LOST: &str = "NetworkLost";
/// Not KubeVirt's: how the run ended, in a word and a sentence, for `kubectl describe`.
pub const ENDED: &str = "Ended";
/// The word for an end that only the pod can explain ([`ExitCause::MachineKilled`]).
pub const MACHINE_KILLED: &str = "MachineKilled";
/// The most characters of what QEMU said of an I/O error.
const LONGEST_PAUSE_MESSAGE: usize = 400;
/// The pod's link to its network.
const POD_INTERFACE: &str = garboard_protocol::agent::UPLINK;

/// Everything that decides.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What the launcher says.
    pub report: &'a Status,
    /// The addresses of the launcher's pod, the first one first.
    pub addresses: &'a [String],
    /// What the controller says of the claims, on the pod.
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
    if Phase::of(seen.vmi).is_final() || knows_nothing(report) {
        return None;
    }
    let old = seen.vmi.status.as_ref()?;
    let mut new = old.clone();
    match (&report.ended, report.phase) {
        // Before QEMU runs the controller's phases hold.
        (None, control::Phase::Scheduled | control::Phase::Succeeded | control::Phase::Failed) => return None,
        (None, control::Phase::Running) => {
            enter(&mut new, Phase::Running, report.phase_since_ms, seen.now);
            describe_machine(&mut new, seen);
        }
        (Some(ended), _) => end(&mut new, ended, seen.now),
    }
    set_conditions(&mut new.conditions, report, seen.now);
    (new != *old).then_some(new)
}

/// What the pod's readiness gate should say; nothing if it has no say.
#[must_use]
pub fn unpaused(report: &Status) -> Option<bool> {
    let has_a_say = report.phase == control::Phase::Running && report.ended.is_none() && !knows_nothing(report);
    has_a_say.then_some(report.paused.is_none())
}

/// A supervisor that was started again reports before it has found its QEMU: what is empty then is not news.
fn knows_nothing(report: &Status) -> bool {
    report.ended.is_none() && report.machine.is_empty()
}

fn enter(status: &mut VirtualMachineInstanceStatus, phase: Phase, since_ms: i64, now: Timestamp) {
    let phase = phase.word();
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
    if ended.cause.is_success() {
        enter(status, Phase::Succeeded, ended.at_ms, now);
    } else {
        enter(status, Phase::Failed, ended.at_ms, now);
        status.reason = Some(word(&ended.cause).to_owned());
    }
}

/// Whoever took over a launcher may say anything, and what is kept is given to every later start, which refuses what it cannot
/// read: so only what a plan of this version would read is kept. Of a newer launcher's that is not yet.
fn is_plannable(said: &&serde_json::Value) -> bool {
    serde_json::from_value::<StoredMachine>((*said).clone()).is_ok_and(|stored| stored.check().is_ok())
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
    status.volume_status = report.disks.iter().map(|disk| volume(disk, seen)).collect();
    status.runtime_user = Some(u64::from(RUNTIME_USER));
    let cpu = seen.vmi.spec.domain.cpu.as_ref();
    let topology = cpu.map(|cpu| (cpu.cores.unwrap_or(1), cpu.sockets.unwrap_or(1), cpu.threads.unwrap_or(1)));
    let (cores, sockets, threads) = topology.unwrap_or((1, 1, 1));
    // A guest has what it was started with; a specification that was changed since is not it.
    if cores.saturating_mul(sockets).saturating_mul(threads) == report.vcpus {
        let topology = CPUTopology { cores: Some(cores), sockets: Some(sockets), threads: Some(threads) };
        status.current_cpu_topology = Some(topology);
    }
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

fn volume(disk: &DiskStatus, seen: &Seen<'_>) -> VolumeStatus {
    let source = seen.vmi.spec.volumes.iter().find(|volume| volume.name == disk.volume);
    let claim = source.and_then(|volume| volume.claim());
    let named = |name: &str| PersistentVolumeClaimInfo { claim_name: Some(name.to_owned()), ..Default::default() };
    VolumeStatus {
        name: disk.volume.clone(),
        target: disk.target.clone(),
        persistent_volume_claim_info: claim.map(|name| seen.claims.get(name).cloned().unwrap_or_else(|| named(name))),
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
    // A card is plugged in or not when the guest starts, and its specification does not change while it runs.
    let is_down = specified.is_some_and(|one| one.state.as_deref() == Some("down"));
    let primary = specified.is_some_and(|one| one.masquerade.is_some() || one.bridge.is_some());
    VirtualMachineInstanceNetworkInterface {
        info_source: Some(interface.info_source.clone()).filter(|source| !source.is_empty()),
        interface_name: interface.interface_name.clone(),
        ip_address: addresses.first().cloned(),
        ip_addresses: addresses.to_vec(),
        link_state: known.is_some().then(|| if is_down { "down" } else { "up" }.to_owned()),
        mac: Some(interface.mac.clone()).filter(|mac| !mac.is_empty()),
        pod_interface_name: primary.then(|| POD_INTERFACE.to_owned()),
        queue_count: None,
        name: known,
    }
}

fn set_conditions(conditions: &mut Vec<VirtualMachineInstanceCondition>, report: &Status, now: Timestamp) {
    let running = report.ended.is_none();
    let (word, sentence) = match report.paused {
        Some(PauseReason::PausedIOError) => ("PausedIOError", "VMI was paused, low-level IO error detected"),
        Some(PauseReason::PausedByUser) | None => ("PausedByUser", "VMI was paused by user"),
    };
    let sentence = match &report.pause_message {
        Some(more) => format!("{sentence}: {}", more.chars().take(LONGEST_PAUSE_MESSAGE).collect::<String>()),
        None => sentence.to_owned(),
    };
    let is_paused = running && report.paused.is_some();
    set(conditions, PAUSED, is_paused.then_some((word, sentence.as_str())), now);
    set(conditions, AGENT_CONNECTED, (running && report.guest.is_some()).then_some(("", "")), now);
    set(conditions, SOFTWARE_EMULATION, slow(report).filter(|_| running), now);
    let silent = (
        "MonitorTimeout",
        "QEMU does not answer on its monitor; the state of the guest is the last one that QEMU reported",
    );
    set(conditions, UNRESPONSIVE, (report.unresponsive && running).then_some(silent), now);
    let helper = report.ended_helper.as_deref().filter(|_| running);
    let lost = helper.map(|name| format!("the program {name} ended; the guest has no network until its next start"));
    set(conditions, NETWORK_LOST, lost.as_deref().map(|sentence| ("HelperEnded", sentence)), now);
    let message = report.ended.as_ref().map(|ended| message(&ended.cause, &ended.sentence)).unwrap_or_default();
    let ended = report.ended.as_ref().map(|ended| (self::word(&ended.cause), message.as_str()));
    set(conditions, ENDED, ended, now);
}

/// The same for a guest whose owner expects the node's own speed: reason and message of an event.
#[must_use]
pub fn unasked_slowness(report: &Status) -> Option<(&'static str, &'static str)> {
    slow(report).filter(|_| report.interpreted_by_kvm)
}

/// Why the guest is many times slower than its node's processor, if it is: reason and message of a condition.
fn slow(report: &Status) -> Option<(&'static str, &'static str)> {
    if report.software_emulation {
        return Some(("NoKVM", "the guest's processors are emulated in software (TCG), which is slow"));
    }
    let by_kvm = "KVM on this node interprets guest code instead of running it on the processor, which is slow; the node \
                  is probably a virtual machine without nested virtualization";
    report.interpreted_by_kvm.then_some((INTERPRETED_BY_KVM, by_kvm))
}

/// A condition is there and true, or not there.
fn set(
    conditions: &mut Vec<VirtualMachineInstanceCondition>,
    kind: &str,
    wanted: Option<(&str, &str)>,
    now: Timestamp,
) {
    let Some((reason, message)) = wanted else {
        conditions.retain(|one| one.r#type != kind);
        return;
    };
    let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let place = match conditions.iter().position(|one| one.r#type == kind) {
        Some(place) => place,
        None => {
            conditions.push(VirtualMachineInstanceCondition { r#type: kind.to_owned(), ..Default::default() });
            conditions.len() - 1
        }
    };
    let condition = &mut conditions[place];
    if condition.status != "True" {
        condition.last_transition_time = Some(Time(now));
        "True".clone_into(&mut condition.status);
    }
    condition.reason = said(reason);
    condition.message = said(message);
}

/// How a run ended, for people: a sentence about it, and what to do where that is known.
#[must_use]
pub fn message(cause: &ExitCause, sentence: &str) -> String {
    cause.remedy().map_or_else(|| sentence.to_owned(), |remedy| format!("{sentence}; {remedy}"))
}

/// The cause in one word, for programs.
#[must_use]
pub fn word(cause: &ExitCause) -> &'static str {
    match cause {
        ExitCause::GuestShutdown => "GuestShutdown",
        ExitCause::GuestReboot => "GuestReboot",
        ExitCause::GuestPanic => "GuestPanic",
        ExitCause::Watchdog => "Watchdog",
        ExitCause::StoppedGracefully => "StoppedGracefully",
        ExitCause::GracePeriodExceeded => "GracePeriodExceeded",
        ExitCause::ForceStopped => "ForceStopped",
        ExitCause::OutOfMemory { .. } => "OutOfMemory",
        ExitCause::QemuFailed { .. } => "QemuFailed",
        ExitCause::QemuKilled { .. } => "QemuKilled",
        ExitCause::QemuCrashed { .. } => "QemuCrashed",
        ExitCause::MachineKilled => MACHINE_KILLED,
        ExitCause::Unknown => "Unknown",
        ExitCause::NotStarted { .. } => "NotStarted",
    }
}

#[cfg(test)]
pub(crate) mod tests;
