//! The settings of the cluster as its KubeVirt object has them, kept up to date while the process runs.

use std::collections::BTreeMap;

use futures::StreamExt;
use garboard_api::ClusterConfig;
use garboard_api::cluster::{Emulation, seniority};
use garboard_api::v1::{KubeVirt, KubeVirtCertificateRotateStrategy, said};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client};
use tokio::sync::{oneshot, watch as channel};

/// The settings, and the object they are from.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The object, if there is one.
    pub object: Option<KubeVirt>,
    /// What admission, defaults and plans ask for.
    pub config: ClusterConfig,
}

impl Settings {
    /// The settings that follow from all KubeVirt objects: the oldest counts. `emulation` is what counts without any.
    #[must_use]
    pub fn of<'a>(objects: impl IntoIterator<Item = &'a KubeVirt>, emulation: Emulation) -> Self {
        let object = objects.into_iter().min_by_key(|object| seniority(&object.metadata)).cloned();
        let written = serde_json::to_value(&object).unwrap_or_default();
        let mut config = ClusterConfig::from_kubevirt(&written);
        if object.is_none() {
            config.emulation = emulation;
        }
        Self { object, config }
    }

    /// How long certificates live.
    #[must_use]
    pub fn certificates(&self) -> Option<&KubeVirtCertificateRotateStrategy> {
        self.object.as_ref()?.spec.certificate_rotate_strategy.as_ref()
    }

    /// When a node pulls the image of launcher pods.
    #[must_use]
    pub fn image_pull_policy(&self) -> &str {
        let written = self.object.as_ref().and_then(|object| said(&object.spec.image_pull_policy));
        written.unwrap_or("IfNotPresent")
    }
}

/// Watches the KubeVirt objects until the process ends. `first` hears when the settings are those of the cluster.
pub async fn follow(
    client: Client,
    emulation: Emulation,
    settings: channel::Sender<Settings>,
    first: oneshot::Sender<()>,
) {
    let objects: Api<KubeVirt> = Api::all(client);
    let mut events = std::pin::pin!(watch(objects, watcher::Config::default()).default_backoff());
    let mut known: BTreeMap<String, KubeVirt> = BTreeMap::new();
    let mut listed: BTreeMap<String, KubeVirt> = BTreeMap::new();
    let mut first = Some(first);
    let uid = |object: &KubeVirt| object.metadata.uid.clone().unwrap_or_default();
    while let Some(event) = events.next().await {
        let is_complete = matches!(event, Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)));
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => drop(listed.insert(uid(&object), object)),
            Ok(Event::InitDone) => known = std::mem::take(&mut listed),
            Ok(Event::Apply(object)) => drop(known.insert(uid(&object), object)),
            Ok(Event::Delete(object)) => drop(known.remove(&uid(&object))),
            Err(error) => tracing::warn!(%error, "the settings cannot be read; those that are known count"),
        }
        if is_complete {
            publish(&settings, Settings::of(known.values(), emulation));
            let _ = first.take().map(|first| first.send(()));
        }
    }
}

/// A status that changes is no change of settings.
fn publish(sender: &channel::Sender<Settings>, new: Settings) {
    sender.send_if_modified(|old| {
        let spec = |settings: &Settings| settings.object.as_ref().map(|object| object.spec.clone());
        let is_new = spec(old) != spec(&new) || old.config != new.config;
        if is_new {
            tracing::info!(
                object = new.object.as_ref().and_then(|object| object.metadata.name.as_deref()),
                emulation = ?new.config.emulation,
                "the settings of the cluster count"
            );
        }
        *old = new;
        is_new
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, created: &str, emulation: bool) -> KubeVirt {
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"configuration": {"developerConfiguration": {"useEmulation": emulation}}},
        }))
        .unwrap()
    }

    #[test]
    fn the_oldest_object_counts_and_without_any_the_argument() {
        let (old, new) = (object("b", "2026-01-01T00:00:00Z", true), object("a", "2026-01-02T00:00:00Z", false));
        let settings = Settings::of([&new, &old], Emulation::Refused);
        assert_eq!(settings.object.unwrap().metadata.name.as_deref(), Some("b"));
        assert_eq!(settings.config.emulation, Emulation::Permitted);
        assert_eq!(Settings::of([&new], Emulation::Permitted).config.emulation, Emulation::Refused);
        assert_eq!(Settings::of([], Emulation::Permitted).config.emulation, Emulation::Permitted);
    }
}
