//! Opening what exists before the plan is made, because the plan depends on what is found: formats, block
//! devices, whether the page cache can be bypassed.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use garboard_agent::client::AgentClient;
use garboard_api::v1::{Volume, VolumeSource};
use garboard_plan::{BlockSizes, DirectIo, ImageFormat, Medium, VolumeFacts, has_overlay, is_opened_read_only};
use garboard_protocol::agent::VolumePlace;
use garboard_protocol::pod::DISK_IMAGE;
use garboard_storage::beneath::BeneathPath;
use garboard_storage::block_size;
use garboard_storage::direct;
use garboard_storage::open::{Dir, Direct, DiskAccess, Expected, Opening, Sharing, open_disk};
use garboard_storage::qcow2::{Format, looks_like_qcow2};
use garboard_storage::source::container_disk;

use super::container_disk_client;
use super::iscsi;
use super::order::Order;
use super::{PrepareError, VolumeError};

/// A volume that is open.
pub(super) struct Opened {
    /// Its descriptor.
    pub(super) descriptor: OwnedFd,
    /// Size of the disk the guest will see, bytes.
    pub(super) virtual_bytes: u64,
    /// The facts that the plan needs.
    pub(super) facts: VolumeFacts,
}

/// Everything that was found.
#[derive(Default)]
pub(super) struct Survey {
    /// By volume.
    pub(super) opened: BTreeMap<String, Opened>,
    /// What is known of empty disks, which are made after the plan.
    made: BTreeMap<String, VolumeFacts>,
}

impl Survey {
    /// For the planner.
    pub(super) fn facts(&self) -> BTreeMap<String, VolumeFacts> {
        let with_size =
            |opened: &Opened| VolumeFacts { virtual_bytes: Some(opened.virtual_bytes), ..opened.facts.clone() };
        let opened = self.opened.iter().map(|(name, opened)| (name.clone(), with_size(opened)));
        opened.chain(self.made.clone()).collect()
    }
}

/// Opens every volume that exists already.
pub(super) async fn survey(order: &Order, mut agent: Option<&mut AgentClient>) -> Result<Survey, PrepareError> {
    let mut survey = Survey::default();
    for volume in &order.vmi.spec.volumes {
        let fail = |source| PrepareError::Volume { volume: volume.name.clone(), source };
        let opened = match kind(volume) {
            Kind::Empty => {
                let facts = scratch_facts(order, volume, ImageFormat::Qcow2).map_err(fail)?;
                survey.made.insert(volume.name.clone(), facts);
                continue;
            }
            Kind::Made => continue,
            Kind::Network => {
                let chap_user = iscsi::user(order, volume).map_err(fail)?;
                let facts = VolumeFacts { chap_user, ..VolumeFacts::assumed(ImageFormat::Raw) };
                survey.made.insert(volume.name.clone(), facts);
                continue;
            }
            Kind::Image(path) => open_image(order, volume, path).await,
            Kind::Disk => match order.volumes.places.get(&volume.name) {
                Some(VolumePlace::Descriptor) => receive(&volume.name, agent.as_deref_mut()).await,
                Some(place) => open_place(place, file_name(volume), opening(order, volume)),
                None => Err(VolumeError::Nowhere),
            },
        };
        let opened = opened.and_then(|opened| settled(order, volume, opened)).map_err(fail)?;
        survey.opened.insert(volume.name.clone(), opened);
    }
    Ok(survey)
}

enum Kind<'a> {
    /// A container disk, perhaps with the path of its file.
    Image(Option<&'a str>),
    /// A claim or host disk: raw, always.
    Disk,
    /// An empty disk: made after the plan, where scratch files are.
    Empty,
    /// Made after the plan, in memory.
    Made,
    /// Opened by QEMU itself.
    Network,
}

fn kind(volume: &Volume) -> Kind<'_> {
    match volume.source() {
        Some(VolumeSource::ContainerDisk(disk)) => Kind::Image(disk.path.as_deref()),
        Some(VolumeSource::EmptyDisk(_)) => Kind::Empty,
        Some(VolumeSource::Iscsi(_)) => Kind::Network,
        Some(
            VolumeSource::PersistentVolumeClaim(_)
            | VolumeSource::DataVolume(_)
            | VolumeSource::Ephemeral(_)
            | VolumeSource::HostDisk(_),
        ) => Kind::Disk,
        Some(
            VolumeSource::CloudInitConfigDrive(_)
            | VolumeSource::CloudInitNoCloud(_)
            | VolumeSource::ConfigMap(_)
            | VolumeSource::Secret(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::ServiceAccount(_)
            | VolumeSource::Sysprep(_),
        ) => Kind::Made,
        // The plan refuses these as disks.
        Some(VolumeSource::ContainerPath(_) | VolumeSource::DownwardMetrics(_) | VolumeSource::MemoryDump(_))
        | None => Kind::Made,
    }
}

