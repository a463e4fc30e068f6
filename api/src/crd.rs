//! CustomResourceDefinitions, from the same types that read manifests.
//!
//! A definition is a value: `deploy/base/crds/` holds it as YAML, and a test compares. Names, columns and versions are
//! KubeVirt's (inventory: `pkg/virt-operator/resource/generate/components/crds.go`); rules that CEL can express are
//! here too, so that the API server refuses it although no webhook is there.

use serde_json::{Map, Value, json};

use crate::group::Group;
use crate::kind::{Kind, SIZES};
use crate::schema;

/// The group of machines, instances, sets, presets and settings.
pub const GROUP: &str = "kubevirt.io";
/// The version that is stored.
pub const STORED_VERSION: &str = "v1";
/// The version that is served beside it: the same fields under an older name.
pub const OLD_VERSION: &str = "v1alpha3";
/// The version of machines whose `domain` has libvirt's form: [`crate::versions`].
pub const LIBVIRT_VERSION: &str = "v1alpha1";
/// The version of machines and instances with other fields: [`crate::versions`].
pub const FIRST_VERSION: &str = "v1alpha2";

/// What a definition has of a kind beside its fields.
struct Naming {
    plural: &'static str,
    singular: &'static str,
    short: &'static [&'static str],
    columns: &'static [Column],
    subresources: Subresources,
    rules: &'static [Rule],
    /// Why no version of it should be used any more, and what to write instead.
    deprecation: Option<&'static str>,
}

/// A column of `kubectl get`.
struct Column {
    name: &'static str,
    of: &'static str,
    path: &'static str,
    /// 0 is always shown; what is above it only with `-o wide`.
    priority: u8,
}

#[derive(Clone, Copy, PartialEq)]
enum Subresources {
    Status,
    /// Beside the status: how many there are, and are to be, for `kubectl scale` and autoscalers.
    Scale,
    /// Spec and status are one object, as KubeVirt has it for VMIs.
    None,
}

/// A rule that the API server checks by itself.
struct Rule {
    /// Fields from the root to the object it is about.
    at: &'static [&'static str],
    rule: &'static str,
    message: &'static str,
}

const ONE_STRATEGY: Rule = Rule {
    at: &[],
    rule: "has(self.running) != has(self.runStrategy)",
    message: "write exactly one of running and runStrategy",
};

const AGE: Column = Column { name: "Age", of: "date", path: ".metadata.creationTimestamp", priority: 0 };

const VIRTUAL_MACHINE: Naming = Naming {
    plural: "virtualmachines",
    singular: "virtualmachine",
    short: &["vm", "vms"],
    columns: &[
        AGE,
        Column { name: "Status", of: "string", path: ".status.printableStatus", priority: 0 },
        Column { name: "Ready", of: "string", path: ".status.conditions[?(@.type=='Ready')].status", priority: 0 },
    ],
    subresources: Subresources::Status,
    rules: &[Rule { at: &["spec"], ..ONE_STRATEGY }],
    deprecation: None,
};

const VIRTUAL_MACHINE_INSTANCE: Naming = Naming {
    plural: "virtualmachineinstances",
    singular: "virtualmachineinstance",
    short: &["vmi", "vmis"],
    columns: &[
        AGE,
        Column { name: "Phase", of: "string", path: ".status.phase", priority: 0 },
        Column { name: "IP", of: "string", path: ".status.interfaces[0].ipAddress", priority: 0 },
        Column { name: "NodeName", of: "string", path: ".status.nodeName", priority: 0 },
        Column { name: "Ready", of: "string", path: ".status.conditions[?(@.type=='Ready')].status", priority: 0 },
        Column {
            name: "Live-Migratable",
            of: "string",
            path: ".status.conditions[?(@.type=='LiveMigratable')].status",
            priority: 1,
        },
        Column { name: "Paused", of: "string", path: ".status.conditions[?(@.type=='Paused')].status", priority: 1 },
    ],
    subresources: Subresources::None,
    rules: &[],
    deprecation: None,
};

