//! `virtio-blk-pci`

use super::{BlockFrontend, VirtioRevision, pci_device};
use crate::argv::Properties;
use crate::id::DeviceId;
use crate::pci::PciPlace;

/// `virtio-blk-pci`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioBlkPci {
    /// Its ID.
    pub id: DeviceId,
    /// virtio revision.
    pub revision: VirtioRevision,
    /// Where it is.
    pub at: PciPlace,
    /// What all disks have.
    pub block: BlockFrontend,
    /// The threads of its I/O.
    pub iothread: IothreadUse,
    /// Request queues; `None`: QEMU's choice, one for each vCPU.
    pub num_queues: Option<u32>,
}

/// The threads of a disk's I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IothreadUse {
    /// QEMU's main loop.
    MainLoop,
    /// One thread.
    One(DeviceId),
    /// Several, each with some of the queues.
    Spread(Vec<DeviceId>),
}

impl VirtioBlkPci {
    pub(super) fn properties(&self) -> Properties {
        let properties = self.block.add_to(pci_device(self.revision.driver("virtio-blk-pci"), &self.id, self.at));
        let properties = match &self.iothread {
            IothreadUse::MainLoop => properties,
            IothreadUse::One(thread) => properties.set("iothread", thread),
            IothreadUse::Spread(threads) => {
                let mapping: Vec<_> = threads.iter().map(|thread| Properties::new().set("iothread", thread)).collect();
                properties.set("iothread-vq-mapping", mapping)
            }
        };
        properties.set_some("num-queues", self.num_queues)
    }
}
