//! Resolves the names in a machine's spec to objects of this host: images, claims, Secrets,
//! ConfigMaps. What a kubelet and its volume plugins do on a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_api::v1::{CloudInitNoCloudSource, VirtualMachineInstance, Volume, VolumeSource as Written};
use garboard_plan::is_opened_read_only;
use garboard_protocol::volumes::{PASSWORDS_PREFIX, SSH_KEYS_PREFIX};
use garboard_shim_client::places::Places;
use garboard_shim_client::volume_source::HostVolumeSource;
use k8s_openapi::api::core::v1::LocalObjectReference;
use serde_json::Value;

use crate::claims::{self, ClaimUse};
use crate::exit::{BAD_INPUT, exit_error};
use crate::images::Images;
use crate::manifest::Document;

/// Where names are looked up.
pub(crate) struct Lookup<'a> {
    /// Every document that was given.
    pub(crate) documents: &'a [Document],
    /// Images.
    pub(crate) images: &'a Images,
    /// Directories of this host.
    pub(crate) places: &'a Places,
}

/// Files of a projected volume by name, base64.
type Files = BTreeMap<String, String>;

/// Finds what stands behind every volume; all that is missing is reported at once.
pub(crate) fn volumes(
    vmi: &VirtualMachineInstance,
    lookup: &Lookup<'_>,
) -> anyhow::Result<BTreeMap<String, HostVolumeSource>> {
    let mut orders = BTreeMap::new();
    let mut problems = Vec::new();
    for (index, volume) in vmi.spec.volumes.iter().enumerate() {
        match one(vmi, volume, lookup) {
            Ok(order) => {
                orders.insert(volume.name.clone(), order);
            }
            Err(error) => problems.push(format!("spec.volumes[{index}] ({}): {error:#}", volume.name)),
        }
    }
    for (index, prefix, secret) in credential_secrets(vmi) {
        match lookup.secret(vmi, secret, Optional::No) {
            Ok(files) => {
                orders.insert(format!("{prefix}{secret}"), HostVolumeSource::Projected { files });
            }
            Err(error) => problems.push(format!("spec.accessCredentials[{index}]: {error:#}")),
        }
    }
    if problems.is_empty() { Ok(orders) } else { Err(exit_error(BAD_INPUT, problems.join("\n"))) }
}

/// The Secret of each credential, and the prefix of the volume as which it reaches the supervisor.
fn credential_secrets(vmi: &VirtualMachineInstance) -> impl Iterator<Item = (usize, &'static str, &str)> {
    let credentials = vmi.spec.access_credentials.iter().enumerate();
    credentials.flat_map(|(index, credential)| {
        let keys = credential.ssh_public_key.as_ref().and_then(|key| key.source.secret.as_ref());
        let passwords = credential.user_password.as_ref().and_then(|password| password.source.secret.as_ref());
        let both = [(SSH_KEYS_PREFIX, keys), (PASSWORDS_PREFIX, passwords)];
        both.into_iter().filter_map(move |(prefix, secret)| Some((index, prefix, secret?.secret_name.as_str())))
    })
}

fn one(vmi: &VirtualMachineInstance, volume: &Volume, lookup: &Lookup<'_>) -> anyhow::Result<HostVolumeSource> {
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let usage = if is_opened_read_only(&vmi.spec, volume) { ClaimUse::ReadOnly } else { ClaimUse::ReadWrite };
    let Some(source) = volume.source() else { return Ok(HostVolumeSource::Made) };
    let files = match source {
        Written::ContainerDisk(disk) => {
            return lookup.images.disk(&disk.image, disk.path.as_deref(), disk.image_pull_policy.as_deref());
        }
        Written::PersistentVolumeClaim(_) | Written::DataVolume(_) | Written::Ephemeral(_) => {
            return claims::open(lookup, namespace, volume.claim().unwrap_or_default(), usage);
        }
        Written::HostDisk(disk) => return Ok(HostVolumeSource::HostDisk { path: PathBuf::from(&disk.path) }),
        Written::CloudInitNoCloud(seed) => return cloud_init(vmi, seed, lookup),
        Written::CloudInitConfigDrive(seed) => {
            let refs = CloudInitNoCloudSource {
                secret_ref: seed.secret_ref.clone(),
                network_data_secret_ref: seed.network_data_secret_ref.clone(),
                ..CloudInitNoCloudSource::default()
            };
            return cloud_init(vmi, &refs, lookup);
        }
        Written::ConfigMap(map) => {
            lookup.config_map(vmi, map.name.as_deref().unwrap_or_default(), Optional::from(map.optional))?
        }
        Written::Secret(secret) => {
            lookup.secret(vmi, secret.secret_name.as_deref().unwrap_or_default(), Optional::from(secret.optional))?
        }
        Written::Sysprep(sysprep) => match (&sysprep.config_map, &sysprep.secret) {
            (Some(map), _) => lookup.config_map(vmi, &map.name, Optional::No)?,
            (None, Some(secret)) => lookup.secret(vmi, &secret.name, Optional::No)?,
            (None, None) => anyhow::bail!("sysprep names neither a ConfigMap nor a Secret"),
        },
        Written::DownwardApi(downward) => crate::downward::files(vmi, &downward.fields)?,
        Written::ServiceAccount(_) => {
            anyhow::bail!("a bare host has no service accounts; use a Secret, or run this machine on a cluster")
        }
        Written::Iscsi(_) => anyhow::bail!(
            "QEMU reaches no network of a bare host; attach the unit with `iscsiadm` and use a hostDisk, or run this machine on a cluster"
        ),
        // The supervisor makes the one; the others are no disks.
        Written::EmptyDisk(_) | Written::ContainerPath(_) | Written::DownwardMetrics(_) | Written::MemoryDump(_) => {
            return Ok(HostVolumeSource::Made);
        }
    };
    Ok(HostVolumeSource::Projected { files })
}

