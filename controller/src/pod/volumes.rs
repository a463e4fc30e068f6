//! The pod's volumes, and where each volume of the instance is in the sidecar.

use std::collections::BTreeSet;

use garboard_api::cluster::Gate;
use garboard_api::v1::Volume as VmiVolume;
use garboard_api::{Quantity, VirtualMachineInstance};
use garboard_plan::Resources;
use garboard_protocol::agent::{VolumePlace, VolumeTable};
use garboard_protocol::pod::{self, DISK_IMAGE, DiskImage};
use garboard_protocol::volumes::KERNEL_BOOT_VOLUME;
use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, ImageVolumeSource, LocalObjectReference,
    ObjectFieldSelector, PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, ResourceFieldSelector, Volume,
    VolumeDevice, VolumeMount,
};

use k8s_openapi::apimachinery::pkg::api::resource as quantity;

use super::helpers::Opened;
use super::{PodInput, PodRefusal, projected};

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

/// Volumes, mounts, and the table that says what is where.
#[derive(Default)]
pub(super) struct Mounted {
    pub(super) volumes: Vec<Volume>,
    /// Of the sidecar.
    pub(super) mounts: Vec<VolumeMount>,
    /// Of the sidecar.
    pub(super) devices: Vec<VolumeDevice>,
    pub(super) table: VolumeTable,
    pub(super) images: Vec<DiskImage>,
    /// Images whose files a program in a container of their own opens.
    pub(super) opened: Vec<Opened>,
    /// How many files these are.
    pub(super) handed: usize,
}

/// Everything that is mounted into the sidecar.
pub(super) fn of(input: &PodInput<'_>, machine: &Resources) -> Result<Mounted, PodRefusal> {
    let mut mounted = Mounted::default();
    mounted.own(machine);
    for (index, volume) in input.vmi.spec.volumes.iter().enumerate() {
        mounted.add(input, index, volume)?;
    }
    mounted.credentials(input.vmi);
    mounted.kernel(input);
    mounted.state(input.vmi);
    mounted.helpers_volumes();
    Ok(mounted)
}

impl Mounted {
    /// What every pod has.
    fn own(&mut self, machine: &Resources) {
        for (name, path) in [(RUN, pod::RUN_DIRECTORY), (INIT, pod::INIT_DIRECTORY)] {
            let size_limit = Some(bytes(RUN_BYTES));
            let in_memory = EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit };
            let volume = Volume { name: name.to_owned(), empty_dir: Some(in_memory), ..Default::default() };
            self.mount(volume, path, Writable::Yes);
        }
        let size_limit = Some(bytes(machine.scratch_bytes.saturating_add(SCRATCH_RESERVE_BYTES)));
        let on_disk = EmptyDirVolumeSource { medium: None, size_limit };
        let scratch = Volume { name: SCRATCH.to_owned(), empty_dir: Some(on_disk), ..Default::default() };
        self.mount(scratch, pod::SCRATCH_DIRECTORY, Writable::Yes);
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
        let order = Volume { name: ORDER.to_owned(), downward_api: Some(downward), ..Default::default() };
        self.mount(order, pod::ORDER_DIRECTORY, Writable::No);
    }

    fn add(&mut self, input: &PodInput<'_>, index: usize, volume: &VmiVolume) -> Result<(), PodRefusal> {
        if let Some(disk) = &volume.container_disk {
            self.container_disk(input, &volume.name, disk);
        } else if let Some(claim) = volume.claim() {
            self.claim(input, volume, claim)?;
        } else if let Some(disk) = &volume.host_disk {
            self.host_disk(index, &volume.name, disk)?;
        } else if let Some(source) = projected::of(volume) {
            self.directory(source, &volume.name, &path_of(&volume.name));
        }
        // What is left (emptyDisk, inline cloud-init) the supervisor makes.
        self.network_data(index, volume);
        Ok(())
    }

    fn container_disk(&mut self, input: &PodInput<'_>, name: &str, disk: &garboard_api::v1::ContainerDiskSource) {
        if !input.config.has(Gate::ImageVolume) {
            return self.helped_disk(name, disk);
        }
        let source =
            ImageVolumeSource { reference: Some(disk.image.clone()), pull_policy: disk.image_pull_policy.clone() };
        self.directory(Volume { image: Some(source), ..named(name) }, name, &path_of(name));
    }

    fn claim(&mut self, input: &PodInput<'_>, volume: &VmiVolume, name: &str) -> Result<(), PodRefusal> {
        let claim = input.claims.get(name).ok_or_else(|| PodRefusal::NoClaim { claim: name.to_owned() })?;
        let is_read_only = volume.ephemeral.is_some()
            || volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.read_only == Some(true));
        let source =
            PersistentVolumeClaimVolumeSource { claim_name: name.to_owned(), read_only: is_read_only.then_some(true) };
        let of_pod = Volume { persistent_volume_claim: Some(source), ..named(&volume.name) };
        if is_block(claim) {
            let path = format!("{}/{}", pod::BLOCK_DIRECTORY, volume.name);
            self.devices.push(VolumeDevice { name: of_pod.name.clone(), device_path: path.clone() });
            self.volumes.push(of_pod);
            self.table.places.insert(volume.name.clone(), VolumePlace::File { path });
            return Ok(());
        }
        let path = path_of(&volume.name);
        let writable = if is_read_only { Writable::No } else { Writable::Yes };
        self.mount(of_pod, &path, writable);
        self.table.places.insert(volume.name.clone(), VolumePlace::Directory { path });
        if let (false, Some(bytes)) = (is_read_only, image_bytes(claim)) {
            self.images.push(DiskImage { volume: volume.name.clone(), file: DISK_IMAGE.to_owned(), bytes });
        }
        Ok(())
    }

    fn kernel(&mut self, input: &PodInput<'_>) {
        let boot = input.vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
        let Some(container) = boot.and_then(|boot| boot.container.as_ref()) else { return };
        if !input.config.has(Gate::ImageVolume) {
            return self.helped_kernel(container);
        }
        let source = ImageVolumeSource {
            reference: Some(container.image.clone()),
            pull_policy: container.image_pull_policy.clone(),
        };
        let volume = Volume { name: KERNEL.to_owned(), image: Some(source), ..Default::default() };
        self.mount(volume, pod::KERNEL_DIRECTORY, Writable::No);
        let place = VolumePlace::Directory { path: pod::KERNEL_DIRECTORY.to_owned() };
        self.table.places.insert(KERNEL_BOOT_VOLUME.to_owned(), place);
    }

    /// A directory that the supervisor reads.
    pub(super) fn directory(&mut self, volume: Volume, name: &str, path: &str) {
        self.mount(volume, path, Writable::No);
        self.place(name, path);
    }

    /// Where the supervisor finds a directory.
    pub(super) fn place(&mut self, name: &str, path: &str) {
        self.table.places.insert(name.to_owned(), VolumePlace::Directory { path: path.to_owned() });
    }

    pub(super) fn mount(&mut self, volume: Volume, path: &str, writable: Writable) {
        self.mounts.push(VolumeMount {
            name: volume.name.clone(),
            mount_path: path.to_owned(),
            read_only: (writable == Writable::No).then_some(true),
            ..VolumeMount::default()
        });
        self.volumes.push(volume);
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Writable {
    Yes,
    No,
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
