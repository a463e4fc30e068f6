//! What is known of a VirtualMachineInstanceReplicaSet: out of the stores, and of the API server before something is done.

use std::collections::{BTreeMap, BTreeSet};

use garboard_api::{VirtualMachineInstanceReplicaSet, selector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Api;
use kube::api::ListParams;

use super::decide::{World, free_names, missing};
use super::member::{Member, NEW, Progress};
use crate::context::{ReconcileError, while_trying};
use crate::reconcilers::Leader;
use crate::stores::{Cached, Instances, ReplicaSets};
use crate::unread::NamespacedName;

/// How many objects a page of a list has: of metadata alone, which is some two kilobytes each.
const PAGE: u32 = 500;

/// What the stores have.
pub(super) fn observe(leader: &Leader, set: VirtualMachineInstanceReplicaSet) -> Result<World, ReconcileError> {
    let namespace = NamespacedName::of(&set.metadata)?.namespace;
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let (controlled, alone) = (leader.instances.controlled_by(uid), leader.instances.uncontrolled(namespace));
    // Any user may write any UID into the owners of an instance in another namespace.
    let controlled = controlled.iter().filter(|stored| stored.key().namespace == namespace);
    let controlled = controlled.map(|stored| Member::of(stored)).collect::<Result<Vec<_>, _>>()?;
    let alone = alone.iter().filter_map(|stored| Member::of(stored).ok());
    let selected = alone.filter(|member| selector::matches(&set.spec.selector, &member.labels));
    let members = controlled.into_iter().chain(selected).collect();
    Ok(world(leader, set, members))
}

/// The same set, asked of the API server; nothing if it is not there any more. Its instances are listed once, whichever number there
/// is, and only their metadata: how far each is the stores know.
pub(super) async fn afresh(leader: &Leader, world: &World) -> Result<Option<World>, ReconcileError> {
    let NamespacedName { namespace, name } = NamespacedName::of(&world.set.metadata)?;
    let sets: Api<Cached<ReplicaSets>> = Api::namespaced(leader.context.client.clone(), namespace);
    let found = sets.get_opt(name).await.map_err(while_trying("get the VirtualMachineInstanceReplicaSet"))?;
    let Some(set) = found.map(|found| found.read()).transpose()? else { return Ok(None) };
    if set.metadata.uid != world.set.metadata.uid {
        return Ok(None);
    }
    let listed = list(leader, &set).await?;
    let members = known_and_listed(world, &set.spec.selector, listed);
    Ok(Some(self::world(leader, set, members)))
}

/// The listed ones with what was known of them; and of those that the list cannot have, because the selector does not select them,
/// what was known.
fn known_and_listed(world: &World, selector: &LabelSelector, listed: Vec<ObjectMeta>) -> Vec<Member> {
    let known: BTreeMap<&str, Progress> =
        world.members.iter().map(|member| (member.uid.as_str(), member.progress)).collect();
    let of_list = listed.into_iter().map(|metadata| {
        let progress = metadata.uid.as_deref().and_then(|uid| known.get(uid)).copied();
        Member::new(metadata, progress.unwrap_or(NEW))
    });
    let others = world.members.iter().filter(|member| !selector::matches(selector, &member.labels)).cloned();
    let members = of_list.chain(others);
    // Others' do not count, and one that is released by its labels since is listed no more.
    let uid = world.set.metadata.uid.as_deref();
    members.filter(|member| member.controller().is_none() || member.controller() == uid).collect()
}

async fn list(leader: &Leader, set: &VirtualMachineInstanceReplicaSet) -> Result<Vec<ObjectMeta>, ReconcileError> {
    let namespace = NamespacedName::of(&set.metadata)?.namespace;
    let instances: Api<Cached<Instances>> = Api::namespaced(leader.context.client.clone(), namespace);
    let mut params = ListParams::default().labels(&selector::text(&set.spec.selector)).limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = instances.list_metadata(&params).await.map_err(while_trying("list the instances of a set"))?;
        found.extend(page.items.into_iter().map(|item| ObjectMeta { managed_fields: None, ..item.metadata }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

fn world(leader: &Leader, set: VirtualMachineInstanceReplicaSet, members: Vec<Member>) -> World {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let taken: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let is_taken = |name: &str| taken.contains(name) || leader.instances.named(namespace, name).is_some();
    let free = free_names(&set, missing(&set, &members), is_taken);
    World { free, now: jiff::Timestamp::now(), members, set }
}

#[cfg(test)]
mod tests {
    use garboard_api::Phase;
    use serde_json::json;

    use super::*;

    fn metadata(name: &str, controller: Option<&str>) -> ObjectMeta {
        let owner = |uid: &str| json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": true}]);
        let owners = controller.map_or(json!([]), owner);
        let written =
            json!({"name": name, "uid": format!("{name}-uid"), "labels": {"app": "x"}, "ownerReferences": owners});
        serde_json::from_value(written).unwrap()
    }

    #[test]
    fn the_list_says_who_is_there_and_the_store_how_far_each_is() {
        let set = json!({"metadata": {"name": "s", "namespace": "ns", "uid": "set"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {}}});
        let running = Progress { phase: Phase::Running, is_ready: true, pod_leaves: false, is_lost: false };
        let mut astray = Member::new(metadata("astray", Some("set")), running);
        astray.labels.clear();
        let members = vec![
            Member::new(metadata("old", Some("set")), running),
            Member::new(metadata("gone", Some("set")), running),
            astray.clone(),
        ];
        let set = serde_json::from_value(set).unwrap();
        let world = World { set, members, free: Vec::new(), now: jiff::Timestamp::UNIX_EPOCH };
        let listed = vec![
            metadata("old", Some("set")),
            metadata("new", Some("set")),
            metadata("alone", None),
            metadata("other", Some("another")),
        ];
        let merged = known_and_listed(&world, &world.set.spec.selector, listed);
        let expected = vec![
            Member::new(metadata("old", Some("set")), running),
            Member::new(metadata("new", Some("set")), NEW),
            Member::new(metadata("alone", None), NEW),
            astray,
        ];
        assert_eq!(merged, expected);
    }
}
