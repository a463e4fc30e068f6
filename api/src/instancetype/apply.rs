//! An instancetype, put into a template. What the template sets too is a conflict, as in KubeVirt.

use super::types::{CPUInstancetype, MemoryInstancetype, VirtualMachineInstancetypeSpec};
use super::{VirtualMachinePreferenceSpec, topology};
use crate::fault::{Fault, FaultCode, FieldPath, SentText};
use crate::quantity::Quantity;
use crate::v1::{
    DomainSpec, ResourceRequirements, VirtualMachineInstanceSpec, VirtualMachineInstanceTemplateSpec, non_empty,
};

/// All of it, in per cent.
const WHOLE: f32 = 100.0;
/// KubeVirt's spelling of `dedicatedCpuPlacement` where both set it.
const SENT_PLACEMENT: &str = "dedicatedCPUPlacement";

/// What both set. Each has the place in the template; its message names that in the instancetype.
struct Conflicts {
    at: FieldPath,
    found: Vec<Fault>,
}

impl Conflicts {
    /// Notes a conflict if the template sets `place` beside `source`, which the instancetype sets.
    fn note(&mut self, is_set: bool, place: &str, source: &str) {
        if is_set {
            let path = self.at.child(place);
            let sent = path.as_str().replace("dedicatedCpuPlacement", SENT_PLACEMENT);
            self.found.push(conflict(path, source).field(sent));
        }
    }
}

fn conflict(path: FieldPath, source: &str) -> Fault {
    let message = format!("the instancetype sets this too, in its `spec.{source}`");
    let fault = Fault::new(path, FaultCode::Invalid, message).sent(SentText::Conflict);
    fault.instead("remove it here, or name another instancetype")
}

/// Puts an instancetype into the template, which stands at `at`; gives the conflicts, and then changes nothing that counts.
pub(super) fn apply(
    size: &VirtualMachineInstancetypeSpec,
    preference: Option<&VirtualMachinePreferenceSpec>,
    template: &mut VirtualMachineInstanceTemplateSpec,
    at: &FieldPath,
) -> Vec<Fault> {
    let mut conflicts = Conflicts { at: at.child("spec"), found: Vec::new() };
    annotations(size, template, at, &mut conflicts);
    let spec = template.spec.get_or_insert_default();
    scheduling(size, spec, &mut conflicts);
    cpu(&size.cpu, preference, &mut spec.domain, &mut conflicts);
    memory(&size.memory, &mut spec.domain, &mut conflicts);
    io_threads(size, &mut spec.domain, &mut conflicts);
    devices(size, &mut spec.domain, &mut conflicts);
    conflicts.found
}

fn annotations(
    size: &VirtualMachineInstancetypeSpec,
    template: &mut VirtualMachineInstanceTemplateSpec,
    at: &FieldPath,
    conflicts: &mut Conflicts,
) {
    if size.annotations.is_empty() {
        return;
    }
    let known = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
    for (key, value) in &size.annotations {
        match known.get(key) {
            Some(other) if other != value => {
                let path = at.child("metadata.annotations").key(key);
                conflicts.found.push(conflict(path, "annotations").field(format!("annotations.{key}")));
            }
            Some(_) => {}
            None => drop(known.insert(key.clone(), value.clone())),
        }
    }
}

fn scheduling(size: &VirtualMachineInstancetypeSpec, spec: &mut VirtualMachineInstanceSpec, conflicts: &mut Conflicts) {
    if !size.node_selector.is_empty() {
        conflicts.note(!spec.node_selector.is_empty(), "nodeSelector", "nodeSelector");
        spec.node_selector.clone_from(&size.node_selector);
    }
    if let Some(name) = non_empty(&size.scheduler_name) {
        conflicts.note(non_empty(&spec.scheduler_name).is_some(), "schedulerName", "schedulerName");
        spec.scheduler_name = Some(name.to_owned());
    }
}

/// A request or a limit of the pod, where the instancetype has the size that it would follow from.
fn resources(domain: &DomainSpec, resource: &str, source: &str, conflicts: &mut Conflicts) {
    let Some(resources) = &domain.resources else { return };
    let ResourceRequirements { requests, limits, overcommit_guest_overhead: _ } = resources;
    for (list, field) in [(requests, "requests"), (limits, "limits")] {
        conflicts.note(list.contains_key(resource), &format!("domain.resources.{field}.{resource}"), source);
    }
}

