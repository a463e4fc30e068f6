//! How machines follow a change of their pool's template. Pure.
//!
//! ```text
//!   machine names another record ─► rewritten: it is what the template makes now; its instance goes on
//!   instance names another one ──► proactive: DataVolumes of the template differ ─► the machine is deleted, and made again
//!                                             template or what sizes it differs ──► restarted
//!                                             neither ────────────────────────────► relabelled
//! ```
//!
//! An instance that is not ready is replaced at once; of the others so many that `maxUnavailable` is not exceeded.

use std::collections::BTreeSet;

use garboard_api::run_strategy::RunStrategy;
use garboard_api::v1::{VirtualMachinePoolSelectionPolicy, VirtualMachinePoolSpec, VirtualMachineSpec};
use garboard_api::{VirtualMachinePool, pool};

use super::decide::{Step, World, deletion, is_paused, own, victim};
use super::member::{Instance, Member};
use super::order;
use crate::replica_set::decide::BURST;

/// What machines are changed for a template that changed.
enum Way<'a> {
    /// None.
    Unmanaged,
    /// The machines alone.
    Opportunistic,
    /// Machines and instances.
    Proactive(Option<&'a VirtualMachinePoolSelectionPolicy>),
}

fn way(pool: &VirtualMachinePool) -> Way<'_> {
    let Some(strategy) = &pool.spec.update_strategy else { return Way::Proactive(None) };
    if strategy.unmanaged.is_some() {
        Way::Unmanaged
    } else if strategy.opportunistic.is_some() {
        Way::Opportunistic
    } else {
        Way::Proactive(strategy.proactive.as_ref().and_then(|proactive| proactive.selection_policy.as_ref()))
    }
}

/// What a machine's instance has to do with the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outdated {
    /// It is what the machine would make.
    InName,
    /// The machine would make another one.
    Instance,
    /// The machine would bring other volumes along.
    Volumes,
}

/// The steps for machines that stay; `away` are those beside them that are missing already.
pub(super) fn updates(world: &World, staying: &[&Member], away: usize) -> Vec<Step> {
    let current = pool::revision_name(&world.pool);
    let (policy, restarts) = match way(&world.pool) {
        Way::Unmanaged => return Vec::new(),
        Way::Opportunistic => (None, false),
        Way::Proactive(policy) => (policy, true),
    };
    let taken = order::taken(&world.pool, policy, staying.to_vec(), world.chance);
    let (updated, outdated): (Vec<&Member>, Vec<&Member>) =
        taken.into_iter().partition(|member| member.revision() == Some(current.as_str()));
    let mut steps: Vec<Step> = outdated.into_iter().filter_map(|member| rewrite(&world.pool, member)).collect();
    if restarts {
        let away = away + staying.iter().filter(|member| !member.is_available()).count();
        let budget = pool::max_unavailable(&world.pool).saturating_sub(away);
        steps.extend(restarted(world, &current, &updated, budget));
    }
    steps.truncate(BURST);
    steps
}

/// The names of records that a decision needs: of what machines were, and of what instances are, where these are others than now.
pub(super) fn named_records(pool: &VirtualMachinePool, members: &[Member]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if is_paused(pool) || pool.metadata.deletion_timestamp.is_some() {
        return names;
    }
    let (policy, restarts) = match way(pool) {
        Way::Unmanaged => return names,
        Way::Opportunistic => (None, false),
        Way::Proactive(policy) => (policy, true),
    };
    let current = pool::revision_name(pool);
    let staying = own(pool, members).into_iter().filter(|member| member.stays()).collect();
    for member in order::taken(pool, policy, staying, 0) {
        let of_instance = member.instance.as_ref().and_then(|instance| instance.revision.as_deref());
        let named = [member.revision(), of_instance.filter(|_| restarts)];
        names.extend(named.into_iter().flatten().filter(|name| *name != current).map(str::to_owned));
    }
    names
}

/// One whose name is none of the pool's has no number: it stays as it is.
fn rewrite(pool: &VirtualMachinePool, member: &Member) -> Option<Step> {
    let number = pool::number(pool, &member.name)?;
    Some(Step::Rewrite { machine: victim(member), number, before: member.revision().map(str::to_owned) })
}

fn restarted(world: &World, current: &str, members: &[&Member], budget: usize) -> Vec<Step> {
    let (mut steps, mut budget) = (Vec::new(), budget);
    let with_instance = members.iter().filter_map(|member| Some((*member, member.instance.as_ref()?)));
    let is_behind = |(member, instance): &(&Member, &Instance)| {
        // One that is asked to restart is not asked again.
        let goes = instance.leaves || member.state.is_asked;
        !goes && instance.revision.as_deref() != Some(current)
    };
    for (member, instance) in with_instance.filter(is_behind) {
        let outdated = outdated(world, member, instance);
        if outdated == Outdated::InName {
            steps.push(Step::Relabel { name: member.name.clone(), instance: instance.uid.clone() });
            continue;
        }
        // One that is not ready is unavailable already.
        if instance.is_ready {
            if budget == 0 {
                continue;
            }
            budget -= 1;
        }
        steps.push(match outdated {
            Outdated::Volumes => deletion(member, Some(instance.uid.clone()), "its volumes are others now"),
            Outdated::Instance | Outdated::InName => restart(member, instance),
        });
    }
    steps
}

/// What is not known to be the same is another one.
fn outdated(world: &World, member: &Member, instance: &Instance) -> Outdated {
    let before = instance.revision.as_ref().and_then(|name| world.records.get(name));
    let (Some(before), Some(number)) = (before, pool::number(&world.pool, &member.name)) else {
        return Outdated::Instance;
    };
    let spec = |pool: &VirtualMachinePoolSpec| pool::machine_spec(pool, number);
    let (before, now) = (spec(before), spec(&world.pool.spec));
    if before.data_volume_templates != now.data_volume_templates {
        Outdated::Volumes
    } else if is_other(&before, &now) {
        Outdated::Instance
    } else {
        Outdated::InName
    }
}

/// Whether a machine would make another instance: of another template, or sized by another object.
fn is_other(before: &VirtualMachineSpec, now: &VirtualMachineSpec) -> bool {
    before.template != now.template || before.instancetype != now.instancetype || before.preference != now.preference
}

fn restart(member: &Member, instance: &Instance) -> Step {
    // Under the others the controller makes an instance that was deleted again.
    let by_request = matches!(member.state.strategy, Some(RunStrategy::Manual | RunStrategy::RerunOnFailure));
    Step::Restart { machine: victim(member), instance: instance.uid.clone(), by_request }
}
