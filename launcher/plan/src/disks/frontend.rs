//! What the guest sees of a disk.

use std::collections::BTreeSet;

use garboard_api::v1::Disk;
use garboard_machine::device::{
    BlockErrors, BlockFrontend, BlockSizes, Device, Ich9Ahci, IdeCd, IdeHd, ScsiAddress, ScsiBlock, ScsiCd, ScsiHd,
    UsbBot, UsbStorage, VirtioBlkPci,
};
use garboard_machine::id::{DeviceId, NodeName};
use garboard_machine::pci::Placement;

use super::cache::CachePlan;
use super::iothreads::IothreadPool;
use super::source::Source;
use super::{Asked, Kept};
use crate::disk::{DiskSource, Frontend, Medium, Tray};
use crate::draft::{Draft, Input, invalid, text};
use crate::error::PlanError;
use crate::options::BlockSizes as FoundSizes;
use crate::slots::Slots;
use crate::stored::{BusPlaces, StoredDisk};
use crate::usb::UsbPorts;

/// ID of the SCSI controller.
pub(super) const SCSI_CONTROLLER: &str = "scsi0";

/// SATA ports of the chipset, and of each further controller.
const SATA_PORTS: u32 = 6;

/// The bus of a disk.
pub(super) fn bus(disk: &Disk) -> &str {
    let cdrom = disk.cdrom.as_ref().map(|cdrom| text(&cdrom.bus));
    let lun = disk.lun.as_ref().map(|lun| text(&lun.bus).or(Some("scsi")));
    let plain = disk.disk.as_ref().map(|disk| text(&disk.bus));
    cdrom.or(lun).or(plain).flatten().unwrap_or("sata")
}

/// Kind and bus together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrontendKind {
    Virtio,
    ScsiDisk,
    ScsiCdrom,
    ScsiLun,
    SataDisk,
    SataCdrom,
    UsbDisk,
    UsbCdrom,
}

impl FrontendKind {
    pub(super) fn of(disk: &Disk, field: &str) -> Result<Self, PlanError> {
        let bus = bus(disk);
        let refuse = |kind: &str, instead: &str| {
            invalid(format!("{field}.{kind}.bus"), format!("a {kind} cannot be on bus `{bus}`"), instead)
        };
        if disk.cdrom.is_some() {
            return match bus {
                "sata" => Ok(Self::SataCdrom),
                "scsi" => Ok(Self::ScsiCdrom),
                "usb" => Ok(Self::UsbCdrom),
                _ => Err(refuse("cdrom", "write sata, scsi or usb")),
            };
        }
        if disk.lun.is_some() {
            return if bus == "scsi" { Ok(Self::ScsiLun) } else { Err(refuse("lun", "write `scsi`")) };
        }
        match bus {
            "virtio" => Ok(Self::Virtio),
            "sata" => Ok(Self::SataDisk),
            "scsi" => Ok(Self::ScsiDisk),
            "usb" => Ok(Self::UsbDisk),
            _ => Err(refuse("disk", "write virtio, sata, scsi or usb")),
        }
    }

    pub(super) const fn frontend(self) -> Frontend {
        match self {
            Self::Virtio => Frontend::VirtioBlk,
            Self::ScsiDisk => Frontend::ScsiDisk,
            Self::ScsiCdrom => Frontend::ScsiCdrom,
            Self::ScsiLun => Frontend::ScsiBlock,
            Self::SataDisk => Frontend::SataDisk,
            Self::SataCdrom => Frontend::SataCdrom,
            Self::UsbDisk => Frontend::UsbDisk,
            Self::UsbCdrom => Frontend::UsbCdrom,
        }
    }

    /// Refuses what QEMU cannot make of this source: ATA has no read-only disks, and SCSI commands can only be passed
    /// through to a device.
    pub(super) fn check(self, source: &Source, read_only: bool, field: &str) -> Result<(), PlanError> {
        if self == Self::SataDisk && read_only {
            let message = "a SATA disk cannot be read-only";
            return Err(invalid(format!("{field}.disk"), message, "use bus virtio or scsi, or a cdrom"));
        }
        if self == Self::ScsiLun && (source.facts.medium != Medium::BlockDevice || source.has_overlay) {
            let message = "SCSI commands can only be passed through to a block device";
            return Err(invalid(format!("{field}.lun"), message, "use a claim with volumeMode Block, or write `disk`"));
        }
        Ok(())
    }

