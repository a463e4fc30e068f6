//! Memory and room on disk. Pure.

use garboard_machine::facts::HugepagePool;

use super::{Check, HostConditions, human_bytes};
use crate::free_space::FreeSpace;
use crate::memory::Commitment;
use crate::survey::Survey;

/// Below this no guest with a distribution's kernel starts.
const LEAST_MEMORY: u64 = 256 << 20;

/// Below this an image of a distribution does not fit.
const LEAST_ROOM: u64 = 1 << 30;

pub(super) fn checks(survey: &Survey, conditions: &HostConditions) -> Vec<Check> {
    let memory = &survey.memory;
    let detail = format!("{} available of {}", human_bytes(memory.available_bytes), human_bytes(memory.total_bytes));
    let check = Check::new("memory", "Memory", detail);
    let memory_check = if memory.available_bytes < LEAST_MEMORY {
        check.degraded("free some memory: a Linux guest needs 256 MiB or more")
    } else {
        check
    };
    let mut checks = vec![memory_check, hugepages(&memory.hugepages), shared_pages(memory.shared_huge.as_deref())];
    checks.extend(memory.strict.as_ref().map(commitment));
    checks.extend(conditions.rooms.iter().map(room));
    checks
}

fn hugepages(pools: &[HugepagePool]) -> Check {
    let reserved: Vec<String> = pools
        .iter()
        .filter(|pool| pool.total > 0)
        .map(|pool| format!("{} of {} free, {} each", pool.free, pool.total, human_bytes(pool.page_bytes)))
        .collect();
    let detail = if reserved.is_empty() {
        "none reserved; only machines that ask for them need any (sysctl vm.nr_hugepages=…)".to_owned()
    } else {
        reserved.join("; ")
    };
    Check::new("hugepages", "Huge pages", detail)
}

/// A guest's memory is a memfd, and QEMU asks for huge pages for it (madvise(2)).
fn shared_pages(mode: Option<&str>) -> Check {
    let check = |detail: String| Check::new("shared-huge-pages", "Large guest pages", detail);
    let small = "guest memory is in pages of 4 KiB, which costs a guest under KVM time and the host page tables";
    match mode {
        None => check(format!("this kernel has none for shared memory: {small}"))
            .degraded("use a kernel with CONFIG_TRANSPARENT_HUGEPAGE"),
        Some(mode @ ("never" | "deny")) => check(format!("shmem_enabled is {mode}: {small}"))
            .degraded("echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, before machines are started"),
        Some(mode) => check(format!("shmem_enabled is {mode}: guest memory gets huge pages where there are some")),
    }
}

/// The pages of a memfd are counted when they are first used, not when a machine is started: there is no refusal then.
fn commitment(found: &Commitment) -> Check {
    let (promised, limit) = (human_bytes(found.promised_bytes), human_bytes(found.limit_bytes));
    let detail = format!(
        "vm.overcommit_memory is 2, and {promised} of {limit} are promised: at the limit a guest that uses more of its memory ends \
         (QEMU is killed by SIGBUS)"
    );
    Check::new("overcommit", "Overcommitment", detail).degraded(
        "sysctl vm.overcommit_memory=0, or more vm.overcommit_ratio; leave room for the whole memory of all guests",
    )
}

fn room(room: &FreeSpace) -> Check {
    let directory = room.directory.display();
    let check = |detail: String| Check::new("room", "Room", detail);
    if room.read_only || !room.writable {
        return check(format!("{directory} cannot be written"))
            .missing(
                "name another place with --state-dir or GARBOARD_STATE_DIR, GARBOARD_CACHE_DIR, GARBOARD_RUNTIME_DIR",
            )
            .essential();
    }
    let check = check(format!("{} free for {directory}", human_bytes(room.free_bytes)));
    if room.free_bytes < LEAST_ROOM {
        check.degraded("free some, or name another place with --state-dir")
    } else {
        check
    }
}
