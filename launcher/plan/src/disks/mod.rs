//! Disks: from a volume and a disk of the manifest to block nodes and a device.

mod cache;
mod frontend;
mod iothreads;
mod iscsi;
mod source;

use std::collections::BTreeMap;

use garboard_api::v1::Disk;
use garboard_machine::blockdev::{Backing, Blockdev, Discard, FileDriver, FileNode, ImageNode};
use garboard_machine::device::VirtioScsiPci;
use garboard_machine::id::{DeviceId, NodeName};
use garboard_machine::pci::Placement;

use self::cache::CachePlan;
use self::frontend::{Drive, FrontendKind, Frontends, NewDevice};
use self::iothreads::IothreadPool;
use self::source::Source;
use super::boot::BootOrder;
use super::disk::{DiskNodes, DiskPlan, DiskSource, ImageFormat, Medium};
use super::draft::{Draft, device_id, node_name, text};
use super::error::PlanError;
use super::launch::{DescriptorPurpose, Layer, OpenAccess};
use super::opening;
use super::stored::{BusPlaces, StoredDisk};
use super::usb::UsbPorts;

const LIST: &str = "spec.domain.devices.disks";

/// One disk of the manifest while it is planned.
#[derive(Clone, Copy)]
struct Asked<'a> {
    disk: &'a Disk,
    field: &'a str,
    /// What an earlier start decided of it.
    kept: StoredDisk,
}

/// What of the disks is decided once.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Where they are on buses that are not PCI.
    pub(super) places: BusPlaces,
    /// What their guest sees of each.
    pub(super) disks: BTreeMap<String, StoredDisk>,
}

/// The disks of a VMI, in its order, and what of them the next start is to find again.
pub(super) fn disks(
    draft: &mut Draft<'_>,
    boot: &mut BootOrder,
    usb: &mut UsbPorts,
    vcpu_count: u32,
) -> Result<(Vec<DiskPlan>, Kept), PlanError> {
    let input = draft.input;
    let pool = IothreadPool::new(draft, vcpu_count)?;
    let mut frontends = Frontends::new(draft, usb, pool, vcpu_count);
    scsi_controller(draft, &mut frontends)?;
    let mut plans = Vec::new();
    for (index, disk) in input.devices().disks.iter().enumerate() {
        let field = format!("{LIST}[{index}]");
        let kept = input.stored.and_then(|stored| stored.disks.get(&disk.name).copied()).unwrap_or_default();
        plans.push(plan_disk(draft, boot, &mut frontends, Asked { disk, field: &field, kept })?);
    }
    Ok((plans, frontends.into_kept()))
}

/// The SCSI controller: for disks that hang on it, and for those that will be plugged in later.
fn scsi_controller(draft: &mut Draft<'_>, frontends: &mut Frontends<'_>) -> Result<(), PlanError> {
    let devices = draft.input.devices();
    let is_used = devices.disks.iter().any(|disk| frontend::bus(disk) == "scsi");
    if !is_used && devices.disable_hotplug == Some(true) {
        return Ok(());
    }
    let id = DeviceId::constant(frontend::SCSI_CONTROLLER);
    let at = draft.place_virtio(&id, Placement::Port, LIST)?;
    let revision = draft.input.virtio_revision();
    let num_queues = frontends.queues(draft.input);
    let iothread = frontends.scsi_iothread(&devices.disks);
    draft.buses.push(VirtioScsiPci { id, revision, at, iothread, num_queues }.into());
    Ok(())
}

fn plan_disk(
    draft: &mut Draft<'_>,
    boot: &mut BootOrder,
    frontends: &mut Frontends<'_>,
    asked: Asked<'_>,
) -> Result<DiskPlan, PlanError> {
    let Asked { disk, field, .. } = asked;
    let source = source::of(draft, asked)?;
    let kind = FrontendKind::of(disk, field)?;
    let read_only = source.read_only || opening::is_read_only(disk);
    kind.check(&source, read_only, field)?;
    let cache = CachePlan::of(asked, &source, read_only)?;
    let id = device_id("disk", &disk.name, field)?;
    let (nodes, descriptor_sets) = match source.source {
        DiskSource::EmptyDrive => (DiskNodes::default(), Vec::new()),
        DiskSource::ContainerDisk { .. }
        | DiskSource::PersistentVolumeClaim { .. }
        | DiskSource::EphemeralClaim { .. }
        | DiskSource::EmptyDisk { .. }
        | DiskSource::HostDisk { .. }
        | DiskSource::CloudInit { .. }
        | DiskSource::FileTree { .. } => layers(draft, asked, &source, Opening { cache, read_only })?,
        DiskSource::Iscsi { .. } => (iscsi::layer(draft, asked, &source, read_only)?, Vec::new()),
    };
    let image = nodes.image.as_ref().map(|_| node_name("image", &disk.name, field)).transpose()?;
    let drive = Drive { image, bootindex: boot.of_disk(disk.boot_order) };
    let block = frontend::block(draft, asked, &source, drive, cache)?;
    let serial = block.serial.clone();
    let block_sizes = frontend::matched_sizes(asked, &source);
    let block_sizes_of = block_sizes.map(|_| source.identity);
    frontends.keep(disk, StoredDisk { write_cache: cache.kept, block_sizes, block_sizes_of });
    let target = frontends.add(draft, asked, NewDevice { kind, id: id.clone() }, block)?;
    let tag = text(&disk.tag).map(str::to_owned);
    if tag.is_some() && kind != FrontendKind::Virtio {
        draft.note(
            Some(&format!("{field}.tag")),
            "the guest does not receive this tag: only a virtio disk is a PCI device",
        );
    }
    if let Some(bytes) = draft.rooms.of_disk(&disk.name) {
        let text = format!(
            "what the guest writes to it may take {bytes} bytes of its node; after that its writes fail for lack of space. \
             `spec.domain.resources.limits.ephemeral-storage` sets this limit"
        );
        draft.note(Some(field), text);
    }
    Ok(DiskPlan {
        volume: disk.name.clone(),
        format: source.facts.format,
        overlay: source.has_overlay,
        room_bytes: draft.rooms.of_disk(&disk.name),
        read_only,
        shareable: source.is_shareable,
        device: id.to_string(),
        frontend: kind.frontend(),
        nodes,
        descriptor_sets,
        target,
        tray: kind.tray(disk, field)?,
        serial,
        tag,
        source: source.source,
    })
}

