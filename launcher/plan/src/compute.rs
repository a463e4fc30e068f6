//! Accelerator, machine type, vCPUs and memory.

use garboard_api::accelerator::RequestedAccelerator;
use garboard_api::quantity::Quantity;
use garboard_machine::cpu::Smp;
use garboard_machine::facts::{HostFacts, KvmState};
use garboard_machine::features::{Accelerator, MachineType};
use garboard_machine::id::DeviceId;
use garboard_machine::memory::{MEMORY_ALIGNMENT_BYTES, Memory, MemoryBackend, MemoryKind, NumaNode};

use super::cpu::NEAR_MEMORY_BYTES;
use super::draft::{Draft, Input, invalid, text};
use super::error::PlanError;
use super::options::{AcceleratorChoice, PlanOptions};

const MEMORY_FIELD: &str = "spec.domain.memory.guest";
const CPU_FIELD: &str = "spec.domain.cpu";

/// Without interrupt remapping an APIC ID has 8 bits, and 255 means «all».
const MAX_APIC_ID: u32 = 254;

/// QEMU takes pages with no more threads than this (`MAX_MEM_PREALLOC_THREAD_COUNT`).
const MOST_PREALLOC_THREADS: u32 = 16;

/// What executes the guest's instructions: what the instance asks for, else the installation's or the host's choice.
pub(super) fn accelerator(
    asked: Option<RequestedAccelerator>,
    facts: &HostFacts,
    options: &PlanOptions,
) -> Result<Accelerator, PlanError> {
    let built_with_kvm = facts.qemu.features.accelerators.contains(&Accelerator::Kvm);
    match choice(asked, options) {
        AcceleratorChoice::Tcg => Ok(Accelerator::Tcg),
        AcceleratorChoice::Kvm if built_with_kvm && facts.kvm.runs_guests() => Ok(Accelerator::Kvm),
        AcceleratorChoice::Kvm => Err(PlanError::NoKvm { state: facts.kvm }),
        AcceleratorChoice::Auto if built_with_kvm && facts.kvm == KvmState::Native => Ok(Accelerator::Kvm),
        AcceleratorChoice::Auto => Ok(Accelerator::Tcg),
    }
}

fn choice(asked: Option<RequestedAccelerator>, options: &PlanOptions) -> AcceleratorChoice {
    match asked {
        Some(RequestedAccelerator::Kvm) => AcceleratorChoice::Kvm,
        Some(RequestedAccelerator::Tcg) => AcceleratorChoice::Tcg,
        None => options.accelerator,
    }
}

/// Whether KVM of this host interprets the guest's code instead of having the processor run it.
pub(super) fn is_interpreted_by_kvm(accelerator: Accelerator, facts: &HostFacts) -> bool {
    accelerator == Accelerator::Kvm && facts.kvm == KvmState::Emulated
}

/// Reports to the user, once, why a guest is slow.
pub(super) fn note_emulation(draft: &mut Draft<'_>) {
    let (facts, options) = (draft.input.facts, draft.input.options);
    if is_interpreted_by_kvm(draft.accelerator, facts) {
        draft.note(None, format!("the guest runs under KVM, and slowly: {}", facts.kvm));
    }
    if draft.accelerator == Accelerator::Tcg {
        let why = match choice(draft.input.asked_accelerator(), options) {
            AcceleratorChoice::Tcg => "TCG was asked for".to_owned(),
            AcceleratorChoice::Auto | AcceleratorChoice::Kvm if facts.kvm == KvmState::Native => {
                "this QEMU was built without KVM".to_owned()
            }
            AcceleratorChoice::Auto | AcceleratorChoice::Kvm => facts.kvm.to_string(),
        };
        draft.note(None, format!("the guest runs under TCG, many times slower than KVM: {why}"));
    }
}

