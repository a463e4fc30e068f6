//! What only a VirtualMachine has: run strategy, matchers, rules of live updates. Its data volumes are in `data_volumes`.

use super::data_volumes;
use super::report::{Report, invalid, not_found, unsupported};
use super::subject::text;
use crate::cluster::{ClusterConfig, Gate, Rollout};
use crate::fault::{Fault, FieldPath};
use crate::instancetype::{Matcher, Role};
use crate::suggest::one_of;
use crate::v1::{DomainSpec, VirtualMachine, VirtualMachineInstanceSpec, VirtualMachineSpec};

const RUN_STRATEGIES: &[&str] = &["Always", "RerunOnFailure", "Manual", "Halted", "Once"];
const WAITS_FOR_MIGRATION: &str = "WaitAsReceiver";
const UPDATE_STRATEGIES: &[&str] = &["Replacement", "Migration"];
const FAILURE_POLICIES: &[&str] = &["Reject", "Ignore"];
/// Memory is plugged in blocks of this many bytes (2 MiB).
const MEMORY_BLOCK: i64 = 2 * 1024 * 1024;
/// The smallest guest whose memory can grow, in bytes (1 GiB).
const GROWING_GUEST_MIN: i64 = 1024 * 1024 * 1024;

/// Judges the fields of a machine beside the template of its instance.
pub(crate) fn check(vm: &VirtualMachine, config: &ClusterConfig, report: &mut Report) {
    let at = FieldPath::from("spec");
    running(&vm.spec, config, &at, report);
    matchers(vm, report);
    let strategy = text(&vm.spec.update_volumes_strategy);
    if !strategy.is_empty() && !UPDATE_STRATEGIES.contains(&strategy) {
        report.push(
            unsupported(at.child("updateVolumesStrategy"), format!("there is no strategy `{strategy}`"))
                .instead(one_of(strategy, UPDATE_STRATEGIES)),
        );
    }
    if config.rollout == Rollout::LiveUpdate
        && let Some(template) = &vm.spec.template.spec
    {
        growing_memory(template, &at.child("template.spec"), report);
    }
    data_volumes::check(vm, &at, report);
}

/// What a machine may set but should not, for it means something else or less than it seems.
pub(crate) fn warnings(vm: &VirtualMachine) -> Vec<Fault> {
    let mut warnings = Report::default();
    let at = FieldPath::from("spec");
    if let Some(running) = vm.spec.running {
        let strategy = if running { "Always" } else { "Halted" };
        warnings.push(
            unsupported(at.child("running"), "this field is deprecated")
                .instead(format!("write `runStrategy: {strategy}`")),
        );
    }
    warnings.into_faults()
}

fn running(spec: &VirtualMachineSpec, config: &ClusterConfig, at: &FieldPath, report: &mut Report) {
    match (spec.running, &spec.run_strategy) {
        (Some(_), Some(_)) => report.push(
            invalid(at.child("running"), "`running` and `runStrategy` exclude each other")
                .instead("keep `runStrategy`"),
        ),
        (None, None) => report.push(
            invalid(at.child("runStrategy"), "the run strategy is not set")
                .instead("write `runStrategy: Always`, or `Halted` for one that is started by hand")
                .field(at.child("running").to_string()),
        ),
        _ => {}
    }
    let Some(strategy) = &spec.run_strategy else { return };
    let at = at.child("runStrategy");
    if strategy == WAITS_FOR_MIGRATION {
        if !config.has(Gate::DecentralizedLiveMigration) {
            report.push(
                unsupported(at, format!("`{strategy}` needs the feature gate {}", Gate::DecentralizedLiveMigration))
                    .instead("switch the gate on, or write another strategy"),
            );
        }
    } else if !RUN_STRATEGIES.contains(&strategy.as_str()) {
        report.push(
            unsupported(at, format!("there is no run strategy `{strategy}`")).instead(one_of(strategy, RUN_STRATEGIES)),
        );
    }
}