const REPLICA_SET: Naming = Naming {
    plural: "virtualmachineinstancereplicasets",
    singular: "virtualmachineinstancereplicaset",
    short: &["vmirs", "vmirss"],
    columns: &[
        Column { name: "Desired", of: "integer", path: ".spec.replicas", priority: 0 },
        Column { name: "Current", of: "integer", path: ".status.replicas", priority: 0 },
        Column { name: "Ready", of: "integer", path: ".status.readyReplicas", priority: 0 },
        AGE,
    ],
    subresources: Subresources::Scale,
    rules: &[],
    deprecation: None,
};

const PRESET: Naming = Naming {
    plural: "virtualmachineinstancepresets",
    singular: "virtualmachineinstancepreset",
    short: &["vmipreset", "vmipresets"],
    columns: &[AGE],
    subresources: Subresources::None,
    rules: &[],
    deprecation: Some("presets are deprecated in KubeVirt; write what they give into the instances and templates"),
};

const POOL: Naming = Naming {
    plural: "virtualmachinepools",
    singular: "virtualmachinepool",
    short: &["vmpool", "vmpools"],
    columns: REPLICA_SET.columns,
    subresources: Subresources::Scale,
    rules: &[Rule { at: &["spec", "virtualMachineTemplate", "spec"], ..ONE_STRATEGY }],
    deprecation: None,
};

const KUBEVIRT: Naming = Naming {
    plural: "kubevirts",
    singular: "kubevirt",
    short: &["kv", "kvs"],
    columns: &[AGE, Column { name: "Phase", of: "string", path: ".status.phase", priority: 0 }],
    subresources: Subresources::Status,
    rules: &[],
    deprecation: None,
};

const INSTANCETYPE: Naming = size(
    "virtualmachineinstancetypes",
    "virtualmachineinstancetype",
    &["vminstancetype", "vminstancetypes", "vmf", "vmfs"],
);

const CLUSTER_INSTANCETYPE: Naming = size(
    "virtualmachineclusterinstancetypes",
    "virtualmachineclusterinstancetype",
    &["vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"],
);

const PREFERENCE: Naming =
    size("virtualmachinepreferences", "virtualmachinepreference", &["vmpref", "vmprefs", "vmp", "vmps"]);

const CLUSTER_PREFERENCE: Naming =
    size("virtualmachineclusterpreferences", "virtualmachineclusterpreference", &["vmcp", "vmcps"]);

const fn size(plural: &'static str, singular: &'static str, short: &'static [&'static str]) -> Naming {
    Naming { plural, singular, short, columns: &[AGE], subresources: Subresources::None, rules: &[], deprecation: None }
}

/// The kinds that have a definition, in the order in which they are installed.
pub const KINDS: [Kind; 10] = {
    let [instancetype, cluster_instancetype, preference, cluster_preference] = SIZES;
    [
        Kind::KubeVirt,
        Kind::VirtualMachine,
        Kind::VirtualMachineInstance,
        Kind::ReplicaSet,
        Kind::Preset,
        Kind::Pool,
        instancetype,
        cluster_instancetype,
        preference,
        cluster_preference,
    ]
};

const fn naming(kind: Kind) -> Option<Naming> {
    match kind {
        Kind::VirtualMachine => Some(VIRTUAL_MACHINE),
        Kind::VirtualMachineInstance => Some(VIRTUAL_MACHINE_INSTANCE),
        Kind::ReplicaSet => Some(REPLICA_SET),
        Kind::Preset => Some(PRESET),
        Kind::Pool => Some(POOL),
        Kind::KubeVirt => Some(KUBEVIRT),
        Kind::VirtualMachineInstancetype => Some(INSTANCETYPE),
        Kind::VirtualMachineClusterInstancetype => Some(CLUSTER_INSTANCETYPE),
        Kind::VirtualMachinePreference => Some(PREFERENCE),
        Kind::VirtualMachineClusterPreference => Some(CLUSTER_PREFERENCE),
        Kind::Secret | Kind::ConfigMap | Kind::PersistentVolumeClaim | Kind::Other => None,
    }
}

