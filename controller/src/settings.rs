//! The settings of the cluster as its KubeVirt object has them, kept up to date while the process runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use garboard_api::ClusterConfig;
use garboard_api::cluster::{Emulation, of_installation};
use garboard_api::metadata::installation_annotation;
use garboard_api::v1::{KubeVirt, KubeVirtCertificateRotateStrategy, non_empty};
use kube::Client;
use tokio::sync::{oneshot, watch as channel};

/// What counts where no KubeVirt object sets it: how the controller was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// What a guest does on a node without KVM, as long as there is no object at all.
    pub emulation: Emulation,
    /// When a node pulls the image of launcher pods: `Always`, `IfNotPresent` or `Never`.
    pub image_pull_policy: String,
}

/// The settings, and the object they are from. Every reconciliation and every admission request has a copy: it is a cheap one.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The object, if there is one.
    pub object: Option<Arc<KubeVirt>>,
    /// What admission, defaults and plans ask for.
    pub config: Arc<ClusterConfig>,
    image_pull_policy: String,
}

impl Settings {
    /// The settings that follow from the KubeVirt object that counts ([`of_installation`]). `defaults` is what counts without any.
    #[must_use]
    pub fn of<'a>(objects: impl IntoIterator<Item = &'a KubeVirt>, namespace: &str, defaults: &Defaults) -> Self {
        let object = of_installation(objects, namespace).cloned();
        let written = serde_json::to_value(&object).unwrap_or_default();
        let mut config = ClusterConfig::from_kubevirt(&written);
        if object.is_none() {
            config.emulation = defaults.emulation;
        }
        let spec = object.as_ref().map(|object| &object.spec);
        let of_launchers = spec.and_then(|spec| non_empty(&spec.configuration.as_ref()?.image_pull_policy));
        let written = of_launchers.or_else(|| non_empty(&spec?.image_pull_policy));
        let image_pull_policy = written.unwrap_or(&defaults.image_pull_policy).to_owned();
        Self { object: object.map(Arc::new), config: Arc::new(config), image_pull_policy }
    }

    /// How long certificates live.
    #[must_use]
    pub fn certificates(&self) -> Option<&KubeVirtCertificateRotateStrategy> {
        self.object.as_ref()?.spec.certificate_rotate_strategy.as_ref()
    }

    /// The image of libguestfs tools, if the object's annotation names one.
    #[must_use]
    pub fn guestfs_image(&self) -> Option<&str> {
        let annotations = self.object.as_ref()?.metadata.annotations.as_ref()?;
        annotations.get(installation_annotation::GUESTFS_IMAGE).map(String::as_str)
    }

    /// When a node pulls the image of launcher pods.
    #[must_use]
    pub fn image_pull_policy(&self) -> &str {
        &self.image_pull_policy
    }
}

/// Follows the KubeVirt objects of the installation's namespace until the process ends. `first` is called when the settings are
/// those of the cluster.
pub async fn follow(
    client: Client,
    namespace: &str,
    defaults: Defaults,
    settings: channel::Sender<Settings>,
    first: oneshot::Sender<()>,
) {
    let mut first = Some(first);
    let changed = |known: &BTreeMap<String, KubeVirt>| {
        publish(&settings, Settings::of(known.values(), namespace, &defaults));
        let _ = first.take().map(|first| first.send(()));
    };
    garboard_cluster::settings::follow(client, namespace, changed).await;
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
                "settings applied"
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
            "metadata": {"name": name, "namespace": "garboard", "creationTimestamp": created},
            "spec": {"configuration": {"developerConfiguration": {"useEmulation": emulation}}},
        }))
        .unwrap()
    }

    fn defaults(emulation: Emulation) -> Defaults {
        Defaults { emulation, image_pull_policy: "Never".to_owned() }
    }

    #[test]
    fn images_of_launchers_are_pulled_as_in_the_object_or_else_the_argument() {
        let mut object = object("a", "2026-01-01T00:00:00Z", false);
        let policy = |object: &KubeVirt| {
            Settings::of([object], "garboard", &defaults(Emulation::Refused)).image_pull_policy().to_owned()
        };
        assert_eq!(policy(&object), "Never");
        object.spec.image_pull_policy = Some("Always".to_owned());
        assert_eq!(policy(&object), "Always");
    }

    #[test]
    fn the_configuration_overrides_the_installation_in_when_images_are_pulled() {
        let policy = |spec: serde_json::Value| {
            let mut kubevirt = object("a", "2026-01-01T00:00:00Z", false);
            kubevirt.spec = serde_json::from_value(spec).unwrap();
            Settings::of([&kubevirt], "garboard", &defaults(Emulation::Refused)).image_pull_policy().to_owned()
        };
        let both = json!({"imagePullPolicy": "Never", "configuration": {"imagePullPolicy": "Always"}});
        assert_eq!(policy(both), "Always");
        assert_eq!(policy(json!({"imagePullPolicy": "Never", "configuration": {"imagePullPolicy": ""}})), "Never");
        assert_eq!(policy(json!({})), "Never", "as the controller was started");
    }

    #[test]
    fn the_image_of_libguestfs_tools_is_the_one_of_the_annotation() {
        let mut object = object("a", "2026-01-01T00:00:00Z", false);
        let image = |object: &KubeVirt| {
            let settings = Settings::of([object], "garboard", &defaults(Emulation::Refused));
            settings.guestfs_image().map(str::to_owned)
        };
        assert_eq!(image(&object), None);
        let named = ("garboard.dev/guestfs-image".to_owned(), "registry.example/guestfs:1".to_owned());
        object.metadata.annotations = Some([named].into());
        assert_eq!(image(&object).as_deref(), Some("registry.example/guestfs:1"));
    }

    #[test]
    fn the_oldest_object_counts_and_without_any_the_argument() {
        let (old, new) = (object("b", "2026-01-01T00:00:00Z", true), object("a", "2026-01-02T00:00:00Z", false));
        let of =
            |objects: &[&KubeVirt], emulation| Settings::of(objects.iter().copied(), "garboard", &defaults(emulation));
        let settings = of(&[&new, &old], Emulation::Refused);
        assert_eq!(settings.object.as_ref().unwrap().metadata.name.as_deref(), Some("b"));
        assert_eq!(settings.config.emulation, Emulation::Permitted);
        assert_eq!(of(&[&new], Emulation::Permitted).config.emulation, Emulation::Refused);
        assert_eq!(of(&[], Emulation::Permitted).config.emulation, Emulation::Permitted);
    }

    #[test]
    fn an_object_of_another_namespace_never_counts() {
        let (mut theirs, ours) =
            (object("a", "2026-01-01T00:00:00Z", true), object("b", "2026-01-02T00:00:00Z", false));
        theirs.metadata.namespace = Some("tenant".to_owned());
        let settings = Settings::of([&theirs, &ours], "garboard", &defaults(Emulation::Refused));
        assert_eq!(settings.object.unwrap().metadata.name.as_deref(), Some("b"));
        let alone = Settings::of([&theirs], "garboard", &defaults(Emulation::Refused));
        assert_eq!((alone.object, alone.config.emulation), (None, Emulation::Refused));
    }
}
