//! Claims and DataVolumes, out of their stores.

use std::collections::{BTreeMap, BTreeSet};

use garboard_api::v1::cdi::DataVolumeTemplateSpec;
use garboard_api::{DnsSubdomain, VirtualMachine};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client};
use serde_json::Value;

use super::{DataVolumeProgress, ProgressByName, asks_for_claim, is_absent, progress};
use crate::context::{ReconcileError, while_trying};
use crate::reconcilers::{Leader, Waiter};
use crate::stores::{Cached, DataVolumes, ObjectKey, VolumeClaims};

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
    waiter: Waiter,
) -> Result<ProgressByName, ReconcileError> {
    let served = leader.data_volumes.borrow().clone();
    let mut volumes = BTreeMap::new();
    for name in names {
        leader.waiting.waits(namespace, name, waiter.clone());
        let volume = match &served {
            Some(served) => served.named(namespace, name).map(|volume| volume.raw()),
            None => asked(&leader.context.client, namespace, name).await?,
        };
        volumes.insert(name, volume);
    }
    let asked = volumes.iter().filter(|(_, volume)| asks_for_claim(volume.as_ref()));
    let asked = asked.map(|(name, _)| (*name).to_owned());
    let claims = claims(leader, namespace, asked, &waiter).await?;
    let found = |name: &str, volume: Option<Value>| {
        let found = progress(volume.as_ref(), claims.get(name));
        // Without an importer no DataVolume can be made beside a claim.
        if found == DataVolumeProgress::Claimed && served.is_none() { DataVolumeProgress::Done } else { found }
    };
    Ok(volumes.into_iter().map(|(name, volume)| (name.to_owned(), found(name, volume))).collect())
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
