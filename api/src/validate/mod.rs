//! The rules: what makes a manifest nonsense, and what to write instead.
//!
//! One file per concern; each is a pure function that judges a `Subject` and pushes [`Fault`]s. No rule stops at the
//! first mistake and none depends on another having passed, so that a person sees every mistake at once.
//!
//! ```text
//! admit: raw JSON ─ schema ─ decode ─ defaults ─ validate_vmi / validate_vm / validate_replica_set ─ fields ─ Object
//!                     └────────┴── refusals of these come alone, as the API server's do
//! ```
//!
//! A fault's `path` is where the mistake is; its `field` is how KubeVirt 1.9 spells that in an admission response,
//! which is odd in places and stays so, because clients read it. Where KubeVirt accepts what cannot work (it finds out
//! when the guest starts) we refuse; `tests/conformance/stricter.txt` lists every such case. Not for rules that need
//! other objects (claims, Secrets), nor for what only the host knows: the plan refuses those.

mod access;
mod addresses;
mod admit;
mod affinity;
mod bindings;
mod block_size;
mod boot_order;
mod clock;
mod cloud_init;
mod cpu;
mod data_volumes;
mod dedicated_cpu;
mod devices;
mod dhcp;
mod disks;
mod dns;
mod features;
mod filesystems;
mod firmware;
mod interfaces;
mod kubevirt;
mod launch_security;
mod machine;
mod memory;
mod metadata;
mod names;
mod networks;
mod passthrough;
mod pool;
mod ports;
mod preset;
mod probes;
mod replica_set;
mod report;
mod resources;
mod scheduling;
mod selectors;
mod sizes;
mod subject;
#[cfg(test)]
mod testing;
mod vm;
mod volumes;
mod whole;

pub use admit::{Admission, Object, admit, review, review_sized};
pub use interfaces::MODELS as NIC_MODELS;
pub use kubevirt::{LONGEST_CERTIFICATE, SHORTEST_CERTIFICATE, duration};
pub use metadata::{RESERVED as RESERVED_LABELS, verbosity_fault};
pub(crate) use report::printable;
pub use volumes::iscsi_portal;

use uuid::Uuid;

use crate::cluster::ClusterConfig;
use crate::defaults::{Identity, default_vmi, vmi_of};
use crate::fault::{Fault, FieldPath};
use crate::set;
use crate::v1::{
    VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceReplicaSet, VirtualMachineInstanceSpec,
    VirtualMachineInstanceTemplateSpec,
};
use metadata::Metadata;
use report::Report;
use subject::Subject;

/// The verdict on a VirtualMachine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationVerdict {
    /// Why it is refused. Empty: it is accepted.
    pub faults: Vec<Fault>,
    /// What its user should know although it is accepted: fields that are deprecated or mean less than they seem, and
    /// why an instance made from it now would be refused. The `field` of these last is the instance's.
    pub warnings: Vec<Fault>,
}

/// Judges an instance. It must have its defaults already.
pub fn validate_vmi(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Vec<Fault> {
    let subject = Subject { spec: &vmi.spec, at: FieldPath::from("spec"), config };
    let mut report = Report::default();
    metadata::name(&vmi.metadata, &mut report);
    metadata::check(&Metadata::of(Some(&vmi.metadata), FieldPath::from("metadata")), config, &mut report);
    specification(&subject, &mut report);
    at_start(&subject, &mut report);
    report.into_faults()
}

/// Judges a machine. It must have its defaults already, which are few: most come when its instance is made.
///
/// What only stands in the way of that instance is a warning, since the machine may be completed before it starts.
pub fn validate_vm(vm: &VirtualMachine, config: &ClusterConfig) -> ValidationVerdict {
    verdict(vm, config, true)
}

/// The same; `is_whole`: nothing is missing in the template that an instance will have, so that its start can be judged.
pub(crate) fn verdict(vm: &VirtualMachine, config: &ClusterConfig, is_whole: bool) -> ValidationVerdict {
    let template = &vm.spec.template;
    let nothing = VirtualMachineInstanceSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&nothing);
    let subject = Subject { spec, at: FieldPath::from("spec.template.spec"), config };
    let labelled = Metadata::of_template(template.metadata.as_ref(), FieldPath::from("spec.template.metadata"));
    let mut report = Report::default();
    metadata::name(&vm.metadata, &mut report);
    metadata::check(&labelled, config, &mut report);
    specification(&subject, &mut report);
    vm::check(vm, config, &mut report);
    let faults = report.into_faults();
    let mut warnings = vm::warnings(vm);
    warnings.extend(metadata::warnings(&labelled));
    let at_start = if is_whole { refused_at_start(vm, config) } else { Vec::new() };
    warnings.extend(unknown_among(&faults, at_start));
    ValidationVerdict { faults, warnings }
}