fn cpu(
    size: &CPUInstancetype,
    preference: Option<&VirtualMachinePreferenceSpec>,
    domain: &mut DomainSpec,
    conflicts: &mut Conflicts,
) {
    resources(domain, "cpu", "cpu.guest", conflicts);
    let cpu = domain.cpu.get_or_insert_default();
    for (part, field) in [(cpu.sockets, "sockets"), (cpu.cores, "cores"), (cpu.threads, "threads")] {
        conflicts.note(part.unwrap_or(0) != 0, &format!("domain.cpu.{field}"), "cpu.guest");
    }
    if size.model.is_some() {
        conflicts.note(non_empty(&cpu.model).is_some(), "domain.cpu.model", "cpu.model");
        cpu.model.clone_from(&size.model);
    }
    if size.dedicated_cpu_placement.is_some() {
        let is_set = cpu.dedicated_cpu_placement == Some(true);
        conflicts.note(is_set, "domain.cpu.dedicatedCpuPlacement", "cpu.dedicatedCPUPlacement");
        cpu.dedicated_cpu_placement = size.dedicated_cpu_placement;
    }
    if size.isolate_emulator_thread.is_some() {
        let is_set = cpu.isolate_emulator_thread == Some(true);
        conflicts.note(is_set, "domain.cpu.isolateEmulatorThread", "cpu.isolateEmulatorThread");
        cpu.isolate_emulator_thread = size.isolate_emulator_thread;
    }
    if size.numa.is_some() {
        conflicts.note(cpu.numa.is_some(), "domain.cpu.numa", "cpu.numa");
        cpu.numa.clone_from(&size.numa);
    }
    if size.realtime.is_some() {
        conflicts.note(cpu.realtime.is_some(), "domain.cpu.realtime", "cpu.realtime");
        cpu.realtime.clone_from(&size.realtime);
    }
    // Not a conflict in KubeVirt: the instancetype's counts.
    if size.max_sockets.is_some() {
        cpu.max_sockets = size.max_sockets;
    }
    topology::lay_out(size.guest, preference, cpu);
}

fn memory(size: &MemoryInstancetype, domain: &mut DomainSpec, conflicts: &mut Conflicts) {
    resources(domain, "memory", "memory.guest", conflicts);
    let memory = domain.memory.get_or_insert_default();
    conflicts.note(memory.guest.is_some(), "domain.memory.guest", "memory.guest");
    // Without any, its machines can be written, as in KubeVirt, and not started.
    if !size.guest.is_zero() {
        memory.guest = Some(size.guest.clone());
    }
    if size.hugepages.is_some() {
        conflicts.note(memory.hugepages.is_some(), "domain.memory.hugepages", "memory.hugepages");
        memory.hugepages.clone_from(&size.hugepages);
    }
    if size.max_guest.is_some() {
        conflicts.note(memory.max_guest.is_some(), "domain.memory.maxGuest", "memory.maxGuest");
        memory.max_guest.clone_from(&size.max_guest);
    }
    if let Some(percent) = size.overcommit_percent.filter(|percent| *percent > 0) {
        let requests = &mut domain.resources.get_or_insert_default().requests;
        requests.insert("memory".to_owned(), less(&size.guest, percent));
    }
}

/// So many per cent less, to the byte as KubeVirt has it, which computes with single precision: pods of both ask for the same.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "KubeVirt's arithmetic; `as` from a float saturates"
)]
fn less(memory: &Quantity, percent: i32) -> Quantity {
    let kept = memory.value() as f32 * (1.0 - percent as f32 / WHOLE);
    Quantity::from_bytes(kept as u64)
}

fn io_threads(size: &VirtualMachineInstancetypeSpec, domain: &mut DomainSpec, conflicts: &mut Conflicts) {
    if let Some(count) = size.io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count) {
        let threads = domain.io_threads.get_or_insert_default();
        let is_set = threads.supplemental_pool_thread_count.is_some();
        let place = "ioThreads.supplementalPoolThreadCount";
        conflicts.note(is_set, &format!("domain.{place}"), place);
        threads.supplemental_pool_thread_count = Some(count);
    }
    if size.io_threads_policy.is_some() {
        conflicts.note(domain.io_threads_policy.is_some(), "domain.ioThreadsPolicy", "ioThreadsPolicy");
        domain.io_threads_policy.clone_from(&size.io_threads_policy);
    }
}

fn devices(size: &VirtualMachineInstancetypeSpec, domain: &mut DomainSpec, conflicts: &mut Conflicts) {
    if size.launch_security.is_some() {
        conflicts.note(domain.launch_security.is_some(), "domain.launchSecurity", "launchSecurity");
        domain.launch_security.clone_from(&size.launch_security);
    }
    if !size.gpus.is_empty() {
        conflicts.note(!domain.devices.gpus.is_empty(), "domain.devices.gpus", "gpus");
        domain.devices.gpus.clone_from(&size.gpus);
    }
    if !size.host_devices.is_empty() {
        conflicts.note(!domain.devices.host_devices.is_empty(), "domain.devices.hostDevices", "hostDevices");
        domain.devices.host_devices.clone_from(&size.host_devices);
    }
}
