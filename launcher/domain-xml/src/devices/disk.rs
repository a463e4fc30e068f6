//! `<disk>`.

use garboard_plan::{DiskPlan, DiskSource, Frontend, ImageFormat, Medium, Tray};

use crate::Input;
use crate::address;
use crate::arguments::Values;
use crate::element::Element;

use super::controllers::number_at_end;
use super::{alias, virtio_model};

/// How a medium is opened, as libvirt calls it.
pub(crate) fn medium(disk: &DiskPlan) -> &'static str {
    if matches!(disk.source, DiskSource::Iscsi { .. }) {
        return "network";
    }
    let is_block = match &disk.source {
        DiskSource::PersistentVolumeClaim { medium, .. } => *medium == Medium::BlockDevice,
        DiskSource::EphemeralClaim { medium, .. } => *medium == Medium::BlockDevice && !disk.overlay,
        DiskSource::ContainerDisk { .. }
        | DiskSource::EmptyDisk { .. }
        | DiskSource::HostDisk { .. }
        | DiskSource::Iscsi { .. }
        | DiskSource::CloudInit { .. }
        | DiskSource::FileTree { .. }
        | DiskSource::EmptyDrive => false,
    };
    if is_block { "block" } else { "file" }
}

/// What the guest sees it hang on.
pub(crate) const fn bus(frontend: Frontend) -> &'static str {
    match frontend {
        Frontend::VirtioBlk => "virtio",
        Frontend::ScsiDisk | Frontend::ScsiCdrom | Frontend::ScsiBlock => "scsi",
        Frontend::SataDisk | Frontend::SataCdrom => "sata",
        Frontend::UsbDisk | Frontend::UsbCdrom => "usb",
    }
}

/// What kind of device the guest sees.
pub(crate) const fn device_kind(frontend: Frontend) -> &'static str {
    match frontend {
        Frontend::VirtioBlk | Frontend::ScsiDisk | Frontend::SataDisk | Frontend::UsbDisk => "disk",
        Frontend::ScsiCdrom | Frontend::SataCdrom | Frontend::UsbCdrom => "cdrom",
        Frontend::ScsiBlock => "lun",
    }
}

pub(super) fn element(input: Input<'_>, disk: &DiskPlan, device: &Values) -> Element {
    let driver = device.driver();
    let model = driver.starts_with("virtio-blk-pci").then(|| virtio_model(&driver));
    let kind = device_kind(disk.frontend);
    let element = Element::new("disk").with("type", medium(disk)).with("device", kind).with_some("model", model);
    let element = element.child(driver_element(input, disk, device)).children(source(disk));
    let target = Element::new("target").with("dev", &disk.target).with("bus", bus(disk.frontend));
    let target = if disk.tray == Some(Tray::Open) { target.with("tray", "open") } else { target };
    let mut element = element.child(target);
    if disk.read_only {
        element = element.child(Element::new("readonly"));
    }
    if disk.shareable {
        element = element.child(Element::new("shareable"));
    }
    element
        .children(device.get("serial").map(|serial| Element::text("serial", serial)))
        .children(device.get("bootindex").map(|order| Element::new("boot").with("order", order)))
        .children(block_sizes(device))
        .child(alias(device))
        .children(place(input, disk, device))
}

fn block_sizes(device: &Values) -> Option<Element> {
    const SIZES: [&str; 3] = ["logical_block_size", "physical_block_size", "discard_granularity"];
    let sizes = SIZES.into_iter().fold(Element::new("blockio"), |all, size| all.with_some(size, device.get(size)));
    (!sizes.is_bare()).then_some(sizes)
}

