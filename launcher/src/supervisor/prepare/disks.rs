//! The layers of every disk, opened or made.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use garboard_plan::{DescriptorPurpose, DiskPlan, DiskSource, LaunchPlan};
use garboard_protocol::agent::VolumePlace;
use garboard_protocol::volumes::SCRATCH_VOLUME;
use garboard_storage::open::{Dir, DiskAccess};
use garboard_storage::preflight::{SpaceCheck, room_for, unlocked, unlocked_to_share};
use garboard_storage::qcow2::{create_empty, host_bytes_of_empty};
use garboard_storage::source::SourceError;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::descriptors::{LayerKey, OpenedDescriptors};
use super::order::Order;
use super::survey::{Survey, io};
use super::{PrepareError, VolumeError, iscsi, seeds};
use crate::supervisor::run::Environment;

/// Whose disks are opened, and where.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) order: &'a Order,
    pub(super) plan: &'a LaunchPlan,
    pub(super) environment: Environment,
}

/// Opens or makes every layer of every disk.
pub(super) fn fill(
    subject: Subject<'_>,
    mut survey: Survey,
    stock: &mut OpenedDescriptors,
) -> Result<(), PrepareError> {
    for disk in &subject.plan.disks {
        layers(subject, disk, &mut survey, stock)
            .map_err(|source| PrepareError::Volume { volume: disk.volume.clone(), source })?;
    }
    Ok(())
}

fn layers(
    subject: Subject<'_>,
    disk: &DiskPlan,
    survey: &mut Survey,
    stock: &mut OpenedDescriptors,
) -> Result<(), VolumeError> {
    let Subject { order, plan, .. } = subject;
    let mut put = |side: LayerKey, descriptor: OwnedFd| -> Result<(), VolumeError> {
        bypass_cache(plan, disk, side, &descriptor)?;
        stock.layers.insert((disk.volume.clone(), side), descriptor);
        Ok(())
    };
    match &disk.source {
        DiskSource::EmptyDrive | DiskSource::Iscsi { chap: false, .. } => Ok(()),
        DiskSource::Iscsi { chap: true, .. } => {
            stock.passwords.insert(disk.volume.clone(), iscsi::password(order, &disk.volume)?);
            Ok(())
        }
        DiskSource::EmptyDisk { capacity_bytes } => put(LayerKey::Top, empty_disk(subject, disk, *capacity_bytes)?),
        DiskSource::CloudInit { flavour } => put(LayerKey::Top, seeds::cloud_init(order, plan, disk, *flavour)?),
        DiskSource::FileTree { tree, label } => put(LayerKey::Top, seeds::file_tree(order, disk, *tree, label)?),
        DiskSource::ContainerDisk { .. }
        | DiskSource::PersistentVolumeClaim { .. }
        | DiskSource::EphemeralClaim { .. }
        | DiskSource::HostDisk { .. } => {
            let opened = survey.opened.remove(&disk.volume).ok_or(VolumeError::Nowhere)?;
            refuse_locked(disk, &opened.descriptor)?;
            if disk.overlay {
                put(LayerKey::Top, new_image(subject, disk, opened.virtual_bytes)?)?;
                put(LayerKey::Base, opened.descriptor)
            } else {
                put(LayerKey::Top, opened.descriptor)
            }
        }
    }
}

/// QEMU would end on a disk that another QEMU holds, with a message that few users understand.
fn refuse_locked(disk: &DiskPlan, descriptor: &OwnedFd) -> Result<(), VolumeError> {
    let access = if disk.overlay || disk.read_only { DiskAccess::ReadOnly } else { DiskAccess::ReadWrite };
    let looked = if disk.shareable {
        unlocked_to_share(descriptor, access, "the disk")
    } else {
        unlocked(descriptor, access, "the disk")
    };
    Ok(looked.map_err(SourceError::from)?)
}

