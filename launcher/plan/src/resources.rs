//! What the VM may use, and what QEMU and we need beside the guest.

use garboard_api::quantity::Quantity;
use garboard_machine::cpu::Smp;
use garboard_machine::object::Object;
use garboard_machine::overhead::{Overhead, OverheadInput};

use super::compute::GuestMemory;
use super::disk::{DiskPlan, DiskSource, ImageFormat};
use super::draft::{Draft, Input, text};
use super::interface::{BindingPlan, InterfacePlan};
use super::launch::{DescriptorPurpose, Resources, ScreenPlan};

/// Thousandths of a CPU.
const WHOLE_CPU_MILLIS: u64 = 1000;

/// Threads of one block thread pool (`THREAD_POOL_MAX_THREADS_DEFAULT`, QEMU's `include/block/aio.h`).
const BLOCK_POOL_THREADS: u32 = 64;

/// Main loop, RCU, VNC, log, signal threads, and reserve for what a job or a migration starts.
const OTHER_THREADS: u32 = 64;

/// What the resources depend on beside the manifest.
pub(super) struct Use<'a> {
    pub(super) smp: Smp,
    pub(super) memory: &'a GuestMemory,
    pub(super) flash_bytes: u64,
    pub(super) display: ScreenPlan,
    pub(super) interfaces: &'a [InterfacePlan],
    pub(super) disks: &'a [DiskPlan],
    pub(super) objects: &'a [Object],
}

/// The limits and the overhead of a VM.
pub(super) fn resources(draft: &Draft<'_>, used: &Use<'_>) -> Resources {
    let input = draft.input;
    let io_threads = used.objects.iter().filter(|object| matches!(object, Object::Iothread { .. })).count();
    let io_thread_count = u32::try_from(io_threads).unwrap_or(u32::MAX);
    let overhead = Overhead::of(&OverheadInput {
        guest_memory_bytes: used.memory.memory.size,
        has_hugepages: used.memory.hugepage_bytes.is_some(),
        vcpu_count: used.smp.cpus,
        io_thread_count,
        disk_count: u32::try_from(used.disks.len()).unwrap_or(u32::MAX),
        qcow2_count: used.disks.iter().map(qcow2_images).fold(0, u32::saturating_add),
        queue_count: used.interfaces.iter().map(|one| one.queues).fold(0, u32::saturating_add),
        has_graphics: used.display == ScreenPlan::Vnc,
        flash_bytes: used.flash_bytes,
        passt_count: passt_count(used.interfaces),
        accelerator: draft.accelerator,
        added_bytes: added_bytes(input),
        permille: input.options.shares.overhead_permille,
    });
    let (memory_request_bytes, memory_limit_bytes) = memory(input, used.memory, overhead.total_bytes);
    // Since Linux 6.4 each worker of vhost is a thread of QEMU's own.
    let vhost = draft.descriptors.iter().filter(|one| matches!(one.purpose, DescriptorPurpose::VhostNet { .. }));
    let vhost_threads = u32::try_from(vhost.count()).unwrap_or(u32::MAX);
    let block_threads = io_thread_count.saturating_add(1).saturating_mul(BLOCK_POOL_THREADS + 1);
    Resources {
        guest_memory_bytes: used.memory.memory.size,
        vcpu_count: used.smp.cpus,
        memory_request_bytes,
        memory_limit_bytes,
        cpu_limit_millis: limit(input, "cpu").map(millis),
        cpu_request_millis: request(input, "cpu").map_or_else(|| usual_cpu_millis(input, used.smp.cpus), millis),
        pids: [block_threads, vhost_threads, OTHER_THREADS].into_iter().fold(used.smp.maxcpus, u32::saturating_add),
        scratch_bytes: draft.rooms.total(),
        memlock_bytes: needs_memlock(input).then(|| used.memory.memory.size.saturating_add(overhead.total_bytes)),
        overhead,
    }
}

