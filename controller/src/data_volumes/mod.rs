//! DataVolumes: claims that the Containerized Data Importer fills. Garboard makes those that a machine brings along, and
//! starts nothing on a claim that is still being filled. Pure, but for `observe` and
//! `make`.
//!
//! The importer is another project's, and a cluster may have none: then a claim of the DataVolume's name takes its place, as
//! on a bare host. The importer asks whether the account that makes a DataVolume may read its source, and takes the right to
//! make pods in a namespace for the right to read its claims. The controller makes pods everywhere, so DataVolumes are made as
//! another account (`make::make`), which may read nothing: no machine clones what is in another namespace.
//!
//! They are watched where the cluster has them, and what waits for one is looked at when it changes; a claim, which may come
//! instead of one, is asked for every [`ASK_AGAIN`], and less and less often.

pub(crate) mod make;
pub(crate) mod observe;
mod owners;

use std::collections::BTreeMap;
use std::time::Duration;

use garboard_api::VirtualMachine;
use garboard_api::conditions::{ConditionStatus, DataVolumeConditionType, Reason};
use garboard_api::metadata::{label, volume_annotation};
use garboard_api::v1::VirtualMachineInstanceSpec;
use garboard_api::v1::cdi::DataVolumeTemplateSpec;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::core::{DynamicObject, ObjectMeta, TypeMeta};
use kube::discovery::ApiResource;
pub use owners::Foreign;
use serde_json::{Value, json};

/// Until a claim is asked for again.
pub const ASK_AGAIN: Duration = Duration::from_secs(2);

/// The longest pause between two questions for a claim that an object waits for.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The message where DataVolumes cannot be made.
pub const NO_IMPORTER: &str = "this cluster has no Containerized Data Importer, which fills DataVolumes; install it, or make \
                               a PersistentVolumeClaim of the same name";

const GROUP: &str = "cdi.kubevirt.io";
const VERSION: &str = "v1beta1";
const KIND: &str = "DataVolume";

/// How far a DataVolume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataVolumeProgress {
    /// There is neither a DataVolume nor a claim of the name.
    Missing,
    /// The claim may be used.
    Done,
    /// There is a claim of the name, and no DataVolume: it may be used as it is.
    Claimed,
    /// Not yet; the phase that the importer reports.
    UnderWay(String),
    /// The claim waits for a pod that uses it, and only then is it filled.
    WaitsForConsumer,
    /// It cannot be filled, and why. The importer tries again.
    Failed(String),
    /// The importer has given it up, and why.
    GivenUp(String),
}

/// By the DataVolume's name, which is its claim's.
pub type ProgressByName = BTreeMap<String, DataVolumeProgress>;

/// The DataVolumes that a machine names as its volumes.
pub fn names(spec: &VirtualMachineInstanceSpec) -> impl Iterator<Item = &str> {
    spec.volumes.iter().filter_map(|volume| volume.data_volume.as_ref()).map(|source| source.name.as_str())
}

/// What keeps a machine from its start, with how far it is: first what does not become better by waiting.
#[must_use]
pub fn obstacle(data_volumes: &ProgressByName) -> Option<(&str, &DataVolumeProgress)> {
    let rank = |progress: &DataVolumeProgress| match progress {
        DataVolumeProgress::Missing => Some(0),
        DataVolumeProgress::GivenUp(_) => Some(1),
        DataVolumeProgress::Failed(_) => Some(2),
        DataVolumeProgress::UnderWay(_) => Some(3),
        DataVolumeProgress::WaitsForConsumer => Some(4),
        DataVolumeProgress::Done | DataVolumeProgress::Claimed => None,
    };
    let keeping = data_volumes.iter().filter_map(|(name, progress)| Some((rank(progress)?, name.as_str(), progress)));
    keeping.min_by_key(|(rank, name, _)| (*rank, *name)).map(|(_, name, progress)| (name, progress))
}

