//! Whether vCPUs are interpreted where there is no KVM. The controller's argument counts only as long as there is no
//! KubeVirt object; then it is a field of that.

use garboard_api::ClusterConfig;
use garboard_api::cluster::{Emulation, seniority};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::emulates;
use crate::failure::Failure;
use crate::kubectl::Kubectl;

/// The field of a KubeVirt object.
const FIELD: &str = "spec.configuration.developerConfiguration.useEmulation";

/// What counts, and where it is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EmulationSetting {
    /// vCPUs are interpreted.
    pub(crate) allowed: bool,
    /// Namespace and name of the KubeVirt object that sets it; without one it is the controller's argument.
    pub(crate) object: Option<(String, String)>,
}

impl EmulationSetting {
    /// What counts, from the controller's deployments and the KubeVirt objects of the installation's namespace, of which the
    /// oldest decides. Pure.
    pub(crate) fn of(controllers: &[Value], objects: &[Value]) -> Self {
        let Some(object) = oldest(objects) else {
            return Self { allowed: controllers.iter().any(emulates), object: None };
        };
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        Self {
            allowed: ClusterConfig::from_kubevirt(object).emulation == Emulation::Permitted,
            object: Some((text("namespace"), text("name"))),
        }
    }

    /// What to type so that vCPUs are interpreted.
    pub(crate) fn command(&self) -> String {
        let Some((namespace, name)) = &self.object else {
            return "kubectl garboard cluster install --emulation".to_owned();
        };
        let patch = r#"{"spec":{"configuration":{"developerConfiguration":{"useEmulation":true}}}}"#;
        format!("kubectl -n {namespace} patch kubevirt {name} --type=merge -p '{patch}'")
    }

    /// Why the controller's argument cannot have the requested value.
    pub(super) fn problem(&self, wanted: Option<bool>) -> Option<String> {
        let (wanted, (namespace, name)) = (wanted?, self.object.as_ref()?);
        (wanted != self.allowed).then(|| {
            format!(
                "--emulation does not count here, because the KubeVirt object {name} in namespace {namespace} does: \
                 set its {FIELD} to {wanted}, and leave --emulation out"
            )
        })
    }
}

/// The KubeVirt object that counts.
pub(super) fn oldest(objects: &[Value]) -> Option<&Value> {
    objects.iter().min_by_key(|object| seniority(&metadata(object)))
}

fn metadata(object: &Value) -> ObjectMeta {
    ObjectMeta::deserialize(&object["metadata"]).unwrap_or_default()
}

/// The KubeVirt objects that may count, which are those in the namespace of Garboard; a cluster without it has none.
pub(crate) fn kubevirts(kubectl: &Kubectl) -> Result<Vec<Value>, Failure> {
    match kubectl.within_garboard().get(&["kubevirts.kubevirt.io"]) {
        Err(Failure::NotInstalled(_)) => Ok(Vec::new()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn controller(arguments: &[&str]) -> Value {
        json!({"spec": {"template": {"spec": {"containers": [{"args": arguments}]}}}})
    }

    fn kubevirt(name: &str, created: &str, emulation: &Value) -> Value {
        json!({
            "metadata": {"namespace": "garboard", "name": name, "creationTimestamp": created},
            "spec": {"configuration": {"developerConfiguration": {"useEmulation": emulation}}},
        })
    }

    #[test]
    fn the_oldest_object_counts_and_without_any_the_argument() {
        let (with, without) = (controller(&["--emulation"]), controller(&[]));
        let old = kubevirt("b", "2026-01-01T00:00:00Z", &json!(true));
        let new = kubevirt("a", "2026-01-02T00:00:00Z", &json!(null));
        let allowed = |controller: &Value, objects: &[Value]| {
            EmulationSetting::of(std::slice::from_ref(controller), objects).allowed
        };
        assert!(allowed(&with, &[]) && !allowed(&without, &[]));
        assert!(!allowed(&with, std::slice::from_ref(&new)));
        assert!(allowed(&without, &[new, old]));
        assert_eq!(EmulationSetting::of(&[], &[]), EmulationSetting::default());
    }

    #[test]
    fn an_argument_that_would_not_count_is_refused_and_the_field_named() {
        let by =
            |emulation: bool| EmulationSetting::of(&[], &[kubevirt("kv", "2026-01-01T00:00:00Z", &json!(emulation))]);
        let problem = by(false).problem(Some(true)).unwrap();
        assert!(problem.contains(&format!("kv in namespace garboard does: set its {FIELD} to true")), "{problem}");
        assert!(by(true).problem(Some(false)).unwrap().contains("to false"));
        assert_eq!(by(true).problem(Some(true)), None);
        assert_eq!(by(false).problem(None), None);
        assert_eq!(EmulationSetting::default().problem(Some(true)), None);
        assert!(by(false).command().starts_with("kubectl -n garboard patch kubevirt kv "));
        assert_eq!(EmulationSetting::default().command(), "kubectl garboard cluster install --emulation");
    }
}
