//! Instancetypes and preferences.

use serde_json::Value;

use super::admit::{Admission, Object, of_instance};
use super::metadata;
use super::report::{Report, invalid, printable, required, unsupported};
use super::subject::text;
use crate::cluster::ClusterConfig;
use crate::fault::{Fault, FaultCode, FieldPath};
use crate::instancetype::{
    Across, Sizing, Topology, VirtualMachineInstancetype, VirtualMachineInstancetypeSpec, VirtualMachinePreference,
    VirtualMachinePreferenceSpec, sized,
};
use crate::suggest::one_of;
use crate::v1::VirtualMachine;

/// Threads of each core, where vCPUs are spread across cores and threads.
const THREADS: u32 = 2;
/// What to write as `cpu.guest`.
const A_NUMBER: &str = "write 1 or more";
/// What to write as `memory.guest`.
const AN_AMOUNT: &str = "write an amount such as `2Gi`";

/// Judges an instancetype; `written` is its specification as the manifest has it.
pub(super) fn instancetype(object: VirtualMachineInstancetype, written: &Value, config: &ClusterConfig) -> Admission {
    let mut report = Report::default();
    let at = FieldPath::from("spec");
    metadata::name(&object.metadata, &mut report);
    left_out(written, &at, &mut report);
    size(&object.spec, &at, &mut report);
    let sizing = Sizing { instancetype: Some(object.spec.clone()), ..Sizing::default() };
    let mut warnings = if report.is_empty() { nothing(&object.spec, &at) } else { Vec::new() };
    warnings.extend(refused_in_machines(&sizing, config));
    let faults = report.into_faults();
    let object = faults.is_empty().then(|| Object::Instancetype(Box::new(object)));
    Admission { faults, warnings, object }
}

/// Judges a preference.
pub(super) fn preference(object: VirtualMachinePreference, config: &ClusterConfig) -> Admission {
    let mut report = Report::default();
    let at = FieldPath::from("spec");
    metadata::name(&object.metadata, &mut report);
    topology(&object.spec, &at, &mut report);
    let mut warnings: Vec<Fault> = old_topology(&object.spec, &at).into_iter().collect();
    let machine = VirtualMachinePreferenceSpec { requirements: None, ..object.spec.clone() };
    warnings.extend(refused_in_machines(&Sizing { preference: Some(machine), ..Sizing::default() }, config));
    let faults = report.into_faults();
    let object = faults.is_empty().then(|| Object::Preference(Box::new(object)));
    Admission { faults, warnings, object }
}

/// What has to be written, if only as 0: clients of KubeVirt always write both.
fn left_out(written: &Value, at: &FieldPath, report: &mut Report) {
    if written["cpu"]["guest"].is_null() {
        report.push(required(at.child("cpu.guest"), "a machine has at least one vCPU").instead(A_NUMBER));
    }
    if written["memory"]["guest"].is_null() {
        report.push(required(at.child("memory.guest"), "a machine has memory").instead(AN_AMOUNT));
    }
}

/// What KubeVirt takes, although it gives machines nothing.
fn nothing(spec: &VirtualMachineInstancetypeSpec, at: &FieldPath) -> Vec<Fault> {
    let vcpus = required(at.child("cpu.guest"), "no vCPU counts as one").instead(A_NUMBER);
    let memory = required(at.child("memory.guest"), "a machine that names it has no memory, and cannot be started");
    let found = [(spec.cpu.guest == 0, vcpus), (spec.memory.guest.is_zero(), memory.instead(AN_AMOUNT))];
    found.into_iter().filter(|(is_nothing, _)| *is_nothing).map(|(_, fault)| fault).collect()
}

fn size(spec: &VirtualMachineInstancetypeSpec, at: &FieldPath, report: &mut Report) {
    if spec.memory.guest.is_negative() {
        let message = format!("`{}` is negative", spec.memory.guest);
        report.push(invalid(at.child("memory.guest"), message).instead(AN_AMOUNT));
    }
    let at = at.child("memory.overcommitPercent");
    let percent = spec.memory.overcommit_percent.unwrap_or(0);
    if !(0..=100).contains(&percent) {
        let message = format!("{percent} is no part of the memory in per cent");
        report.push(invalid(at.clone(), message).instead("write a number from 0 to 100"));
    }
    if percent != 0 && spec.memory.hugepages.is_some() {
        report.push(invalid(at, "hugepages cannot be overcommitted").instead("remove it, or `memory.hugepages`"));
    }
}