/// The message about what keeps a machine from its start.
#[must_use]
pub fn message(name: &str, progress: &DataVolumeProgress) -> String {
    match progress {
        DataVolumeProgress::Missing => format!("the DataVolume {name} does not exist"),
        DataVolumeProgress::Done => format!("the DataVolume {name} is filled"),
        DataVolumeProgress::Claimed => format!("the PersistentVolumeClaim {name} takes the place of a DataVolume"),
        DataVolumeProgress::UnderWay(phase) => format!("the DataVolume {name} is being filled: {phase}"),
        DataVolumeProgress::WaitsForConsumer => format!(
            "the DataVolume {name} waits for a first consumer, which a machine cannot be before it is filled; annotate it \
             with cdi.kubevirt.io/storage.bind.immediate.requested"
        ),
        DataVolumeProgress::Failed(why) => format!("the DataVolume {name} cannot be filled: {why}"),
        DataVolumeProgress::GivenUp(why) => {
            format!("the DataVolume {name} cannot be filled, and its importer has given it up: {why}")
        }
    }
}

/// The kind at the API server.
#[must_use]
pub fn resource() -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: KIND.to_owned(),
        plural: "datavolumes".to_owned(),
    }
}

/// The DataVolume of a template, which goes with its machine. That of a pool's machine has the name of the pool, for it may be left behind.
#[must_use]
pub fn of_template(vm: &VirtualMachine, template: &DataVolumeTemplateSpec) -> DynamicObject {
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut labels = metadata.labels.unwrap_or_default();
    labels.extend(vm.metadata.uid.clone().map(|uid| (label::CREATED_BY.to_owned(), uid)));
    let mut annotations = metadata.annotations;
    if let Some(pool) = owners::pool_of(vm) {
        annotations.get_or_insert_default().insert(volume_annotation::POOL.to_owned(), pool.to_owned());
    }
    DynamicObject {
        types: Some(TypeMeta { api_version: format!("{GROUP}/{VERSION}"), kind: KIND.to_owned() }),
        metadata: ObjectMeta {
            name: metadata.name,
            namespace: vm.metadata.namespace.clone(),
            labels: Some(labels),
            annotations,
            owner_references: garboard_api::vmi_of(vm).metadata.owner_references,
            ..ObjectMeta::default()
        },
        data: json!({ "spec": template.spec }),
    }
}

/// Whether the importer refuses a copy because what it is of may not be read: it has no reason or code of its own for that, but this text
/// (`authorize_utils.go` of its API). A quota or a policy refuses with another.
pub(crate) fn may_not_read(refusal: &str) -> bool {
    refusal.contains("has insufficient permissions in clone source namespace")
}

/// Whether it depends on the claim how far one is.
fn asks_for_claim(volume: Option<&Value>) -> bool {
    let phase = volume.map(|volume| volume["status"]["phase"].as_str());
    matches!(phase, None | Some(Some("WaitForFirstConsumer" | "PendingPopulation")))
}

/// How far one is; a claim without a DataVolume was filled by another program, or its DataVolume was deleted.
fn progress(volume: Option<&Value>, claim: Option<&PersistentVolumeClaim>) -> DataVolumeProgress {
    let Some(volume) = volume else {
        return if claim.is_some() { DataVolumeProgress::Claimed } else { DataVolumeProgress::Missing };
    };
    let phase = volume["status"]["phase"].as_str().unwrap_or("Pending");
    // With a volume populator the claim is bound when it is filled, so that its pod may wait for it.
    let is_populated = claim.and_then(|claim| claim.spec.as_ref()?.data_source_ref.as_ref()).is_some();
    match phase {
        "Succeeded" => DataVolumeProgress::Done,
        "Failed" => DataVolumeProgress::GivenUp(import_error(volume).unwrap_or_else(|| phase.to_owned())),
        "WaitForFirstConsumer" | "PendingPopulation" if is_populated => DataVolumeProgress::Done,
        "WaitForFirstConsumer" => DataVolumeProgress::WaitsForConsumer,
        other => import_error(volume)
            .map_or_else(|| DataVolumeProgress::UnderWay(other.to_owned()), DataVolumeProgress::Failed),
    }
}