fn matchers(vm: &VirtualMachine, report: &mut Report) {
    for matcher in Role::BOTH.into_iter().filter_map(|role| Matcher::of(vm, role)) {
        let at = matcher.path();
        let is_inferred = !matcher.infer_from_volume.is_empty();
        if is_inferred && !matcher.name.is_empty() {
            report.push(
                unsupported(at.child("name"), "it is named, and inferred from a volume too")
                    .instead("keep one of `name` and `inferFromVolume`"),
            );
        }
        if is_inferred && !matcher.kind.is_empty() {
            report.push(
                unsupported(at.child("kind"), "the labels of the volume name the kind, too")
                    .instead("keep one of `kind` and `inferFromVolume`"),
            );
        }
        if !is_inferred && matcher.name.is_empty() {
            report.push(
                not_found(at.child("name"), "nothing is named")
                    .instead("write `name`, or `inferFromVolume`")
                    .field(at.to_string()),
            );
        }
        if let Err(fault) = matcher.object_kind() {
            report.push(fault);
        }
        let policy = matcher.failure_policy;
        if !policy.is_empty() && !FAILURE_POLICIES.contains(&policy) {
            report.push(
                invalid(at.child("inferFromVolumeFailurePolicy"), format!("there is no policy `{policy}`"))
                    .instead(one_of(policy, FAILURE_POLICIES)),
            );
        }
    }
}

/// KubeVirt reports whatever is wrong with growing memory at the guest's memory. That the guest begins with no more than
/// it may grow to is a rule of `memory`.
fn growing_memory(spec: &VirtualMachineInstanceSpec, at: &FieldPath, report: &mut Report) {
    let domain = &spec.domain;
    let Some(memory) = &domain.memory else { return };
    let Some(most) = &memory.max_guest else { return };
    let at = at.child("domain");
    let sent = at.child("memory.guest").to_string();
    let mut refuse = |field: &str, message: &str, instead: &str| {
        report.push(invalid(at.child(field), message).instead(instead).field(sent.clone()));
    };
    for (field, set, what) in excluding_growth(domain) {
        if set {
            refuse(field, &format!("memory cannot grow with {what}"), "remove it, or `memory.maxGuest`");
        }
    }
    let Some(guest) = &memory.guest else {
        refuse("memory.guest", "memory that can grow needs a size to begin with", "write `memory.guest`");
        return;
    };
    if guest.value() < GROWING_GUEST_MIN {
        refuse("memory.guest", "only a guest with 1Gi or more can grow", "write 1Gi or more, or remove `maxGuest`");
    }
    if guest.value() % MEMORY_BLOCK != 0 {
        refuse("memory.guest", "memory that can grow comes in blocks of 2Mi", "write a multiple of 2Mi");
    }
    if most.value() % MEMORY_BLOCK != 0 {
        refuse("memory.maxGuest", "memory that can grow comes in blocks of 2Mi", "write a multiple of 2Mi");
    }
}