/// How the top layer of a disk is opened.
#[derive(Clone, Copy)]
struct Opening {
    cache: CachePlan,
    read_only: bool,
}

/// The block nodes of a disk: `image` over `file`, and `base` over `basefile` under an overlay.
fn layers(
    draft: &mut Draft<'_>,
    asked: Asked<'_>,
    source: &Source,
    opening: Opening,
) -> Result<(DiskNodes, Vec<u32>), PlanError> {
    let Opening { cache, read_only } = opening;
    let name = asked.disk.name.as_str();
    let node = |prefix| node_name(prefix, name, asked.field);
    // Descriptors are numbered top first; nodes are made bottom first.
    let top_access = if read_only && !source.has_overlay { OpenAccess::ReadOnly } else { OpenAccess::ReadWrite };
    let top = open(draft, name, Layer::Top, top_access, cache);
    let room = draft.rooms.of_disk(name).map(|bytes| Ok::<_, PlanError>((node("room")?, bytes))).transpose()?;
    let mut nodes = DiskNodes {
        image: Some(node("image")?.to_string()),
        room: room.as_ref().map(|(node, _)| node.to_string()),
        file: Some(node("file")?.to_string()),
        ..DiskNodes::default()
    };
    let mut sets = vec![top];
    let mut backing = Backing::NotApplicable;
    if source.has_overlay {
        // Many VMs read the same base, none writes it: one copy in the host's page cache serves them all.
        let cache = CachePlan::shared_base();
        let base = open(draft, name, Layer::Base, OpenAccess::ReadOnly, cache);
        sets.push(base);
        let (image, file) = (node("base")?, node("basefile")?);
        nodes.base = Some(image.to_string());
        nodes.base_file = Some(file.to_string());
        let format = source.facts.format;
        let (base_image, own) = (image.clone(), own_backing(format));
        let stack = Stack { image, room: None, file, set: base, format, is_writable: false, cache, backing: own };
        push_stack(draft, source, stack);
        backing = Backing::Node(base_image);
    }
    let format = if source.has_overlay { ImageFormat::Qcow2 } else { source.facts.format };
    if !source.has_overlay {
        backing = own_backing(format);
    }
    let is_writable = top_access == OpenAccess::ReadWrite;
    let (image, file) = (node("image")?, node("file")?);
    push_stack(draft, source, Stack { image, room, file, set: top, format, is_writable, cache, backing });
    Ok((nodes, sets))
}

/// An image without an overlay has no backing file, also when its header names one.
fn own_backing(format: ImageFormat) -> Backing {
    match format {
        ImageFormat::Raw => Backing::NotApplicable,
        ImageFormat::Qcow2 => Backing::Nothing,
    }
}

/// A file node and the image node over it, perhaps with one between them that ends after so many bytes.
struct Stack {
    image: NodeName,
    room: Option<(NodeName, u64)>,
    file: NodeName,
    set: u32,
    format: ImageFormat,
    is_writable: bool,
    cache: CachePlan,
    backing: Backing,
}

fn push_stack(draft: &mut Draft<'_>, source: &Source, stack: Stack) {
    let cache = stack.cache;
    // Only what is not under or over an overlay is the block device itself.
    let is_device = source.facts.medium == Medium::BlockDevice && !(source.has_overlay && stack.is_writable);
    // A file whose blocks were all allocated beforehand keeps them: a guest's `fstrim` would give up the room that was
    // paid for. Behind a block device its storage decides what discarding means.
    let keeps_blocks = source.facts.medium == Medium::File && source.facts.preallocated && !source.has_overlay;
    let discard = if stack.is_writable && !keeps_blocks { Discard::Unmap } else { Discard::Ignore };
    draft.blockdevs.push(Blockdev::File(FileNode {
        node_name: stack.file.clone(),
        driver: if is_device { FileDriver::HostDevice } else { FileDriver::File },
        set: stack.set,
        read_only: !stack.is_writable,
        cache: cache.host,
        aio: cache.aio,
        discard,
    }));
    let image = |node_name, format: ImageFormat, (file, size, backing)| {
        let (read_only, format) = (!stack.is_writable, format.as_str());
        Blockdev::Image(ImageNode { node_name, format, file, size, read_only, cache: cache.host, discard, backing })
    };
    let mut below = stack.file;
    if let Some((room, bytes)) = stack.room {
        draft.blockdevs.push(image(room.clone(), ImageFormat::Raw, (below, Some(bytes), Backing::NotApplicable)));
        below = room;
    }
    draft.blockdevs.push(image(stack.image, stack.format, (below, None, stack.backing)));
}

fn open(draft: &mut Draft<'_>, volume: &str, layer: Layer, access: OpenAccess, cache: CachePlan) -> u32 {
    let label = match layer {
        Layer::Top => format!("{volume}-top"),
        Layer::Base => format!("{volume}-base"),
    };
    let purpose = DescriptorPurpose::DiskLayer { volume: volume.to_owned(), layer, access, direct: cache.is_direct() };
    draft.descriptor_set(purpose, label)
}
