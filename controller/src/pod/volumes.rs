//! The pod's volumes, and where each volume of the instance is in the sidecar.

use std::collections::BTreeSet;

use garboard_api::v1::Volume as VmiVolume;
use garboard_api::{Quantity, VirtualMachineInstance};
use garboard_launcher::supervisor::KERNEL_BOOT_VOLUME;
use garboard_protocol::agent::{VolumePlace, VolumeTable};
use garboard_protocol::pod::{self, ClaimImage};
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, ImageVolumeSource,
    LocalObjectReference, ObjectFieldSelector, PersistentVolumeClaim, PersistentVolumeClaimVolumeSource,
    SecretVolumeSource, Volume, VolumeDevice, VolumeMount,
};

use super::{PodInput, PodRefusal, claim_name};

/// Name of the volume with the shared directory.
pub(super) const RUN: &str = "garboard-run";
const SCRATCH: &str = "garboard-scratch";
const ORDER: &str = "garboard-order";
const KERNEL: &str = "garboard-kernel-boot";
/// What is left to a claim's file system beside the image, in thousandths; chosen, not measured.
const FILESYSTEM_OVERHEAD_PERMILLE: u64 = 55;
/// Images are a whole number of these.
const MIB: u64 = 1024 * 1024;

/// Volumes, mounts, and the table that says what is where.
#[derive(Default)]
pub(super) struct Mounted {
    pub(super) volumes: Vec<Volume>,
    /// Of the sidecar.
    pub(super) mounts: Vec<VolumeMount>,
    /// Of the sidecar.
    pub(super) devices: Vec<VolumeDevice>,
    pub(super) table: VolumeTable,
    pub(super) images: Vec<ClaimImage>,
}

/// Everything that is mounted into the sidecar.
pub(super) fn of(input: &PodInput<'_>) -> Result<Mounted, PodRefusal> {
    let mut mounted = Mounted::default();
    mounted.own();
    for (index, volume) in input.vmi.spec.volumes.iter().enumerate() {
        mounted.add(input, index, volume)?;
    }
    mounted.kernel(input);
    Ok(mounted)
}

impl Mounted {
    /// What every pod has.
    fn own(&mut self) {
        let in_memory = EmptyDirVolumeSource { medium: Some("Memory".to_owned()), ..Default::default() };
        let run = Volume { name: RUN.to_owned(), empty_dir: Some(in_memory), ..Default::default() };
        self.mount(run, pod::RUN_DIRECTORY, Writable::Yes);
        let scratch = Volume { name: SCRATCH.to_owned(), empty_dir: Some(Default::default()), ..Default::default() };
        self.mount(scratch, pod::SCRATCH_DIRECTORY, Writable::Yes);
        let field = format!("metadata.annotations['{}']", pod::ORDER_ANNOTATION);
        let file = DownwardAPIVolumeFile {
            path: pod::ORDER_FILE.to_owned(),
            field_ref: Some(ObjectFieldSelector { field_path: field, api_version: None }),
            ..Default::default()
        };
        let downward = DownwardAPIVolumeSource { items: Some(vec![file]), ..Default::default() };
        let order = Volume { name: ORDER.to_owned(), downward_api: Some(downward), ..Default::default() };
        self.mount(order, pod::ORDER_DIRECTORY, Writable::No);
    }