/// The CustomResourceDefinition of a kind, or nothing for kinds that have none here.
pub fn definition(kind: Kind) -> Option<Value> {
    let (naming, group) = (naming(kind)?, kind.group()?);
    let described = schema(kind, &naming)?;
    let bare = without_descriptions(described.clone());
    let mut served = vec![version(group.newer, group, &naming, described), version(group.older, group, &naming, bare)];
    if has_first_version(kind) {
        served.push(version(FIRST_VERSION, group, &naming, open_schema()));
    }
    if kind == Kind::VirtualMachine {
        served.push(version(LIBVIRT_VERSION, group, &naming, open_schema()));
    }
    Some(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{}", naming.plural, group.name),
            "labels": { "app.kubernetes.io/part-of": "garboard", "kubevirt.io": "" },
        },
        "spec": {
            "group": group.name,
            "scope": if kind.is_of_cluster() { "Cluster" } else { "Namespaced" },
            "names": {
                "categories": ["all"],
                "kind": kind.name(),
                "listKind": format!("{}List", kind.name()),
                "plural": naming.plural,
                "shortNames": naming.short,
                "singular": naming.singular,
            },
            "versions": served,
        },
    }))
}

fn version(name: &str, group: Group, naming: &Naming, mut schema: Value) -> Value {
    // What is empty an API server does not store, and the chart compares what is stored.
    if schema["required"] == json!([])
        && let Some(whole) = schema.as_object_mut()
    {
        whole.remove("required");
    }
    let columns: Vec<Value> = naming.columns.iter().map(column).collect();
    let mut version = json!({
        "name": name,
        "served": true,
        "storage": name == group.stored,
        "additionalPrinterColumns": columns,
        "schema": { "openAPIV3Schema": schema },
    });
    let differs = match name {
        // Where it is stored it is for clients of either.
        _ if name == group.older => (group.older != group.stored).then_some("the fields are the same"),
        FIRST_VERSION => Some("a disk has the name of its volume there, and registryDisk is called containerDisk"),
        LIBVIRT_VERSION => Some("a domain has KubeVirt's own form there"),
        _ => None,
    };
    if let Some(differs) = differs {
        version["deprecated"] = true.into();
        version["deprecationWarning"] = format!("write {}; {differs}", group.api_version()).into();
    }
    if let Some(deprecation) = naming.deprecation {
        version["deprecated"] = true.into();
        version["deprecationWarning"] = deprecation.into();
    }
    match naming.subresources {
        Subresources::None => {}
        Subresources::Status => version["subresources"] = json!({ "status": {} }),
        Subresources::Scale => {
            version["subresources"] = json!({
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.labelSelector",
                },
            });
        }
    }
    version
}

/// Whether a kind is served in [`FIRST_VERSION`] too. The API server has its objects converted by the controller, which says so in the
/// definition: no conversion is here, so that applying a definition again takes nothing away.
#[must_use]
pub const fn has_first_version(kind: Kind) -> bool {
    match kind {
        Kind::VirtualMachine | Kind::VirtualMachineInstance => true,
        Kind::ReplicaSet
        | Kind::Preset
        | Kind::Pool
        | Kind::KubeVirt
        | Kind::VirtualMachineInstancetype
        | Kind::VirtualMachineClusterInstancetype
        | Kind::VirtualMachinePreference
        | Kind::VirtualMachineClusterPreference
        | Kind::Secret
        | Kind::ConfigMap
        | Kind::PersistentVolumeClaim
        | Kind::Other => false,
    }
}

/// Everything is taken: what is converted to the stored version is judged as that.
fn open_schema() -> Value {
    let open = || json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": { "type": "string" },
            "kind": { "type": "string" },
            "metadata": { "type": "object" },
            "spec": open(),
            "status": open(),
        },
    })
}

fn column(column: &Column) -> Value {
    let mut printed = json!({ "name": column.name, "type": column.of, "jsonPath": column.path });
    if column.priority > 0 {
        printed["priority"] = column.priority.into();
    }
    printed
}

