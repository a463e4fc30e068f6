//! What is to be done about a VirtualMachinePool. Pure.
//!
//! ```text
//!   controlled, labels match ────► counts                    too few  ──► create those with the lowest free numbers
//!   controlled, labels do not ───► released                  too many ──► delete, by `scaleInStrategy`
//!   left by a pool of this name ─► adopted, counts           does not start ──► delete; its number is made again
//!   is being deleted ────────────► has its number until it is gone
//! ```
//!
//! How machines follow the template is in `update`. A paused pool, and one that is being deleted, neither creates nor deletes nor
//! changes; the latter neither adopts nor releases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use garboard_api::metadata::label;
use garboard_api::run_strategy::RunStrategy;
use garboard_api::v1::{VirtualMachinePoolProactiveScaleInStrategy, VirtualMachinePoolSpec, VirtualMachinePoolStatus};
use garboard_api::{VirtualMachinePool, pool, selector};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::heal::{self, Health};
use super::member::Member;
use super::{order, status, update};
use crate::replica_set::decide::{BURST, Claim, Victim};

/// How soon is looked again at a number whose volumes of before are still being removed.
const SOON: Duration = Duration::from_secs(1);

/// What pools were made of, by the names of their records.
pub type Records = BTreeMap<String, VirtualMachinePoolSpec>;

/// Everything a decision depends on.
#[derive(Clone, Debug)]
pub struct World {
    /// The pool.
    pub pool: VirtualMachinePool,
    /// The machines that it controls, and those that it [may adopt](is_left).
    pub members: Vec<Member>,
    /// The lowest numbers that no machine of the namespace has, without those that wait.
    pub free: Vec<u32>,
    /// Whether one of these numbers waits: volumes of the machine that had it before are still being removed.
    pub waits: bool,
    /// The records that machines and instances name, of those that count for an update; those that do not exist are not there.
    pub records: Records,
    /// When it was looked at.
    pub now: Timestamp,
    /// Any number: it decides where any machine may be taken.
    pub chance: u64,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Machines whose owners change.
    pub claims: Vec<Step>,
    /// Whether what machines are made of has to be recorded before the rest. It keeps these records of before.
    pub record: Option<BTreeSet<String>>,
    /// Machines that are made.
    pub create: Vec<Step>,
    /// Machines that go.
    pub delete: Vec<Step>,
    /// Machines that are changed and restarted.
    pub update: Vec<Step>,
    /// What the status is to be.
    pub status: VirtualMachinePoolStatus,
    /// When to look again although nothing happens.
    pub recheck: Option<Duration>,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Give a machine other owners.
    Claim(Claim),
    /// Make the machine with this number.
    Create(u32),
    /// Delete a machine, with its volumes. Its name is free when these are gone.
    Delete {
        /// The machine.
        victim: Victim,
        /// Its version: if it was written since, it is looked at again.
        resource_version: Option<String>,
        /// The UID of the instance that it has to have still, where that is the reason.
        instance: Option<String>,
        /// For the event.
        why: &'static str,
    },
    /// Stop a machine that is to go without its volumes, and mark it.
    Retire(Victim),
    /// Delete a machine that was stopped and marked, and nothing that it owns.
    LetGo(Victim),
    /// Make of a machine what the template makes now.
    Rewrite {
        /// The machine.
        machine: Victim,
        /// Its number.
        number: u32,
        /// The record of what it was made of, if it names one.
        before: Option<String>,
    },
    /// Write on an instance that it is what its machine makes now.
    Relabel {
        /// The name of both.
        name: String,
        /// The UID of the instance.
        instance: String,
    },
    /// Have a machine run what it is now.
    Restart {
        /// The machine.
        machine: Victim,
        /// The UID of its instance.
        instance: String,
        /// By a request, for its strategy starts it only then; otherwise its instance is deleted.
        by_request: bool,
    },
}

impl Decision {
    /// Whether something is done: a store that lags must not be the reason.
    #[must_use]
    pub fn acts(&self) -> bool {
        [&self.claims, &self.create, &self.delete, &self.update].iter().any(|steps| !steps.is_empty())
    }

