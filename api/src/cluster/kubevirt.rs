//! Reading the settings from the KubeVirt object of a cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::gate::{GATES, Usual};
use super::{ClusterConfig, DefaultBinding, Emulation, Gate, ReferencePolicy, Rollout};
use crate::arch::Arch;
use crate::quantity::Quantity;
use crate::v1::KubeVirt;

impl ClusterConfig {
    /// The configuration that a KubeVirt object describes. What it leaves out has KubeVirt's default.
    pub fn from_kubevirt(object: &Value) -> Self {
        let written = &object["spec"]["configuration"];
        let developer = &written["developerConfiguration"];
        let network = &written["network"];
        let live = &written["liveUpdateConfiguration"];
        let usual = Self::offline();
        Self {
            gates: gates(developer),
            default_architecture: text(&written["architectureConfiguration"]["defaultArchitecture"])
                .unwrap_or(usual.default_architecture),
            machine_types: Arch::ALL
                .into_iter()
                .filter_map(|arch| {
                    let of_arch = text(&written["architectureConfiguration"][arch.name()]["machineType"]);
                    Some((arch, of_arch?))
                })
                .collect(),
            cpu_model: text(&written["cpuModel"]),
            cpu_request: quantity(&written["cpuRequest"]),
            cpu_allocation_ratio: count(&developer["cpuAllocationRatio"]).unwrap_or(usual.cpu_allocation_ratio),
            memory_overcommit_percent: count(&developer["memoryOvercommit"]).unwrap_or(usual.memory_overcommit_percent),
            overhead_permille: text(&written["additionalGuestMemoryOverheadRatio"])
                .and_then(|ratio| permille(&ratio))
                .unwrap_or(usual.overhead_permille),
            default_binding: match network["defaultNetworkInterface"].as_str() {
                Some("masquerade") => DefaultBinding::Masquerade,
                _ => DefaultBinding::Bridge,
            },
            bridge_on_pod_network: network["permitBridgeInterfaceOnPodNetwork"]
                .as_bool()
                .unwrap_or(usual.bridge_on_pod_network),
            eviction_strategy: text(&written["evictionStrategy"]).unwrap_or(usual.eviction_strategy),
            rollout: match written["vmRolloutStrategy"].as_str() {
                Some("Stage") => Rollout::Stage,
                _ => Rollout::LiveUpdate,
            },
            max_hotplug_ratio: count(&live["maxHotplugRatio"]).unwrap_or(usual.max_hotplug_ratio),
            max_cpu_sockets: count(&live["maxCpuSockets"]),
            max_guest: quantity(&live["maxGuest"]),
            state_storage_class: text(&written["vmStateStorageClass"]),
            is_cluster: true,
            reference_policy: match written["instancetype"]["referencePolicy"].as_str() {
                Some("expand") => ReferencePolicy::Expand,
                Some("expandAll") => ReferencePolicy::ExpandAll,
                _ => ReferencePolicy::Reference,
            },
            emulation: match developer["useEmulation"].as_bool() {
                Some(true) => Emulation::Permitted,
                _ => Emulation::Refused,
            },
        }
    }
}

fn gates(developer: &Value) -> std::collections::BTreeSet<Gate> {
    let listed = |list: &str, name: &str| {
        developer[list].as_array().is_some_and(|names| names.iter().any(|each| each.as_str() == Some(name)))
    };
    GATES
        .iter()
        .filter(|(_, name, usual)| {
            listed("featureGates", name) || (*usual == Usual::On && !listed("disabledFeatureGates", name))
        })
        .map(|(gate, _, _)| *gate)
        .collect()
}

/// A text that is not empty; KubeVirt takes an empty one for none.
fn text(field: &Value) -> Option<String> {
    field.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// A number greater than 0; KubeVirt takes 0 for none.
fn count(field: &Value) -> Option<u32> {
    field.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0)
}

/// The object that counts: of those in the installation's namespace the oldest. Who may write to another namespace alone decides
/// nothing for the cluster.
pub fn of_installation<'a>(objects: impl IntoIterator<Item = &'a KubeVirt>, namespace: &str) -> Option<&'a KubeVirt> {
    let own = objects.into_iter().filter(|object| object.metadata.namespace.as_deref() == Some(namespace));
    own.min_by_key(|object| seniority(&object.metadata))
}

/// What KubeVirt objects are compared by where there are several: the least one counts, which is the oldest.
pub fn seniority(metadata: &ObjectMeta) -> impl Ord + use<> {
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    (created, metadata.namespace.clone(), metadata.name.clone())
}

