//! The claim for what a machine keeps beside its disks: the variables of its firmware (`efi.persistent`). Pure.
//!
//! It has KubeVirt's name and label, belongs to the VirtualMachine and goes with it; an instance without an owner has its
//! own. A claim of that name that is there already is used, so that an administrator may choose the volume.

use std::collections::BTreeMap;

use garboard_api::metadata::label;
use garboard_api::{ClusterConfig, VirtualMachineInstance};
use garboard_protocol::agent::VolumePlace;
use garboard_protocol::pod::STATE_DIRECTORY;
use garboard_protocol::volumes::FIRMWARE_VARS_VOLUME;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimVolumeSource, Volume,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::PodRefusal;
use super::contribution::{Contribution, Writable};

/// Room for a few such files; the variables of one firmware are half a MiB.
const SIZE: &str = "10Mi";
const NAME: &str = "garboard-state";

fn claim_name(vmi: &VirtualMachineInstance) -> Option<String> {
    vmi.spec.state_claim(vmi.metadata.name.as_deref()?)
}

/// The claim that has to be made before the pod, if one has to.
///
/// # Errors
/// [`PodRefusal::ClaimLeaves`] while that of an earlier machine of this name is still there.
pub fn missing(
    vmi: &VirtualMachineInstance,
    claims: &BTreeMap<String, PersistentVolumeClaim>,
    config: &ClusterConfig,
) -> Result<Option<PersistentVolumeClaim>, PodRefusal> {
    let Some(name) = claim_name(vmi) else { return Ok(None) };
    match claims.get(&name) {
        Some(claim) if leaves(claim, vmi) => Err(PodRefusal::ClaimLeaves { claim: name }),
        Some(_) => Ok(None),
        None => Ok(Some(new(name, vmi, config))),
    }
}

/// Whether it is being deleted, or will be, because its owner is gone.
fn leaves(claim: &PersistentVolumeClaim, vmi: &VirtualMachineInstance) -> bool {
    let ours = owner(vmi).map(|owner| owner.uid);
    let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
    let is_anothers = !owners.is_empty() && !owners.iter().any(|owner| Some(&owner.uid) == ours.as_ref());
    claim.metadata.deletion_timestamp.is_some() || is_anothers
}

fn new(name: String, vmi: &VirtualMachineInstance, config: &ClusterConfig) -> PersistentVolumeClaim {
    let machine = super::metadata::hostname(vmi).unwrap_or_default();
    let size = BTreeMap::from([("storage".to_owned(), Quantity(SIZE.to_owned()))]);
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: vmi.metadata.namespace.clone(),
            labels: Some(BTreeMap::from([(label::PERSISTENT_STATE_FOR.to_owned(), machine)])),
            owner_references: owner(vmi).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            resources: Some(VolumeResourceRequirements { requests: Some(size), limits: None }),
            storage_class_name: config.state_storage_class.clone(),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// The machine, or an instance that has none.
fn owner(vmi: &VirtualMachineInstance) -> Option<OwnerReference> {
    let controller = vmi.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let itself = || {
        Some(OwnerReference {
            api_version: garboard_api::v1::API_VERSION.to_owned(),
            kind: "VirtualMachineInstance".to_owned(),
            name: vmi.metadata.name.clone()?,
            uid: vmi.metadata.uid.clone()?,
            ..OwnerReference::default()
        })
    };
    // It blocks nothing: a user who may make machines need not be allowed to keep their owners.
    let plain =
        |owner: &OwnerReference| OwnerReference { block_owner_deletion: None, controller: None, ..owner.clone() };
    controller.map(plain).or_else(itself)
}

/// The claim, where the supervisor finds it.
pub(super) fn volume(vmi: &VirtualMachineInstance) -> Option<Contribution> {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claim_name(vmi)?, read_only: None };
    let volume = Volume { name: NAME.to_owned(), persistent_volume_claim: Some(source), ..Volume::default() };
    let place = VolumePlace::Directory { path: STATE_DIRECTORY.to_owned() };
    Some(Contribution::mounted(volume, STATE_DIRECTORY, Writable::Yes).found_as(FIRMWARE_VARS_VOLUME, place))
}
