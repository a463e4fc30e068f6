//! From raw JSON to an object that may be stored, or to everything that is wrong with it.
//!
//! There are two answers. An API client gets the one that KubeVirt gives ([`admit`]): what is structurally
//! wrong comes alone, since the API server answers before any rule has looked. A person gets every mistake of a file
//! at once ([`review`]): the rules judge what is left when the wrong parts are taken out.

use std::borrow::Cow;

use serde_json::Value;
use uuid::Uuid;

use super::report::{Report, printable};
use super::{
    ValidationVerdict, kubevirt, pool as pools, preset, sizes, validate_replica_set, validate_vmi, verdict, whole,
};
use crate::cluster::ClusterConfig;
use crate::crd::KINDS;
use crate::defaults::{Identity, default_vm, default_vmi, vmi_of};
use crate::fault::{Fault, FaultCode, FieldPath};
use crate::fields::{self, Judgement, Setting};
use crate::instancetype::{self, Sizing, VirtualMachineInstancetype, VirtualMachinePreference};
use crate::kind::{Kind, kind_of};
use crate::pool;
use crate::quantity::Quantity;
use crate::schema::inspect_as;
use crate::set;
use crate::v1::{
    API_VERSION, KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePreset,
    VirtualMachineInstanceReplicaSet, VirtualMachinePool,
};

/// An object that was admitted, with its defaults.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A machine.
    VirtualMachine(Box<VirtualMachine>),
    /// An instance.
    VirtualMachineInstance(Box<VirtualMachineInstance>),
    /// A set of instances.
    ReplicaSet(Box<VirtualMachineInstanceReplicaSet>),
    /// A preset.
    Preset(Box<VirtualMachineInstancePreset>),
    /// A pool of machines.
    Pool(Box<VirtualMachinePool>),
    /// The settings of a cluster.
    KubeVirt(Box<KubeVirt>),
    /// An instancetype, of a namespace or of the cluster.
    Instancetype(Box<VirtualMachineInstancetype>),
    /// A preference, of a namespace or of the cluster.
    Preference(Box<VirtualMachinePreference>),
}

/// The answer to an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admission {
    /// Why it is refused. Empty: it is admitted.
    pub faults: Vec<Fault>,
    /// What its user should know, whether it is admitted or not.
    pub warnings: Vec<Fault>,
    /// The object with its defaults, if it is admitted.
    pub object: Option<Object>,
}

/// Answers as the API server does: structural faults alone, or else those of the rules and of the table of fields.
///
/// The UUID of an instance's firmware is not made up here, for that would not be pure: where the manifest has none, the
/// object has the nil UUID, and the caller replaces it.
pub fn admit(manifest: &Value, config: &ClusterConfig) -> Admission {
    let kind = kind_of(manifest);
    let (faults, rest) = inspect(kind, manifest);
    if !faults.is_empty() && kind != Kind::KubeVirt {
        return Admission { faults, ..Admission::default() };
    }
    with_structural(faults, judge(kind, manifest, rest, &Known { config, sizing: &Sizing::default() }))
}

/// Answers with every mistake at once: structural faults, and those that the rules find in the rest.
///
/// What only follows from a structural fault (a volume without a source, because its source was misspelt) is left out.
pub fn review(manifest: &Value, config: &ClusterConfig) -> Admission {
    review_sized(manifest, config, &Sizing::default())
}

/// The same for a machine of which the instancetype and the preference are known: the rules judge it with both in its template. The
/// object that comes back has of them only what admission writes ([`settle`](crate::instancetype::settle)).
pub fn review_sized(manifest: &Value, config: &ClusterConfig, sizing: &Sizing) -> Admission {
    let kind = kind_of(manifest);
    let (faults, rest) = inspect(kind, manifest);
    with_structural(faults, judge(kind, manifest, rest, &Known { config, sizing }))
}

/// What is known beside the manifest.
struct Known<'a> {
    config: &'a ClusterConfig,
    sizing: &'a Sizing,
}