/// `<driver>`: format, cache, I/O, errors, queues and threads.
fn driver_element(input: Input<'_>, disk: &DiskPlan, device: &Values) -> Element {
    let file = disk.nodes.file.as_deref();
    let file = file.and_then(|name| input.arguments.find("-blockdev", "node-name", name));
    let cache = file.as_ref().map(|file| cache(file.is_on("cache.direct"), device));
    let format = if disk.overlay { ImageFormat::Qcow2 } else { disk.format };
    let errors = match device.get("werror").as_deref() {
        Some("enospc") => "enospace".to_owned(),
        Some(policy) => policy.to_owned(),
        None => "stop".to_owned(),
    };
    let element = Element::new("driver")
        .with("name", "qemu")
        .with("type", format.as_str())
        .with_some("cache", cache)
        .with_some("io", file.as_ref().and_then(|file| file.get("aio")))
        .with("error_policy", errors)
        .with_some("discard", file.as_ref().and_then(|file| file.get("discard")))
        .with_some("queues", device.get("num-queues"))
        .with_some("iothread", device.get("iothread").and_then(|id| number_at_end(&id)));
    let threads = mapped_threads(device);
    let mapping = Element::new("iothreads").children(threads.iter().map(|id| Element::new("iothread").with("id", id)));
    element.children((!threads.is_empty()).then_some(mapping))
}

/// libvirt's mode of the host's page cache and the write cache that the guest sees.
fn cache(is_direct: bool, device: &Values) -> &'static str {
    let is_through = device.get("write-cache").as_deref() == Some("off");
    match (is_direct, is_through) {
        (true, false) => "none",
        (true, true) => "directsync",
        (false, false) => "writeback",
        (false, true) => "writethrough",
    }
}

/// Threads that the queues of a disk are spread over.
fn mapped_threads(device: &Values) -> Vec<u32> {
    let thread = |index: u32| device.get(&format!("iothread-vq-mapping.{index}.iothread"));
    (0..).map_while(thread).filter_map(|id| number_at_end(&id)).collect()
}

/// `<source>`, and below an overlay what it lies over: as QEMU opens them, by descriptor.
fn source(disk: &DiskPlan) -> Vec<Element> {
    if let DiskSource::Iscsi { portal, target, lun, .. } = &disk.source {
        let (host, port) = portal.rsplit_once(':').unwrap_or((portal.as_str(), "3260"));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = format!("{target}/{lun}");
        let source = Element::new("source").with("protocol", "iscsi").with("name", name);
        return vec![source.child(Element::new("host").with("name", host).with("port", port))];
    }
    let opened = |kind: &'static str, set: &u32| {
        let attribute = if kind == "block" { "dev" } else { "file" };
        Element::new("source").with(attribute, garboard_machine::process::fdset_path(*set))
    };
    let mut elements: Vec<Element> =
        disk.descriptor_sets.first().map(|set| opened(medium(disk), set)).into_iter().collect();
    if let Some(base) = disk.descriptor_sets.get(1).filter(|_| disk.overlay) {
        let is_block = matches!(disk.source, DiskSource::EphemeralClaim { medium: Medium::BlockDevice, .. });
        let kind = if is_block { "block" } else { "file" };
        let format = Element::new("format").with("type", disk.format.as_str());
        let below = Element::new("backingStore").with("type", kind).child(format).child(opened(kind, base));
        elements.push(below.child(Element::new("backingStore")));
    }
    elements
}

fn place(input: Input<'_>, disk: &DiskPlan, device: &Values) -> Option<Element> {
    match disk.frontend {
        Frontend::VirtioBlk => address::pci(device),
        Frontend::ScsiDisk | Frontend::ScsiCdrom | Frontend::ScsiBlock => address::scsi(device),
        Frontend::SataDisk | Frontend::SataCdrom => address::sata(device),
        Frontend::UsbDisk => address::usb(device),
        // A drive on USB is SCSI behind a bridge of its own, which is what sits on the port.
        Frontend::UsbCdrom => {
            let bus = device.get("bus")?;
            address::usb(&input.arguments.find("-device", "id", bus.strip_suffix(".0")?)?)
        }
    }
}
