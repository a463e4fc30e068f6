//! What is to be done about a VirtualMachineInstanceReplicaSet. Pure.
//!
//! ```text
//!   controlled, labels match ──► counts                       too few  ──► create those with the next free names
//!   controlled, labels do not ─► released                     too many ──► delete: not ready, not running, newest first
//!   no controller, labels match ► adopted, counts              over     ──► replaced: the new one first, then the old one deleted
//!                                                              Unknown  ──► the same
//! ```
//!
//! A paused set, and one that is being deleted, neither creates nor deletes; the latter neither adopts nor releases.

use std::collections::BTreeSet;
use std::time::Duration;

use garboard_api::v1::VirtualMachineInstanceReplicaSetStatus;
use garboard_api::{Phase, VirtualMachineInstanceReplicaSet, selector, set};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::member::Member;
use super::status;
use crate::time::elapsed;

/// How many instances are created or deleted at most before the set is looked at again; KubeVirt's number.
pub const BURST: usize = 250;

/// An instance that failed is not replaced before this time after its creation: a template whose guests fail at once would make and
/// remove instances as quickly as the cluster can.
pub const RESPAWN: Duration = Duration::from_secs(10);

/// Everything a decision depends on.
#[derive(Clone, Debug)]
pub struct World {
    /// The set.
    pub set: VirtualMachineInstanceReplicaSet,
    /// The instances that it controls, and those of its namespace that no one controls and its selector selects.
    pub members: Vec<Member>,
    /// The next names that no instance of the namespace has (`free_names`).
    pub free: Vec<String>,
    /// When it was looked at.
    pub now: Timestamp,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Instances whose owners change.
    pub claims: Vec<Claim>,
    /// Names of instances to be created.
    pub create: Vec<String>,
    /// Instances that are too many.
    pub excess: Vec<Victim>,
    /// Instances whose run is over or lost. Only after what replaces them was asked for: names become free by this.
    pub finished: Vec<Victim>,
    /// What the status is to be.
    pub status: VirtualMachineInstanceReplicaSetStatus,
    /// When to look again although nothing happens.
    pub recheck: Option<Duration>,
}

/// A change of the owners of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// As it was looked at: an owner that was changed since is not put back.
    pub resource_version: Option<String>,
    /// All owners that it is to have.
    pub owners: Vec<OwnerReference>,
    /// Whether the set becomes the owner, or gives it up.
    pub is_adopted: bool,
}

/// An instance that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its name.
    pub name: String,
    /// Its UID: a later one of its name stays.
    pub uid: String,
}

impl Decision {
    /// Whether something is created, deleted, adopted or released: a store that lags must not be the reason.
    #[must_use]
    pub fn acts(&self) -> bool {
        !(self.claims.is_empty() && self.create.is_empty() && self.excess.is_empty() && self.finished.is_empty())
    }
}

/// Decides.
#[must_use]
pub fn decide(world: &World) -> Decision {
    let own = own(&world.set, &world.members);
    let active: Vec<&Member> = own.iter().copied().filter(|member| member.is_active()).collect();
    let mut decision = Decision {
        claims: Vec::new(),
        create: Vec::new(),
        excess: Vec::new(),
        finished: Vec::new(),
        status: status::of(&world.set, &active, world.now),
        recheck: None,
    };
    if world.set.metadata.deletion_timestamp.is_some() {
        return decision;
    }
    decision.claims = claims(world);
    if is_paused(&world.set) {
        return decision;
    }
    replace_finished(world, &own, &mut decision);
    let wanted = set::wanted(&world.set);
    // One that may not be replaced yet keeps its place.
    let taken = active.len() + resting(world, &own);
    let missing = wanted.saturating_sub(taken).min(BURST);
    decision.create = world.free.iter().take(missing).cloned().collect();
    decision.excess = excess(active, wanted);
    decision
}

/// Whether instances are neither created nor deleted.
#[must_use]
pub fn is_paused(set: &VirtualMachineInstanceReplicaSet) -> bool {
    set.spec.paused == Some(true)
}