    pub(super) fn tray(self, disk: &Disk, field: &str) -> Result<Option<Tray>, PlanError> {
        let Some(cdrom) = &disk.cdrom else { return Ok(None) };
        match text(&cdrom.tray) {
            Some("open") => Ok(Some(Tray::Open)),
            Some("closed") | None => Ok(Some(Tray::Closed)),
            Some(other) => {
                let message = format!("a tray cannot be `{other}`");
                Err(invalid(format!("{field}.cdrom.tray"), message, "write `open` or `closed`"))
            }
        }
    }
}

/// What a disk device reads and when it is booted from.
pub(super) struct Drive {
    /// The node of its image; none if the drive is empty.
    pub(super) image: Option<NodeName>,
    pub(super) bootindex: Option<u32>,
}

/// A device that is to be added.
pub(super) struct NewDevice {
    pub(super) kind: FrontendKind,
    pub(super) id: DeviceId,
}

/// What all disk devices have.
pub(super) fn block(
    draft: &Draft<'_>,
    asked: Asked<'_>,
    source: &Source,
    drive: Drive,
    cache: CachePlan,
) -> Result<BlockFrontend, PlanError> {
    let errors = match text(&asked.disk.error_policy).unwrap_or("stop") {
        "stop" => BlockErrors::Stop,
        "report" => BlockErrors::Report,
        "ignore" => BlockErrors::Ignore,
        "enospace" => BlockErrors::Enospc,
        other => {
            let message = format!("there is no error policy `{other}`");
            return Err(invalid(
                format!("{}.errorPolicy", asked.field),
                message,
                "write stop, report, ignore or enospace",
            ));
        }
    };
    // A disk keeps the name it has under /dev/disk/by-id also when its manifest does not contain it any more.
    let serials = draft.input.stored.map(|stored| &stored.disk_serials);
    let stored_serial = serials.and_then(|serials| serials.get(&asked.disk.name)).map(String::as_str);
    Ok(BlockFrontend {
        // An empty drive cannot be booted from, and a boot index on it would only slow the firmware down.
        bootindex: drive.image.as_ref().and(drive.bootindex),
        drive: drive.image,
        serial: text(&asked.disk.serial).or(stored_serial).map(str::to_owned),
        write_cache: if matches!(source.source, DiskSource::EmptyDrive) {
            garboard_machine::device::WriteCache::Auto
        } else {
            cache.guest
        },
        errors,
        share_rw: source.is_shareable,
        sizes: sizes(asked, source)?,
    })
}

fn sizes(asked: Asked<'_>, source: &Source) -> Result<BlockSizes, PlanError> {
    let Some(size) = &asked.disk.block_size else { return Ok(BlockSizes::default()) };
    if let Some(custom) = &size.custom {
        let (logical, physical) = (custom.logical, custom.physical);
        let field = format!("{}.blockSize.custom", asked.field);
        let is_fit =
            |size: Option<u32>| size.is_none_or(|size| size.is_power_of_two() && (512..=2 << 20).contains(&size));
        if !is_fit(logical) || !is_fit(physical) {
            return Err(invalid(field, "block sizes are powers of two", "write 512 to 2097152"));
        }
        return Ok(BlockSizes { logical, physical, discard_granularity: custom.discard_granularity });
    }
    Ok(matched_sizes(asked, source).map_or_else(BlockSizes::default, |found| BlockSizes {
        // QEMU's ATA drives have sectors of 512 bytes and no others; it reads the rest of larger sectors itself.
        logical: (bus(asked.disk) != "sata").then_some(found.logical),
        physical: Some(found.physical),
        discard_granularity: found.discard_granularity,
    }))
}

/// The sizes of the volume that the disk takes: those that it took at its first start. Partitions are counted in them.
pub(super) fn matched_sizes(asked: Asked<'_>, source: &Source) -> Option<FoundSizes> {
    let size = asked.disk.block_size.as_ref().filter(|size| size.custom.is_none())?;
    let matches = size.match_volume.as_ref().is_some_and(|state| state.enabled != Some(false));
    let kept = asked.kept.block_sizes.filter(|_| asked.kept.block_sizes_of == Some(source.identity));
    kept.or(source.facts.block_sizes).filter(|_| matches)
}