fn with_structural(faults: Vec<Fault>, mut admission: Admission) -> Admission {
    if faults.is_empty() {
        return admission;
    }
    let follows = |fault: &Fault| faults.iter().any(|known| touches(&known.path, &fault.path));
    admission.faults.retain(|fault| !follows(fault));
    admission.warnings.retain(|fault| !follows(fault));
    admission.faults.splice(0..0, faults);
    admission.object = None;
    admission
}

/// Whether one of the places is the other, or inside it.
fn touches(one: &FieldPath, other: &FieldPath) -> bool {
    let (short, long) = if one.as_str().len() < other.as_str().len() { (one, other) } else { (other, one) };
    long.as_str().strip_prefix(short.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Judges what is structurally right of a manifest, `rest`. Of KubeVirt's settings the table has to see all.
fn judge(kind: Kind, manifest: &Value, rest: Value, known: &Known<'_>) -> Admission {
    let config = known.config;
    match kind {
        Kind::VirtualMachine => match serde_json::from_value(rest.clone()) {
            Ok(vm) => machine(vm, &rest, known),
            Err(error) => undecodable(&error),
        },
        Kind::VirtualMachineInstance => match serde_json::from_value(rest.clone()) {
            Ok(vmi) => instance(vmi, &rest, config),
            Err(error) => undecodable(&error),
        },
        Kind::ReplicaSet => match serde_json::from_value(rest.clone()) {
            Ok(set) => replica_set(set, &rest, config),
            Err(error) => undecodable(&error),
        },
        Kind::Preset => match serde_json::from_value(rest.clone()) {
            Ok(preset) => of_preset(preset, &rest, config),
            Err(error) => undecodable(&error),
        },
        Kind::Pool => match serde_json::from_value(rest.clone()) {
            Ok(pool) => of_pool(pool, &rest, known),
            Err(error) => undecodable(&error),
        },
        Kind::KubeVirt => match serde_json::from_value(rest) {
            Ok(object) => settings(object, &manifest["spec"]),
            Err(error) => undecodable(&error),
        },
        Kind::VirtualMachineInstancetype | Kind::VirtualMachineClusterInstancetype => {
            match serde_json::from_value(rest.clone()) {
                Ok(object) => sizes::instancetype(object, &rest["spec"], config),
                Err(error) => undecodable(&error),
            }
        }
        Kind::VirtualMachinePreference | Kind::VirtualMachineClusterPreference => match serde_json::from_value(rest) {
            Ok(object) => sizes::preference(object, config),
            Err(error) => undecodable(&error),
        },
        Kind::Secret | Kind::ConfigMap | Kind::PersistentVolumeClaim | Kind::Other => {
            Admission { faults: vec![printable(foreign(manifest))], ..Admission::default() }
        }
    }
}

/// What is no object of ours: another version of a kind that is, or another kind.
fn foreign(manifest: &Value) -> Fault {
    let written = |field: &str| manifest.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (written("apiVersion"), written("kind"));
    let of_group = |ours: &Kind| ours.group().is_some_and(|group| group.version_in(version).is_some());
    if let Some(ours) = KINDS.into_iter().find(|ours| ours.name() == kind).filter(of_group) {
        let text = format!("`{version}` is not a version of {kind} that is served");
        let fault = Fault::new(FieldPath::from("apiVersion"), FaultCode::NotSupported, text);
        return fault.instead(format!("write `{}`", ours.api_version()));
    }
    let text = match (kind, version) {
        ("", _) => "the object has no `kind`".to_owned(),
        (kind, "") => format!("{kind} is not supported: the object has no `apiVersion`"),
        (kind, version) => format!("{kind} of `{version}` is not supported by this version of Garboard"),
    };
    let fault = Fault::new(FieldPath::from("kind"), FaultCode::NotSupported, text);
    fault.instead(format!("write a `VirtualMachine` or `VirtualMachineInstance` of `{API_VERSION}`"))
}

fn settings(object: KubeVirt, spec: &Value) -> Admission {
    let mut report = Report::default();
    kubevirt::check(&object, &mut report);
    let warnings = collect(kubevirt::judge(spec), &mut report);
    let faults = report.into_faults();
    let object = faults.is_empty().then(|| Object::KubeVirt(Box::new(object)));
    Admission { faults, warnings, object }
}

/// Adds to the report what a table refuses, where no rule has spoken; gives what it warns of.
fn collect(found: Judgement, report: &mut Report) -> Vec<Fault> {
    found.refused.into_iter().for_each(|fault| report.push_unless_known(fault));
    found.warned.into_iter().map(printable).collect()
}

/// The structural check of an object. Fields that KubeVirt has for its own settings are known, though our types lack them.
fn inspect(kind: Kind, manifest: &Value) -> (Vec<Fault>, Value) {
    let inspection = inspect_as(kind, manifest.clone());
    let is_known = |fault: &Fault| {
        kind == Kind::KubeVirt && fault.code == FaultCode::UnknownField && kubevirt::is_kubevirts(&fault.path)
    };
    let faults = inspection.faults.into_iter().filter(|fault| !is_known(fault)).map(printable).collect();
    (faults, inspection.rest)
}

/// A shape the structural check let pass and the types do not take. It comes without a path, but never as a success.
fn undecodable(error: &serde_json::Error) -> Admission {
    let fault = Fault::new(FieldPath::root(), FaultCode::WrongType, format!("the object cannot be read: {error}"));
    let fault = fault.instead("write the object as the reference of its kind has it");
    Admission { faults: vec![printable(fault)], ..Admission::default() }
}

fn instance(mut vmi: VirtualMachineInstance, manifest: &Value, config: &ClusterConfig) -> Admission {
    let spec = without_usual_room(&manifest["spec"], || vmi.clone(), config);
    let written = vmi.spec.domain.devices.disks.len();
    default_vmi(&mut vmi, config, &Identity { firmware_uuid: Uuid::nil() });
    let mut report = Report::from(validate_vmi(&vmi, config));
    let mut warnings = collect(of_instance(&spec, &FieldPath::from("spec"), config), &mut report);
    let metadata = fields::judge_annotations(fields::ANNOTATIONS, &manifest["metadata"], &FieldPath::from("metadata"));
    warnings.extend(collect(metadata, &mut report));
    let mut faults = report.into_faults();
    name_the_volume(&mut faults, &vmi, written, "spec");
    let object = faults.is_empty().then(|| Object::VirtualMachineInstance(Box::new(vmi)));
    Admission { faults, warnings, object }
}

fn machine(mut vm: VirtualMachine, manifest: &Value, known: &Known<'_>) -> Admission {
    let config = known.config;
    let written = vm.spec.template.spec.as_ref().map_or(0, |spec| spec.domain.devices.disks.len());
    let template = without_usual_room(&manifest["spec"]["template"]["spec"], || vmi_of(&vm), config);
    // Before the defaults of the cluster: what the preference prefers.
    if let Some(preference) = &known.sizing.preference {
        instancetype::settle(&mut vm, preference);
    }
    default_vm(&mut vm, config);
    let whole = whole::of(&vm, known.sizing, config);
    let ValidationVerdict { faults, mut warnings } = verdict(&whole.vm, config, whole.is_complete);
    let mut report = Report::from(faults);
    let at = FieldPath::from("spec");
    let inside = at.child("template.metadata");
    let table = match whole.template() {
        Some(template) => {
            let template = without_usual_room(&template, || vmi_of(&whole.vm), config);
            of_instance(&template, &at.child("template.spec"), config)
        }
        None => of_instance(&template, &at.child("template.spec"), config),
    };
    let annotated = whole.annotated().unwrap_or_else(|| manifest["spec"]["template"]["metadata"].clone());
    for found in [
        fields::judge(&fields::MACHINE, &manifest["spec"], &at, Setting::of(config)),
        fields::judge_annotations(fields::OF_MACHINES, &manifest["metadata"], &FieldPath::from("metadata")),
        table,
        fields::judge_annotations(fields::ANNOTATIONS, &annotated, &inside),
    ] {
        warnings.extend(collect(found, &mut report));
    }
    let mut faults = report.into_faults();
    whole.name_the_source(&mut faults, &vm, config);
    faults.extend(whole.conflicts.iter().cloned().map(printable));
    warnings.extend(known.sizing.missing.iter().cloned().map(printable));
    for found in [&mut warnings, &mut faults] {
        if !found.is_empty() {
            name_the_volume(found, &vmi_of(&whole.vm), written, "spec.template.spec");
        }
    }
    drop(whole);
    let object = faults.is_empty().then(|| Object::VirtualMachine(Box::new(vm)));
    Admission { faults, warnings, object }
}

fn replica_set(mut set: VirtualMachineInstanceReplicaSet, manifest: &Value, config: &ClusterConfig) -> Admission {
    // What is written now, so that a scale has a number to begin with; an autoscaler has none of a field that is not there.
    set.spec.replicas.get_or_insert(set::REPLICAS);
    let written = set.spec.template.spec.as_ref().map_or(0, |spec| spec.domain.devices.disks.len());
    let instance = || set::instance(&set, &set::name(&set, 0));
    let template = without_usual_room(&manifest["spec"]["template"]["spec"], instance, config);
    let ValidationVerdict { faults, mut warnings } = validate_replica_set(&set, config);
    let mut report = Report::from(faults);
    let at = FieldPath::from("spec");
    let inside = at.child("template.metadata");
    for found in [
        fields::judge(&fields::REPLICA_SET, &manifest["spec"], &at, Setting::of(config)),
        of_instance(&template, &at.child("template.spec"), config),
        fields::judge_annotations(fields::ANNOTATIONS, &manifest["spec"]["template"]["metadata"], &inside),
    ] {
        warnings.extend(collect(found, &mut report));
    }
    let faults = report.into_faults();
    if !warnings.is_empty() {
        let mut vmi = instance();
        default_vmi(&mut vmi, config, &Identity { firmware_uuid: Uuid::nil() });
        name_the_volume(&mut warnings, &vmi, written, "spec.template.spec");
    }
    let object = faults.is_empty().then(|| Object::ReplicaSet(Box::new(set)));
    Admission { faults, warnings, object }
}

fn of_preset(preset: VirtualMachineInstancePreset, manifest: &Value, config: &ClusterConfig) -> Admission {
    let (spec, at) = (&manifest["spec"], FieldPath::from("spec"));
    let mut report = Report::from(preset::check(&preset, config));
    let warnings = collect(fields::judge(&fields::PRESET, spec, &at, Setting::of(config)), &mut report);
    // What no instance may have, no preset can give it.
    let refused = of_instance(spec, &at, config).refused;
    collect(Judgement { refused, ..Judgement::default() }, &mut report);
    let faults = report.into_faults();
    let object = faults.is_empty().then(|| Object::Preset(Box::new(preset)));
    Admission { faults, warnings, object }
}

/// A pool has rules of its own; its template is judged as the machine that it makes, at its place in the pool.
fn of_pool(mut pool: VirtualMachinePool, manifest: &Value, known: &Known<'_>) -> Admission {
    // As of a set: a scale needs a number to begin with.
    pool.spec.replicas.get_or_insert(pool::REPLICAS);
    let (spec, at) = (&manifest["spec"], FieldPath::from("spec"));
    let mut report = Report::from(pools::check(&pool));
    let mut warnings = pools::warnings(&pool);
    warnings.extend(collect(fields::judge(&fields::POOL, spec, &at, Setting::of(known.config)), &mut report));
    let template = at.child("virtualMachineTemplate");
    let of_template = machine(machine_of(&pool), &spec["virtualMachineTemplate"], known);
    // Its name is the pool's, which is judged.
    let is_written = |fault: &Fault| fault.path.as_str() != "metadata.name";
    for fault in of_template.faults.into_iter().filter(is_written) {
        report.push_unless_known(within(&template, fault));
    }
    warnings.extend(of_template.warnings.into_iter().map(|fault| within(&template, fault)));
    let faults = report.into_faults();
    let object = faults.is_empty().then(|| Object::Pool(Box::new(pool)));
    Admission { faults, warnings, object }
}

/// The machine of a pool as its template has it, before names in it get a number.
fn machine_of(pool: &VirtualMachinePool) -> VirtualMachine {
    let template = pool.spec.virtual_machine_template.clone();
    let mut metadata = template.metadata.unwrap_or_default();
    metadata.name = Some(pool::name(pool, 0));
    metadata.namespace.clone_from(&pool.metadata.namespace);
    VirtualMachine { metadata, spec: template.spec.unwrap_or_default(), ..VirtualMachine::default() }
}

/// A fault of what stands at a place, with its path from the root.
fn within(at: &FieldPath, mut fault: Fault) -> Fault {
    fault.path = at.child(fault.path.as_str());
    if !fault.field.is_empty() {
        fault.field = at.child(&fault.field).to_string();
    }
    fault
}

pub(super) fn of_instance(spec: &Value, at: &FieldPath, config: &ClusterConfig) -> Judgement {
    fields::judge(&fields::INSTANCE, spec, at, Setting::of(config))
}

/// The specification without the room to grow that the settings give every guest, or without any: an instance that was
/// stored has it written, although the manifest did not ask for it.
fn without_usual_room<'a>(
    spec: &'a Value,
    vmi: impl FnOnce() -> VirtualMachineInstance,
    config: &ClusterConfig,
) -> Cow<'a, Value> {
    const ROOM: [(&str, &str, &str); 2] = [("cpu", "maxSockets", "sockets"), ("memory", "maxGuest", "guest")];
    // Most do not set it, and need nothing to be compared with.
    if ROOM.iter().all(|(part, field, _)| spec["domain"][part][field].is_null()) {
        return Cow::Borrowed(spec);
    }
    let mut usual = vmi();
    if let Some(cpu) = &mut usual.spec.domain.cpu {
        cpu.max_sockets = None;
    }
    if let Some(memory) = &mut usual.spec.domain.memory {
        memory.max_guest = None;
    }
    default_vmi(&mut usual, config, &Identity { firmware_uuid: Uuid::nil() });
    let usual = serde_json::to_value(&usual.spec.domain).unwrap_or_default();
    let mut spec = spec.clone();
    for (part, field, start) in ROOM {
        let written = spec.get_mut("domain").and_then(|domain| domain.get_mut(part)).and_then(Value::as_object_mut);
        if let Some(written) = written
            // What it starts with is no room at all.
            && [field, start].iter().any(|known| set_alike(written.get(field), usual[part].get(*known)))
        {
            written.remove(field);
        }
    }
    Cow::Owned(spec)
}

