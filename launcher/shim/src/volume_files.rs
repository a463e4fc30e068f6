//! Opening what only the shim may open: stand-ins of claims, host disks, UEFI variables.

use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::Context;
use garboard_api::quantity::Quantity;
use garboard_api::v1::VirtualMachineInstance;
use garboard_plan::is_opened_read_only;
use garboard_shim_client::request::FirmwareVars;
use garboard_shim_client::volume_source::HostVolumeSource;
use garboard_storage::beneath::BeneathPath;
use garboard_storage::open::{Dir, Direct, DiskAccess, Expected, Opening, Sharing, open_disk};
use serde::Deserialize;
use serde_json::Value;

/// Opens a volume for the machine's supervisor.
pub(crate) fn open(source: &HostVolumeSource, vmi: &Value, name: &str) -> anyhow::Result<OwnedFd> {
    match source {
        HostVolumeSource::Opened { path, writable: true } => disk(path, DiskAccess::ReadWrite, sharing(vmi, name)),
        HostVolumeSource::Opened { path, writable: false } => disk(path, DiskAccess::ReadOnly, Sharing::Shared),
        HostVolumeSource::HostDisk { path } => host_disk(path, vmi, name),
        HostVolumeSource::Directory { .. }
        | HostVolumeSource::File { .. }
        | HostVolumeSource::Projected { .. }
        | HostVolumeSource::Made => {
            anyhow::bail!("volume {name} is not one that the shim opens")
        }
    }
}

/// A disk is its machine's alone unless it is marked as shared.
fn sharing(vmi: &Value, name: &str) -> Sharing {
    let disks = vmi["spec"]["domain"]["devices"]["disks"].as_array().into_iter().flatten();
    let is_shared = disks.into_iter().any(|disk| disk["name"] == name && disk["shareable"] == true);
    if is_shared { Sharing::Shared } else { Sharing::Exclusive }
}

fn disk(path: &Path, access: DiskAccess, sharing: Sharing) -> anyhow::Result<OwnedFd> {
    let opening = Opening { access, direct: Direct::Off, expected: Expected::FileOrBlock, sharing };
    Ok(open_disk(path, opening)?.fd)
}

/// `type: DiskOrCreate` makes a sparse file of the given capacity.
fn host_disk(path: &Path, vmi: &Value, name: &str) -> anyhow::Result<OwnedFd> {
    let volumes = vmi["spec"]["volumes"].as_array().into_iter().flatten();
    let source = volumes.into_iter().find(|volume| volume["name"] == name).map(|volume| &volume["hostDisk"]);
    let may_create = source.is_some_and(|source| source["type"] == "DiskOrCreate");
    if may_create && !path.exists() {
        let capacity = source.and_then(|source| source["capacity"].as_str()).unwrap_or_default();
        let bytes = capacity.parse::<Quantity>().ok().and_then(|quantity| quantity.to_bytes());
        let bytes = bytes.with_context(|| format!("hostDisk.capacity `{capacity}` is not a size"))?;
        make(path, bytes)?;
    }
    let machine = VirtualMachineInstance::deserialize(vmi).context("the machine's manifest cannot be read")?;
    let volume = machine.spec.volumes.iter().find(|volume| volume.name == name);
    if volume.is_some_and(|volume| is_opened_read_only(&machine.spec, volume)) {
        return disk(path, DiskAccess::ReadOnly, Sharing::Shared);
    }
    disk(path, DiskAccess::ReadWrite, sharing(vmi, name))
}

fn make(path: &Path, bytes: u64) -> anyhow::Result<()> {
    let parts = path.parent().zip(path.file_name().and_then(|name| name.to_str()));
    let (folder, name) = parts.with_context(|| format!("hostDisk.path {} is not a path of a file", path.display()))?;
    Dir::open(folder)?.create_sized(&BeneathPath::parse(name)?, bytes, 0o666)?;
    Ok(())
}

/// The variables of a machine, made from their template at its first start.
pub(crate) fn firmware_vars(vars: &FirmwareVars) -> anyhow::Result<OwnedFd> {
    if !vars.path.exists() {
        let directory = vars.path.parent().unwrap_or(&vars.path);
        std::fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        let fresh = vars.path.with_extension("new");
        std::fs::copy(&vars.template, &fresh).with_context(|| format!("copy {}", vars.template.display()))?;
        std::fs::rename(&fresh, &vars.path).with_context(|| format!("create {}", vars.path.display()))?;
    }
    disk(&vars.path, DiskAccess::ReadWrite, Sharing::Exclusive)
}
