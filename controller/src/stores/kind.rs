//! The kinds that are watched, and what is kept of each.

use garboard_api::conditions::PodConditionType;
use garboard_api::metadata::{annotation, volume_annotation};
use garboard_api::v1::KubeVirt;
use garboard_api::validate::review;
use garboard_api::{
    ClusterConfig, VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePreset,
    VirtualMachineInstanceReplicaSet, VirtualMachinePool, remnant_of_instance,
};
use garboard_cluster::report::claims;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Resource;
use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::pod::WRITTEN_IMAGE;

/// A kind of objects.
pub trait Kind: Send + Sync + 'static {
    /// What an object of it is read as.
    type Object: DeserializeOwned + Resource;
    /// Its name.
    const KIND: &'static str;
    /// Its group, empty for Kubernetes' own.
    const GROUP: &'static str;
    /// The version it is asked for in.
    const VERSION: &'static str;
    /// Its name in addresses.
    const PLURAL: &'static str;

    /// Whether objects of it that have no controller have to be found: they are adopted, or looked up by their namespace.
    const IS_ADOPTED: bool = false;

    /// Its group and version, as its objects have them.
    #[must_use]
    fn api_version() -> String {
        if Self::GROUP.is_empty() { Self::VERSION.to_owned() } else { format!("{}/{}", Self::GROUP, Self::VERSION) }
    }

    /// Whether a key of what is at a path, two steps deep at most, is not even read, because no decision needs it. Of every kind
    /// that is `managedFields`, and what `kubectl apply` repeats of a manifest.
    #[must_use]
    fn is_dropped(path: &[&str], key: &str) -> bool {
        is_of_others(path, key)
    }

    /// Takes away what else no decision needs.
    fn trim(object: &mut Map<String, Value>) {
        let _ = object;
    }

    /// What is taken of an object that cannot be read, beside its metadata, so that it and what belongs to it can be ended and
    /// removed.
    fn remnant(object: &Value) -> Value {
        let _ = object;
        json!({})
    }

    /// What is wrong with an object that cannot be read, by its field.
    fn problem(object: &Value) -> Option<String> {
        let _ = object;
        None
    }
}

fn is_of_others(path: &[&str], key: &str) -> bool {
    match path {
        ["metadata"] => key == "managedFields",
        ["metadata", "annotations"] => key.starts_with("kubectl.kubernetes.io/"),
        _ => false,
    }
}

/// VirtualMachines.
pub enum Machines {}

impl Kind for Machines {
    type Object = VirtualMachine;
    const KIND: &'static str = "VirtualMachine";
    const GROUP: &'static str = "kubevirt.io";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "virtualmachines";
    const IS_ADOPTED: bool = true;

    fn remnant(object: &Value) -> Value {
        let strategy = object.pointer("/spec/runStrategy").and_then(Value::as_str).unwrap_or("Halted");
        json!({"spec": {"runStrategy": strategy, "template": {"spec": {"domain": {"devices": {}}}}}})
    }

    fn problem(object: &Value) -> Option<String> {
        fault::<Self>(object)
    }
}

/// VirtualMachineInstances.
pub enum Instances {}

impl Kind for Instances {
    type Object = VirtualMachineInstance;
    const KIND: &'static str = "VirtualMachineInstance";
    const GROUP: &'static str = "kubevirt.io";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "virtualmachineinstances";
    const IS_ADOPTED: bool = true;

    /// Its phase, and where its pods are.
    fn remnant(object: &Value) -> Value {
        remnant_of_instance(object)
    }

    fn problem(object: &Value) -> Option<String> {
        fault::<Self>(object)
    }
}

/// VirtualMachineInstanceReplicaSets.
pub enum ReplicaSets {}

impl Kind for ReplicaSets {
    type Object = VirtualMachineInstanceReplicaSet;
    const KIND: &'static str = "VirtualMachineInstanceReplicaSet";
    const GROUP: &'static str = "kubevirt.io";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "virtualmachineinstancereplicasets";

    fn problem(object: &Value) -> Option<String> {
        fault::<Self>(object)
    }
}

/// VirtualMachineInstancePresets: of each what it gives, and to which instances.
pub enum Presets {}

impl Kind for Presets {
    type Object = VirtualMachineInstancePreset;
    const KIND: &'static str = "VirtualMachineInstancePreset";
    const GROUP: &'static str = "kubevirt.io";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "virtualmachineinstancepresets";
    // None has a controller: so those of a namespace are found.
    const IS_ADOPTED: bool = true;

    fn is_dropped(path: &[&str], key: &str) -> bool {
        matches!(path, ["metadata"]) && !["name", "namespace", "uid", "resourceVersion"].contains(&key)
    }

    fn problem(object: &Value) -> Option<String> {
        fault::<Self>(object)
    }
}

/// VirtualMachinePools.
pub enum Pools {}

impl Kind for Pools {
    type Object = VirtualMachinePool;
    const KIND: &'static str = "VirtualMachinePool";
    const GROUP: &'static str = "pool.kubevirt.io";
    const VERSION: &'static str = "v1beta1";
    const PLURAL: &'static str = "virtualmachinepools";

    fn problem(object: &Value) -> Option<String> {
        fault::<Self>(object)
    }
}

/// KubeVirt objects: the settings of a cluster, and how its installation does.
pub enum Installations {}

impl Kind for Installations {
    type Object = KubeVirt;
    const KIND: &'static str = "KubeVirt";
    const GROUP: &'static str = "kubevirt.io";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "kubevirts";

    fn problem(object: &Value) -> Option<String> {
        fault::<Self>(object)
    }
}

