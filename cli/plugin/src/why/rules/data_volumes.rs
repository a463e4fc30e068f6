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
/// How Kubernetes' names of the users that are service accounts begin.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
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
    if let Some(grant) = grant(&condition.message) {
        let finding = grant.into_iter().fold(finding, Finding::then);
        return Some(finding.then(format!("kubectl describe vm {}", facts.name)));
    }
    Some(if condition.reason == NOT_CREATED && condition.message.starts_with(FIELD) {
        finding.then(OWNERS)
    } else if condition.reason == NOT_CREATED {
        finding.then("kubectl api-resources --api-group=cdi.kubevirt.io").then("kubectl get pvc")
    } else {
        finding.then(describe(facts)).then("kubectl get pods,pvc")
    })
}

/// What lets DataVolumes copy out of another namespace, where the importer's answer is that they may not: a right of the account that the
/// controller makes them as, which the answer names.
fn grant(message: &str) -> Option<Vec<String>> {
    let (before, after) = message.split_once(MAY_NOT_READ)?;
    let namespace = after.split_whitespace().next().unwrap_or_default().trim_end_matches(['.', ',', ';', ':']);
    let account = before.rsplit_once(SERVICE_ACCOUNT).map_or("", |(_, account)| account.trim());
    if !is_name(namespace) || !is_name(account) {
        let right =
            "let the account garboard-datavolumes create datavolumes/source in the namespace that has the source";
        return Some(vec![right.to_owned()]);
    }
    let role = "--verb=create --resource=datavolumes.cdi.kubevirt.io/source";
    let effect = "machines of every namespace may copy from it then";
    Some(vec![
        format!("kubectl create role copy-images -n {namespace} {role}    # {effect}"),
        format!("kubectl create rolebinding copy-images -n {namespace} --role=copy-images --serviceaccount={account}"),
    ])
}

/// Whether a text is a name, or two with a colon between, so that it may stand in a command.
fn is_name(text: &str) -> bool {
    let is_of_name = |one: u8| one.is_ascii_lowercase() || one.is_ascii_digit() || b"-.:".contains(&one);
    !text.is_empty() && text.bytes().all(is_of_name)
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