fn pci_address(disk: &Disk) -> Option<&str> {
    disk.disk.as_ref().and_then(|target| text(&target.pci_address))
}

/// Gives disks their places on the buses.
pub(super) struct Frontends<'a> {
    usb: &'a mut UsbPorts,
    pool: IothreadPool,
    vcpu_count: u32,
    kept: Kept,
    scsi_luns: Slots,
    sata_ports: Slots,
    sata_controllers: BTreeSet<u32>,
    virtio_targets: usize,
    other_targets: usize,
}

impl<'a> Frontends<'a> {
    pub(super) fn new(draft: &Draft<'_>, usb: &'a mut UsbPorts, pool: IothreadPool, vcpu_count: u32) -> Self {
        let stored = draft.input.stored.map(|stored| &stored.places);
        Self {
            usb,
            pool,
            vcpu_count,
            kept: Kept::default(),
            scsi_luns: Slots::new(stored.map(|places| &places.scsi_luns)),
            sata_ports: Slots::new(stored.map(|places| &places.sata_ports)),
            // The first is part of the chipset.
            sata_controllers: [0].into(),
            virtio_targets: 0,
            other_targets: 0,
        }
    }

    /// What was decided, for the next start.
    pub(super) fn into_kept(self) -> Kept {
        let (scsi_luns, sata_ports) = (self.scsi_luns.into_given(), self.sata_ports.into_given());
        Kept { places: BusPlaces { scsi_luns, sata_ports, ..BusPlaces::default() }, ..self.kept }
    }

    /// Keeps what was decided of a disk, if there was anything to decide.
    pub(super) fn keep(&mut self, disk: &Disk, decided: StoredDisk) {
        if decided != StoredDisk::default() {
            self.kept.disks.insert(disk.name.clone(), decided);
        }
    }

    /// Request queues of a device: one for each vCPU at the start. QEMU chooses the same by itself, but counts the vCPUs that
    /// there are when it starts, which a migration's target has more of if some were plugged in. A machine of the first rules
    /// is left as it was: an old machine type has one queue.
    pub(super) fn queues(&self, input: Input<'_>) -> Option<u32> {
        let is_asked = input.devices().block_multi_queue == Some(true);
        (is_asked || input.rules() >= 2).then_some(self.vcpu_count)
    }

    pub(super) fn scsi_iothread(&mut self, disks: &[Disk]) -> Option<DeviceId> {
        self.pool.of_scsi(disks)
    }

    /// Adds the device and returns the name the guest will most likely give it.
    pub(super) fn add(
        &mut self,
        draft: &mut Draft<'_>,
        asked: Asked<'_>,
        device: NewDevice,
        block: BlockFrontend,
    ) -> Result<String, PlanError> {
        let Asked { disk, field, .. } = asked;
        let NewDevice { kind, id } = device;
        if disk.dedicated_io_thread == Some(true) && !matches!(bus(disk), "virtio" | "scsi") {
            let field = format!("{field}.dedicatedIOThread");
            return Err(invalid(field, format!("bus {} has no I/O threads", bus(disk)), "use bus virtio or scsi"));
        }
        if pci_address(disk).is_some() && kind != FrontendKind::Virtio {
            let field = format!("{field}.disk.pciAddress");
            return Err(invalid(field, "only a virtio disk is a PCI device", "use bus virtio, or leave it out"));
        }
        let device = match kind {
            FrontendKind::Virtio => self.virtio(draft, asked, id, block)?,
            FrontendKind::ScsiDisk => ScsiHd { at: self.lun(&id), id, block }.into(),
            FrontendKind::ScsiCdrom => ScsiCd { at: self.lun(&id), id, block }.into(),
            FrontendKind::ScsiLun => ScsiBlock { at: self.lun(&id), id, block }.into(),
            FrontendKind::SataDisk => IdeHd { bus: self.sata(draft, &id, field)?, id, block }.into(),
            FrontendKind::SataCdrom => IdeCd { bus: self.sata(draft, &id, field)?, id, block }.into(),
            FrontendKind::UsbDisk => UsbStorage { at: self.usb.of(draft, &id, field)?, id, block }.into(),
            FrontendKind::UsbCdrom => self.usb_cdrom(draft, asked, id, block)?,
        };
        draft.devices.push(device);
        Ok(match kind {
            FrontendKind::Virtio => next_target("vd", &mut self.virtio_targets),
            FrontendKind::ScsiDisk
            | FrontendKind::ScsiCdrom
            | FrontendKind::ScsiLun
            | FrontendKind::SataDisk
            | FrontendKind::SataCdrom
            | FrontendKind::UsbDisk
            | FrontendKind::UsbCdrom => next_target("sd", &mut self.other_targets),
        })
    }