fn excluding_growth(domain: &DomainSpec) -> [(&'static str, bool, &'static str); 3] {
    let cpu = domain.cpu.as_ref();
    let numa = cpu.and_then(|cpu| cpu.numa.as_ref());
    [
        ("cpu.realtime", cpu.is_some_and(|cpu| cpu.realtime.is_some()), "real time"),
        (
            "cpu.numa.guestMappingPassthrough",
            numa.is_some_and(|numa| numa.guest_mapping_passthrough.is_some()),
            "the host's NUMA cells",
        ),
        ("launchSecurity", domain.launch_security.is_some(), "encrypted memory"),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::{ClusterConfig, Gate};
    use crate::validate::testing::{machine_verdict, machine_verdict_in, refused_machine};

    #[test]
    fn run_strategies() {
        for strategy in super::RUN_STRATEGIES {
            assert_eq!(machine_verdict(&[("spec.runStrategy", json!(strategy))]).faults, []);
        }
        refused_machine(
            &[("spec.runStrategy", json!("always"))],
            "spec.runStrategy",
            "spec.runStrategy",
            "did you mean `Always`?",
        );
        refused_machine(&[("spec.running", json!(true))], "spec.running", "spec.running", "exclude each other");
        refused_machine(
            &[("spec.runStrategy", json!(null))],
            "spec.runStrategy",
            "spec.running",
            "runStrategy: Always",
        );
        let config = ClusterConfig::offline().without(Gate::DecentralizedLiveMigration);
        assert_eq!(machine_verdict_in(&[("spec.runStrategy", json!("WaitAsReceiver"))], &config).faults.len(), 1);
    }

    #[test]
    fn the_old_switch_is_deprecated() {
        let verdict = machine_verdict(&[("spec.runStrategy", json!(null)), ("spec.running", json!(false))]);
        assert_eq!(verdict.faults, []);
        assert!(verdict.warnings[0].to_string().contains("runStrategy: Halted"), "{}", verdict.warnings[0]);
    }

    #[test]
    fn mistakes_of_the_template_stand_in_the_template() {
        refused_machine(
            &[("spec.template.spec.domain.cpu", json!({"sockets": 4, "maxSockets": 2}))],
            "spec.template.spec.domain.cpu.sockets",
            "spec.template.spec.domain.cpu.sockets",
            "maxSockets",
        );
        refused_machine(
            &[("spec.template.metadata", json!({"labels": {"kubevirt.io/nodeName": "n"}}))],
            "spec.template.metadata.labels[kubevirt.io/nodeName]",
            "spec.template.metadata.labels",
            "own use",
        );
        refused_machine(
            &[("spec.template.spec.domain.devices.disks[0].io", json!("x"))],
            "spec.template.spec.domain.devices.disks[0].io",
            "spec.template.spec.domain.devices.disks.domain.devices.disks[0].io",
            "`threads`",
        );
    }

    #[test]
    fn memory_that_grows() {
        const MEMORY: &str = "spec.template.spec.domain.memory";
        const SENT: &str = "spec.template.spec.domain.memory.guest";
        assert_eq!(machine_verdict(&[(MEMORY, json!({"guest": "1Gi", "maxGuest": "4Gi"}))]).faults, []);
        let guest = |guest: &str, most: &str| json!({"guest": guest, "maxGuest": most});
        refused_machine(
            &[(MEMORY, guest("2Gi", "1Gi"))],
            "spec.template.spec.domain.memory.maxGuest",
            SENT,
            "more than",
        );
        refused_machine(&[(MEMORY, guest("512Mi", "1Gi"))], SENT, SENT, "1Gi or more");
        refused_machine(&[(MEMORY, guest("1025Mi", "4Gi"))], SENT, SENT, "blocks of 2Mi");
        refused_machine(
            &[(MEMORY, guest("1Gi", "4097Mi"))],
            "spec.template.spec.domain.memory.maxGuest",
            SENT,
            "blocks of 2Mi",
        );
        refused_machine(
            &[(MEMORY, guest("1Gi", "4Gi")), ("spec.template.spec.domain.cpu.realtime", json!({}))],
            "spec.template.spec.domain.cpu.realtime",
            SENT,
            "real time",
        );
    }

    #[test]
    fn matchers_and_strategies() {
        refused_machine(
            &[("spec.instancetype", json!({"name": "a", "inferFromVolume": "b"}))],
            "spec.instancetype.name",
            "spec.instancetype.name",
            "keep one",
        );
        refused_machine(
            &[("spec.instancetype", json!({"kind": "VirtualMachineInstancetype"}))],
            "spec.instancetype.name",
            "spec.instancetype",
            "inferFromVolume",
        );
        refused_machine(
            &[("spec.preference", json!({"inferFromVolume": "root", "kind": "VirtualMachinePreference"}))],
            "spec.preference.kind",
            "spec.preference.kind",
            "keep one",
        );
        refused_machine(
            &[("spec.preference", json!({"name": "a", "kind": "VirtualMachinePreferences2"}))],
            "spec.preference.kind",
            "spec.preference.kind",
            "VirtualMachineClusterPreference",
        );
        let old = ("spec.instancetype", json!({"name": "a", "kind": "virtualmachineclusterinstancetypes"}));
        assert_eq!(machine_verdict(&[old]).faults, [], "a resource's name, as in KubeVirt");
        refused_machine(
            &[("spec.preference", json!({"name": "a", "inferFromVolumeFailurePolicy": "Reect"}))],
            "spec.preference.inferFromVolumeFailurePolicy",
            "spec.preference.inferFromVolumeFailurePolicy",
            "did you mean `Reject`?",
        );
        refused_machine(
            &[("spec.updateVolumesStrategy", json!("Replace"))],
            "spec.updateVolumesStrategy",
            "spec.updateVolumesStrategy",
            "did you mean `Replacement`?",
        );
    }

    #[test]
    fn what_only_the_instance_needs_is_a_warning() {
        let verdict = machine_verdict(&[("spec.template.spec.domain.memory", json!(null))]);
        assert_eq!(verdict.faults, []);
        let warning = &verdict.warnings[0];
        assert_eq!((warning.path.as_str(), warning.field.as_str()), ("spec.template.spec.domain.memory.guest", ""));
    }

    #[test]
    fn a_refusal_is_not_repeated_as_a_warning() {
        let verdict = machine_verdict(&[("spec.template.spec.domain.devices.disks[0].cache", json!("unsafe"))]);
        assert_eq!((verdict.faults.len(), verdict.warnings.len()), (1, 0), "{:#?}", verdict.warnings);
    }
}