/// The schema of a kind as the API server takes it: it has its own schema of metadata.
fn schema(kind: Kind, naming: &Naming) -> Option<Value> {
    let mut schema = schema::json_schema(kind)?;
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.insert("apiVersion".to_owned(), json!({ "type": "string" }));
        fields.insert("kind".to_owned(), json!({ "type": "string" }));
        fields.insert("metadata".to_owned(), json!({ "type": "object" }));
        // Newer controllers may write what we do not know.
        if let Some(status) = fields.get_mut("status").and_then(Value::as_object_mut) {
            status.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
            key_conditions(status);
        }
    }
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|field| field == "spec");
    }
    if let Some(spec) = schema.pointer_mut("/properties/spec") {
        keep_unknown(spec);
    }
    for rule in naming.rules {
        add_rule(&mut schema, rule);
    }
    Some(schema)
}

/// Conditions are owned one by one, by their type: controller and node agent each write their own.
fn key_conditions(status: &mut Map<String, Value>) {
    let conditions = status.get_mut("properties").and_then(|fields| fields.get_mut("conditions"));
    if let Some(conditions) = conditions.and_then(Value::as_object_mut) {
        conditions.insert("x-kubernetes-list-type".to_owned(), "map".into());
        conditions.insert("x-kubernetes-list-map-keys".to_owned(), json!(["type"]));
    }
}

/// Has the API server hand unknown fields to the webhooks instead of dropping them unseen: those refuse them, and name
/// what to write instead.
fn keep_unknown(schema: &mut Value) {
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.values_mut().for_each(keep_unknown);
    }
    if schema["type"] == "object" && schema.get("additionalProperties").is_none() {
        schema["x-kubernetes-preserve-unknown-fields"] = true.into();
    }
    for nested in ["items", "additionalProperties"] {
        if let Some(nested) = schema.get_mut(nested) {
            keep_unknown(nested);
        }
    }
}

fn add_rule(schema: &mut Value, rule: &Rule) {
    let target = rule.at.iter().try_fold(schema, |schema, field| schema.get_mut("properties")?.get_mut(*field));
    let Some(target) = target.and_then(Value::as_object_mut) else { return };
    let rules = target.entry("x-kubernetes-validations").or_insert_with(|| Value::Array(Vec::new()));
    if let Some(rules) = rules.as_array_mut() {
        rules.push(json!({ "rule": rule.rule, "message": rule.message }));
    }
}

