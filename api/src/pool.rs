//! From a VirtualMachinePool to its machines. Pure.
//!
//! The name of a machine is that of its pool and its number: who creates one twice, because it does not know yet that it is there, is
//! refused by the API server. What a machine was made of is recorded under a name that follows from the template, so that a record
//! that is made twice is the same, too.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use uuid::Uuid;

use crate::kind::Kind;
use crate::metadata::{annotation, label};
use crate::v1::{
    VirtualMachine, VirtualMachinePool, VirtualMachinePoolNameGeneration, VirtualMachinePoolSpec, VirtualMachineSpec,
    VirtualMachineTemplateSpec, Volume,
};

/// Group and version of pools, as a manifest's `apiVersion` has it.
pub const API_VERSION: &str = "pool.kubevirt.io/v1beta1";
/// How many machines there are where a manifest does not say it.
pub const REPLICAS: i32 = 1;
/// The longest name of a pool, in bytes. With the [ending](revision_name) of a record it is the value of a label.
pub const LONGEST_NAME: usize = 63 - 1 - ENDING;
/// How many characters of a record's name follow from what it has.
const ENDING: usize = 8;

/// Annotations of machines that the controller alone writes: no machine has them of its template.
pub const OWN_ANNOTATIONS: [&str; 3] = [annotation::STORED_MACHINE, annotation::LEAVES_POOL, annotation::TRACE];

/// How many machines there are to be; 0 or more.
#[must_use]
pub fn wanted(pool: &VirtualMachinePool) -> usize {
    usize::try_from(pool.spec.replicas.unwrap_or(REPLICAS)).unwrap_or(0)
}

/// How many machines an update may keep from being ready; 1 or more. A part of `replicas` is rounded down. Of what the webhook would
/// refuse the least is taken.
#[must_use]
pub fn max_unavailable(pool: &VirtualMachinePool) -> usize {
    let number = match &pool.spec.max_unavailable {
        None => wanted(pool),
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or(1),
        Some(IntOrString::String(text)) => wanted(pool).saturating_mul(percent(text).unwrap_or(0)) / 100,
    };
    number.max(1)
}

/// The number of a percentage: `25%` is 25.
#[must_use]
pub fn percent(text: &str) -> Option<usize> {
    text.strip_suffix('%')?.parse().ok()
}

/// The name of the machine with a number.
#[must_use]
pub fn name(pool: &VirtualMachinePool, number: u32) -> String {
    indexed(pool.metadata.name.as_deref().unwrap_or_default(), number)
}

/// The number of a machine by its name; nothing for a name that this pool would not give.
#[must_use]
pub fn number(pool: &VirtualMachinePool, name: &str) -> Option<u32> {
    let number = name.strip_prefix(pool.metadata.name.as_deref()?)?.strip_prefix('-')?.parse().ok()?;
    Some(number).filter(|number| self::name(pool, *number) == name)
}

fn indexed(name: &str, number: u32) -> String {
    format!("{name}-{number}")
}

/// What machines are made of, and nothing else of a pool: what is recorded. The number of machines, for one, is not in it.
#[must_use]
pub fn recorded(pool: &VirtualMachinePool) -> VirtualMachinePoolSpec {
    VirtualMachinePoolSpec {
        virtual_machine_template: pool.spec.virtual_machine_template.clone(),
        name_generation: pool.spec.name_generation.clone(),
        ..VirtualMachinePoolSpec::default()
    }
}

/// The name of the record of what machines are made of now. Pools of one name that make the same machines have the same.
///
/// It never becomes another one for a pool that stays as it is: under another name all of its machines would be written anew, over what was
/// changed of them by hand.
#[must_use]
pub fn revision_name(pool: &VirtualMachinePool) -> String {
    let digest = Uuid::new_v5(&Uuid::nil(), content(pool).as_bytes()).simple().to_string();
    let ending: String = digest.chars().take(ENDING).collect();
    format!("{}-{ending}", pool.metadata.name.as_deref().unwrap_or_default())
}

