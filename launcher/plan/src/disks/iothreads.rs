//! Threads that do the I/O of disks beside QEMU's main loop. Numbered from 1, as KubeVirt does: first those that are
//! shared, then those that belong to one disk.

use garboard_api::v1::Disk;
use garboard_machine::device::IothreadUse;
use garboard_machine::features::Feature;
use garboard_machine::id::DeviceId;
use garboard_machine::object::Object;

use super::frontend::bus;
use crate::draft::{Draft, invalid, text};
use crate::error::PlanError;

const POLICY_FIELD: &str = "spec.domain.ioThreadsPolicy";

/// The most threads a VM may have of its own choice.
const MAX_THREADS: u32 = 256;

/// Which thread serves which disk.
#[derive(Clone, Debug)]
pub(super) struct IothreadPool {
    /// Threads that disks share, in turn or all together.
    shared: u32,
    /// Disks use all shared threads at once.
    is_spread: bool,
    next_shared: u32,
    next_dedicated: u32,
}

impl IothreadPool {
    /// Decides how many threads there are, and makes them.
    pub(super) fn new(draft: &mut Draft<'_>, vcpu_count: u32) -> Result<Self, PlanError> {
        let domain = draft.input.domain();
        let served = |disk: &&Disk| matches!(bus(disk), "virtio" | "scsi");
        let is_dedicated = |disk: &Disk| disk.dedicated_io_thread == Some(true);
        let disks = || draft.input.devices().disks.iter().filter(served);
        let count = |disks: usize| u32::try_from(disks).unwrap_or(MAX_THREADS).min(MAX_THREADS);
        let dedicated = count(disks().filter(|disk| is_dedicated(disk)).count());
        let others = count(disks().filter(|disk| !is_dedicated(disk)).count());
        let mut is_spread = false;
        let shared = match text(&domain.io_threads_policy) {
            // One disk with a thread of its own takes all others off the main loop too.
            None if dedicated > 0 => others.min(1),
            None => 0,
            Some("shared") => others.min(1),
            Some("auto") => others.min(vcpu_count.saturating_mul(2).saturating_sub(dedicated).max(1)),
            Some("supplementalPool") => {
                is_spread = draft.input.facts.qemu.features.has(Feature::IothreadVqMapping);
                let asked = domain.io_threads.as_ref().and_then(|pool| pool.supplemental_pool_thread_count);
                asked.filter(|count| (1..=MAX_THREADS).contains(count)).ok_or_else(|| {
                    let field = "spec.domain.ioThreads.supplementalPoolThreadCount";
                    invalid(field, "a pool has 1 to 256 threads", "write how many")
                })?
            }
            Some(other) => {
                let message = format!("there is no policy `{other}`");
                return Err(invalid(POLICY_FIELD, message, "write shared, auto or supplementalPool"));
            }
        };
        if text(&domain.io_threads_policy) == Some("supplementalPool") && !is_spread {
            let version = &draft.input.facts.qemu.features.version;
            let text = format!("QEMU {version} cannot spread one disk over several threads: disks take turns");
            draft.note(Some(POLICY_FIELD), text);
        }
        for number in 1..=shared + dedicated {
            draft.objects.push(Object::Iothread { id: thread(number) });
        }
        Ok(Self { shared, is_spread, next_shared: 1, next_dedicated: shared + 1 })
    }

    /// The thread that serves the next virtio disk.
    pub(super) fn of_disk(&mut self, disk: &Disk) -> IothreadUse {
        if disk.dedicated_io_thread == Some(true) {
            return IothreadUse::One(self.take_dedicated());
        }
        match (self.shared, self.is_spread) {
            (0, _) => IothreadUse::MainLoop,
            (shared, true) => IothreadUse::Spread((1..=shared).map(thread).collect()),
            (shared, false) => {
                let number = self.next_shared;
                self.next_shared = number % shared + 1;
                IothreadUse::One(thread(number))
            }
        }
    }

    /// The thread of the SCSI controller, which exists only if a disk behind it asks for one.
    pub(super) fn of_scsi(&mut self, disks: &[Disk]) -> Option<DeviceId> {
        let asks = |disk: &&Disk| bus(disk) == "scsi" && disk.dedicated_io_thread == Some(true);
        let asking = disks.iter().filter(asks).count();
        // One controller, one thread; the others were counted and stay idle.
        let first = (asking > 0).then(|| self.take_dedicated());
        self.next_dedicated += u32::try_from(asking.saturating_sub(1)).unwrap_or(0);
        first
    }

    fn take_dedicated(&mut self) -> DeviceId {
        let number = self.next_dedicated;
        self.next_dedicated += 1;
        thread(number)
    }
}

fn thread(number: u32) -> DeviceId {
    DeviceId::numbered("iothread", number)
}
