//! Stand-ins for PersistentVolumeClaims on a bare host.
//!
//! A claim is, in this order: the PersistentVolume its manifest names (`spec.volumeName`, with `local` or
//! `hostPath`), or `STATE/claims/NAMESPACE/NAME/disk.img`, made sparse in the requested size if missing.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_api::quantity::Quantity;
use garboard_shim_client::volume_source::HostVolumeSource;
use garboard_storage::open::{Dir, Direct};
use garboard_storage::source::pvc::{self, Tolerance};
use serde_json::Value;

use crate::output::note;
use crate::resolve::Lookup;

/// The image in a filesystem claim, KubeVirt's name.
const DISK_IMAGE: &str = "disk.img";

/// What a machine does with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimUse {
    /// The machine only reads.
    ReadOnly,
    /// The machine writes.
    ReadWrite,
}

/// Finds or makes the stand-in of a claim.
pub(crate) fn open(
    lookup: &Lookup<'_>,
    namespace: &str,
    name: &str,
    usage: ClaimUse,
) -> anyhow::Result<HostVolumeSource> {
    let manifest = lookup.find("PersistentVolumeClaim", namespace, name);
    let volume_name = manifest.and_then(|claim| claim.value["spec"]["volumeName"].as_str());
    let path = match volume_name {
        Some(volume_name) => persistent_volume(lookup, volume_name)?,
        None => lookup.places.claim(namespace, name),
    };
    let image = image_of(&path);
    if !image.exists() {
        let request = manifest.map(|claim| &claim.value["spec"]["resources"]["requests"]["storage"]);
        let template = || data_volume_size(lookup, name);
        make(&image, request.and_then(size).or_else(template), namespace, name)?;
    }
    Ok(HostVolumeSource::Opened { path: image, writable: usage == ClaimUse::ReadWrite })
}

fn persistent_volume(lookup: &Lookup<'_>, name: &str) -> anyhow::Result<PathBuf> {
    // A PersistentVolume has no namespace; its document counts as being in `default`.
    let volume = lookup.find("PersistentVolume", DEFAULT_NAMESPACE, name);
    let spec = &volume
        .with_context(|| format!("PersistentVolume {name} is not in the given files; add its manifest"))?
        .value["spec"];
    let path = spec["local"]["path"].as_str().or_else(|| spec["hostPath"]["path"].as_str());
    let path = path.with_context(|| format!("PersistentVolume {name} has neither local.path nor hostPath.path"))?;
    Ok(PathBuf::from(path))
}

/// A directory holds `disk.img`; a file or block device is the disk itself.
fn image_of(path: &Path) -> PathBuf {
    let is_itself = path.metadata().is_ok_and(|metadata| metadata.is_file() || metadata.file_type().is_block_device());
    if is_itself { path.to_owned() } else { path.join(DISK_IMAGE) }
}

fn size(quantity: &Value) -> Option<u64> {
    let text = quantity.as_str().map(str::to_owned).or_else(|| quantity.as_u64().map(|number| number.to_string()))?;
    text.parse::<Quantity>().ok()?.to_bytes()
}

/// The size a `dataVolumeTemplate` of any given VirtualMachine asks for this name, if it asks for a blank one.
fn data_volume_size(lookup: &Lookup<'_>, name: &str) -> Option<u64> {
    let templates = lookup
        .documents
        .iter()
        .flat_map(|document| document.value["spec"]["dataVolumeTemplates"].as_array().into_iter().flatten());
    let wanted = templates.into_iter().find(|template| template["metadata"]["name"] == name)?;
    let spec = &wanted["spec"];
    spec["source"].get("blank")?;
    size(&spec["storage"]["resources"]["requests"]["storage"])
        .or_else(|| size(&spec["pvc"]["resources"]["requests"]["storage"]))
}

fn make(image: &Path, bytes: Option<u64>, namespace: &str, name: &str) -> anyhow::Result<()> {
    let Some(bytes) = bytes else {
        anyhow::bail!(
            "claim {namespace}/{name} has no stand-in at {}; put a disk image there, or add a PersistentVolumeClaim \
             with spec.resources.requests.storage to the given files",
            image.display()
        );
    };
    let directory = image.parent().unwrap_or(image);
    let made = make_in(directory, bytes).with_context(|| format!("claim {namespace}/{name} could not be created"));
    if made.is_err() {
        // Only an empty directory is removed, so nothing that was there before.
        let _ = std::fs::remove_dir(directory);
    }
    made
}

fn make_in(directory: &Path, bytes: u64) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    let disk = pvc::open_or_create(&Dir::open(directory)?, bytes, Tolerance::default(), Direct::Off)?;
    disk.warnings.iter().for_each(|warning| note!("garboard: warning: {}: {warning}", directory.display()));
    Ok(())
}