/// What the name of a record follows from: what it has as JSON, the keys of each object in the order of their bytes, whatever the order of
/// fields is here.
fn content(pool: &VirtualMachinePool) -> String {
    let mut content = serde_json::to_value(recorded(pool)).unwrap_or_default();
    content.sort_all_objects();
    content.to_string()
}

/// The machine with a number, not defaulted yet.
#[must_use]
pub fn machine(pool: &VirtualMachinePool, number: u32) -> VirtualMachine {
    let revision = revision_name(pool);
    let mut spec = machine_spec(&pool.spec, number);
    let of_instance = spec.template.metadata.get_or_insert_default().labels.get_or_insert_default();
    of_instance.insert(label::POOL_REVISION.to_owned(), revision.clone());
    let mut labels = labels(&pool.spec.virtual_machine_template);
    labels.insert(label::POOL_REVISION.to_owned(), revision);
    VirtualMachine {
        api_version: crate::v1::API_VERSION.to_owned(),
        kind: Kind::VirtualMachine.name().to_owned(),
        metadata: ObjectMeta {
            name: Some(name(pool, number)),
            namespace: pool.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations(&pool.spec.virtual_machine_template)).filter(|all| !all.is_empty()),
            owner_references: owner(pool).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}

/// The labels that machines get of a template.
#[must_use]
pub fn labels(template: &VirtualMachineTemplateSpec) -> BTreeMap<String, String> {
    template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default()
}

/// The annotations that machines get of a template.
#[must_use]
pub fn annotations(template: &VirtualMachineTemplateSpec) -> BTreeMap<String, String> {
    let mut all = template.metadata.as_ref().and_then(|metadata| metadata.annotations.clone()).unwrap_or_default();
    all.retain(|key, _| !OWN_ANNOTATIONS.contains(&key.as_str()));
    all
}

/// The specification of the machine with a number, as a pool or a record of one has it: without the name of the record.
#[must_use]
pub fn machine_spec(pool: &VirtualMachinePoolSpec, number: u32) -> VirtualMachineSpec {
    let mut spec = pool.virtual_machine_template.spec.clone().unwrap_or_default();
    let mut brought = Vec::new();
    for template in &mut spec.data_volume_templates {
        if let Some(name) = template.metadata.as_mut().and_then(|metadata| metadata.name.as_mut()) {
            brought.push(name.clone());
            *name = indexed(name, number);
        }
    }
    let names = pool.name_generation.clone().unwrap_or_default();
    let volumes = spec.template.spec.iter_mut().flat_map(|instance| &mut instance.volumes);
    volumes.for_each(|volume| number_volume(volume, &brought, &names, number));
    spec
}

/// Appends the number to the name of what a volume is made of, where that is one machine's.
fn number_volume(volume: &mut Volume, brought: &[String], names: &VirtualMachinePoolNameGeneration, number: u32) {
    let is_brought = |name: &str| brought.iter().any(|each| each == name);
    if let Some(claim) = &mut volume.persistent_volume_claim
        && is_brought(&claim.claim_name)
    {
        claim.claim_name = indexed(&claim.claim_name, number);
    }
    if let Some(data) = &mut volume.data_volume
        && is_brought(&data.name)
    {
        data.name = indexed(&data.name, number);
    }
    let config_map = volume.config_map.as_mut().and_then(|source| source.name.as_mut());
    if let Some(name) = config_map.filter(|_| names.append_index_to_config_map_refs == Some(true)) {
        *name = indexed(name, number);
    }
    let secret = volume.secret.as_mut().and_then(|source| source.secret_name.as_mut());
    if let Some(name) = secret.filter(|_| names.append_index_to_secret_refs == Some(true)) {
        *name = indexed(name, number);
    }
}

/// The names of the DataVolumes, and of their claims, that the machine with a number brings along.
pub fn data_volumes(pool: &VirtualMachinePool, number: u32) -> impl Iterator<Item = String> {
    let templates = pool.spec.virtual_machine_template.spec.iter().flat_map(|spec| &spec.data_volume_templates);
    let names = templates.filter_map(|template| template.metadata.as_ref()?.name.as_deref());
    names.map(move |name| indexed(name, number))
}

/// The pool as the controller of a machine, which goes with it. One that no cluster has stored owns nothing.
#[must_use]
pub fn owner(pool: &VirtualMachinePool) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: Kind::Pool.name().to_owned(),
        name: pool.metadata.name.clone()?,
        uid: pool.metadata.uid.clone()?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(changes: Value) -> VirtualMachinePool {
        let storage = json!({"resources": {"requests": {"storage": "1Gi"}}});
        let mut spec = json!({
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "virtualMachineTemplate": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b", "garboard.dev/leaves-pool": "x"}},
                "spec": {
                    "runStrategy": "Always",
                    "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {"source": {"blank": {}}, "storage": storage}}],
                    "template": {"spec": {"domain": {"devices": {}}, "volumes": [
                        {"name": "root", "dataVolume": {"name": "root"}},
                        {"name": "again", "persistentVolumeClaim": {"claimName": "root"}},
                        {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
                        {"name": "map", "configMap": {"name": "map"}},
                        {"name": "secret", "secret": {"secretName": "secret"}},
                    ]}},
                },
            },
        });
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u"}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn a_name_has_a_number_and_a_number_one_name() {
        let web = pool(json!({}));
        assert_eq!((name(&web, 0), name(&web, 12)), ("web-0".to_owned(), "web-12".to_owned()));
        assert_eq!(number(&web, "web-12"), Some(12));
        for other in ["web-", "web-012", "web-+1", "web--1", "web-1-1", "web1", "webs-1", "web-4294967296", "web"] {
            assert_eq!(number(&web, other), None, "{other}");
        }
    }

    #[test]
    fn volumes_of_one_machine_get_its_number_and_others_where_it_is_asked_for() {
        let names = |changes: Value| -> Vec<String> {
            let spec = machine_spec(&pool(changes).spec, 7);
            let brought = spec.data_volume_templates[0].metadata.as_ref().unwrap().name.clone().unwrap();
            let volumes = spec.template.spec.unwrap().volumes;
            let of = |volume: Volume| {
                let claim = volume.persistent_volume_claim.map(|claim| claim.claim_name);
                let map = volume.config_map.and_then(|source| source.name);
                let secret = volume.secret.and_then(|source| source.secret_name);
                claim.or(map).or(secret).or(volume.data_volume.map(|source| source.name)).unwrap()
            };
            [brought].into_iter().chain(volumes.into_iter().map(of)).collect()
        };
        assert_eq!(names(json!({})), ["root-7", "root-7", "root-7", "shared", "map", "secret"]);
        let asked = json!({"nameGeneration": {"appendIndexToConfigMapRefs": true, "appendIndexToSecretRefs": true}});
        assert_eq!(names(asked), ["root-7", "root-7", "root-7", "shared", "map-7", "secret-7"]);
        let half = json!({"nameGeneration": {"appendIndexToConfigMapRefs": false, "appendIndexToSecretRefs": true}});
        assert_eq!(names(half), ["root-7", "root-7", "root-7", "shared", "map", "secret-7"]);
        assert_eq!(data_volumes(&pool(json!({})), 7).collect::<Vec<_>>(), ["root-7"]);
    }

    #[test]
    fn a_machine_has_the_template_its_owner_and_the_name_of_its_record() {
        let web = pool(json!({}));
        let made = serde_json::to_value(machine(&web, 2)).unwrap();
        let revision = revision_name(&web);
        let owner = json!({"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "web", "uid": "u",
            "controller": true, "blockOwnerDeletion": true});
        let metadata = json!({"name": "web-2", "namespace": "shop", "annotations": {"a": "b"}, "ownerReferences": [owner],
            "labels": {"app": "web", "kubevirt.io/vm-pool-revision-name": revision}});
        assert_eq!(made["metadata"], metadata);
        assert_eq!((&made["apiVersion"], &made["kind"]), (&json!("kubevirt.io/v1"), &json!("VirtualMachine")));
        let labels = &made["spec"]["template"]["metadata"]["labels"];
        assert_eq!(*labels, json!({"kubevirt.io/vm-pool-revision-name": revision}));
    }

    #[test]
    fn a_record_is_of_what_machines_are_made_of_and_of_nothing_else() {
        let web = pool(json!({}));
        let name = revision_name(&web);
        assert!(name.starts_with("web-") && name.len() == "web-".len() + ENDING, "{name}");
        for same in [json!({"replicas": 9}), json!({"paused": true}), json!({"maxUnavailable": 1})] {
            assert_eq!(revision_name(&pool(same.clone())), name, "{same}");
        }
        let mut other = web.clone();
        other.spec.virtual_machine_template.spec.as_mut().unwrap().run_strategy = Some("Halted".to_owned());
        assert_ne!(revision_name(&other), name);
        assert_ne!(revision_name(&pool(json!({"nameGeneration": {"appendIndexToSecretRefs": true}}))), name);
        let written = serde_json::to_value(recorded(&web)).unwrap();
        assert_eq!(serde_json::from_value::<VirtualMachinePoolSpec>(written).unwrap(), recorded(&web));
        let mut long = web;
        long.metadata.name = Some("x".repeat(LONGEST_NAME));
        assert_eq!(revision_name(&long).len(), 63);
    }

    /// Machines in clusters name these records: a row may be added, and none ever changes.
    #[test]
    fn the_name_of_a_record_never_becomes_another_one() {
        let of_template = |spec: Value| -> VirtualMachinePool {
            let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "virtualMachineTemplate": {"spec": spec}});
            serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap()
        };
        let minimal = json!({"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}}}});
        let sized = json!({
            "running": true,
            "instancetype": {"name": "u1.small", "kind": "VirtualMachineInstancetype"},
            "preference": {"name": "debian"},
            "template": {"metadata": {"labels": {"tier": "front", "app": "web"}}, "spec": {
                "terminationGracePeriodSeconds": 10, "nodeSelector": {"zone": "a"}, "hostname": "first",
                "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
                "networks": [{"name": "default", "pod": {}}],
                "domain": {"memory": {"guest": "64Mi"}, "cpu": {"cores": 2}, "devices": {
                    "interfaces": [{"name": "default", "masquerade": {}}],
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                }},
                "volumes": [{"name": "root", "containerDisk": {"image": "example.org/root:1"}}],
            }},
        });
        let minimal = of_template(minimal);
        let text = r#"{"selector":{},"virtualMachineTemplate":{"spec":{"runStrategy":"Always","template":{"spec":{"domain":{"devices":{}}}}}}}"#;
        assert_eq!(content(&minimal), text);
        let numbered = pool(json!({"nameGeneration": {"appendIndexToSecretRefs": true}}));
        let table = [
            (minimal, "web-9fa34a58"),
            (pool(json!({})), "web-59381e58"),
            (numbered, "web-646458c0"),
            (of_template(sized), "web-52b20823"),
        ];
        for (web, expected) in table {
            assert_eq!(revision_name(&web), expected, "{}", content(&web));
        }
    }

    #[test]
    fn some_machines_may_be_unavailable_and_one_at_least() {
        let table = [
            (json!({"replicas": 10}), 10),
            (json!({"replicas": 0}), 1),
            (json!({"replicas": 10, "maxUnavailable": 3}), 3),
            (json!({"replicas": 10, "maxUnavailable": "25%"}), 2),
            (json!({"replicas": 10, "maxUnavailable": "1%"}), 1),
            (json!({"replicas": 10, "maxUnavailable": "100%"}), 10),
            (json!({"replicas": 10, "maxUnavailable": 0}), 1),
            (json!({"replicas": 10, "maxUnavailable": -4}), 1),
            (json!({"replicas": 10, "maxUnavailable": "many"}), 1),
        ];
        for (changes, expected) in table {
            assert_eq!(max_unavailable(&pool(changes.clone())), expected, "{changes}");
        }
    }

    #[test]
    fn one_machine_is_wanted_where_no_number_is_given_and_never_less_than_none() {
        let mut web = pool(json!({}));
        for (written, expected) in [(None, 1), (Some(0), 0), (Some(7), 7), (Some(-1), 0)] {
            web.spec.replicas = written;
            assert_eq!(wanted(&web), expected);
        }
    }
}
