//! The instancetype and the preference of a machine: which copies are kept, and the machine with both in its template. Pure, but
//! for `apply`.
//!
//! KubeVirt's rule: with the first look at a machine the objects that it names are copied into ControllerRevisions, and its status names
//! these. From then on the copies count, until the machine names other objects. Both are written before anything is started, once for
//! each name, and not again with a start ([ADR 11](../../../../docs/adr/0011-five-writes.md)).

pub(super) mod apply;

use std::time::Duration;

use garboard_api::cluster::ReferencePolicy;
use garboard_api::conditions::Reason;
use garboard_api::instancetype::{Matcher, Role, Sizing, expanded, revision, sized};
use garboard_api::metadata::label;
use garboard_api::v1::{InstancetypeStatusRef, VirtualMachineStatus, non_empty};
use garboard_api::{
    ClusterConfig, Kind, Phase, PrintableStatus, RunStrategy, VirtualMachine, VirtualMachineInstance, merge, vmi_of,
};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};

use super::decide::{Decision, Step, World, ends};
use super::status;
use crate::sizes::Found;

/// How long until a machine is looked at again whose instancetype does not exist; the longest such pause.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(2);
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What is known of both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    /// The objects, or the copies of them.
    pub found: Vec<Found>,
    /// The machine with both in its template, if it names any.
    pub sized: Option<Box<VirtualMachine>>,
    /// The machine without their names, where the cluster has them written out.
    pub expanded: Option<Box<VirtualMachine>>,
    /// Why there is neither.
    pub problem: Option<Problem>,
}

/// Why a machine cannot be started as it names both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// KubeVirt's reason.
    pub reason: Reason,
    /// For people.
    pub message: String,
}

impl Sizes {
    /// Of objects that could not be asked for.
    #[must_use]
    pub fn unread(message: String) -> Self {
        Self { problem: Some(Problem { reason: Reason::FailedFindInstancetype, message }), ..Self::default() }
    }

    /// Of what was found.
    #[must_use]
    pub fn of(vm: &VirtualMachine, sizing: &Sizing, found: Vec<Found>, config: &ClusterConfig) -> Self {
        if let Some(problem) = missing(vm, sizing) {
            return Self { problem: Some(problem), ..Self::default() };
        }
        let whole = if expands(vm, config) { expanded(vm, sizing, config) } else { sized(vm, sizing, config) };
        match whole {
            Ok(vm) if vm.spec.instancetype.is_none() && vm.spec.preference.is_none() => {
                Self { found, expanded: Some(Box::new(vm)), ..Self::default() }
            }
            Ok(vm) => Self { found, sized: Some(Box::new(vm)), ..Self::default() },
            Err(faults) => {
                let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
                let problem = Problem { reason: Reason::FailedCreate, message: texts.join(", ") };
                Self { problem: Some(problem), ..Self::default() }
            }
        }
    }
}

fn missing(vm: &VirtualMachine, sizing: &Sizing) -> Option<Problem> {
    if sizing.is_complete(vm) {
        return None;
    }
    let of_instancetype = vm.spec.instancetype.is_some() && sizing.instancetype.is_none();
    let reason = if of_instancetype { Reason::FailedFindInstancetype } else { Reason::FailedFindPreference };
    let texts: Vec<String> = sizing.missing.iter().map(ToString::to_string).collect();
    Some(Problem { reason, message: texts.join(", ") })
}

/// Whether the cluster has the names of a machine replaced by what they stand for.
fn expands(vm: &VirtualMachine, config: &ClusterConfig) -> bool {
    match config.reference_policy {
        ReferencePolicy::Reference => false,
        ReferencePolicy::Expand => Role::BOTH.into_iter().all(|role| recorded(vm, role).is_none()),
        ReferencePolicy::ExpandAll => true,
    }
}

fn names_any(vm: &VirtualMachine) -> bool {
    vm.spec.instancetype.is_some() || vm.spec.preference.is_some()
}

/// The copy that the status names.
fn recorded(vm: &VirtualMachine, role: Role) -> Option<&str> {
    non_empty(&role.status(vm)?.controller_revision_ref.as_ref()?.name)
}

/// Whether both are looked for: where a start, a comparison or a copy needs them. A machine that runs as it was started needs none, nor
/// does one that rests with copies; those of an earlier form are made anew all the same.
pub(super) fn are_needed(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>) -> bool {
    if !names_any(vm) || vm.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let is_copied = |matcher: Matcher<'_>| {
        let Some(known) = matcher.revision(vm) else { return false };
        let is_current = !matcher.revision_name.is_empty() || revision::is_named_as_now(known);
        is_current && recorded(vm, matcher.role) == Some(known)
    };
    let all_copied = Role::BOTH.into_iter().filter_map(|role| Matcher::of(vm, role)).all(is_copied);
    let Some(vmi) = vmi else { return !all_copied || !rests(vm) };
    !all_copied || (status::is_newer(vm, vmi) && !Phase::of(vmi).is_final())
}

/// Whether a machine without an instance stays without one.
fn rests(vm: &VirtualMachine) -> bool {
    let is_asked = vm.status.as_ref().is_some_and(|status| !status.state_change_requests.is_empty());
    !is_asked && matches!(RunStrategy::of(vm), Some(RunStrategy::Halted | RunStrategy::Manual) | None)
}

