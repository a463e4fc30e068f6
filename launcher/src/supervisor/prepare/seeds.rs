//! Seed media: cloud-init and projected files, built in memory.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_api::v1::{CloudInitConfigDriveSource, CloudInitNoCloudSource, Volume, non_empty};
use garboard_plan::{CloudInitFlavour, DiskPlan, FileTreeKind, LaunchPlan};
use garboard_protocol::agent::VolumePlace;
use garboard_protocol::volumes::{NETWORK_DATA_PREFIX, SSH_KEYS_PREFIX};
use garboard_storage::iso::{DiscTree, LabelError, TreeError, VolumeLabel};
use garboard_storage::open::{Dir, DiskAccess};
use garboard_storage::seed::{self, ConfigDrive, NoCloud, SysprepError};
use garboard_storage::source::disc;

use super::VolumeError;
use super::order::Order;
use super::tags::tagged;

/// Why a seed cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SeedError {
    /// A `…Base64` field is none.
    #[error("`{field}` is not base64")]
    Base64 {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        #[source]
        source: base64::DecodeError,
    },
    /// The spec names a Secret that is not in the input: in a pod one whose volume is empty. The text on a bare host is in
    /// `cli/src/resolve.rs`; on a cluster a Secret that does not exist is the kubelet's to report.
    #[error("the Secret it refers to is missing")]
    NoSecret,
    /// The Secret lacks what it is for.
    #[error("the Secret of `{field}` has no key `{key}`; add it")]
    NoKey {
        /// The field that names it.
        field: &'static str,
        /// The key.
        key: &'static str,
    },
    /// cloud-init's own rules.
    #[error(transparent)]
    CloudInit(#[from] seed::SeedError),
    /// Windows' own rules.
    #[error(transparent)]
    Sysprep(#[from] SysprepError),
    /// Too many or too large files.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The label cannot be written.
    #[error(transparent)]
    Label(#[from] LabelError),
}

type Files = BTreeMap<String, Vec<u8>>;

/// The disc of a cloud-init volume.
pub(super) fn cloud_init(
    order: &Order,
    plan: &LaunchPlan,
    disk: &DiskPlan,
    flavour: CloudInitFlavour,
) -> Result<OwnedFd, VolumeError> {
    let volume = volume(order, disk)?;
    let files = files(order, &disk.volume)?;
    let sources = match flavour {
        CloudInitFlavour::NoCloud => volume.cloud_init_no_cloud.as_ref().map(Sources::from),
        CloudInitFlavour::ConfigDrive => volume.cloud_init_config_drive.as_ref().map(Sources::from),
    };
    let sources = sources.ok_or(VolumeError::Nowhere)?;
    let network_place = format!("{NETWORK_DATA_PREFIX}{}", disk.volume);
    let network_files = if order.volumes.places.contains_key(&network_place) {
        self::files(order, &network_place)?
    } else {
        files.clone()
    };
    let (user_data, network_data) = sources.resolve(&files, &network_files)?;
    let metadata = &order.vmi.metadata;
    let name = metadata.name.clone().unwrap_or_default();
    let namespace = metadata.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let hostname = non_empty(&order.vmi.spec.hostname).unwrap_or(&name).to_owned();
    let uuid = order.vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.uuid.clone());
    let public_keys = public_keys(order, flavour)?;
    let (tree, label) = match flavour {
        CloudInitFlavour::NoCloud => {
            let instance_id = uuid.unwrap_or_else(|| format!("{name}.{namespace}"));
            let seed = NoCloud {
                instance_id,
                local_hostname: Some(hostname),
                user_data,
                network_data,
                public_keys,
                ..NoCloud::default()
            };
            (seed.tree().map_err(SeedError::from)?, NoCloud::label())
        }
        CloudInitFlavour::ConfigDrive => {
            let instance_id = format!("{name}.{namespace}");
            let hostname = Some(hostname);
            let seed = ConfigDrive {
                instance_id,
                uuid,
                hostname,
                user_data,
                network_data,
                public_keys,
                devices: tagged(plan),
                ..ConfigDrive::default()
            };
            (seed.tree().map_err(SeedError::from)?, ConfigDrive::label())
        }
    };
    burn(disk, &tree, &label)
}

/// The disc of a ConfigMap, Secret and the like.
pub(super) fn file_tree(
    order: &Order,
    disk: &DiskPlan,
    kind: FileTreeKind,
    label: &str,
) -> Result<OwnedFd, VolumeError> {
    let files = files(order, &disk.volume)?;
    let tree = match kind {
        FileTreeKind::Sysprep => seed::sysprep(&files).map_err(SeedError::from)?,
        FileTreeKind::ConfigMap | FileTreeKind::Secret | FileTreeKind::DownwardApi | FileTreeKind::ServiceAccount => {
            disc::files(&files).map_err(SeedError::from)?
        }
    };
    burn(disk, &tree, &VolumeLabel::parse(label).map_err(SeedError::from)?)
}

fn burn(disk: &DiskPlan, tree: &DiscTree, label: &VolumeLabel) -> Result<OwnedFd, VolumeError> {
    let access = if disk.read_only { DiskAccess::ReadOnly } else { DiskAccess::ReadWrite };
    Ok(disc::of_tree(tree, label, access)?.opened.fd)
}

fn volume<'a>(order: &'a Order, disk: &DiskPlan) -> Result<&'a Volume, VolumeError> {
    order.vmi.spec.volumes.iter().find(|volume| volume.name == disk.volume).ok_or(VolumeError::Nowhere)
}

