//! Disks that are files of the node. The namespace must allow hostPath volumes (no Pod Security `baseline` or
//! `restricted`), and the file must be user 107's: no process with more rights on the node changes its owner.

use garboard_api::v1::HostDisk;
use garboard_protocol::agent::VolumePlace;
use garboard_protocol::pod::DiskImage;
use k8s_openapi::api::core::v1::{HostPathVolumeSource, Volume};

use super::PodRefusal;
use super::contribution::{Contribution, Writable};
use super::volumes::path_of;

/// The file, or the directory in which it is made.
pub(super) fn contribution(index: usize, name: &str, disk: &HostDisk) -> Result<Contribution, PodRefusal> {
    let invalid = |field: &str, instead| PodRefusal::Invalid {
        field: format!("spec.volumes[{index}].hostDisk.{field}"),
        instead,
    };
    let (parent, file) =
        disk.path.rsplit_once('/').filter(|(parent, file)| !parent.is_empty() && !file.is_empty()).ok_or_else(
            || invalid("path", "write an absolute path of a file in a directory, for example `/data/disk.img`"),
        )?;
    let volume = |path: &str, kind: &str| {
        let source = HostPathVolumeSource { path: path.to_owned(), type_: Some(kind.to_owned()) };
        Volume { name: name.to_owned(), host_path: Some(source), ..Volume::default() }
    };
    if disk.r#type == "Disk" {
        // The file alone: the supervisor does not see what else is in its directory.
        let path = format!("{}/{file}", path_of(name));
        let mounted = Contribution::mounted(volume(&disk.path, "File"), &path, Writable::Yes);
        return Ok(mounted.found_as(name, VolumePlace::File { path }));
    }
    let bytes = disk.capacity.as_ref().and_then(garboard_api::Quantity::to_bytes).filter(|bytes| *bytes > 0);
    let bytes = bytes.ok_or_else(|| invalid("capacity", "write the size of the disk, for example `1Gi`"))?;
    let image = DiskImage { volume: name.to_owned(), file: file.to_owned(), bytes };
    let mounted = Contribution::mounted(volume(parent, "DirectoryOrCreate"), &path_of(name), Writable::Yes);
    Ok(mounted.found_as(name, VolumePlace::Directory { path: path_of(name) }).with_image(Some(image)))
}
