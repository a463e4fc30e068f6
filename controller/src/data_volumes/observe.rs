//! Claims and DataVolumes, out of their stores.

use std::collections::{BTreeMap, BTreeSet};

use garboard_api::v1::cdi::DataVolumeTemplateSpec;
use garboard_api::{DnsSubdomain, VirtualMachine};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Api, Client};
use serde_json::Value;

use super::owners::{self, Foreign};
use super::{DataVolumeProgress, ProgressByName, asks_for_claim, progress};
use crate::context::{ReconcileError, while_trying};
use crate::reconcilers::{Leader, Waiter};
use crate::stores::{Cached, DataVolumes, Kind, Machines, ObjectKey, VolumeClaims, is_absent};

/// Claims by their name; one that does not exist is not among them.
pub(crate) type Claims = BTreeMap<String, PersistentVolumeClaim>;

/// The claims of these names. One that the store does not have may have been made a moment ago, so it is asked for. Who
/// looks for one is looked at again when it changes.
pub(crate) async fn claims(
    leader: &Leader,
    namespace: &str,
    names: impl Iterator<Item = String>,
    waiter: &Waiter,
) -> Result<Claims, ReconcileError> {
    let api: Api<Cached<VolumeClaims>> = Api::namespaced(leader.context.client.clone(), namespace);
    let mut found = Claims::new();
    for name in names.filter(|name| may_exist(name)) {
        leader.waiting.waits(namespace, &name, waiter.clone());
        let claim = match leader.claims.named(namespace, &name) {
            Some(known) => Some(known.read()?),
            None => {
                let asked = api.get_opt(&name).await.map_err(while_trying("get a PersistentVolumeClaim"))?;
                asked.map(|claim| claim.read()).transpose()?
            }
        };
        found.extend(claim.map(|claim| (name, claim)));
    }
    Ok(found)
}

/// How far the DataVolumes of these names are. A claim is asked for only where it makes a difference. Who waits for one is
/// looked at again when it changes.
pub(crate) async fn data_volumes(
    leader: &Leader,
    namespace: &str,
    names: BTreeSet<&str>,
    waiter: &Waiter,
) -> Result<ProgressByName, ReconcileError> {
    Ok(look(leader, namespace, names, waiter).await?.progress())
}

/// The same of a machine, but for those that it brings along by a template and that [are not its own](super::owners): why it may not use
/// these, of the first of them.
pub(crate) async fn of_machine(
    leader: &Leader,
    vm: &VirtualMachine,
    names: BTreeSet<&str>,
    waiter: &Waiter,
) -> Result<(ProgressByName, Option<Foreign>), ReconcileError> {
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    let found = look(leader, namespace, names, waiter).await?;
    let mut foreign = BTreeMap::new();
    for (place, template) in vm.spec.data_volume_templates.iter().enumerate() {
        let Some(name) = template.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()) else { continue };
        let Some((kind, metadata)) = found.object(name) else { continue };
        let is_there = |owner: &OwnerReference| match owner.kind.as_str() {
            Machines::KIND => {
                let machine = leader.machines.named(namespace, &owner.name);
                machine.is_some_and(|machine| owners::stays(&machine, owner))
            }
            // A claim is taken only where it was asked for the DataVolume in vain. In a cluster that has none nothing removes it.
            _ => kind == DataVolumes::KIND || !found.is_served,
        };
        if let Some(why) = owners::foreign(vm, place, (kind, &metadata), is_there) {
            foreign.insert(name, why);
        }
    }
    let mut progress = found.progress();
    progress.retain(|name, _| !foreign.contains_key(name.as_str()));
    Ok((progress, foreign.into_values().min()))
}

/// What there is of some names.
struct Found {
    /// The DataVolumes.
    volumes: BTreeMap<String, Option<Value>>,
    /// The claims that count beside them, or in their place.
    claims: Claims,
    /// Whether DataVolumes are watched.
    is_served: bool,
}

impl Found {
    fn progress(&self) -> ProgressByName {
        let of = |name: &str, volume: Option<&Value>| {
            let found = progress(volume, self.claims.get(name));
            // Without an importer no DataVolume can be made beside a claim.
            if found == DataVolumeProgress::Claimed && !self.is_served { DataVolumeProgress::Done } else { found }
        };
        self.volumes.iter().map(|(name, volume)| (name.clone(), of(name, volume.as_ref()))).collect()
    }