/// The projected files of a volume; none if it has none.
pub(super) fn files(order: &Order, name: &str) -> Result<Files, VolumeError> {
    match order.volumes.places.get(name) {
        Some(VolumePlace::Directory { path }) => Ok(seed::read_folder(&Dir::open(Path::new(path))?)?),
        Some(VolumePlace::File { .. } | VolumePlace::Descriptor | VolumePlace::Handed { .. }) | None => {
            Ok(Files::new())
        }
    }
}

/// The keys whose propagation method is this data source.
fn public_keys(order: &Order, flavour: CloudInitFlavour) -> Result<Vec<String>, VolumeError> {
    let mut keys = Vec::new();
    for credential in order.vmi.spec.access_credentials.iter().filter_map(|one| one.ssh_public_key.as_ref()) {
        let method = &credential.propagation_method;
        let is_ours = match flavour {
            CloudInitFlavour::NoCloud => method.no_cloud.is_some(),
            CloudInitFlavour::ConfigDrive => method.config_drive.is_some(),
        };
        if let (true, Some(secret)) = (is_ours, &credential.source.secret) {
            let files = files(order, &format!("{SSH_KEYS_PREFIX}{}", secret.secret_name))?;
            keys.extend(seed::ssh_public_keys(&files));
        }
    }
    Ok(keys)
}

/// Both flavours have the same six fields.
struct Sources<'a> {
    user: [Option<&'a str>; 2],
    network: [Option<&'a str>; 2],
    has_user_secret: bool,
    has_network_secret: bool,
}

impl<'a> From<&'a CloudInitNoCloudSource> for Sources<'a> {
    fn from(source: &'a CloudInitNoCloudSource) -> Self {
        Self {
            user: [source.user_data.as_deref(), source.user_data_base64.as_deref()],
            network: [source.network_data.as_deref(), source.network_data_base64.as_deref()],
            has_user_secret: source.secret_ref.is_some(),
            has_network_secret: source.network_data_secret_ref.is_some(),
        }
    }
}

impl<'a> From<&'a CloudInitConfigDriveSource> for Sources<'a> {
    fn from(source: &'a CloudInitConfigDriveSource) -> Self {
        Self {
            user: [source.user_data.as_deref(), source.user_data_base64.as_deref()],
            network: [source.network_data.as_deref(), source.network_data_base64.as_deref()],
            has_user_secret: source.secret_ref.is_some(),
            has_network_secret: source.network_data_secret_ref.is_some(),
        }
    }
}

impl Sources<'_> {
    /// User data and network data. The network's may stand in the user's Secret, if it has none of its own.
    fn resolve(&self, files: &Files, network_files: &Files) -> Result<(Vec<u8>, Vec<u8>), SeedError> {
        let is_absent =
            (self.has_user_secret && files.is_empty()) || (self.has_network_secret && network_files.is_empty());
        if is_absent {
            return Err(SeedError::NoSecret);
        }
        let missing = |field, key| SeedError::NoKey { field, key };
        let user = match either(self.user, "userDataBase64")? {
            Some(user) => user,
            None => match seed::user_data_key(files) {
                Some(user) => user.to_vec(),
                None if self.has_user_secret => return Err(missing("secretRef", "userdata")),
                None => Vec::new(),
            },
        };
        let network = match either(self.network, "networkDataBase64")? {
            Some(network) => network,
            None => match seed::network_data_key(network_files) {
                Some(network) => network.to_vec(),
                None if self.has_network_secret => return Err(missing("networkDataSecretRef", "networkdata")),
                None => Vec::new(),
            },
        };
        Ok((user, network))
    }
}

fn either([text, encoded]: [Option<&str>; 2], field: &'static str) -> Result<Option<Vec<u8>>, SeedError> {
    match (text, encoded) {
        (Some(text), _) if !text.is_empty() => Ok(Some(text.as_bytes().to_vec())),
        (_, Some(encoded)) if !encoded.is_empty() => {
            STANDARD.decode(encoded).map(Some).map_err(|source| SeedError::Base64 { field, source })
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Files {
        all.iter().map(|(name, content)| ((*name).to_owned(), content.as_bytes().to_vec())).collect()
    }

    #[test]
    fn each_secret_has_its_part() {
        let both = Sources { user: [None; 2], network: [None; 2], has_user_secret: true, has_network_secret: true };
        let user = files(&[("userdata", "user"), ("networkdata", "not this one")]);
        let network = files(&[("networkData", "network"), ("userdata", "nor this one")]);
        assert_eq!(both.resolve(&user, &network).unwrap(), (b"user".to_vec(), b"network".to_vec()));
        let only_user = Sources { has_network_secret: false, ..both };
        assert_eq!(only_user.resolve(&user, &user).unwrap().1, b"not this one");
    }

    #[test]
    fn what_a_secret_lacks_is_named() {
        let both = Sources { user: [None; 2], network: [None; 2], has_user_secret: true, has_network_secret: true };
        let (good, other) = (files(&[("userdata", "user")]), files(&[("something", "else")]));
        let refusals = [
            (both.resolve(&other, &good), "secretRef"),
            (both.resolve(&good, &other), "networkDataSecretRef"),
            (both.resolve(&good, &Files::new()), "it refers to is missing"),
        ];
        for (refusal, part) in refusals {
            assert!(refusal.unwrap_err().to_string().contains(part), "{part}");
        }
    }
}