    /// Whether the machines have to be listed before it: one comes or goes, or gets other owners. What changes or restarts a machine names
    /// its version or its instance, and an update of many does so for each.
    #[must_use]
    pub fn needs_list(&self) -> bool {
        let deletes = |step: &Step| matches!(step, Step::Delete { .. });
        [&self.claims, &self.create, &self.delete].iter().any(|steps| !steps.is_empty())
            || self.update.iter().any(deletes)
    }
}

/// Decides.
#[must_use]
pub fn decide(world: &World) -> Decision {
    let own = own(&world.pool, &world.members);
    let staying: Vec<&Member> = own.iter().copied().filter(|member| member.stays()).collect();
    let status = status::of(&world.pool, &staying, world.now);
    let mut decision = Decision { status, ..Decision::default() };
    if world.pool.metadata.deletion_timestamp.is_some() {
        return decision;
    }
    decision.claims = claims(world);
    if is_paused(&world.pool) {
        return decision;
    }
    let missing = pool::wanted(&world.pool).saturating_sub(own.len()).min(BURST);
    decision.create = world.free.iter().take(missing).map(|number| Step::Create(*number)).collect();
    if world.waits && decision.create.len() < missing {
        sooner(&mut decision.recheck, SOON);
    }
    let staying = remove(world, staying, &mut decision);
    let away = own.len() - staying.len() + pool::wanted(&world.pool).saturating_sub(own.len());
    decision.update = update::updates(world, &staying, away);
    decision.record = record(world, &own, &decision);
    decision
}

/// Whether machines are neither created nor deleted nor changed.
#[must_use]
pub fn is_paused(pool: &VirtualMachinePool) -> bool {
    pool.spec.paused == Some(true)
}

/// Whether a machine that no one controls was left behind by a pool of this name: it has the name and the label of a machine of it.
/// Others may have the labels that the selector asks for, and are left alone: their disks and specification are their users'.
#[must_use]
pub fn is_left(pool: &VirtualMachinePool, member: &Member) -> bool {
    let is_selected = selector::matches(&pool.spec.selector, &member.labels);
    let is_named = pool::number(pool, &member.name).is_some() && member.labels.contains_key(label::POOL_REVISION);
    member.controller().is_none() && !member.leaves && is_selected && is_named
}

/// So many of the lowest numbers whose names `is_taken` does not know.
pub(super) fn free_numbers(pool: &VirtualMachinePool, count: usize, is_taken: impl Fn(&str) -> bool) -> Vec<u32> {
    (0..u32::MAX).filter(|number| !is_taken(&pool::name(pool, *number))).take(count).collect()
}

/// How many machines are missing at most, so that no more numbers are looked for.
pub(super) fn missing(pool: &VirtualMachinePool, members: &[Member]) -> usize {
    pool::wanted(pool).saturating_sub(own(pool, members).len()).min(BURST)
}

/// Those that are the pool's, or will be once it has adopted them.
pub(super) fn own<'a>(pool: &VirtualMachinePool, members: &'a [Member]) -> Vec<&'a Member> {
    let uid = pool.metadata.uid.as_deref();
    let adopts = pool.metadata.deletion_timestamp.is_none();
    let is_own = |member: &&Member| match member.controller() {
        Some(controller) => Some(controller) == uid && selector::matches(&pool.spec.selector, &member.labels),
        None => adopts && is_left(pool, member),
    };
    members.iter().filter(is_own).collect()
}

/// Who is adopted, and who is released.
fn claims(world: &World) -> Vec<Step> {
    let Some(owner) = pool::owner(&world.pool) else { return Vec::new() };
    let claim = |member: &Member| {
        let is_selected = selector::matches(&world.pool.spec.selector, &member.labels);
        let others = member.owners.iter().filter(|each| each.uid != owner.uid).cloned();
        let (owners, is_adopted): (Vec<OwnerReference>, bool) = match member.controller() {
            None if is_left(&world.pool, member) => (others.chain([owner.clone()]).collect(), true),
            Some(controller) if controller == owner.uid && !is_selected => (others.collect(), false),
            None | Some(_) => return None,
        };
        let Member { name, uid, resource_version, .. } = member.clone();
        Some(Step::Claim(Claim { name, uid, resource_version, owners, is_adopted }))
    };
    world.members.iter().filter(|member| !member.leaves).filter_map(claim).take(BURST).collect()
}

