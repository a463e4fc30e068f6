//! Where the bytes of a disk come from.

use garboard_api::quantity::Quantity;
use garboard_api::v1::{HostDisk, IscsiSource, Volume, VolumeSource};
use garboard_api::validate::iscsi_portal;
use garboard_machine::id::fnv1a_64;

use super::Asked;
use crate::disk::{CloudInitFlavour, CreateHostDisk, DiskSource, FileTreeKind, ImageFormat, Medium};
use crate::draft::{Draft, invalid, text};
use crate::error::PlanError;
use crate::opening;
use crate::options::VolumeFacts;

/// Where a disk comes from, and what follows from that.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) source: DiskSource,
    pub(super) facts: VolumeFacts,
    /// Writes go to a fresh layer over it ([`opening::has_overlay`]).
    pub(super) has_overlay: bool,
    /// The volume itself forbids writing.
    pub(super) read_only: bool,
    /// Other VMs may have it open.
    pub(super) is_shareable: bool,
    /// What is written is gone after the stop anyway.
    pub(super) is_ephemeral: bool,
    /// We made it, and it is small.
    pub(super) is_seed: bool,
    /// Distinguishes it from other volumes of the same name: a hash.
    pub(super) identity: u32,
}

/// The source of a disk of the manifest.
pub(super) fn of(draft: &Draft<'_>, asked: Asked<'_>) -> Result<Source, PlanError> {
    let volumes = &draft.input.spec().volumes;
    let is_shareable = asked.disk.shareable == Some(true);
    let Some((index, volume)) = volumes.iter().enumerate().find(|(_, volume)| volume.name == asked.disk.name) else {
        if asked.disk.cdrom.is_some() {
            return Ok(Source { is_shareable, ..Source::new(DiskSource::EmptyDrive, ImageFormat::Raw, Kind::Seed) });
        }
        let message = format!("no volume is called `{}`", asked.disk.name);
        return Err(invalid(format!("{}.name", asked.field), message, "name one of spec.volumes"));
    };
    let mut source = from_volume(volume, &format!("spec.volumes[{index}]"))?;
    source.is_shareable |= is_shareable;
    source.identity = identity(volume);
    source.has_overlay = opening::has_overlay(draft.input.spec(), volume);
    if let Some(facts) = draft.input.options.volumes.get(&volume.name) {
        // A writer of an image must not choose how it is read: only what is never written has its own format.
        let is_never_written = source.has_overlay || source.is_image();
        let format = if is_never_written { facts.format } else { source.facts.format };
        source.facts = VolumeFacts { format, ..facts.clone() };
    }
    let is_probed = draft.input.options.volumes.contains_key(&volume.name);
    if !is_probed && asked.disk.lun.is_some() {
        // Nothing else could be behind a lun.
        source.facts.medium = Medium::BlockDevice;
    }
    set_medium(&mut source);
    Ok(source)
}

/// A number of 32 bits, which every reader of JSON keeps.
fn identity(volume: &Volume) -> u32 {
    let text = serde_json::to_string(volume).unwrap_or_default();
    let hash = fnv1a_64(text.as_bytes());
    u32::try_from(hash >> 32).unwrap_or_default()
}