/// Name of the image, where the volume's place is a directory.
fn file_name(volume: &Volume) -> &str {
    let on_host = volume.host_disk.as_ref().and_then(|disk| disk.path.rsplit('/').next());
    on_host.unwrap_or(DISK_IMAGE)
}

/// What is written is its machine's alone, unless its disk is marked as shared; what is read may be read by many.
fn opening(order: &Order, volume: &Volume) -> Opening {
    let is_read = is_opened_read_only(&order.vmi.spec, volume);
    let disk = order.vmi.spec.domain.devices.disks.iter().find(|disk| disk.name == volume.name);
    let is_shared = disk.is_some_and(|disk| disk.shareable == Some(true));
    Opening {
        access: if is_read { DiskAccess::ReadOnly } else { DiskAccess::ReadWrite },
        direct: Direct::Off,
        expected: Expected::FileOrBlock,
        sharing: if is_read || is_shared { Sharing::Shared } else { Sharing::Exclusive },
    }
}

async fn open_image(order: &Order, volume: &Volume, path: Option<&str>) -> Result<Opened, VolumeError> {
    let path = path.map(BeneathPath::parse).transpose().map_err(|error| io("name the image's file", invalid(error)))?;
    let disk = match order.volumes.places.get(&volume.name) {
        Some(VolumePlace::Directory { path: directory }) => {
            container_disk::open(&Dir::open(Path::new(directory))?, path.as_ref(), Direct::Off)?
        }
        Some(VolumePlace::File { path: file }) => container_disk::open_file(Path::new(file), Direct::Off)?,
        Some(VolumePlace::Handed { socket }) => {
            let (file, shown) = container_disk_client::file(Path::new(socket)).await?;
            container_disk::received(file, &shown, Direct::Off)?
        }
        Some(VolumePlace::Descriptor) | None => return Err(VolumeError::Nowhere),
    };
    let format = match disk.facts.format {
        Format::Raw => ImageFormat::Raw,
        Format::Qcow2 => ImageFormat::Qcow2,
    };
    let facts = VolumeFacts::assumed(format);
    Ok(Opened { descriptor: disk.opened.fd, virtual_bytes: disk.facts.virtual_bytes, facts })
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidInput, error)
}

/// Under an overlay, the disk that was opened is only read: the file system of the overlay counts.
fn settled(order: &Order, volume: &Volume, opened: Opened) -> Result<Opened, VolumeError> {
    let Opened { descriptor, virtual_bytes, facts } = opened;
    let facts = if has_overlay(&order.vmi.spec, volume) {
        VolumeFacts { medium: facts.medium, ..scratch_facts(order, volume, facts.format)? }
    } else if volume.container_disk.is_some() {
        let block_sizes = matched_sizes(order, volume, &descriptor)?;
        VolumeFacts { direct_io: direct_io(&descriptor), block_sizes, ..facts }
    } else {
        VolumeFacts { block_sizes: matched_sizes(order, volume, &descriptor)?, ..facts }
    };
    Ok(Opened { descriptor, virtual_bytes, facts })
}

/// An image of ours in the scratch directory takes the writes, so its file system decides whether the cache can be
/// bypassed, and what its blocks are.
fn scratch_facts(order: &Order, volume: &Volume, format: ImageFormat) -> Result<VolumeFacts, VolumeError> {
    let assumed = VolumeFacts::assumed(format);
    let Ok(file) = super::disks::scratch_file(order) else {
        // Making the image itself will fail, with the reason.
        return Ok(VolumeFacts { direct_io: DirectIo::Refused, ..assumed });
    };
    let block_sizes = matched_sizes(order, volume, &file)?;
    // An empty file has no block that could be read.
    file.set_len(SCRATCH_PROBE_BYTES).map_err(|source| io("create a file for a trial", source))?;
    Ok(VolumeFacts { direct_io: direct_io(&file), block_sizes, ..assumed })
}