    fn virtio(
        &mut self,
        draft: &mut Draft<'_>,
        asked: Asked<'_>,
        id: DeviceId,
        block: BlockFrontend,
    ) -> Result<Device, PlanError> {
        let field = format!("{}.disk.pciAddress", asked.field);
        let at = match Draft::placement_at(pci_address(asked.disk), &field, Placement::Port)? {
            placement @ Placement::Exactly(_) => draft.place(&id, placement, &field)?,
            placement @ (Placement::Port | Placement::InterfacePort | Placement::RootComplex | Placement::Graphics) => {
                draft.place_virtio(&id, placement, asked.field)?
            }
        };
        let num_queues = self.queues(draft.input);
        let iothread = self.pool.of_disk(asked.disk);
        let revision = draft.input.virtio_revision();
        Ok(VirtioBlkPci { id, revision, at, block, iothread, num_queues }.into())
    }

    /// A cdrom on USB is a bridge that a SCSI drive hangs on: `usb-storage` would make a disk of it.
    fn usb_cdrom(
        &mut self,
        draft: &mut Draft<'_>,
        asked: Asked<'_>,
        id: DeviceId,
        block: BlockFrontend,
    ) -> Result<Device, PlanError> {
        let bridge = crate::draft::device_id("usb-bot", &asked.disk.name, asked.field)?;
        let at = self.usb.of(draft, &bridge, asked.field)?;
        draft.buses.push(UsbBot { id: bridge.clone(), at }.into());
        Ok(ScsiCd { id, at: ScsiAddress { controller: bridge, lun: 0 }, block }.into())
    }

    fn lun(&mut self, device: &DeviceId) -> ScsiAddress {
        ScsiAddress { controller: DeviceId::constant(SCSI_CONTROLLER), lun: self.scsi_luns.of(device) }
    }

    fn sata(&mut self, draft: &mut Draft<'_>, device: &DeviceId, field: &str) -> Result<String, PlanError> {
        let slot = self.sata_ports.of(device);
        let (controller, port) = (slot / SATA_PORTS, slot % SATA_PORTS);
        if controller == 0 {
            return Ok(format!("ide.{port}"));
        }
        let id = DeviceId::numbered("ahci", controller);
        if self.sata_controllers.insert(controller) {
            let at = draft.place(&id, Placement::RootComplex, field)?;
            draft.buses.push(Ich9Ahci { id: id.clone(), at }.into());
        }
        Ok(format!("{id}.{port}"))
    }
}

/// `vda` … `vdz`, `vdaa` …: the names Linux gives in the order in which it finds disks.
fn next_target(prefix: &str, count: &mut usize) -> String {
    let mut rest = *count;
    *count += 1;
    let mut letters = Vec::new();
    loop {
        letters.push(char::from(b'a' + u8::try_from(rest % 26).unwrap_or(0)));
        match (rest / 26).checked_sub(1) {
            Some(next) => rest = next,
            None => break,
        }
    }
    letters.iter().rev().fold(prefix.to_owned(), |name, &letter| format!("{name}{letter}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_count_like_linux() {
        let table = [(0, "vda"), (25, "vdz"), (26, "vdaa"), (27, "vdab"), (701, "vdzz"), (702, "vdaaa")];
        for (mut count, expected) in table {
            assert_eq!(next_target("vd", &mut count), expected);
        }
    }
}