/// Whether two sizes or numbers are the same, however they are spelt.
fn set_alike(one: Option<&Value>, other: Option<&Value>) -> bool {
    let size = |value: &Value| serde_json::from_value::<Quantity>(value.clone()).ok();
    one == other || one.and_then(size).is_some_and(|one| other.and_then(size) == Some(one))
}

/// Defaults add a disk for a volume that has none. Its mistakes are the volume's: the disk is not in the manifest.
fn name_the_volume(faults: &mut [Fault], vmi: &VirtualMachineInstance, written: usize, spec: &str) {
    let list = FieldPath::from(spec).child("domain.devices.disks");
    for (index, disk) in vmi.spec.domain.devices.disks.iter().enumerate().skip(written) {
        let Some(volume) = vmi.spec.volumes.iter().position(|volume| volume.name == disk.name) else { continue };
        let added = list.index(index);
        for fault in faults.iter_mut() {
            if let Some(rest) = fault.path.as_str().strip_prefix(added.as_str()) {
                let at = FieldPath::from(spec).child("volumes").index(volume);
                fault.path = FieldPath::from(format!("{at}{rest}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::validate::testing::{changed, instance};

    fn paths(faults: &[Fault]) -> Vec<&str> {
        faults.iter().map(|fault| fault.path.as_str()).collect()
    }

    #[test]
    fn what_is_right_comes_back_with_its_defaults() {
        let admission = admit(&instance(), &ClusterConfig::offline());
        assert_eq!(admission.faults, []);
        let Some(Object::VirtualMachineInstance(vmi)) = admission.object else { panic!("no instance") };
        assert_eq!(vmi.spec.eviction_strategy.as_deref(), Some("None"));
    }

    #[test]
    fn a_machine_comes_back_as_a_machine() {
        let vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "quay"},
            "spec": {"runStrategy": "Halted", "template": {"spec": instance()["spec"]}},
        });
        let admission = admit(&vm, &ClusterConfig::offline());
        assert!(matches!(admission.object, Some(Object::VirtualMachine(_))), "{:?}", admission.faults);
    }

    #[test]
    fn an_api_client_gets_structural_faults_alone_and_a_person_gets_all() {
        let bad = changed(&[("spec.hostnme", json!("x")), ("spec.hostname", json!("a.b"))]);
        let config = ClusterConfig::offline();
        assert_eq!(paths(&admit(&bad, &config).faults), ["spec.hostnme"]);
        let review = review(&bad, &config);
        assert_eq!(paths(&review.faults), ["spec.hostnme", "spec.hostname"]);
        assert!(review.object.is_none());
    }

    #[test]
    fn what_follows_from_a_structural_fault_is_not_reported() {
        let bad = changed(&[
            ("spec.volumes[0]", json!({"name": "root", "emptyDisk": {"capacity": "2GiB"}})),
            ("spec.domain.memory.guest", json!("much")),
        ]);
        let review = review(&bad, &ClusterConfig::offline());
        assert_eq!(paths(&review.faults), ["spec.domain.memory.guest", "spec.volumes[0].emptyDisk.capacity"]);
    }

    #[test]
    fn all_mistakes_come_at_once() {
        let bad = changed(&[
            ("spec.domain.devices.disks[0].disk.bus", json!("ide")),
            ("spec.domain.devices.interfaces[0].model", json!("vmxnet3")),
            ("spec.domain.devices.tpm", json!({})),
            ("spec.evictionStrategy", json!("x")),
            ("metadata.labels", json!({"kubevirt.io/nodeName": "n"})),
        ]);
        let mut found = admit(&bad, &ClusterConfig::offline()).faults;
        found.sort();
        assert_eq!(
            paths(&found),
            [
                "metadata.labels[kubevirt.io/nodeName]",
                "spec.domain.devices.disks[0].disk.bus",
                "spec.domain.devices.interfaces[0].model",
                "spec.domain.devices.tpm",
                "spec.evictionStrategy",
            ]
        );
    }

    #[test]
    fn a_fault_of_a_default_disk_is_that_of_its_volume() {
        let bad = changed(&[("spec.volumes[2]", json!({"name": "with.dot", "emptyDisk": {"capacity": "1Gi"}}))]);
        let faults = admit(&bad, &ClusterConfig::offline()).faults;
        assert_eq!(paths(&faults), ["spec.volumes[2].name"]);
        assert_eq!(faults[0].field, "spec.domain.devices.disks.domain.devices.disks[2].name");
    }

    #[test]
    fn other_kinds_are_refused() {
        for manifest in [json!({"apiVersion": "v1", "kind": "Pod"}), json!({}), json!([1]), json!(null)] {
            assert_eq!(paths(&admit(&manifest, &ClusterConfig::offline()).faults), ["kind"], "{manifest}");
        }
    }

    #[test]
    fn the_older_version_is_taken_and_an_unknown_one_named() {
        let of_version = |version: &str| {
            let mut manifest = instance();
            manifest["apiVersion"] = json!(version);
            admit(&manifest, &ClusterConfig::offline()).faults
        };
        assert_eq!(of_version("kubevirt.io/v1alpha3"), []);
        let faults = of_version("kubevirt.io/v1alpha2");
        let message = "apiVersion: `kubevirt.io/v1alpha2` is not a version of VirtualMachineInstance that is served; write `kubevirt.io/v1`";
        assert_eq!(faults[0].to_string(), message);
    }

    #[test]
    fn only_room_that_was_asked_for_is_warned_of() {
        let warned = |changes: &[(&str, Value)], config: &ClusterConfig| -> Vec<String> {
            let admission = admit(&changed(changes), config);
            assert_eq!(admission.faults, []);
            admission.warnings.iter().map(|fault| fault.path.to_string()).collect()
        };
        let cluster = |live: Value| {
            ClusterConfig::from_kubevirt(&json!({"spec": {"configuration": {"liveUpdateConfiguration": live}}}))
        };
        let memory = |most: &str| ("spec.domain.memory", json!({"guest": "1Gi", "maxGuest": most}));
        let processors = |most: u32| ("spec.domain.cpu", json!({"cores": 2, "sockets": 1, "maxSockets": most}));
        let usual = ClusterConfig::offline();
        assert_eq!(warned(&[memory("4Gi"), processors(4)], &usual), Vec::<String>::new(), "what defaults write");
        let asked = ["spec.domain.cpu.maxSockets", "spec.domain.memory.maxGuest"];
        assert_eq!(warned(&[memory("8Gi"), processors(8)], &usual), asked);
        assert_eq!(warned(&[memory("1024Mi"), processors(1)], &usual), Vec::<String>::new(), "no room");
        let twice = cluster(json!({"maxHotplugRatio": 2}));
        assert_eq!(warned(&[memory("2048Mi"), processors(2)], &twice), Vec::<String>::new());
        assert_eq!(warned(&[memory("4Gi"), processors(4)], &twice), asked);
    }

    #[test]
    fn hook_sidecars_are_a_warning() {
        let written = changed(&[("metadata.annotations", json!({"hooks.kubevirt.io/hookSidecars": "[{}]"}))]);
        let admission = admit(&written, &ClusterConfig::offline());
        assert_eq!(admission.faults, []);
        assert_eq!(paths(&admission.warnings), ["metadata.annotations[hooks.kubevirt.io/hookSidecars]"]);
    }

    /// Every place in a manifest, as a JSON pointer.
    fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        for (key, field) in value.as_object().into_iter().flatten() {
            pointers(field, &format!("{at}/{key}"), found);
        }
        for (index, element) in value.as_array().into_iter().flatten().enumerate() {
            pointers(element, &format!("{at}/{index}"), found);
        }
    }

    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "(?s).{0,20}".prop_map(Value::from),
            "[0-9]{1,20}[A-Za-z]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            let fields = prop::collection::btree_map("[a-z]{1,6}|name|disk|guest", inner.clone(), 0..4);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
                fields.prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_admitted_or_refused(place in any::<prop::sample::Index>(), value in anything()) {
            let mut manifest = instance();
            let mut places = Vec::new();
            pointers(&manifest, "", &mut places);
            if let Some(target) = manifest.pointer_mut(place.get::<String>(&places)) {
                *target = value;
            }
            let config = ClusterConfig::offline();
            for admission in [admit(&manifest, &config), review(&manifest, &config)] {
                prop_assert_eq!(admission.faults.is_empty(), admission.object.is_some());
                for fault in admission.faults {
                    prop_assert!(!fault.message.is_empty());
                    prop_assert!(!fault.to_string().chars().any(char::is_control), "{:?}", fault);
                }
            }
        }
    }
}