/// Brings copies and status in line with the names. True: that comes first, and the rest when it is written. A stop waits for neither.
pub(super) fn settle(world: &World, decision: &mut Decision) -> bool {
    if world.vmi.is_some() && ends(world) {
        return false;
    }
    if !names_any(&world.vm) {
        decision.status.instancetype_ref = None;
        decision.status.preference_ref = None;
        return false;
    }
    if let Some(expanded) = &world.sizes.expanded {
        expand(world, expanded, decision);
        return true;
    }
    let before = decision.status.clone();
    for found in &world.sizes.found {
        if let Some(matcher) = Matcher::of(&world.vm, found.role) {
            copy(world, &matcher, found, decision);
        }
    }
    before.instancetype_ref != decision.status.instancetype_ref
        || before.preference_ref != decision.status.preference_ref
}

/// Writes out what the names stand for, and has the copies deleted, which nothing names any more.
fn expand(world: &World, expanded: &VirtualMachine, decision: &mut Decision) {
    let spec = |vm: &VirtualMachine| serde_json::to_value(&vm.spec).unwrap_or_default();
    let changes = merge::patch(&spec(&world.vm), &spec(expanded)).unwrap_or_else(|| json!({}));
    decision.steps.push(Step::Expand { spec: Box::new(changes) });
    for role in Role::BOTH {
        let old = recorded(&world.vm, role).map(str::to_owned);
        decision.steps.extend(old.map(|name| Step::DropCopy { name }));
        *reference(&mut decision.status, role) = None;
    }
}

/// Keeps a copy of an object, and names it in the status. A copy of an earlier form is made anew, KubeVirt's upgrade, unless the
/// machine itself names it.
fn copy(world: &World, matcher: &Matcher<'_>, found: &Found, decision: &mut Decision) {
    let before = reference(&mut decision.status, matcher.role).clone();
    let name = match &found.copy {
        Some(copy) if copy.is_current || !matcher.revision_name.is_empty() => Some(copy.name.clone()),
        Some(copy) => {
            let made = make(world, found.kind, &found.object, decision);
            if made.as_ref().is_some_and(|made| *made != copy.name) {
                decision.steps.push(Step::DropCopy { name: copy.name.clone() });
            }
            made
        }
        None => make(world, found.kind, &found.object, decision),
    };
    let known = before.as_ref().filter(|before| matcher.is_of(before));
    let status = matcher.status(name.as_deref(), known);
    *reference(&mut decision.status, matcher.role) = Some(status);
}

fn make(world: &World, kind: Kind, object: &Value, decision: &mut Decision) -> Option<String> {
    let made = revision::of(world.vm.metadata.name.as_deref()?, kind, object)?;
    let name = made.name.clone();
    let mut labels = made.labels;
    // By which all of them are found where they do not go with the machine.
    labels.extend(world.vm.metadata.uid.clone().map(|uid| (label::COPY_FOR.to_owned(), uid)));
    let object = ControllerRevision {
        metadata: ObjectMeta {
            name: Some(made.name),
            namespace: world.vm.metadata.namespace.clone(),
            labels: Some(labels),
            // As of its instance: the machine.
            owner_references: vmi_of(&world.vm).metadata.owner_references,
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(made.data)),
        revision: 0,
    };
    decision.steps.push(Step::KeepCopy { object: Box::new(object) });
    Some(name)
}

fn reference(status: &mut VirtualMachineStatus, role: Role) -> &mut Option<InstancetypeStatusRef> {
    match role {
        Role::Instancetype => &mut status.instancetype_ref,
        Role::Preference => &mut status.preference_ref,
    }
}

/// What keeps a machine without an instance from a start, in its status.
pub(super) fn refuse(world: &World, decision: &mut Decision) -> bool {
    let Some(problem) = world.sizes.problem.as_ref().filter(|_| world.vmi.is_none()) else { return false };
    decision.status = status::because(world, problem.reason, &problem.message);
    // KubeVirt's: nothing was started.
    let printed = &mut decision.status.printable_status;
    if printed.as_deref() == Some(PrintableStatus::Starting.name()) {
        *printed = Some(PrintableStatus::Stopped.name().to_owned());
    }
    decision.recheck = Some(ASK_AGAIN);
    true
}

/// The copies of a decision that are to be deleted: after the status that does not name them any more.
pub(super) fn dropped(decision: &Decision) -> impl Iterator<Item = &str> {
    decision.steps.iter().filter_map(|step| match step {
        Step::DropCopy { name } => Some(name.as_str()),
        Step::KeepCopy { .. }
        | Step::Expand { .. }
        | Step::CreateDataVolume { .. }
        | Step::RecordRevision { .. }
        | Step::CreateVmi(_)
        | Step::DeleteVmi { .. }
        | Step::AdoptVmi { .. }
        | Step::Annotate { .. }
        | Step::Unhalt
        | Step::Keep { .. }
        | Step::RemoveFinalizer { .. } => None,
    })
}

#[cfg(test)]
mod tests;