fn topology(spec: &VirtualMachinePreferenceSpec, at: &FieldPath, report: &mut Report) {
    let Some(cpu) = &spec.cpu else { return };
    let at = at.child("cpu");
    let name = text(&cpu.preferred_cpu_topology);
    if !name.is_empty() && Topology::named(name).is_none() {
        let names = Topology::NAMES.map(|(_, name, _)| name);
        let fault = invalid(at.child("preferredCPUTopology"), format!("there is no topology `{name}`"));
        report.push(fault.instead(one_of(name, &names)));
    }
    let Some(options) = cpu.spread_options.as_ref().filter(|_| Topology::of(Some(spec)) == Topology::Spread) else {
        return;
    };
    let (across, at) = (text(&options.across), at.child("spreadOptions"));
    let known = if across.is_empty() { Some(Across::SocketsCores) } else { Across::named(across) };
    match known {
        None => {
            let names = Across::NAMES.map(|(_, name)| name);
            let fault = invalid(at.child("across"), format!("nothing is spread across `{across}`"));
            report.push(fault.instead(one_of(across, &names)));
        }
        Some(Across::CoresThreads) => {
            let ratio = options.ratio.or(spec.prefer_spread_socket_to_core_ratio).unwrap_or(THREADS);
            if ratio != THREADS {
                let fault = invalid(at.child("ratio"), format!("a core has {THREADS} threads, and not {ratio}"));
                report.push(fault.instead(format!("write {THREADS}")));
            }
        }
        Some(Across::SocketsCores | Across::SocketsCoresThreads) if options.ratio == Some(0) => {
            report.push(invalid(at.child("ratio"), "a socket has at least one core").instead("write 1 or more"));
        }
        Some(Across::SocketsCores | Across::SocketsCoresThreads) => {}
    }
}

/// The older name of a topology.
fn old_topology(spec: &VirtualMachinePreferenceSpec, at: &FieldPath) -> Option<Fault> {
    let written = text(&spec.cpu.as_ref()?.preferred_cpu_topology);
    let (_, name, _) = Topology::NAMES.into_iter().find(|(_, _, old)| *old == written)?;
    let fault = unsupported(at.child("cpu.preferredCPUTopology"), format!("the name `{written}` is deprecated"));
    Some(fault.instead(format!("write `{name}`")))
}