/// What the webhooks would have answered.
fn fault<K: Kind>(object: &Value) -> Option<String> {
    let mut whole = object.clone();
    // In a list an object has no kind.
    whole["apiVersion"] = json!(K::api_version());
    whole["kind"] = json!(K::KIND);
    review(&whole, &ClusterConfig::default()).faults.first().map(ToString::to_string)
}

/// Launcher pods: their order, with the whole instance in it, is for the launcher.
pub enum Pods {}

impl Kind for Pods {
    type Object = Pod;
    const KIND: &'static str = "Pod";
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "pods";

    fn is_dropped(path: &[&str], key: &str) -> bool {
        const OF_STATUS: [&str; 8] = [
            "phase",
            "reason",
            "message",
            "conditions",
            "podIPs",
            "qosClass",
            "containerStatuses",
            "initContainerStatuses",
        ];
        match path {
            ["metadata"] => ["labels", "managedFields", "generateName", "selfLink"].contains(&key),
            ["metadata", "annotations"] => {
                ![claims::ANNOTATION, WRITTEN_IMAGE].contains(&key) && !annotation::OF_DESCHEDULER.contains(&key)
            }
            ["spec"] => !["nodeName", "containers", "initContainers", "terminationGracePeriodSeconds"].contains(&key),
            ["status"] => !OF_STATUS.contains(&key),
            _ => false,
        }
    }

    fn trim(object: &mut Map<String, Value>) {
        if let Some(spec) = part(object, "spec") {
            spec.iter_mut().filter_map(|(_, value)| value.as_array_mut()).for_each(|each| essentials(each));
        }
        if let Some(status) = part(object, "status") {
            // Steps of a start that a kubelet writes one by one, and nothing here waits for.
            const STEPS: [PodConditionType; 3] = [
                PodConditionType::PodReadyToStartContainers,
                PodConditionType::Initialized,
                PodConditionType::ContainersReady,
            ];
            if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
                conditions.retain(|each| !STEPS.iter().any(|step| each["type"] == step.name()));
            }
            for key in ["containerStatuses", "initContainerStatuses"] {
                status.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().for_each(container);
            }
        }
    }
}

fn part<'a>(object: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(key)?.as_object_mut()
}

/// Containers whose image is kept: supervisor, and QEMU.
const OF_LAUNCHER_IMAGE: [&str; 2] = ["launcher", "compute"];

/// Of a container it counts whether its kubelet asks whether it is ready, and how much memory it may have.
fn essentials(containers: &mut [Value]) {
    for each in containers {
        let is_probed = each.get("readinessProbe").is_some();
        let memory = each.pointer("/resources/limits/memory").cloned();
        let image = each.get("image").filter(|_| OF_LAUNCHER_IMAGE.iter().any(|name| each["name"] == *name)).cloned();
        *each = json!({ "name": each["name"] });
        if let Some(image) = image {
            each["image"] = image;
        }
        if is_probed {
            each["readinessProbe"] = json!({});
        }
        if let Some(memory) = memory {
            each["resources"] = json!({"limits": {"memory": memory}});
        }
    }
}

fn container(status: &mut Value) {
    const NEEDED: [&str; 4] = ["name", "ready", "restartCount", "state"];
    let Some(fields) = status.as_object_mut() else { return };
    fields.retain(|key, _| NEEDED.contains(&key.as_str()));
    fields.insert("image".to_owned(), json!(""));
    fields.insert("imageID".to_owned(), json!(""));
}

/// DataVolumes of the Containerized Data Importer, where a cluster has it.
pub enum DataVolumes {}

impl Kind for DataVolumes {
    type Object = DynamicObject;
    const KIND: &'static str = "DataVolume";
    const GROUP: &'static str = "cdi.kubevirt.io";
    const VERSION: &'static str = "v1beta1";
    const PLURAL: &'static str = "datavolumes";

    fn is_dropped(path: &[&str], key: &str) -> bool {
        const OF_METADATA: [&str; 6] =
            ["name", "namespace", "uid", "resourceVersion", "ownerReferences", "annotations"];
        match path {
            [] => key == "spec",
            ["metadata"] => !OF_METADATA.contains(&key),
            ["metadata", "annotations"] => key != volume_annotation::POOL,
            // The percentage is reported often, and changes nothing.
            ["status"] => !["phase", "conditions"].contains(&key),
            _ => false,
        }
    }

    fn trim(object: &mut Map<String, Value>) {
        if let Some(status) = part(object, "status") {
            let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
            for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
                condition.retain(|key, _| ["type", "status", "reason", "message"].contains(&key.as_str()));
            }
        }
    }
}

/// PersistentVolumeClaims, of every namespace: of each what a pod and the status of its machine are made of.
pub enum VolumeClaims {}

/// `true` on a claim whose blocks the Containerized Data Importer allocated.
pub const PREALLOCATED: &str = "cdi.kubevirt.io/storage.preallocation";

impl Kind for VolumeClaims {
    type Object = PersistentVolumeClaim;
    const KIND: &'static str = "PersistentVolumeClaim";
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "persistentvolumeclaims";

    fn is_dropped(path: &[&str], key: &str) -> bool {
        const OF_METADATA: [&str; 7] =
            ["name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "ownerReferences", "annotations"];
        match path {
            ["metadata"] => !OF_METADATA.contains(&key),
            ["metadata", "annotations"] => ![PREALLOCATED, volume_annotation::POOL].contains(&key),
            ["spec"] => !["accessModes", "resources", "volumeMode", "dataSourceRef"].contains(&key),
            ["status"] => key != "capacity",
            _ => false,
        }
    }
}