fn set_medium(source: &mut Source) {
    let found = source.facts.medium;
    match &mut source.source {
        DiskSource::PersistentVolumeClaim { medium, .. } | DiskSource::EphemeralClaim { medium, .. } => *medium = found,
        DiskSource::ContainerDisk { .. }
        | DiskSource::EmptyDisk { .. }
        | DiskSource::HostDisk { .. }
        | DiskSource::Iscsi { .. }
        | DiskSource::CloudInit { .. }
        | DiskSource::FileTree { .. }
        | DiskSource::EmptyDrive => source.facts.medium = Medium::File,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Kept after the stop.
    Persistent,
    /// What the guest writes is dropped at the stop.
    Scratch,
    /// Made by us at each start.
    Seed,
}

impl Source {
    /// A file of a container image: it is never written, and many machines may read it.
    pub(super) fn is_image(&self) -> bool {
        matches!(self.source, DiskSource::ContainerDisk { .. })
    }

    fn new(source: DiskSource, format: ImageFormat, kind: Kind) -> Self {
        Self {
            source,
            facts: VolumeFacts::assumed(format),
            has_overlay: false,
            read_only: false,
            is_shareable: false,
            is_ephemeral: kind != Kind::Persistent,
            is_seed: kind == Kind::Seed,
            identity: 0,
        }
    }
}

fn from_volume(volume: &Volume, field: &str) -> Result<Source, PlanError> {
    let medium = Medium::File;
    let no_disk = || invalid(field, "this volume cannot be a disk", "use one of the volumes that have bytes");
    match volume.source().ok_or_else(no_disk)? {
        VolumeSource::ContainerDisk(disk) => {
            let source =
                DiskSource::ContainerDisk { image: disk.image.clone(), path: text(&disk.path).map(str::to_owned) };
            Ok(Source::new(source, ImageFormat::Qcow2, Kind::Scratch))
        }
        VolumeSource::PersistentVolumeClaim(claim) => {
            let source = DiskSource::PersistentVolumeClaim { claim: claim.claim_name.clone(), medium };
            let read_only = claim.read_only == Some(true);
            Ok(Source { read_only, ..Source::new(source, ImageFormat::Raw, Kind::Persistent) })
        }
        VolumeSource::DataVolume(data_volume) => {
            // A DataVolume fills a claim of its own name.
            let source = DiskSource::PersistentVolumeClaim { claim: data_volume.name.clone(), medium };
            Ok(Source::new(source, ImageFormat::Raw, Kind::Persistent))
        }
        VolumeSource::Ephemeral(ephemeral) => {
            let claim = ephemeral.persistent_volume_claim.as_ref().ok_or_else(no_disk)?;
            let source = DiskSource::EphemeralClaim { claim: claim.claim_name.clone(), medium };
            Ok(Source::new(source, ImageFormat::Raw, Kind::Scratch))
        }
        VolumeSource::EmptyDisk(empty) => {
            let capacity_bytes = capacity(Some(&empty.capacity), &format!("{field}.emptyDisk.capacity"))?;
            Ok(Source::new(DiskSource::EmptyDisk { capacity_bytes }, ImageFormat::Qcow2, Kind::Scratch))
        }
        VolumeSource::HostDisk(disk) => host_disk(disk, field),
        VolumeSource::Iscsi(source) => iscsi(source, field),
        VolumeSource::CloudInitNoCloud(_) => Ok(cloud_init(CloudInitFlavour::NoCloud)),
        VolumeSource::CloudInitConfigDrive(_) => Ok(cloud_init(CloudInitFlavour::ConfigDrive)),
        VolumeSource::ConfigMap(map) => Ok(tree(FileTreeKind::ConfigMap, text(&map.volume_label))),
        VolumeSource::Secret(secret) => Ok(tree(FileTreeKind::Secret, text(&secret.volume_label))),
        VolumeSource::DownwardApi(downward) => Ok(tree(FileTreeKind::DownwardApi, text(&downward.volume_label))),
        VolumeSource::ServiceAccount(_) => Ok(tree(FileTreeKind::ServiceAccount, None)),
        VolumeSource::Sysprep(_) => Ok(tree(FileTreeKind::Sysprep, Some("unattendCD"))),
        VolumeSource::ContainerPath(_) | VolumeSource::DownwardMetrics(_) | VolumeSource::MemoryDump(_) => {
            Err(no_disk())
        }
    }
}

fn iscsi(iscsi: &IscsiSource, field: &str) -> Result<Source, PlanError> {
    let refuse = |name: &str, text: String, instead: &str| invalid(format!("{field}.iscsi.{name}"), text, instead);
    let no_portal = || {
        let text = format!("`{}` is no host with a port", iscsi.target_portal);
        refuse("targetPortal", text, "write for example `storage.example:3260`")
    };
    let (host, port) = iscsi_portal(&iscsi.target_portal).ok_or_else(no_portal)?;
    let no_unit = |_| refuse("lun", format!("a target has no unit {}", iscsi.lun), "write a number from 0 to 255");
    let lun = u32::try_from(iscsi.lun).map_err(no_unit)?;
    let (target, chap) = (iscsi.iqn.clone(), iscsi.secret_ref.is_some());
    let source = DiskSource::Iscsi { portal: format!("{host}:{port}"), target, lun, chap };
    Ok(Source::new(source, ImageFormat::Raw, Kind::Persistent))
}

fn host_disk(disk: &HostDisk, field: &str) -> Result<Source, PlanError> {
    let create = match disk.r#type.as_str() {
        "Disk" => CreateHostDisk::Never,
        "DiskOrCreate" => {
            let field = format!("{field}.hostDisk.capacity");
            CreateHostDisk::IfMissing { capacity_bytes: capacity(disk.capacity.as_ref(), &field)? }
        }
        other => {
            let message = format!("there is no type `{other}`");
            return Err(invalid(format!("{field}.hostDisk.type"), message, "write `Disk` or `DiskOrCreate`"));
        }
    };
    let source = DiskSource::HostDisk { path: disk.path.clone(), create };
    let is_shareable = disk.shared == Some(true);
    Ok(Source { is_shareable, ..Source::new(source, ImageFormat::Raw, Kind::Persistent) })
}

/// Sizes are whole sectors; a part of one is dropped, because a disk must not be larger than asked for.
fn capacity(capacity: Option<&Quantity>, field: &str) -> Result<u64, PlanError> {
    let bytes = capacity.and_then(Quantity::to_bytes).map(|bytes| bytes / 512 * 512).filter(|&bytes| bytes > 0);
    bytes.ok_or_else(|| invalid(field, "a disk has at least one sector of 512 bytes", "write for example `1Gi`"))
}

fn cloud_init(flavour: CloudInitFlavour) -> Source {
    Source::new(DiskSource::CloudInit { flavour }, ImageFormat::Raw, Kind::Seed)
}

fn tree(tree: FileTreeKind, label: Option<&str>) -> Source {
    let source = DiskSource::FileTree { tree, label: label.unwrap_or("cfgdata").to_owned() };
    Source::new(source, ImageFormat::Raw, Kind::Seed)
}