/// The versioned machine type: the stored one, else what the manifest names, else `q35`.
pub(super) fn machine_type<'a>(input: Input<'a>) -> Result<&'a MachineType, PlanError> {
    let features = &input.facts.qemu.features;
    let asked = input.domain().machine.as_ref().and_then(|machine| text(&machine.r#type)).unwrap_or("q35");
    let name = match input.stored {
        // A stored type stands for the alias it was resolved from, not for another type the user now names.
        Some(stored) if asked == "q35" || asked == stored.machine_type => stored.machine_type.as_str(),
        Some(_) | None => asked,
    };
    features.machine(name).filter(|machine| machine.name.contains("q35")).ok_or_else(|| PlanError::QemuLacks {
        field: "spec.domain.machine.type".to_owned(),
        version: features.version.to_string(),
        what: format!("machine type `{name}`"),
        instead: "write `q35`, or a pc-q35 version that `qemu-system-x86_64 -machine help` lists".to_owned(),
    })
}

/// How many vCPUs are asked for.
pub(super) fn vcpus(input: Input<'_>) -> u32 {
    let cpu = input.domain().cpu.as_ref();
    let counts = cpu.map(|cpu| [cpu.cores, cpu.threads, cpu.sockets]).unwrap_or_default();
    counts.into_iter().flatten().fold(1, |all: u32, count| all.saturating_mul(count.max(1)))
}

/// vCPUs.
pub(super) fn smp(draft: &mut Draft<'_>, machine: &MachineType) -> Result<Smp, PlanError> {
    let cpu = draft.input.domain().cpu.as_ref();
    let at_least_one = |count: Option<u32>| count.unwrap_or(1).max(1);
    let cores = at_least_one(cpu.and_then(|cpu| cpu.cores));
    let threads = at_least_one(cpu.and_then(|cpu| cpu.threads));
    let sockets = at_least_one(cpu.and_then(|cpu| cpu.sockets));
    let asked = cpu.and_then(|cpu| cpu.max_sockets).unwrap_or(0).max(sockets);
    let fits = |sockets| topology_fits(sockets, cores, threads, machine.max_vcpus);
    refuse_more_than_kvm_has(draft, sockets.saturating_mul(cores).saturating_mul(threads))?;
    if !fits(sockets) {
        let most = machine.max_vcpus.min(MAX_APIC_ID + 1);
        return Err(PlanError::TooManyVcpus {
            field: CPU_FIELD.to_owned(),
            message: format!(
                "{sockets} sockets of {cores} cores of {threads} threads are more than {} can address",
                machine.name
            ),
            instead: format!("ask for at most {most} vCPUs, fewer if cores or threads are no powers of two"),
        });
    }
    let max_sockets = (sockets..=asked.min(MAX_APIC_ID + 1)).rev().find(|&count| fits(count)).unwrap_or(sockets);
    if max_sockets < asked {
        let text = format!("at most {max_sockets} sockets of this shape can ever be plugged in");
        draft.note(Some("spec.domain.cpu.maxSockets"), text);
    }
    let per_socket = cores * threads;
    Ok(Smp { cpus: sockets * per_socket, maxcpus: max_sockets * per_socket, sockets: max_sockets, cores, threads })
}

/// QEMU would refuse to start with more vCPUs than KVM gives one machine.
fn refuse_more_than_kvm_has(draft: &Draft<'_>, asked: u32) -> Result<(), PlanError> {
    let most = draft.input.facts.kvm_max_vcpus.filter(|_| draft.accelerator == Accelerator::Kvm);
    match most.filter(|most| asked > *most) {
        None => Ok(()),
        Some(most) => Err(PlanError::HostLacks {
            field: CPU_FIELD.to_owned(),
            message: format!("{asked} vCPUs are asked for, and KVM gives a machine {most} here"),
            instead: format!("ask for at most {most} vCPUs, or use another host"),
        }),
    }
}

/// Whether every vCPU can be counted by the machine and has an APIC ID: cores and threads take whole bits of it.
fn topology_fits(sockets: u32, cores: u32, threads: u32, max_vcpus: u32) -> bool {
    // Nothing above this fits, and below it no product or shift can overflow.
    if [sockets, cores, threads].iter().any(|&count| count > MAX_APIC_ID + 1) {
        return false;
    }
    let bits = |count: u32| u32::BITS - (count - 1).leading_zeros();
    let core_shift = bits(threads);
    let socket_shift = core_shift + bits(cores);
    let highest = (sockets - 1) << socket_shift | (cores - 1) << core_shift | (threads - 1);
    highest <= MAX_APIC_ID && sockets * cores * threads <= max_vcpus
}

/// The guest's memory and what backs it.
#[derive(Clone, Debug)]
pub(super) struct GuestMemory {
    pub(super) memory: Memory,
    pub(super) numa: Option<NumaNode>,
    /// Size of the huge pages it is made of, bytes.
    pub(super) hugepage_bytes: Option<u64>,
}

/// ID of the object that is the guest's memory.
fn backend_id() -> DeviceId {
    DeviceId::constant("ram0")
}

/// Where the guest's memory comes from. To be asked last: its descriptor is not in the plan's list, which earlier versions
/// would not understand then, but comes after it.
pub(super) fn backend(draft: &Draft<'_>, guest: &GuestMemory, smp: Smp) -> MemoryBackend {
    let kind = match guest.hugepage_bytes {
        // The vCPUs do not run yet, so their share of the processors is free.
        Some(page_bytes) => MemoryKind::MemfdHuge { page_bytes, threads: smp.cpus.clamp(1, MOST_PREALLOC_THREADS) },
        None => MemoryKind::Memfd { fd: draft.next_descriptor() },
    };
    MemoryBackend { id: backend_id(), size: guest.memory.size, kind }
}

/// The guest's memory.
pub(super) fn memory(draft: &mut Draft<'_>, smp: Smp) -> Result<GuestMemory, PlanError> {
    let input = draft.input;
    let asked = guest_bytes(input)?;
    let page_bytes = hugepage_bytes(input)?;
    let alignment = page_bytes.unwrap_or(MEMORY_ALIGNMENT_BYTES).max(MEMORY_ALIGNMENT_BYTES);
    let size = align(asked, alignment)
        .ok_or_else(|| invalid(MEMORY_FIELD, format!("{asked} bytes are too many"), "write less"))?;
    if let Some(page_bytes) = page_bytes {
        require_hugepages(input, page_bytes, size)?;
    }
    let max_guest = input.domain().memory.as_ref().and_then(|memory| memory.max_guest.as_ref());
    let maxmem = max_guest.and_then(Quantity::to_bytes).and_then(|max| align(max, alignment)).filter(|&max| max > size);
    let maxmem = near(draft, maxmem, size);
    let numa = maxmem.map(|_| NumaNode { nodeid: 0, vcpu_count: smp.maxcpus, memdev: backend_id() });
    Ok(GuestMemory { memory: Memory { size, maxmem }, numa, hugepage_bytes: page_bytes })
}

/// The room for memory that may come, as far as TCG can address it.
fn near(draft: &mut Draft<'_>, maxmem: Option<u64>, size: u64) -> Option<u64> {
    let most = NEAR_MEMORY_BYTES.max(size);
    let is_too_far = draft.accelerator == Accelerator::Tcg && maxmem.is_some_and(|maxmem| maxmem > most);
    if is_too_far {
        let text = format!("the guest can grow to {} GiB only: TCG addresses no more", most >> 30);
        draft.note(Some("spec.domain.memory.maxGuest"), text);
    }
    maxmem.map(|maxmem| if is_too_far { most } else { maxmem }).filter(|&maxmem| maxmem > size)
}

fn align(bytes: u64, alignment: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(alignment).filter(|&bytes| bytes <= 1 << 46)
}

/// What the guest is to have, bytes: `memory.guest`, else the request, else the limit, else one huge page.
fn guest_bytes(input: Input<'_>) -> Result<u64, PlanError> {
    let domain = input.domain();
    let resources = domain.resources.as_ref();
    let guest = domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let asked = guest
        .or_else(|| resources.and_then(|resources| resources.requests.get("memory")))
        .or_else(|| resources.and_then(|resources| resources.limits.get("memory")))
        .and_then(Quantity::to_bytes);
    match asked.or(hugepage_bytes(input)?) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        Some(_) => Err(invalid(MEMORY_FIELD, "a guest without memory cannot start", "write for example `1Gi`")),
        None => Err(invalid(
            MEMORY_FIELD,
            "the manifest does not contain the guest's memory size",
            "write for example `1Gi`",
        )),
    }
}