/// Who goes. Returns those that stay.
fn remove<'a>(world: &World, staying: Vec<&'a Member>, decision: &mut Decision) -> Vec<&'a Member> {
    retired(world, decision);
    let (failing, mut well): (Vec<&Member>, Vec<&Member>) = staying.into_iter().partition(|member| {
        let health = heal::health(world.pool.spec.autohealing.as_ref(), member, world.now);
        if let Health::Ailing(rest) = health {
            sooner(&mut decision.recheck, rest);
        }
        health == Health::Failing
    });
    // What is wrong with it may be on its volumes: they go in any case.
    let healed = failing.into_iter().map(|member| deletion(member, None, "it does not start"));
    decision.delete.extend(healed);
    let excess = excess(world, &well);
    let gone: BTreeSet<&str> = excess.iter().map(|each| each.uid.as_str()).collect();
    well.retain(|member| !gone.contains(member.uid.as_str()));
    let keeps = strategy(&world.pool).is_some_and(keeps_volumes);
    let step = |member: &Member| if keeps { Step::Retire(victim(member)) } else { deletion(member, None, "too many") };
    decision.delete.extend(excess.into_iter().map(step));
    decision.delete.truncate(BURST);
    well
}

/// Machines that were marked are let go when they are down; one that was started again is stopped again.
fn retired(world: &World, decision: &mut Decision) {
    let retired = own(&world.pool, &world.members).into_iter().filter(|member| member.is_retired && !member.leaves);
    decision.delete.extend(retired.filter_map(|member| match member.state.strategy {
        Some(RunStrategy::Halted) => {
            (member.state.is_down && member.instance.is_none()).then(|| Step::LetGo(victim(member)))
        }
        Some(RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Once | RunStrategy::Manual) | None => {
            Some(Step::Retire(victim(member)))
        }
    }));
}

/// Those that are too many, first who goes first; none where the pool deletes none.
fn excess<'a>(world: &World, staying: &[&'a Member]) -> Vec<&'a Member> {
    let Some(proactive) = strategy(&world.pool) else { return Vec::new() };
    let count = staying.len().saturating_sub(pool::wanted(&world.pool));
    if count == 0 {
        return Vec::new();
    }
    let taken = order::taken(&world.pool, proactive.selection_policy.as_ref(), staying.to_vec(), world.chance);
    taken.into_iter().take(count).collect()
}

/// How the pool deletes what is too many, if it does.
fn strategy(pool: &VirtualMachinePool) -> Option<VirtualMachinePoolProactiveScaleInStrategy> {
    let strategy = pool.spec.scale_in_strategy.clone().unwrap_or_default();
    let is_left_to_others = strategy.unmanaged.is_some() || strategy.opportunistic.is_some();
    (!is_left_to_others).then(|| strategy.proactive.unwrap_or_default())
}

/// Whether volumes stay of what the pool deletes. The webhook refuses what asks for more.
fn keeps_volumes(strategy: VirtualMachinePoolProactiveScaleInStrategy) -> bool {
    strategy.state_preservation.is_some_and(|written| !written.is_empty() && written != "Disabled")
}

/// Whether what machines are made of is recorded: before the first of them names the record. With it go the records that nothing names.
fn record(world: &World, own: &[&Member], decision: &Decision) -> Option<BTreeSet<String>> {
    let names_it = |step: &Step| matches!(step, Step::Create(_) | Step::Rewrite { .. });
    let is_needed = decision.create.iter().chain(&decision.update).any(names_it);
    let current = pool::revision_name(&world.pool);
    if !is_needed || own.iter().any(|member| member.revision() == Some(current.as_str())) {
        return None;
    }
    let of_instances = own.iter().filter_map(|member| member.instance.as_ref()?.revision.as_deref());
    let named = own.iter().filter_map(|member| member.revision()).chain(of_instances);
    Some(named.map(str::to_owned).collect())
}

/// The deletion of a machine as it was seen, with its volumes; `instance` is the UID of the instance that is the reason.
pub(super) fn deletion(member: &Member, instance: Option<String>, why: &'static str) -> Step {
    Step::Delete { victim: victim(member), resource_version: member.resource_version.clone(), instance, why }
}

pub(super) fn victim(member: &Member) -> Victim {
    Victim { name: member.name.clone(), uid: member.uid.clone() }
}

fn sooner(recheck: &mut Option<Duration>, pause: Duration) {
    *recheck = Some(recheck.map_or(pause, |before| before.min(pause)));
}
