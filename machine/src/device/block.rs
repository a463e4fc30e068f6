//! What every disk device has in common (`DEFINE_BLOCK_PROPERTIES`, `include/hw/block/block.h`).

use crate::argv::Properties;
use crate::id::NodeName;

/// Properties of every disk device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockFrontend {
    /// The image node; `None` only for a cdrom drive without a medium.
    pub drive: Option<NodeName>,
    /// Position among what is tried at boot, from 1.
    pub bootindex: Option<u32>,
    /// Serial number.
    pub serial: Option<String>,
    /// The write cache the guest sees.
    pub write_cache: WriteCache,
    /// What an I/O error does.
    pub errors: BlockErrors,
    /// Another VM may write at the same time.
    pub share_rw: bool,
    /// Block sizes, if not the default.
    pub sizes: BlockSizes,
}

/// The write cache the guest sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// There is one, the guest flushes it.
    On,
    /// Writes are done when they are reported done.
    Off,
    /// As the device does it by itself: for read-only media.
    Auto,
}

/// What an I/O error does: the pair `werror` and `rerror`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockErrors {
    /// The guest is paused and can be resumed.
    Stop,
    /// The guest sees it.
    Report,
    /// It is not visible.
    Ignore,
    /// A full file system pauses the guest, everything else is reported.
    Enospc,
}

/// Block sizes, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSizes {
    /// `logical_block_size`
    pub logical: Option<u32>,
    /// `physical_block_size`
    pub physical: Option<u32>,
    /// `discard_granularity`
    pub discard_granularity: Option<u32>,
}

impl BlockFrontend {
    pub(super) fn add_to(&self, properties: Properties) -> Properties {
        let (werror, rerror) = match self.errors {
            BlockErrors::Stop => ("stop", "stop"),
            BlockErrors::Report => ("report", "report"),
            BlockErrors::Ignore => ("ignore", "ignore"),
            BlockErrors::Enospc => ("enospc", "report"),
        };
        let write_cache = match self.write_cache {
            WriteCache::On => Some("on"),
            WriteCache::Off => Some("off"),
            WriteCache::Auto => None,
        };
        properties
            .set_some("drive", self.drive.as_ref())
            .set_some("bootindex", self.bootindex)
            .set_some("serial", self.serial.as_ref())
            .set_some("write-cache", write_cache)
            .set_some("werror", self.drive.as_ref().map(|_| werror))
            .set_some("rerror", self.drive.as_ref().map(|_| rerror))
            .set_some("share-rw", self.share_rw.then_some(true))
            .set_some("logical_block_size", self.sizes.logical)
            .set_some("physical_block_size", self.sizes.physical)
            .set_some("discard_granularity", self.sizes.discard_granularity)
    }
}