/// Block sizes of what is written to, if the volume's disk is to have the same.
fn matched_sizes(order: &Order, volume: &Volume, disk: impl AsFd) -> Result<Option<BlockSizes>, VolumeError> {
    let disks = &order.vmi.spec.domain.devices.disks;
    let asked = disks.iter().find(|disk| disk.name == volume.name).and_then(|disk| disk.block_size.as_ref());
    let matches = asked.and_then(|size| size.match_volume.as_ref()).is_some_and(|state| state.enabled != Some(false));
    if matches { Ok(Some(shown(block_size::block_sizes(disk)?))) } else { Ok(None) }
}

/// Length of the file on which direct I/O is tried.
const SCRATCH_PROBE_BYTES: u64 = 4096;

/// Guests read no disk with larger blocks than their pages. A network file system reports its preferred size of a write, which
/// may be a MiB.
const LARGEST_LOGICAL: u32 = 4096;

/// What a device of QEMU, and a guest, take of these: it discards whole logical blocks, or nothing (0).
fn shown(found: block_size::MeasuredBlockSizes) -> BlockSizes {
    let logical = found.logical_bytes.min(LARGEST_LOGICAL);
    let discard = Some(found.discard_bytes).filter(|bytes| bytes.is_multiple_of(logical));
    BlockSizes { logical, physical: found.physical_bytes, discard_granularity: discard }
}

fn open_place(place: &VolumePlace, file: &str, opening: Opening) -> Result<Opened, VolumeError> {
    let disk = match place {
        VolumePlace::Directory { path } => {
            let image = BeneathPath::parse(file).map_err(|error| io("name the image", invalid(error)))?;
            Dir::open(Path::new(path))?.open_disk(&image, opening)?
        }
        VolumePlace::File { path } => open_disk(Path::new(path), opening)?,
        VolumePlace::Descriptor | VolumePlace::Handed { .. } => return Err(VolumeError::Nowhere),
    };
    describe(disk.fd)
}

async fn receive(name: &str, agent: Option<&mut AgentClient>) -> Result<Opened, VolumeError> {
    let agent = agent.ok_or(VolumeError::Nowhere)?;
    describe(agent.volume(name).await?)
}

/// A claim's disk is raw whatever it looks like: its guest could have written a header that names our files.
fn describe(descriptor: OwnedFd) -> Result<Opened, VolumeError> {
    let file = File::from(descriptor);
    let metadata = file.metadata().map_err(|source| io("inspect the disk", source))?;
    let is_block = metadata.file_type().is_block_device();
    let virtual_bytes = length(&file).map_err(|source| io("measure the disk", source))?;
    if looks_like_qcow2(file.as_fd()) {
        tracing::warn!("a claim has a qcow2 header and is used as raw; convert it with qemu-img convert -O raw");
    }
    let allocated = std::os::unix::fs::MetadataExt::blocks(&metadata).saturating_mul(512);
    let facts = VolumeFacts {
        medium: if is_block { Medium::BlockDevice } else { Medium::File },
        direct_io: direct_io(&file),
        preallocated: is_block || allocated >= virtual_bytes,
        ..VolumeFacts::assumed(ImageFormat::Raw)
    };
    Ok(Opened { descriptor: file.into(), virtual_bytes, facts })
}

/// Works for files and block devices alike.
fn length(mut file: &File) -> std::io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    Ok(end)
}

/// Whether the page cache can be bypassed, found out by a read: a file system may take the flag and refuse that.
fn direct_io(file: impl AsFd) -> DirectIo {
    if direct::works(file.as_fd()) { DirectIo::Works } else { DirectIo::Refused }
}

pub(super) fn io(action: &str, source: std::io::Error) -> VolumeError {
    VolumeError::Io { action: action.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_takes_the_flag_and_refuses_the_read_has_no_direct_io() {
        // A pipe does so too.
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        assert_eq!(direct_io(&reader), DirectIo::Refused);
    }

    #[test]
    fn a_guest_gets_only_what_a_device_of_qemu_supports() {
        let found =
            |discard_bytes| block_size::MeasuredBlockSizes { logical_bytes: 4096, physical_bytes: 4096, discard_bytes };
        for (discard, expected) in [(4096, Some(4096)), (1 << 20, Some(1 << 20)), (0, Some(0)), (512, None)] {
            let expected = BlockSizes { logical: 4096, physical: 4096, discard_granularity: expected };
            assert_eq!(shown(found(discard)), expected, "{discard}");
        }
    }
}