/// A schema without what is only for people. A field that is called `description` stays.
fn without_descriptions(schema: Value) -> Value {
    let Value::Object(schema) = schema else { return schema };
    let known = schema.into_iter().filter(|(key, _)| key != "description").map(|(key, value)| {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => fields
                .into_iter()
                .map(|(name, field)| (name, without_descriptions(field)))
                .collect::<Map<_, _>>()
                .into(),
            ("items" | "additionalProperties", nested) => without_descriptions(nested),
            (_, value) => value,
        };
        (key, value)
    });
    Value::Object(known.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_has_its_versions_and_stores_one() {
        for kind in KINDS {
            let definition = definition(kind).unwrap();
            let versions = definition["spec"]["versions"].as_array().unwrap();
            let stored: Vec<_> = versions.iter().filter(|version| version["storage"] == true).collect();
            let count = 2 + usize::from(has_first_version(kind)) + usize::from(kind == Kind::VirtualMachine);
            assert_eq!((versions.len(), stored.len()), (count, 1));
            assert!(definition["spec"].get("conversion").is_none(), "the controller's");
            let group = kind.group().unwrap();
            assert_eq!((&stored[0]["name"], &definition["spec"]["group"]), (&json!(group.stored), &json!(group.name)));
            assert_eq!(
                definition["metadata"]["name"],
                format!("{}.{}", definition["spec"]["names"]["plural"].as_str().unwrap(), group.name)
            );
            assert_eq!(kind.api_version(), group.api_version());
        }
        assert_eq!(definition(Kind::Secret), None);
    }

    #[test]
    fn names_and_scopes_of_sizes_are_those_that_clients_ask_for() {
        for kind in SIZES {
            let names = definition(kind).unwrap();
            let (singular, scope) =
                (kind.name().to_lowercase(), if kind.is_of_cluster() { "Cluster" } else { "Namespaced" });
            assert_eq!(names["spec"]["names"]["singular"], singular);
            assert_eq!(names["spec"]["names"]["plural"], format!("{singular}s"));
            assert_eq!(names["spec"]["scope"], scope, "{singular}");
        }
    }

    #[test]
    fn only_the_virtual_machine_has_a_status_of_its_own() {
        let status = |kind| definition(kind).unwrap()["spec"]["versions"][0].get("subresources").is_some();
        assert!(status(Kind::VirtualMachine));
        assert!(!status(Kind::VirtualMachineInstance));
    }

    #[test]
    fn sets_and_pools_are_scaled_by_both_versions() {
        let definitions = [Kind::ReplicaSet, Kind::Pool].map(|kind| definition(kind).unwrap());
        for version in definitions.iter().flat_map(|each| each["spec"]["versions"].as_array().unwrap()) {
            let scale = &version["subresources"]["scale"];
            let fields = &version["schema"]["openAPIV3Schema"]["properties"];
            for path in ["specReplicasPath", "statusReplicasPath", "labelSelectorPath"] {
                let (part, field) = scale[path].as_str().unwrap()[1..].split_once('.').unwrap();
                assert!(fields[part]["properties"][field].is_object(), "{path} leads to no field");
            }
        }
    }

    #[test]
    fn the_rules_are_where_they_belong() {
        let of_pools = "/properties/spec/properties/virtualMachineTemplate/properties/spec";
        for (kind, place) in [(Kind::VirtualMachine, "/properties/spec"), (Kind::Pool, of_pools)] {
            // The first versions are judged once they are converted.
            for version in &definition(kind).unwrap()["spec"]["versions"].as_array().unwrap()[..2] {
                let spec = version["schema"]["openAPIV3Schema"].pointer(place).unwrap();
                assert_eq!(spec["x-kubernetes-validations"].as_array().unwrap().len(), 1);
            }
        }
    }

    #[test]
    fn an_older_version_is_deprecated_unless_it_is_the_one_that_is_stored() {
        let warning = |kind: Kind, version: &str| {
            let definition = definition(kind).unwrap();
            let versions = definition["spec"]["versions"].as_array().unwrap();
            versions.iter().find(|each| each["name"] == version).unwrap()["deprecationWarning"].clone()
        };
        assert_eq!(warning(Kind::Pool, "v1alpha1"), "write pool.kubevirt.io/v1beta1; the fields are the same");
        assert_eq!(warning(Kind::ReplicaSet, "v1alpha3"), "write kubevirt.io/v1; the fields are the same");
        let of_libvirt = "write kubevirt.io/v1; a domain has KubeVirt's own form there";
        assert_eq!(warning(Kind::VirtualMachine, "v1alpha1"), of_libvirt);
        let sizes = SIZES.into_iter().flat_map(|kind| [(kind, "v1beta1"), (kind, "v1")]);
        for (kind, version) in sizes.chain([(Kind::Pool, "v1beta1"), (Kind::VirtualMachine, "v1")]) {
            assert!(warning(kind, version).is_null(), "{kind:?} {version}");
        }
    }

    #[test]
    fn no_limit_is_more_than_the_api_server_can_read() {
        fn check(value: &Value) {
            let limit = value.get("maximum").and_then(Value::as_f64);
            assert!(limit.is_none_or(|limit| limit < 2_f64.powi(53)), "{value}");
            match value {
                Value::Object(fields) => fields.values().for_each(check),
                Value::Array(items) => items.iter().for_each(check),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        KINDS.into_iter().for_each(|kind| check(&definition(kind).unwrap()));
    }

    #[test]
    fn the_old_version_has_no_descriptions() {
        let definition = definition(Kind::VirtualMachineInstance).unwrap();
        let old = &definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"];
        assert!(!old.to_string().contains("\"description\":\""));
    }
}
