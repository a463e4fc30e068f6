//! `-blockdev`: the block nodes of a disk.
//!
//! Each layer of a disk is two nodes: a *file* node, which opens a descriptor set, and an *image* node, which
//! interprets the bytes. Both always exist, so that a job or a hot change finds the same shape whatever the format. Between
//! them is a third, a raw image of fixed size, where a layer may not grow to what its disk could take.

use crate::argv::{Arg, Argument, Properties, Property};
use crate::id::{DeviceId, NodeName};
use crate::process::fdset_path;

/// `-blockdev`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blockdev {
    /// Opens bytes.
    File(FileNode),
    /// Interprets them.
    Image(ImageNode),
    /// Opens bytes over the network.
    Iscsi(IscsiNode),
}

/// The `iscsi` driver: a unit of a target, over TCP. Its name and CHAP's user are seen in the argv, the password is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiNode {
    /// Its name.
    pub node_name: NodeName,
    /// `host:port`
    pub portal: String,
    /// `iqn.…`
    pub target: String,
    /// Number of the unit.
    pub lun: u32,
    /// CHAP's user.
    pub user: Option<String>,
    /// The object with CHAP's password.
    pub password_secret: Option<DeviceId>,
    /// Opened without the right to write.
    pub read_only: bool,
    /// There is no page cache below it; what the image node over it has.
    pub cache: Cache,
    /// Whether the guest's discards reach the target.
    pub discard: Discard,
}

/// The `file` and `host_device` drivers. QEMU locks the image where the file system can, also one that several VMs
/// share: their devices have `share-rw`; other users are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNode {
    /// Its name.
    pub node_name: NodeName,
    /// Regular file or block device.
    pub driver: FileDriver,
    /// Number of the descriptor set.
    pub set: u32,
    /// Opened without the right to write.
    pub read_only: bool,
    /// The host's page cache.
    pub cache: Cache,
    /// How I/O is submitted.
    pub aio: Aio,
    /// Whether the guest's discards reach the host.
    pub discard: Discard,
}

/// Regular file or block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileDriver {
    /// A regular file.
    File,
    /// A block device of the host.
    HostDevice,
}

/// An image format over another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageNode {
    /// Its name.
    pub node_name: NodeName,
    /// `raw` or `qcow2`.
    pub format: &'static str,
    /// The node with the bytes.
    pub file: NodeName,
    /// Where a `raw` image ends although the file could grow, bytes: a write beyond it fails with ENOSPC. The file
    /// must be as long already.
    pub size: Option<u64>,
    /// Opened without the right to write.
    pub read_only: bool,
    /// The same as on the file node: QEMU does not pass it down.
    pub cache: Cache,
    /// The same as on the file node.
    pub discard: Discard,
    /// The node below.
    pub backing: Backing,
}

/// The format that has tables to cache.
const QCOW2: &str = "qcow2";

/// The most that QEMU keeps of the tables of one qcow2 image, bytes: all of them up to a disk of 32 GiB (8 bytes for each
/// cluster of 64 KiB). QEMU's own default is 32 MiB, which no pod requests. Figures that follow from it: docs/benchmarks.md,
/// docs/status.md.
pub const L2_CACHE_BYTES: u64 = 4 << 20;

/// The node below an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// The format does not support a backing file.
    NotApplicable,
    /// Nothing, whatever the image's header names: we open no file that an image chose.
    Nothing,
    /// This node.
    Node(NodeName),
}

/// Use of the host's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// I/O goes around it (`O_DIRECT`).
    Direct,
    /// I/O goes through it.
    Page,
}

/// How I/O is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aio {
    /// A pool of threads.
    Threads,
    /// Linux AIO; only with [`Cache::Direct`].
    Native,
}

/// Whether discards reach the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// They free space.
    Unmap,
    /// They are dropped.
    Ignore,
}

impl Blockdev {
    /// Its node name.
    #[must_use]
    pub const fn node_name(&self) -> &NodeName {
        match self {
            Self::File(file) => &file.node_name,
            Self::Image(image) => &image.node_name,
            Self::Iscsi(iscsi) => &iscsi.node_name,
        }
    }

    /// The argument of `blockdev-add`.
    #[must_use]
    pub fn properties(&self) -> Properties {
        match self {
            Self::File(file) => file.properties(),
            Self::Image(image) => image.properties(),
            Self::Iscsi(iscsi) => iscsi.properties(),
        }
    }
}

impl Arg for Blockdev {
    fn argument(&self) -> Argument {
        Argument::json("-blockdev", self.properties())
    }
}

impl FileNode {
    fn properties(&self) -> Properties {
        let Self { node_name, driver, set, read_only, cache, aio, discard } = self;
        let driver = match driver {
            FileDriver::File => "file",
            FileDriver::HostDevice => "host_device",
        };
        let aio = match aio {
            Aio::Threads => "threads",
            Aio::Native => "native",
        };
        Properties::new()
            .set("driver", driver)
            .set("node-name", node_name)
            .set("filename", fdset_path(*set))
            .set("read-only", *read_only)
            .set("cache", cache.properties())
            .set("aio", aio)
            .set_some("discard", discard.property())
    }
}

impl IscsiNode {
    fn properties(&self) -> Properties {
        let Self { node_name, portal, target, lun, user, password_secret, read_only, cache, discard } = self;
        Properties::new()
            .set("driver", "iscsi")
            .set("node-name", node_name)
            .set("transport", "tcp")
            .set("portal", portal)
            .set("target", target)
            .set("lun", *lun)
            .set_some("user", user.as_ref())
            .set_some("password-secret", password_secret.as_ref())
            .set("read-only", *read_only)
            .set("cache", cache.properties())
            .set_some("discard", discard.property())
    }
}

impl ImageNode {
    fn properties(&self) -> Properties {
        let Self { node_name, format, file, size, read_only, cache, discard, backing } = self;
        let backing = match backing {
            Backing::NotApplicable => None,
            Backing::Nothing => Some(Property::Null),
            Backing::Node(node) => Some(Property::from(node)),
        };
        Properties::new()
            .set("driver", *format)
            .set("node-name", node_name)
            .set("file", file)
            .set_some("size", *size)
            .set_some("backing", backing)
            .set("read-only", *read_only)
            .set("cache", cache.properties())
            .set_some("l2-cache-size", (*format == QCOW2).then_some(L2_CACHE_BYTES))
            .set_some("discard", discard.property())
    }
}

impl Cache {
    fn properties(self) -> Properties {
        Properties::new().set("direct", self == Self::Direct).set("no-flush", false)
    }
}

impl Discard {
    fn property(self) -> Option<&'static str> {
        match self {
            Self::Unmap => Some("unmap"),
            Self::Ignore => None,
        }
    }
}