fn hugepage_bytes(input: Input<'_>) -> Result<Option<u64>, PlanError> {
    let hugepages = input.domain().memory.as_ref().and_then(|memory| memory.hugepages.as_ref());
    let Some(size) = hugepages.and_then(|hugepages| text(&hugepages.page_size)) else { return Ok(None) };
    let bytes = size.parse::<Quantity>().ok().and_then(|size| size.to_bytes()).filter(|&bytes| bytes > 0);
    let field = "spec.domain.memory.hugepages.pageSize";
    bytes.map(Some).ok_or_else(|| invalid(field, format!("`{size}` is no size of a page"), "write `2Mi` or `1Gi`"))
}

fn require_hugepages(input: Input<'_>, page_bytes: u64, guest_bytes: u64) -> Result<(), PlanError> {
    let pools = &input.facts.hugepages;
    let needed = guest_bytes / page_bytes;
    let lacks = |message: String, instead: String| PlanError::HostLacks {
        field: "spec.domain.memory.hugepages".to_owned(),
        message,
        instead,
    };
    let mib = page_bytes >> 20;
    match pools.iter().find(|pool| pool.page_bytes == page_bytes) {
        None => Err(lacks(format!("this host has no pages of {mib} MiB"), "choose a size it has".to_owned())),
        Some(pool) if pool.free < needed => Err(lacks(
            format!("the guest needs {needed} pages of {mib} MiB, {} are free", pool.free),
            format!("reserve more in /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", page_bytes >> 10),
        )),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apic_ids_limit_the_topology() {
        let table = [
            (1, 1, 1, true),
            (255, 1, 1, true),
            (256, 1, 1, false),
            (127, 2, 1, true),
            (64, 3, 1, true),
            // Three cores take the bits of four.
            (65, 3, 1, false),
            (1, 128, 2, false),
            (u32::MAX, u32::MAX, u32::MAX, false),
        ];
        for (sockets, cores, threads, fits) in table {
            assert_eq!(topology_fits(sockets, cores, threads, 288), fits, "{sockets} {cores} {threads}");
        }
    }

    #[test]
    fn memory_is_rounded_up() {
        assert_eq!(align(1, 1 << 20), Some(1 << 20));
        assert_eq!(align(1 << 30, 1 << 20), Some(1 << 30));
        assert_eq!(align(u64::MAX, 1 << 20), None);
    }
}