    /// The DataVolume, or else the claim, with its kind: who controls it says whose it is.
    fn object(&self, name: &str) -> Option<(&'static str, ObjectMeta)> {
        if let Some(volume) = self.volumes.get(name).and_then(Option::as_ref) {
            return Some((DataVolumes::KIND, serde_json::from_value(volume["metadata"].clone()).unwrap_or_default()));
        }
        self.claims.get(name).map(|claim| (VolumeClaims::KIND, claim.metadata.clone()))
    }
}

async fn look(
    leader: &Leader,
    namespace: &str,
    names: BTreeSet<&str>,
    waiter: &Waiter,
) -> Result<Found, ReconcileError> {
    let served = leader.data_volumes.borrow().clone();
    let mut volumes = BTreeMap::new();
    for name in names {
        leader.waiting.waits(namespace, name, waiter.clone());
        let known = served.as_ref().and_then(|served| served.named(namespace, name));
        let volume = match known {
            Some(volume) => Some(volume.raw()),
            None if served.is_some() && !is_of_data_volume(leader, namespace, name) => None,
            // DataVolumes are not watched yet, or its claim was delivered first.
            None => asked(&leader.context.client, namespace, name).await?,
        };
        volumes.insert(name.to_owned(), volume);
    }
    let asked = volumes.iter().filter(|(_, volume)| asks_for_claim(volume.as_ref()));
    let asked: Vec<String> = asked.map(|(name, _)| name.clone()).collect();
    let claims = claims(leader, namespace, asked.into_iter(), waiter).await?;
    Ok(Found { volumes, claims, is_served: served.is_some() })
}

/// Whether the claim of this name is known, and controlled by a DataVolume.
fn is_of_data_volume(leader: &Leader, namespace: &str, name: &str) -> bool {
    let claim = leader.claims.named(namespace, name);
    claim.is_some_and(|claim| claim.controller().is_some_and(|owner| owner.kind == DataVolumes::KIND))
}

/// Of the DataVolumes that a machine brings along and that are still to be made: the claim that each copies, if it does not exist. A
/// question that is not answered is no reason to say so.
pub(crate) async fn absent_sources(
    leader: &Leader,
    vm: &VirtualMachine,
    progress: &ProgressByName,
) -> BTreeMap<String, String> {
    let mut absent = BTreeMap::new();
    for template in &vm.spec.data_volume_templates {
        let name = template.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default();
        let is_made = progress.get(name) != Some(&DataVolumeProgress::Missing);
        let Some(source) = source_claim(vm, template).filter(|_| !is_made) else { continue };
        let api: Api<Cached<VolumeClaims>> = Api::namespaced(leader.context.client.clone(), &source.namespace);
        let is_known = leader.claims.named(&source.namespace, &source.name).is_some();
        if !is_known && matches!(api.get_opt(&source.name).await, Ok(None)) {
            absent.insert(name.to_owned(), format!("{}/{}", source.namespace, source.name));
        }
    }
    absent
}

/// The claim that a DataVolume copies, if both of its names can exist.
fn source_claim(vm: &VirtualMachine, template: &DataVolumeTemplateSpec) -> Option<ObjectKey> {
    let source = template.spec.source.as_ref()?.pvc.as_ref()?;
    let own = vm.metadata.namespace.as_deref().unwrap_or_default();
    let namespace = if source.namespace.is_empty() { own } else { source.namespace.as_str() };
    let can_exist = may_exist(namespace) && may_exist(&source.name);
    can_exist.then(|| ObjectKey::new(namespace, &source.name))
}

/// Of the API server: the watch may not have been opened yet since the cluster was given an importer.
async fn asked(client: &Client, namespace: &str, name: &str) -> Result<Option<Value>, ReconcileError> {
    if !may_exist(name) {
        return Ok(None);
    }
    let api: Api<Cached<DataVolumes>> = Api::namespaced(client.clone(), namespace);
    match api.get(name).await {
        Ok(volume) => Ok(Some(volume.raw())),
        Err(kube::Error::Api(status)) if is_absent(&status) => Ok(None),
        Err(error) => Err(while_trying("get a DataVolume")(error)),
    }
}

/// Whether anything can have this name: what cannot be asked for does not exist, and is reported so.
fn may_exist(name: &str) -> bool {
    name.parse::<DnsSubdomain>().is_ok()
}