/// A ratio from 1 to 100 in thousandths; KubeVirt writes it as text.
#[must_use]
pub fn permille(ratio: &str) -> Option<u32> {
    let milli = ratio
        .parse::<Quantity>()
        .ok()
        .filter(|_| ratio.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))?
        .milli();
    u32::try_from(milli).ok().filter(|milli| (1000..=100_000).contains(milli))
}

fn quantity(field: &Value) -> Option<Quantity> {
    serde_json::from_value(field.clone()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kubevirt_object_switches_alpha_gates_on_and_beta_gates_off() {
        let config = ClusterConfig::from_kubevirt(&json!({"spec": {"configuration": {
            "developerConfiguration": {"featureGates": ["HostDisk"], "disabledFeatureGates": ["PasstBinding", "VSOCK"]},
            "network": {"permitBridgeInterfaceOnPodNetwork": false, "defaultNetworkInterface": "masquerade"},
            "vmRolloutStrategy": "Stage",
        }}}));
        assert!(config.has(Gate::HostDisk) && config.has(Gate::RebootPolicy));
        assert!(!config.has(Gate::PasstBinding) && !config.has(Gate::Vsock));
        assert!(!config.bridge_on_pod_network);
        assert_eq!(config.default_binding, DefaultBinding::Masquerade);
        assert_eq!(config.rollout, Rollout::Stage);
    }

    #[test]
    fn sizes_and_models_are_read() {
        let config = ClusterConfig::from_kubevirt(&json!({"spec": {"configuration": {
            "architectureConfiguration": {"defaultArchitecture": "arm64", "amd64": {"machineType": "pc-q35-7.2"}},
            "cpuModel": "Haswell",
            "cpuRequest": "200m",
            "developerConfiguration": {"cpuAllocationRatio": 4, "memoryOvercommit": 150, "useEmulation": true},
            "additionalGuestMemoryOverheadRatio": "1.25",
            "evictionStrategy": "LiveMigrate",
            "liveUpdateConfiguration": {"maxCpuSockets": 8, "maxGuest": "16Gi", "maxHotplugRatio": 2},
        }}}));
        assert_eq!(config.default_architecture, "arm64");
        assert_eq!(config.machine_type(Arch::Amd64), "pc-q35-7.2");
        assert_eq!(config.machine_type(Arch::Arm64), "virt");
        assert_eq!(config.cpu_model.as_deref(), Some("Haswell"));
        assert_eq!(config.cpu_request, "200m".parse().ok());
        assert_eq!((config.cpu_allocation_ratio, config.memory_overcommit_percent), (4, 150));
        assert_eq!(config.overhead_permille, 1250);
        assert_eq!(config.eviction_strategy, "LiveMigrate");
        assert_eq!((config.max_cpu_sockets, config.max_hotplug_ratio), (Some(8), 2));
        assert_eq!(config.max_guest, "16Gi".parse().ok());
        assert_eq!(config.emulation, Emulation::Permitted);
    }

    #[test]
    fn a_ratio_is_a_number_that_takes_nothing_away() {
        assert_eq!(["1", "1.0", "2.125", "100"].map(permille), [Some(1000), Some(1000), Some(2125), Some(100_000)]);
        assert_eq!(["0.5", "101", "-1", "1e2", "2k", "x", ""].map(permille), [None; 7]);
    }

    #[test]
    fn what_becomes_of_names_is_as_it_is_written() {
        let policy = |policy: &str| {
            let object = json!({"spec": {"configuration": {"instancetype": {"referencePolicy": policy}}}});
            ClusterConfig::from_kubevirt(&object).reference_policy
        };
        assert_eq!(policy("expand"), ReferencePolicy::Expand);
        assert_eq!(policy("expandAll"), ReferencePolicy::ExpandAll);
        assert_eq!([policy("reference"), policy("")], [ReferencePolicy::Reference; 2]);
    }

    #[test]
    fn an_empty_kubevirt_object_means_the_defaults() {
        let gates = ClusterConfig::from_kubevirt(&json!({})).gates;
        assert!(gates.contains(&Gate::PasstBinding) && !gates.contains(&Gate::HostDisk));
        assert_eq!(
            ClusterConfig::from_kubevirt(&json!({})),
            ClusterConfig { gates, is_cluster: true, ..ClusterConfig::offline() }
        );
    }
}