/// The error of its importer, in the condition `Running`.
fn import_error(volume: &Value) -> Option<String> {
    let conditions = volume["status"]["conditions"].as_array()?;
    let (running, not) = (DataVolumeConditionType::Running.name(), ConditionStatus::False.name());
    let running = conditions.iter().find(|each| each["type"] == running && each["status"] == not)?;
    let reason = running["reason"].as_str().and_then(Reason::from_name);
    let is_error = matches!(reason, Some(Reason::Error | Reason::ImagePullFailed));
    let text = running["message"].as_str().filter(|text| !text.is_empty()).or(running["reason"].as_str());
    text.filter(|_| is_error).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(phase: &str, running: Value) -> Value {
        json!({"status": {"phase": phase, "conditions": [running]}})
    }

    #[test]
    fn a_claim_is_used_when_its_importer_is_done_or_there_is_none() {
        let plain = PersistentVolumeClaim::default();
        let populated: PersistentVolumeClaim =
            serde_json::from_value(json!({"spec": {"dataSourceRef": {"kind": "VolumeImportSource", "name": "v"}}}))
                .unwrap();
        let error = json!({"type": "Running", "status": "False", "reason": "Error", "message": "404 of the server"});
        let calm = json!({"type": "Running", "status": "True", "reason": "Pod is running"});
        assert_eq!(progress(None, None), DataVolumeProgress::Missing);
        assert_eq!(progress(None, Some(&plain)), DataVolumeProgress::Claimed);
        for (phase, running, claim, wanted) in [
            ("Succeeded", &calm, &plain, DataVolumeProgress::Done),
            ("ImportInProgress", &calm, &plain, DataVolumeProgress::UnderWay("ImportInProgress".to_owned())),
            ("ImportInProgress", &error, &plain, DataVolumeProgress::Failed("404 of the server".to_owned())),
            ("Failed", &calm, &plain, DataVolumeProgress::GivenUp("Failed".to_owned())),
            ("Failed", &error, &plain, DataVolumeProgress::GivenUp("404 of the server".to_owned())),
            ("WaitForFirstConsumer", &calm, &plain, DataVolumeProgress::WaitsForConsumer),
            ("PendingPopulation", &calm, &populated, DataVolumeProgress::Done),
        ] {
            assert_eq!(progress(Some(&of(phase, running.clone())), Some(claim)), wanted, "{phase}");
        }
        assert_eq!(progress(Some(&json!({})), None), DataVolumeProgress::UnderWay("Pending".to_owned()));
    }

    #[test]
    fn a_copy_of_what_may_not_be_read_is_refused_in_the_importers_text() {
        let webhook = "admission webhook \"datavolume-mutate.cdi.kubevirt.io\" denied the request: User \
                       system:serviceaccount:garboard:garboard-datavolumes has insufficient permissions in clone source namespace images";
        let quota = "datavolumes.cdi.kubevirt.io \"root\" is forbidden: exceeded quota: volumes";
        assert!(may_not_read(webhook) && !may_not_read(quota));
    }

    #[test]
    fn a_template_becomes_a_data_volume_of_the_machine() {
        let vm: VirtualMachine = serde_json::from_value(json!({
            "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
            "spec": {"template": {"spec": {"domain": {}}}, "dataVolumeTemplates": [{
                "metadata": {"name": "root", "labels": {"a": "b"}, "annotations": {"c": "d"}},
                "spec": {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}}}]},
        }))
        .unwrap();
        let made = serde_json::to_value(of_template(&vm, &vm.spec.data_volume_templates[0])).unwrap();
        assert_eq!(made["metadata"]["labels"], json!({"a": "b", "kubevirt.io/created-by": "u"}));
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(made["spec"]["storage"]["resources"]["requests"]["storage"], "1Gi");
        assert_eq!(made["metadata"]["annotations"], json!({"c": "d"}));
        let mut of_pool = vm;
        let owner = json!([{"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "p", "uid": "u",
            "controller": true}]);
        of_pool.metadata.owner_references = serde_json::from_value(owner).unwrap();
        let made = serde_json::to_value(of_template(&of_pool, &of_pool.spec.data_volume_templates[0])).unwrap();
        assert_eq!(made["metadata"]["annotations"], json!({"c": "d", "garboard.dev/pool": "p"}));
    }
}
