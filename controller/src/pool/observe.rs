//! What is known of a VirtualMachinePool: out of the stores, and of the API server before something is done.

use std::collections::{BTreeMap, BTreeSet};

use garboard_api::{VirtualMachinePool, pool, selector};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::ListParams;

use super::decide::{Records, World, free_numbers, is_left, missing};
use super::member::{Member, State};
use super::{revision, update};
use crate::context::{ReconcileError, while_trying};
use crate::reconcilers::Leader;
use crate::stores::{Cached, DataVolumes, Kind, Machines, Pools};
use crate::unread::NamespacedName;

/// How many objects a page of a list has: of metadata alone, which is some two kilobytes each.
const PAGE: u32 = 500;
/// For how many seconds the order of machines of which any may be taken stays the same.
const ORDER_STAYS: i64 = 60;

/// What the stores have.
pub(super) async fn observe(leader: &Leader, pool: VirtualMachinePool) -> Result<World, ReconcileError> {
    let namespace = NamespacedName::of(&pool.metadata)?.namespace;
    let uid = pool.metadata.uid.as_deref().unwrap_or_default();
    let (controlled, alone) = (leader.machines.controlled_by(uid), leader.machines.uncontrolled(namespace));
    // Any user may write any UID into the owners of a machine in another namespace.
    let controlled = controlled.iter().filter(|stored| stored.key().namespace == namespace);
    let mut members = controlled.map(|stored| member(leader, stored)).collect::<Result<Vec<_>, _>>()?;
    let named = alone.iter().filter(|stored| pool::number(&pool, &stored.key().name).is_some());
    let left = named.filter_map(|stored| member(leader, stored).ok()).filter(|member| is_left(&pool, member));
    members.extend(left);
    let order = chance(&pool, jiff::Timestamp::now());
    world(leader, pool, members, order).await
}

/// The same for a while: a step that is repeated is about the machine of before, also where a store does not know what became of that
/// yet, and a refusal that is repeated has the same text, so that no status is written for it. Then another one: a machine that must not
/// be deleted does not keep the others.
fn chance(pool: &VirtualMachinePool, now: jiff::Timestamp) -> u64 {
    let uid = pool.metadata.uid.as_deref().unwrap_or_default();
    let (generation, period) = (pool.metadata.generation.unwrap_or(0), now.as_second().div_euclid(ORDER_STAYS));
    let text = format!("{uid}/{generation}/{period}");
    uuid::Uuid::new_v5(&uuid::Uuid::nil(), text.as_bytes()).as_u64_pair().0
}

fn member(leader: &Leader, stored: &Cached<Machines>) -> Result<Member, ReconcileError> {
    let key = stored.key();
    let instance = leader.instances.named(&key.namespace, &key.name);
    Ok(Member::of(stored, instance.as_deref())?)
}

/// The same pool, asked of the API server; nothing if it is not there any more. If it `lists` its machines, that is once, whichever number
/// there is, and only their metadata: what each does the stores know.
pub(super) async fn afresh(leader: &Leader, world: &World, lists: bool) -> Result<Option<World>, ReconcileError> {
    let NamespacedName { namespace, name } = NamespacedName::of(&world.pool.metadata)?;
    let pools: Api<Cached<Pools>> = Api::namespaced(leader.context.client.clone(), namespace);
    let found = pools.get_opt(name).await.map_err(while_trying("get the VirtualMachinePool"))?;
    let Some(pool) = found.map(|found| found.read()).transpose()? else { return Ok(None) };
    if pool.metadata.uid != world.pool.metadata.uid {
        return Ok(None);
    }
    let members = if lists {
        let listed = list(leader, &pool).await?;
        known_and_listed(world, &pool, listed)
    } else {
        world.members.clone()
    };
    self::world(leader, pool, members, world.chance).await.map(Some)
}

/// The listed ones with what was known of them; and of those that the list cannot have, because the selector does not select them,
/// what was known.
fn known_and_listed(world: &World, pool: &VirtualMachinePool, listed: Vec<ObjectMeta>) -> Vec<Member> {
    let selector: &LabelSelector = &pool.spec.selector;
    let mut known: BTreeMap<&str, &Member> = world.members.iter().map(|member| (member.uid.as_str(), member)).collect();
    let of_list = listed.into_iter().map(|metadata| {
        let before = metadata.uid.as_deref().and_then(|uid| known.remove(uid));
        let (mut state, instance) =
            before.map_or_else(|| (State::default(), None), |before| (before.state.clone(), before.instance.clone()));
        state.is_stale = before.is_some_and(|before| before.resource_version != metadata.resource_version);
        Member::new(metadata, state, instance)
    });
    let mut members: Vec<Member> = of_list.collect();
    members.extend(world.members.iter().filter(|member| !selector::matches(selector, &member.labels)).cloned());
    // Others' do not count, and one that is released by its labels since is listed no more.
    let uid = pool.metadata.uid.as_deref();
    members.retain(|member| is_left(pool, member) || (member.controller().is_some() && member.controller() == uid));
    members
}

