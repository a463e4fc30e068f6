//! From raw JSON to an object that may be stored, or to everything that is wrong with it.
//!
//! Two readers ask in two ways. An API client wants the answer the reference gives ([`admit`]): what is structurally
//! wrong comes alone, since the API server answers before any rule has looked. A person wants every mistake of a file
//! at once ([`review`]): the rules judge what is left when the wrong parts are taken out.

use serde_json::Value;
use uuid::Uuid;

use super::report::{Report, printable};
use super::subject::Subject;
use super::{Metadata, Verdict, kubevirt, metadata, realised, scheduling, validate_vm, validate_vmi};
use crate::cluster::ClusterConfig;
use crate::defaults::{Identity, default_vm, default_vmi};
use crate::fault::{Fault, FaultCode, FieldPath};
use crate::kind::{Kind, kind_of};
use crate::schema::inspect_as;
use crate::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance};

/// An object that was admitted, with its defaults.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A machine.
    VirtualMachine(Box<VirtualMachine>),
    /// An instance.
    VirtualMachineInstance(Box<VirtualMachineInstance>),
    /// The settings of a cluster.
    KubeVirt(Box<KubeVirt>),
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

/// Answers as the API server does: structural faults alone, or else what the rules and the table of what is not
/// realised say.
///
/// The UUID of an instance's firmware is not made up here, for that would not be pure: where the manifest has none, the
/// object has the nil UUID, and the caller replaces it.
pub fn admit(manifest: &Value, config: &ClusterConfig) -> Admission {
    let kind = kind_of(manifest);
    let (faults, rest) = inspect(kind, manifest);
    if !faults.is_empty() && kind != Kind::KubeVirt {
        return Admission { faults, ..Admission::default() };
    }
    with_structural(faults, judge(kind, rest, config))
}

/// Answers with every mistake at once: structural faults, and what the rules say about the rest.
///
/// What only follows from a structural fault (a volume without a source, because its source was misspelt) is left out.
pub fn review(manifest: &Value, config: &ClusterConfig) -> Admission {
    let kind = kind_of(manifest);
    let (faults, rest) = inspect(kind, manifest);
    with_structural(faults, judge(kind, rest, config))
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

fn judge(kind: Kind, manifest: Value, config: &ClusterConfig) -> Admission {
    match kind {
        Kind::VirtualMachine => match serde_json::from_value(manifest.clone()) {
            Ok(vm) => machine(vm, &manifest, config),
            Err(error) => undecodable(&error),
        },
        Kind::VirtualMachineInstance => match serde_json::from_value(manifest.clone()) {
            Ok(vmi) => instance(vmi, &manifest, config),
            Err(error) => undecodable(&error),
        },
        Kind::KubeVirt => match serde_json::from_value(manifest) {
            Ok(object) => settings(object),
            Err(error) => undecodable(&error),
        },
        Kind::Secret | Kind::ConfigMap | Kind::PersistentVolumeClaim | Kind::Other => Admission {
            faults: vec![
                Fault::new(
                    FieldPath::from("kind"),
                    FaultCode::NotSupported,
                    "this kind of object is not admitted here",
                )
                .instead("write a `VirtualMachine` or `VirtualMachineInstance` of `kubevirt.io/v1`"),
            ],
            ..Admission::default()
        },
    }
}

fn settings(object: KubeVirt) -> Admission {
    let mut report = Report::default();
    kubevirt::check(&object, &mut report);
    let faults = report.into_faults();
    let object = faults.is_empty().then(|| Object::KubeVirt(Box::new(object)));
    Admission { faults, object, ..Admission::default() }
}

/// The structural check of an object. Fields that KubeVirt has for its own settings are known, and not realised.
fn inspect(kind: Kind, manifest: &Value) -> (Vec<Fault>, Value) {
    let mut object = manifest.clone();
    let mut report = Report::default();
    if kind == Kind::KubeVirt {
        kubevirt::take_unrealised(&mut object, &mut report);
    }
    let inspection = inspect_as(kind, object);
    let mut faults: Vec<Fault> = inspection.faults.into_iter().map(printable).collect();
    faults.extend(report.into_faults());
    (faults, inspection.rest)
}

/// A shape the structural check let pass and the types do not take. It comes without a path, but never as a success.
fn undecodable(error: &serde_json::Error) -> Admission {
    let fault = Fault::new(FieldPath::root(), FaultCode::WrongType, format!("the object cannot be read: {error}"));
    let fault = fault.instead("write the object as the reference of its kind has it");
    Admission { faults: vec![printable(fault)], ..Admission::default() }
}

fn instance(mut vmi: VirtualMachineInstance, manifest: &Value, config: &ClusterConfig) -> Admission {
    let written = vmi.spec.domain.devices.disks.len();
    default_vmi(&mut vmi, config, &Identity { firmware_uuid: Uuid::nil() });
    let mut report = Report::from(validate_vmi(&vmi, config));
    realised::instance(&manifest["spec"], &FieldPath::from("spec"), &mut report);
    realised::metadata(&manifest["metadata"], &FieldPath::from("metadata"), &mut report);
    let mut faults = report.into_faults();
    name_the_volume(&mut faults, &vmi, written, "spec");
    let labelled = Metadata::of(Some(&vmi.metadata), FieldPath::from("metadata"));
    let subject = Subject { spec: &vmi.spec, at: FieldPath::from("spec"), config };
    let warnings = metadata::warnings(&labelled).into_iter().chain(scheduling::warnings(&subject)).collect();
    let object = faults.is_empty().then(|| Object::VirtualMachineInstance(Box::new(vmi)));
    Admission { faults, warnings, object }
}

fn machine(mut vm: VirtualMachine, manifest: &Value, config: &ClusterConfig) -> Admission {
    let written = vm.spec.template.spec.as_ref().map_or(0, |spec| spec.domain.devices.disks.len());
    default_vm(&mut vm, config);
    let Verdict { faults, mut warnings } = validate_vm(&vm, config);
    let mut report = Report::from(faults);
    let (spec, at) = (&manifest["spec"], FieldPath::from("spec"));
    realised::machine(spec, &at, &mut report);
    realised::instance(&spec["template"]["spec"], &at.child("template.spec"), &mut report);
    realised::metadata(&spec["template"]["metadata"], &at.child("template.metadata"), &mut report);
    let faults = report.into_faults();
    name_the_volume(&mut warnings, &crate::defaults::vmi_of(&vm), written, "spec.template.spec");
    let object = faults.is_empty().then(|| Object::VirtualMachine(Box::new(vm)));
    Admission { faults, warnings, object }
}

/// Defaults add a disk for a volume that has none. Its mistakes are the volume's: nobody wrote the disk.
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
    fn what_follows_from_a_structural_fault_is_not_said() {
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
    fn a_disk_nobody_wrote_is_blamed_on_its_volume() {
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
