//! What the kubelet brings as files: ConfigMaps, Secrets, fields of the pod, tokens.

use std::collections::BTreeSet;

use garboard_api::VirtualMachineInstance;
use garboard_api::v1::{
    AccessCredentialSecretSource, ConfigMapVolumeSource, DownwardAPIVolumeSource, SecretVolumeSource, SysprepSource,
    Volume as VmiVolume, VolumeSource,
};
use garboard_protocol::pod::{NETWORK_DATA_DIRECTORY, PASSWORDS_DIRECTORY, SSH_KEYS_DIRECTORY};
use garboard_protocol::volumes::{NETWORK_DATA_PREFIX, PASSWORDS_PREFIX, SSH_KEYS_PREFIX};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::Volume;

use super::contribution::Contribution;

/// How long a token of a service account is good, seconds: what Kubernetes gives a container that asks for nothing, and
/// what it makes last for a year for readers that do not look again, as a guest does not.
const TOKEN_SECONDS: i64 = 3607;
/// The ConfigMap with the cluster's certificates that is in every namespace.
const ROOT_CERTIFICATES: &str = "kube-root-ca.crt";

/// The pod's volume behind a volume that is files; nothing if it is something else.
pub(super) fn of(volume: &VmiVolume) -> Option<Volume> {
    let found = match volume.source()? {
        VolumeSource::ConfigMap(source) => config_map(source),
        VolumeSource::Secret(source) => secret(source),
        VolumeSource::Sysprep(source) => sysprep(source)?,
        VolumeSource::CloudInitNoCloud(source) => secret_named(&source.secret_ref.as_ref()?.name),
        VolumeSource::CloudInitConfigDrive(source) => secret_named(&source.secret_ref.as_ref()?.name),
        // CHAP's user and password.
        VolumeSource::Iscsi(source) => secret_named(&source.secret_ref.as_ref()?.name),
        VolumeSource::ServiceAccount(_) => service_account(),
        VolumeSource::DownwardApi(source) => downward(source),
        VolumeSource::ContainerDisk(_)
        | VolumeSource::ContainerPath(_)
        | VolumeSource::DataVolume(_)
        | VolumeSource::DownwardMetrics(_)
        | VolumeSource::EmptyDisk(_)
        | VolumeSource::Ephemeral(_)
        | VolumeSource::HostDisk(_)
        | VolumeSource::MemoryDump(_)
        | VolumeSource::PersistentVolumeClaim(_) => return None,
    };
    Some(Volume { name: volume.name.clone(), ..found })
}

fn config_map(source: &ConfigMapVolumeSource) -> Volume {
    let name = source.name.clone().unwrap_or_default();
    let map = core::ConfigMapVolumeSource { name, optional: source.optional, ..Default::default() };
    Volume { config_map: Some(map), ..Volume::default() }
}

fn secret(source: &SecretVolumeSource) -> Volume {
    let secret = core::SecretVolumeSource {
        secret_name: source.secret_name.clone(),
        optional: source.optional,
        ..Default::default()
    };
    Volume { secret: Some(secret), ..Volume::default() }
}

fn secret_named(name: &str) -> Volume {
    let secret = core::SecretVolumeSource { secret_name: Some(name.to_owned()), ..Default::default() };
    Volume { secret: Some(secret), ..Volume::default() }
}

fn sysprep(source: &SysprepSource) -> Option<Volume> {
    if let Some(map) = &source.config_map {
        let map = core::ConfigMapVolumeSource { name: map.name.clone(), ..Default::default() };
        return Some(Volume { config_map: Some(map), ..Volume::default() });
    }
    source.secret.as_ref().map(|secret| secret_named(&secret.name))
}

