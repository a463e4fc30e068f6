//! The samples of one VirtualMachine. Pure.

use garboard_api::PrintableStatus;
use garboard_api::conditions::{VmConditionType, VmiConditionType};
use garboard_metrics::catalogue::controller as catalogue;
use garboard_metrics::{Exposition, Labels, Metric};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;

/// What is read of a VirtualMachine: much less than all, because a cluster may have ten thousand. What is not there is nothing, and
/// what else is written, whether it can be read or not, does not matter.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MachineView {
    metadata: ObjectMeta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    instancetype: Option<serde::de::IgnoredAny>,
    preference: Option<serde::de::IgnoredAny>,
    template: Template,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Template {
    metadata: Option<ObjectMeta>,
    spec: TemplateSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TemplateSpec {
    domain: Domain,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Domain {
    machine: Option<MachineType>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MachineType {
    #[serde(rename = "type")]
    pub(super) name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    printable_status: Option<String>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    last_transition_time: Option<Time>,
}

/// Conditions whose last change is that of the status; KubeVirt's choice.
const CHANGES: [&str; 3] =
    [VmConditionType::Ready.name(), VmConditionType::Failure.name(), VmiConditionType::Paused.name()];
/// The name of an instancetype or preference that is not one of the common ones: KubeVirt keeps users' names out of metrics.
pub(super) const OTHER: &str = "<other>";

/// Adds the samples of a machine.
pub(super) fn add(to: &mut Exposition, vm: &MachineView) {
    let metadata = &vm.metadata;
    let [name, namespace] = [&metadata.name, &metadata.namespace].map(|text| text.as_deref().unwrap_or_default());
    let own = Labels::of(&[("name", name), ("namespace", namespace)]);
    let status = vm.status.printable_status.as_deref().unwrap_or_default();
    let group = Group::of(status);
    let template = &vm.spec.template;
    let machine_type = template.spec.domain.machine.as_ref().and_then(|machine| machine.name.as_deref());
    let info = described(own.clone(), template.metadata.as_ref())
        .and("machine_type", machine_type.unwrap_or_default())
        .and("instance_type", vm.spec.instancetype.map_or("", |_| OTHER))
        .and("preference", vm.spec.preference.map_or("", |_| OTHER))
        .and("status", &status.to_lowercase())
        .and("status_group", group.map_or("<unknown>", Group::name));
    to.add(&catalogue::VM_INFO, &info, 1.0);
    let changed = vm.status.conditions.iter().filter(|condition| CHANGES.contains(&condition.kind.as_str()));
    let since =
        changed.filter_map(|condition| condition.last_transition_time.as_ref()).map(seconds).fold(0.0, f64::max);
    for each in Group::ALL {
        to.add(each.metric(), &own, if Some(each) == group { since } else { 0.0 });
    }
    if let Some(created) = &metadata.creation_timestamp {
        to.add(&catalogue::VM_CREATE_DATE, &own, seconds(created));
    }
}

/// With what annotations say of the guest.
pub(super) fn described(labels: Labels, metadata: Option<&ObjectMeta>) -> Labels {
    let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
    ["os", "workload", "flavor"].into_iter().fold(labels, |labels, name| {
        let value = annotations.and_then(|all| all.get(&format!("vm.kubevirt.io/{name}")));
        labels.and(name, value.map_or("", String::as_str))
    })
}

/// Seconds since 1970. Prometheus' numbers are exact up to 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "times of the next hundred million years are exact")]
pub(super) fn seconds(time: &Time) -> f64 {
    time.0.as_second() as f64
}

/// KubeVirt's groups of `printableStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Starting,
    Running,
    Migrating,
    NonRunning,
    Error,
}

impl Group {
    const ALL: [Self; 5] = [Self::Starting, Self::Running, Self::Migrating, Self::NonRunning, Self::Error];

    /// Of a status that this version writes.
    fn of(status: &str) -> Option<Self> {
        let status = PrintableStatus::from_name(status)?;
        Some(match status {
            PrintableStatus::Provisioning | PrintableStatus::Starting | PrintableStatus::WaitingForVolumeBinding => {
                Self::Starting
            }
            PrintableStatus::Running => Self::Running,
            PrintableStatus::Stopped
            | PrintableStatus::Paused
            | PrintableStatus::Stopping
            | PrintableStatus::Terminating => Self::NonRunning,
            PrintableStatus::CrashLoopBackOff
            | PrintableStatus::Unknown
            | PrintableStatus::ErrorUnschedulable
            | PrintableStatus::ErrImagePull
            | PrintableStatus::ImagePullBackOff
            | PrintableStatus::ErrorPvcNotFound
            | PrintableStatus::DataVolumeError => Self::Error,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Migrating => "migrating",
            Self::NonRunning => "non_running",
            Self::Error => "error",
        }
    }

    const fn metric(self) -> &'static Metric {
        match self {
            Self::Starting => &catalogue::VM_STARTING_SINCE,
            Self::Running => &catalogue::VM_RUNNING_SINCE,
            Self::Migrating => &catalogue::VM_MIGRATING_SINCE,
            Self::NonRunning => &catalogue::VM_NON_RUNNING_SINCE,
            Self::Error => &catalogue::VM_ERROR_SINCE,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(status: &str) -> String {
        let vm = json!({
            "metadata": {"name": "vm", "namespace": "ns", "creationTimestamp": "1970-01-01T00:01:00Z"},
            "spec": {
                "instancetype": {"name": "mine"}, "unknown": 5,
                "template": {
                    "metadata": {"annotations": {"vm.kubevirt.io/os": "debian12", "vm.kubevirt.io/workload": "server"}},
                    "spec": {"domain": {"machine": {"type": "q35"}, "memory": "not a memory"}},
                },
            },
            "status": {"printableStatus": status, "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:02:00Z"},
                {"type": "Paused", "status": "False", "lastTransitionTime": "1970-01-01T00:01:30Z"},
                {"type": "LiveMigratable", "status": "False", "lastTransitionTime": "1970-01-01T00:09:00Z"},
            ]},
        });
        let mut to = Exposition::default();
        add(&mut to, &serde_json::from_value(vm).unwrap());
        to.text()
    }

    #[test]
    fn a_machine_has_its_information_and_the_time_of_its_status() {
        let text = text("Running");
        let info = "kubevirt_vm_info{name=\"vm\",namespace=\"ns\",os=\"debian12\",workload=\"server\",machine_type=\"q35\",\
                    instance_type=\"<other>\",status=\"running\",status_group=\"running\"} 1\n";
        assert!(text.contains(info), "{text}");
        let since = "kubevirt_vm_running_status_last_transition_timestamp_seconds{name=\"vm\",namespace=\"ns\"} 120\n";
        assert!(text.contains(since), "{text}");
        assert!(
            text.contains(
                "kubevirt_vm_error_status_last_transition_timestamp_seconds{name=\"vm\",namespace=\"ns\"} 0\n"
            )
        );
        assert!(text.contains("kubevirt_vm_create_date_timestamp_seconds{name=\"vm\",namespace=\"ns\"} 60\n"));
    }

    #[test]
    fn every_status_that_is_written_has_a_group() {
        for status in PrintableStatus::ALL {
            assert!(Group::of(status.name()).is_some(), "{}", status.name());
        }
        assert!(text("WaitingForReceiver").contains("status_group=\"<unknown>\""));
    }

    #[test]
    fn an_object_with_nothing_in_it_is_no_error() {
        let mut to = Exposition::default();
        add(&mut to, &serde_json::from_value(json!({})).unwrap());
        assert!(to.text().contains("kubevirt_vm_info{status_group=\"<unknown>\"} 1"));
    }
}
