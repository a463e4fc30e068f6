//! The pod's volumes, and where each volume of the instance is in the sidecar.

use std::collections::BTreeSet;

use garboard_api::cluster::Gate;
use garboard_api::v1::{ContainerDiskSource, Volume as VmiVolume, VolumeSource};
use garboard_api::{Quantity, VirtualMachineInstance};
use garboard_plan::Resources;
use garboard_protocol::agent::VolumePlace;
use garboard_protocol::pod::{self, DISK_IMAGE, DiskImage};
use garboard_protocol::volumes::KERNEL_BOOT_VOLUME;
use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, ImageVolumeSource, LocalObjectReference,
    ObjectFieldSelector, PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, ResourceFieldSelector, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource as quantity;

use super::contribution::{Contribution, Mounted, Writable, fold};
use super::{PodInput, PodRefusal, container_disks, host_disk, projected, state};

/// Name of the volume with the machine's directory.
const RUN: &str = "garboard-run";
/// Name of the volume that PID 1 and the supervisor share.
pub(super) const INIT: &str = "garboard-init";
const SCRATCH: &str = "garboard-scratch";
const ORDER: &str = "garboard-order";
const KERNEL: &str = "garboard-kernel-boot";
/// What is left to a claim's file system beside the image, in thousandths: what the Containerized Data Importer leaves
/// by default, so that an image made here fits where it would have made one. Its setting for a storage class is not read.
pub(super) const FILESYSTEM_OVERHEAD_PERMILLE: u64 = 55;
/// Images are a whole number of these.
const MIB: u64 = 1024 * 1024;

/// What sockets, journal, plan and the bounded logs of a machine take at most, and a picture of its screen.
const RUN_BYTES: u64 = 128 * MIB;
/// Seeds and whatever else is made beside the disks of the guest.
pub(super) const SCRATCH_RESERVE_BYTES: u64 = 256 * MIB;

fn bytes(bytes: u64) -> quantity::Quantity {
    quantity::Quantity(bytes.to_string())
}

/// Everything that is mounted into the sidecar.
pub(super) fn mounted(input: &PodInput<'_>, machine: &Resources) -> Result<Mounted, PodRefusal> {
    let volumes = input.vmi.spec.volumes.iter().enumerate();
    let of_instance: Vec<_> =
        volumes.map(|(index, volume)| of_volume(input, index, volume)).collect::<Result<_, _>>()?;
    let own = own(machine).into_iter().chain(of_instance.into_iter().flatten());
    Ok(fold(own.chain(projected::credentials(input.vmi)).chain(kernel(input)).chain(state::volume(input.vmi))))
}

/// What every pod has.
fn own(machine: &Resources) -> [Contribution; 4] {
    let in_memory = |name: &str, path| {
        let size_limit = Some(bytes(RUN_BYTES));
        let source = EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit };
        Contribution::mounted(Volume { empty_dir: Some(source), ..named(name) }, path, Writable::Yes)
    };
    let size_limit = Some(bytes(machine.scratch_bytes.saturating_add(SCRATCH_RESERVE_BYTES)));
    let on_disk = EmptyDirVolumeSource { medium: None, size_limit };
    let scratch = Volume { empty_dir: Some(on_disk), ..named(SCRATCH) };
    [
        in_memory(RUN, pod::RUN_DIRECTORY),
        in_memory(INIT, pod::INIT_DIRECTORY),
        Contribution::mounted(scratch, pod::SCRATCH_DIRECTORY, Writable::Yes),
        Contribution::mounted(order(), pod::ORDER_DIRECTORY, Writable::No),
    ]
}

/// What the supervisor is given through the downward API.
fn order() -> Volume {
    let field = format!("metadata.annotations['{}']", pod::ORDER_ANNOTATION);
    let file = DownwardAPIVolumeFile {
        path: pod::ORDER_FILE.to_owned(),
        field_ref: Some(ObjectFieldSelector { field_path: field, api_version: None }),
        ..Default::default()
    };
    let limit = ResourceFieldSelector {
        container_name: Some("compute".to_owned()),
        resource: "limits.ephemeral-storage".to_owned(),
        divisor: None,
    };
    let storage = DownwardAPIVolumeFile {
        path: pod::STORAGE_LIMIT_FILE.to_owned(),
        resource_field_ref: Some(limit),
        ..Default::default()
    };
    let downward = DownwardAPIVolumeSource { items: Some(vec![file, storage]), ..Default::default() };
    Volume { downward_api: Some(downward), ..named(ORDER) }
}

