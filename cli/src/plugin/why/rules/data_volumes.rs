//! Machines that wait for a DataVolume.

use super::refused::bounded;
use crate::plugin::why::diagnosis::{Finding, Verdict, seen};
use crate::plugin::why::facts::{Condition, Facts};

/// How the controller begins where the API server does not take one.
pub(super) const NOT_MADE: &str = "could not make the DataVolume ";

/// One of its DataVolumes is not there, not filled, or will never be.
pub(crate) fn unfilled(facts: &Facts) -> Option<Finding> {
    let (object, condition, kind) = told(facts)?;
    let message = bounded(&condition.message);
    let name = message.split("DataVolume ").nth(1).and_then(|rest| rest.split([' ', ':']).next()).unwrap_or_default();
    let is_under_way = condition.reason == "NotAllDVsReady" && !message.contains("first consumer");
    let finding = if is_under_way {
        Finding::waiting(Verdict::DataVolume, message.clone())
    } else {
        Finding::wrong(Verdict::DataVolume, message.clone())
    };
    let evidence = seen(object, format!("conditions[{kind}] {}", condition.reason), message.clone(), condition.since);
    let finding = finding.since(condition.since).shown_by(evidence);
    Some(if message.starts_with(NOT_MADE) {
        finding.then("kubectl api-resources --api-group=cdi.kubevirt.io").then("kubectl get pvc")
    } else {
        finding.then(format!("kubectl describe datavolume {name}")).then("kubectl get pods,pvc")
    })
}

/// What machine or instance say of it, the machine first: an instance comes after its DataVolumes.
fn told(facts: &Facts) -> Option<(String, Condition, &'static str)> {
    let is_about =
        |condition: &Condition| condition.reason == "FailedDataVolumeImport" || condition.message.starts_with(NOT_MADE);
    let of_vm = || facts.of_vm("Failure").filter(is_about).map(|found| (found, "Failure"));
    let waits = |found: &Condition| found.status == "False";
    let of_vm =
        of_vm().or_else(|| facts.of_vm("DataVolumesReady").filter(waits).map(|found| (found, "DataVolumesReady")));
    if let Some((condition, kind)) = of_vm {
        return Some((format!("vm/{}", facts.name), condition, kind));
    }
    let of_vmi = facts.of_vmi("Synchronized").filter(is_about).map(|found| (found, "Synchronized"));
    let of_vmi =
        of_vmi.or_else(|| facts.of_vmi("DataVolumesReady").filter(waits).map(|found| (found, "DataVolumesReady")));
    of_vmi.map(|(condition, kind)| (format!("vmi/{}", facts.name), condition, kind))
}