/// Judges a set of instances. Its template has no defaults: each instance gets its own.
///
/// What only stands in the way of an instance is a warning, as for a machine.
pub fn validate_replica_set(set: &VirtualMachineInstanceReplicaSet, config: &ClusterConfig) -> ValidationVerdict {
    let VirtualMachineInstanceTemplateSpec { metadata, spec } = &set.spec.template;
    let nothing = VirtualMachineInstanceSpec::default();
    let at = FieldPath::from("spec.template.spec");
    let subject = Subject { spec: spec.as_ref().unwrap_or(&nothing), at, config };
    let labelled = Metadata::of_template(metadata.as_ref(), FieldPath::from("spec.template.metadata"));
    let mut report = Report::default();
    metadata::name(&set.metadata, &mut report);
    metadata::check(&labelled, config, &mut report);
    specification(&subject, &mut report);
    replica_set::check(set, &labelled, &mut report);
    let faults = report.into_faults();
    let mut warnings = replica_set::warnings(set);
    warnings.extend(metadata::warnings(&labelled));
    let instance = set::instance(set, &set::name(set, 0));
    warnings.extend(unknown_among(&faults, refused_instance(instance, config)));
    ValidationVerdict { faults, warnings }
}

/// Those that are no repetition of what is known.
fn unknown_among(known: &[Fault], found: Vec<Fault>) -> impl Iterator<Item = Fault> {
    let is_known =
        move |fault: &Fault| known.iter().any(|each| each.path == fault.path && each.message == fault.message);
    found.into_iter().filter(move |fault| !is_known(fault))
}

/// Why an instance made from a machine now would be refused, at the places in the machine.
fn refused_at_start(vm: &VirtualMachine, config: &ClusterConfig) -> Vec<Fault> {
    refused_instance(vmi_of(vm), config)
}

/// Why the instance of a template would be refused, at the places in what has the template.
fn refused_instance(mut vmi: VirtualMachineInstance, config: &ClusterConfig) -> Vec<Fault> {
    default_vmi(&mut vmi, config, &Identity { firmware_uuid: Uuid::nil() });
    let mut faults = validate_vmi(&vmi, config);
    faults.retain(|fault| fault.path.as_str() != "metadata.name");
    for fault in &mut faults {
        fault.path = FieldPath::from("spec.template").child(fault.path.as_str());
    }
    faults
}

/// The rules that hold for an instance and for the template of one.
fn specification(subject: &Subject<'_>, report: &mut Report) {
    const RULES: &[fn(&Subject<'_>, &mut Report)] = &[
        dns::check,
        memory::check,
        machine::check,
        firmware::check,
        cpu::check,
        resources::check,
        dedicated_cpu::check,
        scheduling::check,
        affinity::check,
        networks::check,
        interfaces::check,
        boot_order::check,
        devices::check,
        probes::check,
        disks::check,
        volumes::check,
        filesystems::check,
        access::check,
        passthrough::check,
        features::check,
        clock::check,
        launch_security::check,
    ];
    for rule in RULES {
        rule(subject, report);
    }
}

/// The rules that an instance must fulfil, and the template of one not before it is started.
fn at_start(subject: &Subject<'_>, report: &mut Report) {
    boot_order::every_volume_is_used(subject, report);
    memory::some_is_given(subject, report);
    features::dependencies(subject, report);
    machine::arch(subject, report);
    devices::for_architecture(subject, report);
}