/// QEMU asks for the mode of its command line; the descriptor must have it already.
fn bypass_cache(plan: &LaunchPlan, disk: &DiskPlan, side: LayerKey, descriptor: &OwnedFd) -> Result<(), VolumeError> {
    let wanted = plan.descriptors.iter().any(|planned| {
        matches!(&planned.purpose, DescriptorPurpose::DiskLayer { volume, layer, direct: true, .. }
            if *volume == disk.volume && LayerKey::from(*layer) == side)
    });
    if !wanted {
        return Ok(());
    }
    let failed = |errno: nix::errno::Errno| io("bypass the page cache", errno.into());
    let flags = OFlag::from_bits_retain(fcntl(descriptor.as_fd(), FcntlArg::F_GETFL).map_err(failed)?);
    fcntl(descriptor.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_DIRECT)).map(|_| ()).map_err(failed)
}

/// An empty disk that the guest cannot write is opened once more: QEMU takes a descriptor only in its node's mode.
fn empty_disk(subject: Subject<'_>, disk: &DiskPlan, virtual_bytes: u64) -> Result<OwnedFd, VolumeError> {
    let image = new_image(subject, disk, virtual_bytes)?;
    if !disk.read_only {
        return Ok(image);
    }
    let reopened = File::open(format!("/proc/self/fd/{}", image.as_raw_fd()));
    Ok(reopened.map_err(|source| io("open the empty disk for reading", source))?.into())
}

/// A fresh qcow2. On a bare host it has no name, so it is gone when QEMU is. In a pod it has one: the kubelet counts what
/// a pod uses by walking names, and the volume goes with the pod.
fn new_image(subject: Subject<'_>, disk: &DiskPlan, virtual_bytes: u64) -> Result<OwnedFd, VolumeError> {
    let order = subject.order;
    let directory = Dir::open(&scratch(order)?)?;
    let first_bytes = host_bytes_of_empty(virtual_bytes);
    let most_bytes = disk.room_bytes.unwrap_or(virtual_bytes.saturating_add(first_bytes));
    let room = room_for(&directory, first_bytes, most_bytes);
    if let SpaceCheck::Overcommitted { wanted_bytes, available_bytes } = room.map_err(SourceError::from)? {
        tracing::warn!(
            wanted_bytes,
            available_bytes,
            "free space is smaller than the disk; the guest is paused when it is full"
        );
    }
    let file = match subject.environment {
        Environment::Host => scratch_file(order)?,
        Environment::Pod => named_file(&scratch(order)?.join(format!("{}.qcow2", disk.device)))?,
    };
    create_empty(&file, virtual_bytes)?;
    if let Some(bytes) = disk.room_bytes {
        file.set_len(bytes).map_err(|source| io("set the layer's length", source))?;
    }
    Ok(file.into())
}

/// A new file in the place of one that an earlier attempt left.
fn named_file(path: &Path) -> Result<File, VolumeError> {
    let failed = |source| io(&format!("make {}", path.display()), source);
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path).map_err(failed)
}

/// A file without a name in the directory for what is lost at the stop.
pub(super) fn scratch_file(order: &Order) -> Result<File, VolumeError> {
    let directory = scratch(order)?;
    let file =
        OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_TMPFILE.bits()).mode(0o600).open(&directory);
    file.map_err(|source| io(&format!("create a file in {}", directory.display()), source))
}

fn scratch(order: &Order) -> Result<PathBuf, VolumeError> {
    match order.volumes.places.get(SCRATCH_VOLUME) {
        Some(VolumePlace::Directory { path }) => Ok(Path::new(path).to_owned()),
        Some(VolumePlace::File { .. } | VolumePlace::Descriptor | VolumePlace::Handed { .. }) | None => {
            Err(VolumeError::Nowhere)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_of_a_pod_has_a_name_by_which_it_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk-root.qcow2");
        std::fs::write(&path, "of an earlier attempt").unwrap();
        let file = named_file(&path).unwrap();
        create_empty(&file, 1 << 30).unwrap();
        let named = std::fs::metadata(&path).unwrap().len();
        assert_eq!(named, file.metadata().unwrap().len());
    }
}