/// What machines are refused for that name it, although the object itself is right.
fn refused_in_machines(sizing: &Sizing, config: &ClusterConfig) -> Vec<Fault> {
    let Ok(vm) = sized(&VirtualMachine::default(), sizing, config) else { return Vec::new() };
    let template = serde_json::to_value(&vm.spec.template.spec).unwrap_or_default();
    let refused = of_instance(&template, &FieldPath::from("spec.template.spec"), config).refused;
    let warning = |fault: Fault| {
        let message = format!("a machine that names it is refused, for its {}: {}", fault.path, fault.message);
        printable(Fault::new(FieldPath::from("spec"), FaultCode::NotInThisVersion, message))
    };
    refused.into_iter().map(warning).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::cluster::ClusterConfig;
    use crate::validate::{Admission, Object, review};

    fn judged(kind: &str, spec: Value) -> Admission {
        let object = json!({
            "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": kind, "metadata": {"name": "a"}, "spec": spec,
        });
        review(&object, &ClusterConfig::offline())
    }

    fn refused(kind: &str, spec: Value, path: &str, part: &str) {
        let admission = judged(kind, spec.clone());
        let text = admission.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(admission.faults.iter().any(|fault| fault.path.as_str() == path), "{spec}: {text}");
        assert!(text.contains(part) && admission.object.is_none(), "{spec}: {text}");
    }

    #[test]
    fn an_instancetype_has_a_size() {
        const KIND: &str = "VirtualMachineClusterInstancetype";
        let size = |cpu: Value, memory: Value| json!({"cpu": cpu, "memory": memory});
        let (cpu, memory) = (json!({"guest": 2}), json!({"guest": "2Gi"}));
        let admission = judged(KIND, size(cpu.clone(), memory.clone()));
        assert_eq!((admission.faults, admission.warnings), (vec![], vec![]));
        assert!(matches!(admission.object, Some(Object::Instancetype(_))));
        refused(KIND, size(json!({}), memory.clone()), "spec.cpu.guest", "at least one vCPU");
        refused(KIND, size(cpu.clone(), json!({})), "spec.memory.guest", "a machine has memory");
        refused(KIND, size(cpu.clone(), json!({"guest": "-1Gi"})), "spec.memory.guest", "is negative");
        refused(
            KIND,
            size(json!({"guest": 1, "dedicatedCpuPlacement": true}), memory),
            "spec.cpu.dedicatedCpuPlacement",
            "",
        );
        for percent in [-1, 101] {
            let memory = json!({"guest": "1Gi", "overcommitPercent": percent});
            refused(KIND, size(cpu.clone(), memory), "spec.memory.overcommitPercent", "0 to 100");
        }
        let memory = json!({"guest": "1Gi", "overcommitPercent": 15, "hugepages": {"pageSize": "2Mi"}});
        refused(KIND, size(cpu, memory), "spec.memory.overcommitPercent", "memory.hugepages");
    }

    #[test]
    fn nothing_is_taken_as_in_kubevirt_and_warned_of() {
        let spec = json!({"cpu": {"guest": 0}, "memory": {"guest": "0"}});
        let admission = judged("VirtualMachineInstancetype", spec);
        assert_eq!(admission.faults, []);
        assert!(matches!(admission.object, Some(Object::Instancetype(_))));
        let paths: Vec<&str> = admission.warnings.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["spec.cpu.guest", "spec.memory.guest"], "{:?}", admission.warnings);
    }

    #[test]
    fn what_no_machine_may_have_is_warned_of_before_a_machine_names_it() {
        let spec = json!({
            "cpu": {"guest": 2, "dedicatedCPUPlacement": true}, "memory": {"guest": "2Gi"},
            "gpus": [{"name": "a", "deviceName": "vendor.example/gpu"}],
        });
        let admission = judged("VirtualMachineInstancetype", spec);
        assert_eq!(admission.faults, []);
        let text = admission.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(text.contains("spec.template.spec.domain.devices.gpus"), "{text}");
    }

    #[test]
    fn topologies_are_those_that_there_are() {
        const KIND: &str = "VirtualMachinePreference";
        let spread = |options: Value| json!({"cpu": {"preferredCPUTopology": "spread", "spreadOptions": options}});
        for name in ["sockets", "cores", "threads", "spread", "any"] {
            let admission = judged(KIND, json!({"cpu": {"preferredCPUTopology": name}}));
            assert_eq!((admission.faults, admission.warnings), (vec![], vec![]), "{name}");
        }
        let old = judged(KIND, json!({"cpu": {"preferredCPUTopology": "preferCores"}}));
        assert_eq!(old.faults, []);
        assert!(old.warnings[0].to_string().contains("write `cores`"), "{}", old.warnings[0]);
        assert!(matches!(old.object, Some(Object::Preference(_))));
        let wrong = json!({"cpu": {"preferredCPUTopology": "core"}});
        refused(KIND, wrong, "spec.cpu.preferredCPUTopology", "did you mean `cores`?");
        refused(KIND, spread(json!({"across": "Sockets"})), "spec.cpu.spreadOptions.across", "SocketsCores");
        let ratio = spread(json!({"across": "CoresThreads", "ratio": 3}));
        refused(KIND, ratio, "spec.cpu.spreadOptions.ratio", "2 threads");
        refused(KIND, spread(json!({"ratio": 0})), "spec.cpu.spreadOptions.ratio", "at least one core");
        let unused = json!({"cpu": {"preferredCPUTopology": "cores", "spreadOptions": {"across": "x"}}});
        assert_eq!(judged(KIND, unused).faults, [], "as in KubeVirt");
    }

    #[test]
    fn another_version_is_named() {
        let object = json!({"apiVersion": "instancetype.kubevirt.io/v1alpha2", "kind": "VirtualMachinePreference"});
        let faults = review(&object, &ClusterConfig::offline()).faults;
        assert!(faults[0].to_string().ends_with("write `instancetype.kubevirt.io/v1beta1`"), "{}", faults[0]);
    }
}