/// What a machine without requests asks for, thousandths of a CPU; never nothing.
fn usual_cpu_millis(input: Input<'_>, vcpus: u32) -> u64 {
    let threads = u64::from(vcpus).saturating_add(supplemental_threads(input));
    let ratio = u64::from(input.options.shares.cpu_allocation_ratio.max(1));
    (threads.saturating_mul(WHOLE_CPU_MILLIS) / ratio).max(1)
}

/// What is asked for the memory of a guest whose manifest contains only its size, bytes.
fn usual_memory(input: Input<'_>, guest: u64) -> u64 {
    let percent = u128::from(input.options.shares.memory_overcommit_percent.max(1));
    u64::try_from(u128::from(guest) * 100 / percent).unwrap_or(u64::MAX)
}

/// Threads of `supplementalPool` work beside the vCPUs and are asked for like them.
fn supplemental_threads(input: Input<'_>) -> u64 {
    let threads = input.domain().io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count);
    let is_used = text(&input.domain().io_threads_policy) == Some("supplementalPool");
    threads.filter(|_| is_used).map_or(0, u64::from)
}

/// Images of a disk that have tables: an overlay always does, its base may.
fn qcow2_images(disk: &DiskPlan) -> u32 {
    let own = u32::from(disk.format == ImageFormat::Qcow2 && !matches!(disk.source, DiskSource::EmptyDrive));
    own + u32::from(disk.overlay)
}

fn passt_count(interfaces: &[InterfacePlan]) -> u32 {
    let passt = interfaces.iter().filter(|interface| matches!(interface.binding, BindingPlan::Passt { .. }));
    u32::try_from(passt.count()).unwrap_or(u32::MAX)
}

fn limit<'a>(input: Input<'a>, resource: &str) -> Option<&'a Quantity> {
    input.domain().resources.as_ref()?.limits.get(resource)
}

fn request<'a>(input: Input<'a>, resource: &str) -> Option<&'a Quantity> {
    input.domain().resources.as_ref()?.requests.get(resource)
}

fn millis(quantity: &Quantity) -> u64 {
    u64::try_from(quantity.milli()).unwrap_or(0)
}

fn added_bytes(input: Input<'_>) -> u64 {
    let reserved = input.domain().memory.as_ref().and_then(|memory| memory.reserved_overhead.as_ref());
    reserved.and_then(|reserved| reserved.added_overhead.as_ref()).and_then(Quantity::to_bytes).unwrap_or(0)
}

fn needs_memlock(input: Input<'_>) -> bool {
    let reserved = input.domain().memory.as_ref().and_then(|memory| memory.reserved_overhead.as_ref());
    reserved.and_then(|reserved| text(&reserved.mem_lock)) == Some("Required")
}

/// Request and limit, bytes. Huge pages are counted by a cgroup of their own, so a guest made of them asks for its
/// overhead only.
fn memory(input: Input<'_>, guest: &GuestMemory, overhead: u64) -> (u64, Option<u64>) {
    let resources = input.domain().resources.as_ref();
    let in_hugepages = if guest.hugepage_bytes.is_some() { guest.memory.size } else { 0 };
    // As in a container, a limit alone is also the request.
    let asked = request(input, "memory").or_else(|| limit(input, "memory")).and_then(Quantity::to_bytes);
    let asked = asked.unwrap_or_else(|| usual_memory(input, guest.memory.size));
    let is_overcommitted = resources.is_some_and(|resources| resources.overcommit_guest_overhead == Some(true));
    let reserved = if is_overcommitted { 0 } else { overhead };
    let limit = limit(input, "memory").and_then(Quantity::to_bytes);
    let without_hugepages = |bytes: u64| bytes.saturating_sub(in_hugepages);
    (
        without_hugepages(asked).saturating_add(reserved),
        limit.map(|limit| without_hugepages(limit).saturating_add(overhead)),
    )
}
