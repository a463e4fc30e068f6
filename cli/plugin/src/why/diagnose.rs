//! From facts to a diagnosis. Pure.
//!
//! Rules are asked in order, what explains most first; the first that applies is the verdict, and what others found beside
//! it is reported as well. A rule looks at facts and nothing else.

use super::diagnosis::{Diagnosis, DiagnosisVerdict, Finding, Health, seen};
use super::facts::Facts;
use super::rules::{components, containers, data_volumes, ending, lifecycle, refused, remarks, running, scheduling};

type Rule = fn(&Facts) -> Option<Finding>;
type Remark = fn(&Facts) -> Option<String>;

/// Makes a list of functions, each with its name.
macro_rules! named {
    ($kind:ty: $($function:path,)*) => {
        &[$((stringify!($function), $function as $kind),)*]
    };
}

/// In this order. What the user requested comes before what the machine waits for, and what is certain before what is likely.
pub(super) const RULES: &[(&str, Rule)] = named![Rule:
    lifecycle::not_found,
    components::node_lost,
    lifecycle::deletion,
    lifecycle::strategy,
    data_volumes::unfilled,
    refused::instance,
    containers::rejected,
    refused::field_or_claim,
    refused::pod,
    scheduling::unschedulable,
    scheduling::held_back,
    containers::image,
    containers::volume,
    containers::network,
    containers::refused,
    ending::evicted,
    components::controller_down,
    components::agent_down,
    ending::back_off,
    ending::displaced,
    ending::failed,
    lifecycle::stopping,
    running::storage_failed,
    running::unresponsive,
    running::network_lost,
    running::paused,
    running::interpreted,
    components::agent_unconnected,
    running::restart_required,
    running::not_ready,
    running::runs,
    ending::over,
    lifecycle::halted,
    lifecycle::starting,
];

/// Remarks: they are never the verdict.
pub(super) const REMARKS: &[(&str, Remark)] = named![Remark:
    remarks::emulated,
    remarks::evicted,
    remarks::drained,
    remarks::frozen,
    remarks::without_credentials,
    remarks::started_again,
    remarks::limited,
    remarks::launcher_update,
    ending::last_run,
    components::controller_remark,
    components::agent_remark,
    components::cluster_remark,
];

/// Diagnoses a machine.
pub(crate) fn diagnose(facts: &Facts) -> Diagnosis {
    let mut findings = RULES.iter().filter_map(|(_, rule)| rule(facts));
    let main = findings.next().unwrap_or_else(|| unknown(facts));
    // What merely goes on beside something that is wrong explains nothing.
    let others = findings.filter(|each| each.health == Health::Wrong && each.verdict != main.verdict);
    let mut also: Vec<String> = others.map(|each| each.cause).filter(|cause| *cause != main.cause).collect();
    if main.verdict != DiagnosisVerdict::NotFound {
        also.extend(REMARKS.iter().filter_map(|(_, remark)| remark(facts)));
    }
    Diagnosis {
        machine: format!("{}/{}", facts.namespace, facts.name),
        state: state(facts),
        verdict: main.verdict,
        health: main.health,
        since: main.since,
        cause: main.cause,
        node: facts.node_name().map(str::to_owned),
        evidence: main.evidence,
        next: main.next,
        also,
        unseen: facts.unseen.clone(),
    }
}

fn state(facts: &Facts) -> String {
    let of_vm = facts.vm.as_ref().and_then(|vm| vm.status.as_ref()?.printable_status.clone());
    let of_vmi = facts.phase().map(str::to_owned);
    let missing = if facts.vm.is_some() { "no state yet" } else { "not found" };
    of_vm.or(of_vmi).unwrap_or_else(|| missing.to_owned())
}

/// Nothing fits; what there is is shown.
fn unknown(facts: &Facts) -> Finding {
    let name = &facts.name;
    let mut finding = Finding::waiting(DiagnosisVerdict::Unknown, "nothing that was looked at explains its state")
        .then(format!("kubectl describe vm,vmi {name}"))
        .then(format!("kubectl garboard why {name} -o facts    # for a report"));
    if let Some(phase) = facts.phase() {
        finding = finding.shown_by(seen(format!("vmi/{name}"), "status.phase", phase, facts.phase_since()));
    }
    finding
}