    fn add(&mut self, input: &PodInput<'_>, index: usize, volume: &VmiVolume) -> Result<(), PodRefusal> {
        let path = format!("{}/{}", pod::VOLUMES_DIRECTORY, volume.name);
        let unrealised = |what| Err(PodRefusal::NotRealised { field: format!("spec.volumes[{index}].{what}") });
        if let Some(field) = network_data_secret(volume) {
            return unrealised(field);
        }
        if let Some(image) = &volume.container_disk {
            let source = ImageVolumeSource {
                reference: Some(image.image.clone()),
                pull_policy: image.image_pull_policy.clone(),
            };
            self.directory(Volume { image: Some(source), ..named(&volume.name) }, &volume.name, &path);
        } else if let Some(claim) = claim_name(volume) {
            self.claim(input, volume, claim)?;
        } else if let Some(source) = projected(volume) {
            self.directory(source, &volume.name, &path);
        } else if volume.host_disk.is_some() {
            return unrealised("hostDisk");
        } else if volume.service_account.is_some() {
            return unrealised("serviceAccount");
        } else if volume.downward_api.is_some() {
            return unrealised("downwardAPI");
        }
        // What is left (emptyDisk, inline cloud-init) the supervisor makes.
        Ok(())
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
        let path = format!("{}/{}", pod::VOLUMES_DIRECTORY, volume.name);
        let writable = if is_read_only { Writable::No } else { Writable::Yes };
        self.mount(of_pod, &path, writable);
        self.table.places.insert(volume.name.clone(), VolumePlace::Directory { path });
        if let (false, Some(bytes)) = (is_read_only, image_bytes(claim)) {
            self.images.push(ClaimImage { volume: volume.name.clone(), bytes });
        }
        Ok(())
    }

    fn kernel(&mut self, input: &PodInput<'_>) {
        let boot = input.vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
        let Some(container) = boot.and_then(|boot| boot.container.as_ref()) else { return };
        let source = ImageVolumeSource {
            reference: Some(container.image.clone()),
            pull_policy: container.image_pull_policy.clone(),
        };
        let volume = Volume { name: KERNEL.to_owned(), image: Some(source), ..Default::default() };
        self.mount(volume, pod::KERNEL_DIRECTORY, Writable::No);
        let place = VolumePlace::Directory { path: pod::KERNEL_DIRECTORY.to_owned() };
        self.table.places.insert(KERNEL_BOOT_VOLUME.to_owned(), place);
    }

    fn directory(&mut self, volume: Volume, name: &str, path: &str) {
        self.mount(volume, path, Writable::No);
        self.table.places.insert(name.to_owned(), VolumePlace::Directory { path: path.to_owned() });
    }

    fn mount(&mut self, volume: Volume, path: &str, writable: Writable) {
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
enum Writable {
    Yes,
    No,
}

fn named(name: &str) -> Volume {
    Volume { name: name.to_owned(), ..Volume::default() }
}

/// What the kubelet projects as files: ConfigMaps, Secrets, and the Secret of a cloud-init disk.
fn projected(volume: &VmiVolume) -> Option<Volume> {
    let secret = |name: &str| Volume {
        secret: Some(SecretVolumeSource { secret_name: Some(name.to_owned()), ..Default::default() }),
        ..named(&volume.name)
    };
    if let Some(source) = &volume.config_map {
        let map = ConfigMapVolumeSource {
            name: source.name.clone().unwrap_or_default(),
            optional: source.optional,
            ..Default::default()
        };
        return Some(Volume { config_map: Some(map), ..named(&volume.name) });
    }
    if let Some(source) = &volume.secret {
        return source.secret_name.as_deref().map(secret);
    }
    let no_cloud = volume.cloud_init_no_cloud.as_ref().and_then(|source| source.secret_ref.as_ref());
    let config_drive = volume.cloud_init_config_drive.as_ref().and_then(|source| source.secret_ref.as_ref());
    no_cloud.or(config_drive).map(|reference| secret(&reference.name))
}

/// A second Secret, whose files would have to be projected beside the first one's.
fn network_data_secret(volume: &VmiVolume) -> Option<&'static str> {
    let no_cloud = volume.cloud_init_no_cloud.as_ref().and_then(|source| source.network_data_secret_ref.as_ref());
    let config_drive = volume.cloud_init_config_drive.as_ref();
    let config_drive = config_drive.and_then(|source| source.network_data_secret_ref.as_ref());
    let no_cloud = no_cloud.map(|_| "cloudInitNoCloud.networkDataSecretRef");
    no_cloud.or(config_drive.map(|_| "cloudInitConfigDrive.networkDataSecretRef"))
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

fn is_block(claim: &PersistentVolumeClaim) -> bool {
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