/// Token, certificates and namespace, as a container has them that is given its service account. Only the sidecar has
/// them: the pod mounts none.
fn service_account() -> Volume {
    let token = core::ServiceAccountTokenProjection {
        path: "token".to_owned(),
        expiration_seconds: Some(TOKEN_SECONDS),
        audience: None,
    };
    let certificates = core::ConfigMapProjection {
        name: ROOT_CERTIFICATES.to_owned(),
        items: Some(vec![core::KeyToPath { key: "ca.crt".to_owned(), path: "ca.crt".to_owned(), mode: None }]),
        optional: None,
    };
    let namespace = core::DownwardAPIVolumeFile {
        path: "namespace".to_owned(),
        field_ref: Some(core::ObjectFieldSelector { field_path: "metadata.namespace".to_owned(), api_version: None }),
        ..Default::default()
    };
    let namespace = core::DownwardAPIProjection { items: Some(vec![namespace]) };
    let sources = vec![
        core::VolumeProjection { service_account_token: Some(token), ..Default::default() },
        core::VolumeProjection { config_map: Some(certificates), ..Default::default() },
        core::VolumeProjection { downward_api: Some(namespace), ..Default::default() },
    ];
    let projected = core::ProjectedVolumeSource { sources: Some(sources), default_mode: None };
    Volume { projected: Some(projected), ..Volume::default() }
}

fn downward(source: &DownwardAPIVolumeSource) -> Volume {
    let downward = core::DownwardAPIVolumeSource { items: Some(source.fields.clone()), ..Default::default() };
    Volume { downward_api: Some(downward), ..Volume::default() }
}

/// The account whose token the guest is given.
pub(super) fn account(vmi: &VirtualMachineInstance) -> Option<&str> {
    vmi.spec.volumes.iter().find_map(|volume| volume.service_account.as_ref()?.service_account_name.as_deref())
}

/// The Secret of a cloud-init volume's network, beside that of its user: both may have any key.
pub(super) fn network_data(index: usize, volume: &VmiVolume) -> Option<Contribution> {
    let no_cloud = volume.cloud_init_no_cloud.as_ref().and_then(|source| source.network_data_secret_ref.as_ref());
    let config_drive = volume.cloud_init_config_drive.as_ref();
    let config_drive = config_drive.and_then(|source| source.network_data_secret_ref.as_ref());
    let reference = no_cloud.or(config_drive)?;
    let source = Volume { name: format!("garboard-network-data-{index}"), ..secret_named(&reference.name) };
    let path = format!("{NETWORK_DATA_DIRECTORY}/{}", volume.name);
    Some(Contribution::directory(source, &format!("{NETWORK_DATA_PREFIX}{}", volume.name), &path))
}

/// The Secrets with keys and passwords, each once.
pub(super) fn credentials(vmi: &VirtualMachineInstance) -> impl Iterator<Item = Contribution> {
    let all = &vmi.spec.access_credentials;
    let keys = all.iter().filter_map(|credential| credential.ssh_public_key.as_ref()?.source.secret.as_ref());
    let passwords = all.iter().filter_map(|credential| credential.user_password.as_ref()?.source.secret.as_ref());
    let kept = |volume: &'static str, prefix: &'static str, directory: &'static str| {
        move |(index, secret): (usize, &str)| {
            let source = Volume { name: format!("{volume}-{index}"), ..secret_named(secret) };
            Contribution::directory(source, &format!("{prefix}{secret}"), &format!("{directory}/{secret}"))
        }
    };
    let keys = names(keys).map(kept("garboard-ssh-keys", SSH_KEYS_PREFIX, SSH_KEYS_DIRECTORY));
    keys.chain(names(passwords).map(kept("garboard-passwords", PASSWORDS_PREFIX, PASSWORDS_DIRECTORY)))
}

/// Their names, each once and with its number.
fn names<'a>(
    secrets: impl Iterator<Item = &'a AccessCredentialSecretSource>,
) -> impl Iterator<Item = (usize, &'a str)> {
    let names: BTreeSet<&str> = secrets.map(|secret| secret.secret_name.as_str()).collect();
    names.into_iter().enumerate()
}
