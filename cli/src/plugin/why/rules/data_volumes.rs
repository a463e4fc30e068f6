//! Machines that wait for a DataVolume.

use garboard_api::run_strategy::RunStrategy;

use super::refused::bounded;
use crate::plugin::why::diagnosis::{Finding, Verdict, seen};
use crate::plugin::why::facts::{Condition, Facts};

/// How the controller begins where the API server does not take one.
pub(super) const NOT_MADE: &str = "could not make the DataVolume ";

/// One of its DataVolumes is not there, not filled, or will never be.
pub(crate) fn unfilled(facts: &Facts) -> Option<Finding> {
    if facts.strategy() == Some(RunStrategy::Halted) {
        return None;
    }
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
    let waits = |condition: &Condition| condition.status == "False";
    let of_vm = [
        (facts.of_vm("Failure").filter(is_about), "Failure"),
        (facts.of_vm("DataVolumesReady").filter(waits), "DataVolumesReady"),
    ];
    let of_vmi = [
        (facts.of_vmi("Synchronized").filter(is_about), "Synchronized"),
        (facts.of_vmi("DataVolumesReady").filter(waits), "DataVolumesReady"),
    ];
    let of = |kind: &'static str| move |(condition, name)| (format!("{kind}/{}", facts.name), condition, name);
    let all = of_vm.into_iter().map(of("vm")).chain(of_vmi.into_iter().map(of("vmi")));
    all.into_iter().find_map(|(object, condition, name): (_, Option<Condition>, _)| Some((object, condition?, name)))
}