/// KubeVirt takes the keys in both spellings.
fn cloud_init(
    vmi: &VirtualMachineInstance,
    seed: &CloudInitNoCloudSource,
    lookup: &Lookup<'_>,
) -> anyhow::Result<HostVolumeSource> {
    let mut files = Files::new();
    let mut take = |reference: &Option<LocalObjectReference>, keys: [&str; 2]| -> anyhow::Result<()> {
        let Some(reference) = reference else { return Ok(()) };
        let secret = lookup.secret(vmi, &reference.name, Optional::No)?;
        let content = keys.iter().find_map(|key| secret.get(*key));
        let content =
            content.ok_or_else(|| anyhow::anyhow!("Secret {} has no key `{}`; add it", reference.name, keys[0]))?;
        files.insert(keys[0].to_owned(), content.clone());
        Ok(())
    };
    take(&seed.secret_ref, ["userdata", "userData"])?;
    // The network may stand in the same Secret, then the key is optional.
    take(&seed.network_data_secret_ref, ["networkdata", "networkData"])?;
    if files.is_empty() { Ok(HostVolumeSource::Made) } else { Ok(HostVolumeSource::Projected { files }) }
}

/// Whether an object may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Optional {
    Yes,
    No,
}

impl From<Option<bool>> for Optional {
    fn from(written: Option<bool>) -> Self {
        if written == Some(true) { Self::Yes } else { Self::No }
    }
}

impl Lookup<'_> {
    /// The document of that kind and name in that namespace.
    pub(crate) fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&Document> {
        let is_it = |document: &&Document| {
            document.kind() == kind && document.name() == name && document.namespace() == namespace
        };
        self.documents.iter().find(is_it)
    }

    fn secret(&self, vmi: &VirtualMachineInstance, name: &str, optional: Optional) -> anyhow::Result<Files> {
        let Some(document) = self.named(vmi, "Secret", name, optional)? else { return Ok(Files::new()) };
        let read = || -> anyhow::Result<Files> {
            let mut files = texts(&document.value["data"], "data", unwrapped)?;
            files.extend(texts(&document.value["stringData"], "stringData", |text| STANDARD.encode(text))?);
            Ok(files)
        };
        read().with_context(|| format!("Secret {name} in {}", document.origin))
    }

    fn config_map(&self, vmi: &VirtualMachineInstance, name: &str, optional: Optional) -> anyhow::Result<Files> {
        let Some(document) = self.named(vmi, "ConfigMap", name, optional)? else { return Ok(Files::new()) };
        let read = || -> anyhow::Result<Files> {
            let mut files = texts(&document.value["data"], "data", |text| STANDARD.encode(text))?;
            files.extend(texts(&document.value["binaryData"], "binaryData", unwrapped)?);
            Ok(files)
        };
        read().with_context(|| format!("ConfigMap {name} in {}", document.origin))
    }

    fn named(
        &self,
        vmi: &VirtualMachineInstance,
        kind: &str,
        name: &str,
        optional: Optional,
    ) -> anyhow::Result<Option<&Document>> {
        let namespace = vmi.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        match (self.find(kind, namespace, name), optional) {
            (Some(document), _) => Ok(Some(document)),
            (None, Optional::Yes) => Ok(None),
            (None, Optional::No) => anyhow::bail!(
                "{kind} {namespace}/{name} is not in the given files; add its manifest to the command line"
            ),
        }
    }
}

fn texts(object: &Value, field: &str, encode: impl Fn(&str) -> String) -> anyhow::Result<Files> {
    let mut files = Files::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        // The API server's rule for keys, which are names of files.
        let is_allowed = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
        if key.is_empty() || [".", ".."].contains(&key.as_str()) || !key.chars().all(is_allowed) {
            anyhow::bail!(
                "{field}.{}: a key has letters, digits, `-`, `_` and `.` only; rename it",
                key.escape_debug()
            );
        }
        let text = value.as_str().ok_or_else(|| anyhow::anyhow!("{field}.{key} is not text; quote it"))?;
        let encoded = encode(text);
        if let Err(error) = STANDARD.decode(&encoded) {
            anyhow::bail!("{field}.{key} is not base64 ({error}); encode it, or write it under `stringData` as it is");
        }
        files.insert(key.clone(), encoded);
    }
    Ok(files)
}

/// base64 without its line breaks.
fn unwrapped(text: &str) -> String {
    text.replace(['\n', '\r'], "")
}
