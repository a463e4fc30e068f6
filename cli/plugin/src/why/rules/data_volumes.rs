//! Machines that wait for a DataVolume.

use garboard_api::conditions::{Reason, VmConditionType, VmiConditionType};
use garboard_api::run_strategy::RunStrategy;
use serde_json::Value;

use super::refused::bounded;
use crate::why::diagnosis::{DiagnosisVerdict, Finding, seen};
use crate::why::facts::{Condition, Facts};

/// The controller's reason, KubeVirt's, where the API server does not take a DataVolume.
const NOT_CREATED: &str = Reason::FailedDataVolumeCreate.name();
/// How the controller's message begins where the DataVolume is another machine's: with the field to change. What the API server refused it
/// begins otherwise.
const FIELD: &str = "spec.";
/// Shows whose DataVolumes and claims are.
const OWNERS: &str = "kubectl get datavolumes,pvc -o 'custom-columns=KIND:.kind,NAME:.metadata.name,OWNER:.metadata.ownerReferences[*].name'";
/// The reason where one cannot be filled.
const NOT_IMPORTED: &str = Reason::FailedDataVolumeImport.name();
/// The importer's answer where a DataVolume copies what its namespace may not read.
const MAY_NOT_READ: &str = "has insufficient permissions in clone source namespace";
/// The condition while one is being filled, of a machine and of an instance.
const NOT_FILLED: &str = VmConditionType::DataVolumesReady.name();
/// CDI's phase of one that is filled only once a pod uses it.
const WAITS_FOR_CONSUMER: &str = "WaitForFirstConsumer";
/// CDI's phase of one that is filled.
const FILLED: &str = "Succeeded";

/// One of its DataVolumes is not there, not filled, or will never be.
pub(crate) fn unfilled(facts: &Facts) -> Option<Finding> {
    if facts.strategy() == Some(RunStrategy::Halted) {
        return None;
    }
    let FailedCondition { object, kind, condition } = find_condition(facts)?;
    let message = bounded(&condition.message);
    let waits_for_consumer = facts.data_volumes.iter().any(|each| phase(each) == Some(WAITS_FOR_CONSUMER));
    let is_under_way = kind == NOT_FILLED && !waits_for_consumer;
    let finding = if is_under_way {
        Finding::waiting(DiagnosisVerdict::DataVolume, message.clone())
    } else {
        Finding::wrong(DiagnosisVerdict::DataVolume, message.clone())
    };
    let evidence = seen(object, format!("conditions[{kind}] {}", condition.reason), message, condition.since);
    let finding = finding.since(condition.since).shown_by(evidence);
    if condition.message.contains(MAY_NOT_READ) {
        let grant = "let the machine's service account, or default, create datavolumes/source in the namespace that has the source";
        return Some(finding.then(grant).then(format!("kubectl describe vm {}", facts.name)));
    }
    Some(if condition.reason == NOT_CREATED && condition.message.starts_with(FIELD) {
        finding.then(OWNERS)
    } else if condition.reason == NOT_CREATED {
        finding.then("kubectl api-resources --api-group=cdi.kubevirt.io").then("kubectl get pvc")
    } else {
        finding.then(describe(facts)).then("kubectl get pods,pvc")
    })
}

/// How the one that is waited for is looked at; all of them, if which one it is was not seen.
fn describe(facts: &Facts) -> String {
    let unfilled = facts.data_volumes.iter().find(|each| phase(each) != Some(FILLED));
    match unfilled.and_then(|each| each["metadata"]["name"].as_str()) {
        Some(name) => format!("kubectl describe datavolume {name}"),
        None => "kubectl describe datavolumes".to_owned(),
    }
}

fn phase(data_volume: &Value) -> Option<&str> {
    data_volume["status"]["phase"].as_str()
}

/// A condition that is about a DataVolume.
struct FailedCondition {
    /// Whose it is.
    object: String,
    /// Its type.
    kind: &'static str,
    condition: Condition,
}

/// What machine or instance report of it, the machine first: an instance comes after its DataVolumes.
fn find_condition(facts: &Facts) -> Option<FailedCondition> {
    let is_about = |condition: &Condition| [NOT_CREATED, NOT_IMPORTED].contains(&condition.reason.as_str());
    let waits = |condition: &Condition| condition.status == "False";
    let all = [
        ("vm", VmConditionType::Failure.name(), facts.of_vm(VmConditionType::Failure).filter(is_about)),
        ("vm", NOT_FILLED, facts.of_vm(VmConditionType::DataVolumesReady).filter(waits)),
        ("vmi", VmiConditionType::Synchronized.name(), facts.of_vmi(VmiConditionType::Synchronized).filter(is_about)),
        ("vmi", NOT_FILLED, facts.of_vmi(VmiConditionType::DataVolumesReady).filter(waits)),
    ];
    all.into_iter().find_map(|(object, kind, condition)| {
        Some(FailedCondition { object: format!("{object}/{}", facts.name), kind, condition: condition? })
    })
}
