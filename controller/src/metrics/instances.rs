//! The samples of one VirtualMachineInstance. Pure.

use std::collections::BTreeSet;

use garboard_api::conditions::VmiConditionType;
use garboard_api::metadata::{annotation, label};
use garboard_metrics::catalogue::controller as catalogue;
use garboard_metrics::{Exposition, Labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;
use serde_json::Value;

use super::machines::{Condition, MachineType, OTHER, described};

/// What is read of an instance. What is not there is nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct InstanceView {
    pub(super) metadata: ObjectMeta,
    spec: Spec,
    pub(super) status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    eviction_strategy: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    node_name: Option<String>,
    pub(super) phase: Option<String>,
    pub(super) phase_transition_timestamps: Vec<Entered>,
    conditions: Vec<Condition>,
    interfaces: Vec<Interface>,
    machine: Option<MachineType>,
    #[serde(rename = "guestOSInfo")]
    guest: Guest,
    memory: Memory,
}

/// When a phase was entered.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Entered {
    pub(super) phase: Option<String>,
    pub(super) phase_transition_timestamp: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Interface {
    name: String,
    interface_name: String,
    ip_address: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Guest {
    kernel_release: String,
    machine: String,
    name: String,
    version_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Memory {
    memory_overhead: Option<Value>,
}

/// The condition of an instance that can be moved.
const LIVE_MIGRATABLE: &str = VmiConditionType::LiveMigratable.name();
/// Annotations of an instance with an instancetype, and with a preference.
const INSTANCETYPES: [&str; 2] = [annotation::INSTANCETYPE_NAME, annotation::CLUSTER_INSTANCETYPE_NAME];
const PREFERENCES: [&str; 2] = [annotation::PREFERENCE_NAME, annotation::CLUSTER_PREFERENCE_NAME];

/// Adds the samples of an instance in a launcher pod of this name, which is empty where there is none.
pub(super) fn add(to: &mut Exposition, vmi: &InstanceView, pod: &str) {
    let [name, namespace] =
        [&vmi.metadata.name, &vmi.metadata.namespace].map(|text| text.as_deref().unwrap_or_default());
    let node = vmi.status.node_name.as_deref().unwrap_or_default();
    let own = Labels::of(&[("node", node), ("namespace", namespace), ("name", name)]);
    to.add(&catalogue::VMI_INFO, &info(own.clone(), vmi, pod), 1.0);
    to.add(&catalogue::VMI_NON_EVICTABLE, &own, if is_evictable(vmi) { 0.0 } else { 1.0 });
    // A guest reports what it likes, also the same twice; Prometheus takes no two samples with the same labels.
    let mut seen = BTreeSet::new();
    for each in &vmi.status.interfaces {
        let Interface { name, interface_name, ip_address } = each;
        let is_nothing = ip_address.is_empty() && name.is_empty() && interface_name.is_empty();
        if is_nothing || !seen.insert((name, interface_name, ip_address)) {
            continue;
        }
        let kind = if ip_address.is_empty() { "SystemInterface" } else { "ExternalInterface" };
        let labels = own.clone().and("vnic_name", name).and("interface_name", interface_name);
        to.add(&catalogue::VMI_STATUS_ADDRESSES, &labels.and("address", ip_address).and("type", kind), 1.0);
    }
    if let Some(bytes) = overhead(vmi) {
        let labels = Labels::of(&[("namespace", namespace), ("name", name)]);
        to.add(&catalogue::VMI_LAUNCHER_MEMORY_OVERHEAD_BYTES, &labels, bytes);
    }
}

fn info(own: Labels, vmi: &InstanceView, pod: &str) -> Labels {
    let Status { phase, guest, machine, .. } = &vmi.status;
    let annotations = vmi.metadata.annotations.as_ref();
    let has = |keys: [&str; 2]| annotations.is_some_and(|all| keys.iter().any(|key| all.contains_key(*key)));
    let named = |keys| if has(keys) { OTHER } else { "" };
    let truth = |value: bool| if value { "true" } else { "false" };
    described(own.and("phase", &phase.as_deref().unwrap_or("Pending").to_lowercase()), Some(&vmi.metadata))
        .and("instance_type", named(INSTANCETYPES))
        .and("preference", named(PREFERENCES))
        .and("guest_os_kernel_release", &guest.kernel_release)
        // As in KubeVirt: the machine type, and what the guest says of its processor.
        .and("guest_os_machine", machine.as_ref().and_then(|machine| machine.name.as_deref()).unwrap_or_default())
        .and("guest_os_arch", &guest.machine)
        .and("guest_os_name", &guest.name)
        .and("guest_os_version_id", &guest.version_id)
        .and("evictable", truth(is_evictable(vmi)))
        .and("outdated", truth(is_outdated(vmi)))
        .and("vmi_pod", pod)
}

/// Whether its launcher is not of the installed version.
pub(super) fn is_outdated(vmi: &InstanceView) -> bool {
    let labels = vmi.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(label::OUTDATED_LAUNCHER_IMAGE))
}

/// Whether draining its node does what its strategy says.
fn is_evictable(vmi: &InstanceView) -> bool {
    let moves = matches!(vmi.spec.eviction_strategy.as_deref(), Some("LiveMigrate" | "External"));
    !moves || vmi.status.conditions.iter().any(|each| each.kind == LIVE_MIGRATABLE && each.status == "True")
}

/// Of `status.memory.memoryOverhead`.
fn overhead(vmi: &InstanceView) -> Option<f64> {
    let written = vmi.status.memory.memory_overhead.as_ref()?;
    let quantity: garboard_api::Quantity = serde_json::from_value(written.clone()).ok()?;
    Some(garboard_metrics::as_float(quantity.to_bytes()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(change: Value) -> InstanceView {
        let mut vmi = json!({
            "metadata": {
                "name": "vm", "namespace": "ns", "labels": {"kubevirt.io/outdatedLauncherImage": ""},
                "annotations": {"kubevirt.io/cluster-preference-name": "mine", "vm.kubevirt.io/os": "debian12"},
            },
            "spec": {"domain": {"devices": {}}},
            "status": {
                "nodeName": "node-1", "phase": "Running", "machine": {"type": "pc-q35-7.2"},
                "guestOSInfo": {"kernelRelease": "6.1", "machine": "x86_64", "name": "Debian", "versionId": "12"},
                "interfaces": [
                    {"name": "default", "interfaceName": "eth0", "ipAddress": "10.0.0.2"},
                    {"name": "default", "interfaceName": "eth0", "ipAddress": "10.0.0.2"},
                    {"interfaceName": "docker0"}, {},
                ],
                "memory": {"memoryOverhead": "110Mi"},
            },
        });
        json_patch::merge(&mut vmi, &change);
        serde_json::from_value(vmi).unwrap()
    }

    fn text(change: Value) -> String {
        let mut to = Exposition::default();
        add(&mut to, &view(change), "virt-launcher-vm-1");
        to.text()
    }

    #[test]
    fn an_instance_has_its_information_addresses_and_overhead() {
        let text = text(json!({}));
        let info = "kubevirt_vmi_info{node=\"node-1\",namespace=\"ns\",name=\"vm\",phase=\"running\",os=\"debian12\",\
                    preference=\"<other>\",guest_os_kernel_release=\"6.1\",guest_os_machine=\"pc-q35-7.2\",\
                    guest_os_arch=\"x86_64\",guest_os_name=\"Debian\",guest_os_version_id=\"12\",evictable=\"true\",\
                    outdated=\"true\",vmi_pod=\"virt-launcher-vm-1\"} 1\n";
        assert!(text.contains(info), "{text}");
        let addresses: Vec<_> =
            text.lines().filter(|line| line.starts_with("kubevirt_vmi_status_addresses{")).collect();
        assert_eq!(addresses.len(), 2, "{text}");
        assert!(addresses[0].contains("address=\"10.0.0.2\",type=\"ExternalInterface\""), "{text}");
        assert!(addresses[1].contains("interface_name=\"docker0\",type=\"SystemInterface\""), "{text}");
        assert!(
            text.contains("kubevirt_vmi_launcher_memory_overhead_bytes{namespace=\"ns\",name=\"vm\"} 115343360\n"),
            "{text}"
        );
    }

    #[test]
    fn one_that_is_to_be_moved_and_cannot_be_is_not_evictable() {
        let strategy = |strategy: &str| json!({"spec": {"evictionStrategy": strategy}});
        for (change, expected) in [
            (json!({}), 0),
            (strategy("None"), 0),
            (strategy("LiveMigrateIfPossible"), 0),
            (strategy("LiveMigrate"), 1),
            (strategy("External"), 1),
        ] {
            let line =
                format!("kubevirt_vmi_non_evictable{{node=\"node-1\",namespace=\"ns\",name=\"vm\"}} {expected}\n");
            let text = text(change.clone());
            assert!(text.contains(&line), "{change}: {text}");
        }
        let mut movable = strategy("LiveMigrate");
        movable["status"] = json!({"conditions": [{"type": "LiveMigratable", "status": "True"}]});
        assert!(is_evictable(&view(movable)));
    }
}