/// What a volume of the instance brings. What is left out here (emptyDisk, inline cloud-init) the supervisor makes.
fn of_volume(input: &PodInput<'_>, index: usize, volume: &VmiVolume) -> Result<Vec<Contribution>, PodRefusal> {
    let name = &volume.name;
    let source = match volume.source() {
        Some(VolumeSource::ContainerDisk(disk)) => Some(container_disk(input, name, disk)),
        Some(VolumeSource::PersistentVolumeClaim(_) | VolumeSource::DataVolume(_) | VolumeSource::Ephemeral(_)) => {
            volume.claim().map(|name| claim(input, volume, name)).transpose()?
        }
        Some(VolumeSource::HostDisk(disk)) => Some(host_disk::contribution(index, name, disk)?),
        Some(
            VolumeSource::CloudInitConfigDrive(_)
            | VolumeSource::CloudInitNoCloud(_)
            | VolumeSource::ConfigMap(_)
            | VolumeSource::Secret(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::Iscsi(_)
            | VolumeSource::ServiceAccount(_)
            | VolumeSource::Sysprep(_),
        ) => projected::of(volume).map(|source| Contribution::directory(source, name, &path_of(name))),
        // The supervisor makes the one; the others are no disks.
        Some(
            VolumeSource::EmptyDisk(_)
            | VolumeSource::ContainerPath(_)
            | VolumeSource::DownwardMetrics(_)
            | VolumeSource::MemoryDump(_),
        )
        | None => None,
    };
    Ok(source.into_iter().chain(projected::network_data(index, volume)).collect())
}

fn container_disk(input: &PodInput<'_>, name: &str, disk: &ContainerDiskSource) -> Contribution {
    if !input.config.has(Gate::ImageVolume) {
        return Contribution::opened(container_disks::disk(name, disk));
    }
    let source = ImageVolumeSource { reference: Some(disk.image.clone()), pull_policy: disk.image_pull_policy.clone() };
    Contribution::directory(Volume { image: Some(source), ..named(name) }, name, &path_of(name))
}

fn claim(input: &PodInput<'_>, volume: &VmiVolume, name: &str) -> Result<Contribution, PodRefusal> {
    let claim = input.claims.get(name).ok_or_else(|| PodRefusal::NoClaim { claim: name.to_owned() })?;
    let is_read_only = volume.ephemeral.is_some()
        || volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.read_only == Some(true));
    let source =
        PersistentVolumeClaimVolumeSource { claim_name: name.to_owned(), read_only: is_read_only.then_some(true) };
    let of_pod = Volume { persistent_volume_claim: Some(source), ..named(&volume.name) };
    if is_block(claim) {
        return Ok(Contribution::device(of_pod, &volume.name, format!("{}/{}", pod::BLOCK_DIRECTORY, volume.name)));
    }
    let path = path_of(&volume.name);
    let writable = if is_read_only { Writable::No } else { Writable::Yes };
    let image = image_bytes(claim).filter(|_| !is_read_only);
    let image = image.map(|bytes| DiskImage { volume: volume.name.clone(), file: DISK_IMAGE.to_owned(), bytes });
    let mounted = Contribution::mounted(of_pod, &path, writable);
    Ok(mounted.found_as(&volume.name, VolumePlace::Directory { path }).with_image(image))
}

fn kernel(input: &PodInput<'_>) -> Option<Contribution> {
    let boot = input.vmi.spec.domain.firmware.as_ref()?.kernel_boot.as_ref()?;
    let container = boot.container.as_ref()?;
    if !input.config.has(Gate::ImageVolume) {
        return Some(Contribution::opened(container_disks::kernel(container)));
    }
    let source = ImageVolumeSource {
        reference: Some(container.image.clone()),
        pull_policy: container.image_pull_policy.clone(),
    };
    let volume = Volume { image: Some(source), ..named(KERNEL) };
    Some(Contribution::directory(volume, KERNEL_BOOT_VOLUME, pod::KERNEL_DIRECTORY))
}

/// Where a volume of the instance is in the sidecar.
pub(super) fn path_of(name: &str) -> String {
    format!("{}/{name}", pod::VOLUMES_DIRECTORY)
}

fn named(name: &str) -> Volume {
    Volume { name: name.to_owned(), ..Volume::default() }
}

/// The Secrets with which the kubelet pulls the images of a machine.
pub(super) fn pull_secrets(vmi: &VirtualMachineInstance) -> Vec<LocalObjectReference> {
    let of_disks =
        vmi.spec.volumes.iter().filter_map(|volume| volume.container_disk.as_ref()?.image_pull_secret.clone());
    let boot = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    let of_kernel = boot.and_then(|boot| boot.container.as_ref()?.image_pull_secret.clone());
    let names: BTreeSet<String> = of_disks.chain(of_kernel).collect();
    names.into_iter().map(|name| LocalObjectReference { name }).collect()
}

pub(super) fn is_block(claim: &PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().is_some_and(|spec| spec.volume_mode.as_deref() == Some("Block"))
}

/// Size of the image in a claim's file system: the claim's, less what the file system needs.
fn image_bytes(claim: &PersistentVolumeClaim) -> Option<u64> {
    let of_status = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
    let of_spec = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()).and_then(|all| all.requests.as_ref());
    let text = of_status.or(of_spec)?.get("storage")?;
    let bytes = text.0.parse::<Quantity>().ok()?.to_bytes()?;
    let usable = bytes / 1000 * (1000 - FILESYSTEM_OVERHEAD_PERMILLE);
    Some(usable / MIB * MIB)
}