async fn list(leader: &Leader, pool: &VirtualMachinePool) -> Result<Vec<ObjectMeta>, ReconcileError> {
    let namespace = NamespacedName::of(&pool.metadata)?.namespace;
    let machines: Api<Cached<Machines>> = Api::namespaced(leader.context.client.clone(), namespace);
    let mut params = ListParams::default().labels(&selector::text(&pool.spec.selector)).limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = machines.list_metadata(&params).await.map_err(while_trying("list the machines of a pool"))?;
        found.extend(page.items.into_iter().map(|item| ObjectMeta { managed_fields: None, ..item.metadata }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

async fn world(
    leader: &Leader,
    pool: VirtualMachinePool,
    members: Vec<Member>,
    chance: u64,
) -> Result<World, ReconcileError> {
    let records = records(leader, &pool, update::named_records(&pool, &members)).await?;
    let namespace = pool.metadata.namespace.as_deref().unwrap_or_default();
    let taken: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let is_taken = |name: &str| taken.contains(name) || leader.machines.named(namespace, name).is_some();
    let numbers = free_numbers(&pool, missing(&pool, &members), is_taken);
    let (waiting, free): (Vec<u32>, Vec<u32>) =
        numbers.into_iter().partition(|number| has_remains(leader, &pool, *number));
    Ok(World { waits: !waiting.is_empty(), free, records, now: jiff::Timestamp::now(), chance, members, pool })
}

/// What pools were made of, by these names. One that cannot be read now is no reason to restart a machine: then nothing is decided.
async fn records(
    leader: &Leader,
    pool: &VirtualMachinePool,
    names: BTreeSet<String>,
) -> Result<Records, ReconcileError> {
    let namespace = NamespacedName::of(&pool.metadata)?.namespace;
    let api: Api<ControllerRevision> = Api::namespaced(leader.context.client.clone(), namespace);
    let mut records = Records::new();
    for name in names {
        let found = api.get_opt(&name).await.map_err(while_trying("read a ControllerRevision of the pool"))?;
        records.extend(found.as_ref().and_then(revision::content).map(|content| (name, content)));
    }
    Ok(records)
}

/// Whether volumes are left of a machine that had this number and is gone: the next one must not be started with them. They are being
/// removed. Volumes without an owner were kept, and are the next machine's.
fn has_remains(leader: &Leader, pool: &VirtualMachinePool, number: u32) -> bool {
    let namespace = pool.metadata.namespace.as_deref().unwrap_or_default();
    let served = leader.data_volumes.borrow().clone();
    let is_gone = |owner: &OwnerReference| match owner.kind.as_str() {
        Machines::KIND => {
            let machine = leader.machines.named(namespace, &owner.name);
            machine.is_none_or(|machine| uid(&machine) != Some(owner.uid.as_str()))
        }
        // Where none are watched it is not known.
        DataVolumes::KIND => served.as_ref().is_some_and(|served| {
            let volume = served.named(namespace, &owner.name);
            volume.is_none_or(|volume| uid(&volume) != Some(owner.uid.as_str()))
        }),
        _ => false,
    };
    pool::data_volumes(pool, number).any(|name| {
        let volume = served.as_ref().and_then(|served| served.named(namespace, &name));
        let claim = leader.claims.named(namespace, &name);
        volume.is_some_and(|volume| volume.controller().is_some_and(is_gone))
            || claim.is_some_and(|claim| claim.controller().is_some_and(is_gone))
    })
}

fn uid<K: Kind>(object: &Cached<K>) -> Option<&str> {
    kube::Resource::meta(object).uid.as_deref()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metadata(name: &str, controller: Option<&str>) -> ObjectMeta {
        let owner = |uid: &str| json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": true}]);
        let written = json!({"name": name, "uid": format!("{name}-uid"), "ownerReferences": controller.map_or(json!([]), owner),
            "labels": {"app": "x", "kubevirt.io/vm-pool-revision-name": "p-1"}});
        serde_json::from_value(written).unwrap()
    }

    #[test]
    fn any_machine_is_the_same_one_for_a_while() {
        let mut pool: VirtualMachinePool =
            serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u", "generation": 3}})).unwrap();
        let at = |pool: &VirtualMachinePool, second: i64| chance(pool, jiff::Timestamp::from_second(second).unwrap());
        let first = at(&pool, 0);
        assert_eq!(at(&pool, ORDER_STAYS - 1), first);
        assert_ne!(at(&pool, ORDER_STAYS), first, "a machine that must not be deleted would keep the others for ever");
        pool.metadata.generation = Some(4);
        assert_ne!(at(&pool, 0), first, "each scale takes others");
    }

    #[test]
    fn the_list_says_who_is_there_and_the_store_what_each_does() {
        let pool: VirtualMachinePool =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "pool"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}}}))
            .unwrap();
        let ready = State { is_ready: true, ..State::default() };
        let mut astray = Member::new(metadata("p-9", Some("pool")), ready.clone(), None);
        astray.labels.clear();
        let members = vec![
            Member::new(metadata("p-0", Some("pool")), ready.clone(), None),
            Member::new(metadata("p-1", Some("pool")), ready.clone(), None),
            Member::new(metadata("p-9-gone", Some("pool")), ready.clone(), None),
            astray.clone(),
        ];
        let world = World {
            pool,
            members,
            free: Vec::new(),
            waits: false,
            records: Records::new(),
            now: jiff::Timestamp::UNIX_EPOCH,
            chance: 0,
        };
        let mut written_since = metadata("p-1", Some("pool"));
        written_since.resource_version = Some("8".to_owned());
        let listed = vec![
            metadata("p-0", Some("pool")),
            written_since.clone(),
            metadata("p-2", Some("pool")),
            metadata("p-3", None),
            metadata("alone", None),
            metadata("p-4", Some("another")),
        ];
        let merged = known_and_listed(&world, &world.pool, listed);
        let expected = vec![
            Member::new(metadata("p-0", Some("pool")), ready.clone(), None),
            Member::new(written_since, State { is_stale: true, ..ready }, None),
            Member::new(metadata("p-2", Some("pool")), State::default(), None),
            Member::new(metadata("p-3", None), State::default(), None),
            astray,
        ];
        assert_eq!(merged, expected);
    }
}