/// So many of the names of its instances, by their numbers, that `is_taken` does not know.
pub(super) fn free_names(
    set: &VirtualMachineInstanceReplicaSet,
    count: usize,
    is_taken: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut found = BTreeSet::new();
    let names = (0..).map(|number| set::name(set, number));
    // Two numbers may have the same name.
    names.filter(|name| !is_taken(name) && found.insert(name.clone())).take(count).collect()
}

/// How many instances are missing at most, so that no more names are looked for.
pub(super) fn missing(set: &VirtualMachineInstanceReplicaSet, members: &[Member]) -> usize {
    let active = own(set, members).into_iter().filter(|member| member.is_active()).count();
    set::wanted(set).saturating_sub(active).min(BURST)
}

/// Those that are the set's, or will be once it has adopted them.
fn own<'a>(set: &VirtualMachineInstanceReplicaSet, members: &'a [Member]) -> Vec<&'a Member> {
    let uid = set.metadata.uid.as_deref();
    let adopts = set.metadata.deletion_timestamp.is_none();
    let is_own = |member: &&Member| match member.controller() {
        Some(controller) => Some(controller) == uid,
        None => adopts && !member.leaves,
    };
    members.iter().filter(|member| selector::matches(&set.spec.selector, &member.labels)).filter(is_own).collect()
}

/// Who is adopted, and who is released.
fn claims(world: &World) -> Vec<Claim> {
    let Some(owner) = set::owner(&world.set) else { return Vec::new() };
    let claim = |member: &Member| {
        let is_selected = selector::matches(&world.set.spec.selector, &member.labels);
        let others = member.owners.iter().filter(|each| each.uid != owner.uid).cloned();
        let (owners, is_adopted): (Vec<OwnerReference>, bool) = match member.controller() {
            None if is_selected => (others.chain([owner.clone()]).collect(), true),
            Some(controller) if controller == owner.uid && !is_selected => (others.collect(), false),
            None | Some(_) => return None,
        };
        let Member { name, uid, resource_version, .. } = member.clone();
        Some(Claim { name, uid, resource_version, owners, is_adopted })
    };
    world.members.iter().filter(|member| !member.leaves).filter_map(claim).take(BURST).collect()
}

/// How long an instance whose run is over still keeps its place, if it does.
fn rest(world: &World, member: &Member) -> Option<Duration> {
    let created = member.created.filter(|_| member.progress.phase == Phase::Failed && !member.leaves)?;
    RESPAWN.checked_sub(elapsed(created, world.now)).filter(|rest| !rest.is_zero())
}

fn resting(world: &World, own: &[&Member]) -> usize {
    own.iter().filter(|member| rest(world, member).is_some()).count()
}

fn replace_finished(world: &World, own: &[&Member], decision: &mut Decision) {
    let over = own.iter().copied().filter(|member| member.is_over() && !member.leaves);
    let (later, now): (Vec<&Member>, Vec<&Member>) = over.partition(|member| rest(world, member).is_some());
    decision.finished = now.into_iter().take(BURST).map(victim).collect();
    decision.recheck = later.into_iter().filter_map(|member| rest(world, member)).min();
}

/// Those that are too many: first who serves nobody yet, and of several alike who is there for the shortest time.
fn excess(mut active: Vec<&Member>, wanted: usize) -> Vec<Victim> {
    let count = active.len().saturating_sub(wanted).min(BURST);
    active.sort_by(|one, other| {
        let place = |member: &Member| (member.progress.is_ready, member.progress.phase == Phase::Running);
        let newest = other.created.cmp(&one.created);
        place(one).cmp(&place(other)).then(newest).then_with(|| one.name.cmp(&other.name))
    });
    active.into_iter().take(count).map(victim).collect()
}

fn victim(member: &Member) -> Victim {
    Victim { name: member.name.clone(), uid: member.uid.clone() }
}
