//! Has written down what machines are made of (`revision`), and has the records deleted that nothing names any more.

use std::collections::BTreeSet;

use garboard_api::metadata::label;
use garboard_api::{VirtualMachinePool, pool};
use garboard_protocol::causes::ErrorChain;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};

use super::revision;
use crate::context::{Context, ReconcileError, made_by_us, while_trying};
use crate::unread::{self, NamespacedName};

/// With more records that are named than this none is deleted: the request would have to name each.
const MOST_NAMED: usize = 20;

/// Makes the record of what machines are made of now, and keeps those that are named.
///
/// # Errors
/// The API server refused, or another content has the name.
pub(super) async fn record(
    context: &Context,
    pool: &VirtualMachinePool,
    named: &BTreeSet<String>,
) -> Result<(), ReconcileError> {
    let made = make(&context.client, pool).await;
    // A refusal may be that of a quota, and then those of before are what uses it up.
    if made.as_ref().err().is_none_or(ReconcileError::is_refused_for_good) {
        drop_unnamed(&context.client, pool, named).await;
    }
    made
}

async fn make(client: &Client, pool: &VirtualMachinePool) -> Result<(), ReconcileError> {
    let namespace = NamespacedName::of(&pool.metadata)?.namespace;
    let revision = revision::of(pool).ok_or(ReconcileError::Incomplete { what: "a UID and a generation" })?;
    match unread::create(client, namespace, &made_by_us(), &revision).await {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => compare(client, namespace, pool).await,
        Err(error) => Err(while_trying("create the ControllerRevision of the pool")(error)),
    }
}

/// One of the same name and content may also be that of an earlier pool, whose machines were left.
async fn compare(client: &Client, namespace: &str, pool: &VirtualMachinePool) -> Result<(), ReconcileError> {
    let name = pool::revision_name(pool);
    let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
    match revisions.get_opt(&name).await {
        // It is gone soon, with the pool that had this name before; a machine must not name it.
        Ok(Some(found)) if goes(&found.metadata, pool) => Err(ReconcileError::Overtaken),
        Ok(Some(found)) if revision::content(&found).as_ref() == Some(&pool::recorded(pool)) => Ok(()),
        Ok(Some(_)) => Err(ReconcileError::Refused {
            message: format!("the ControllerRevision {name} exists and has another content; delete it"),
        }),
        // It has been deleted since.
        Ok(None) => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("read the ControllerRevision of the pool")(error)),
    }
}

/// Whether a record is being deleted, or will be: with the pool that owns it, which is not this one. One without an owner was left.
fn goes(record: &ObjectMeta, pool: &VirtualMachinePool) -> bool {
    let mut controllers = record.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    record.deletion_timestamp.is_some() || controllers.any(|owner| Some(&owner.uid) != pool.metadata.uid.as_ref())
}

/// One that stays although it is of no use keeps no pool from its machines.
async fn drop_unnamed(client: &Client, pool: &VirtualMachinePool, named: &BTreeSet<String>) {
    let (Some(namespace), Some(uid)) = (pool.metadata.namespace.as_deref(), pool.metadata.uid.as_deref()) else {
        return;
    };
    if named.len() > MOST_NAMED {
        return;
    }
    let current = pool::revision_name(pool);
    let kept = named.iter().chain([&current]).map(|name| format!("metadata.name!={name}"));
    let unnamed = ListParams::default().labels(&format!("{}={uid}", label::REVISION_OF));
    let unnamed = unnamed.fields(&kept.collect::<Vec<_>>().join(","));
    let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace);
    if let Err(error) = revisions.delete_collection(&DeleteParams::default(), &unnamed).await {
        tracing::warn!(error = %ErrorChain(&error), pool = pool.metadata.name, "records of a pool could not be deleted");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_record_of_an_earlier_pool_goes_and_one_that_was_left_stays() {
        let pool: VirtualMachinePool =
            serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop", "uid": "now"}})).unwrap();
        let owner = |uid: &str| {
            json!([{"apiVersion": pool::API_VERSION, "kind": "VirtualMachinePool", "name": "web", "uid": uid,
            "controller": true}])
        };
        let table: [(Value, bool); 4] = [
            (json!({"ownerReferences": owner("now")}), false),
            (json!({"ownerReferences": owner("before")}), true),
            (json!({}), false),
            (json!({"ownerReferences": owner("now"), "deletionTimestamp": "2026-01-01T00:00:00Z"}), true),
        ];
        for (metadata, expected) in table {
            assert_eq!(goes(&serde_json::from_value(metadata.clone()).unwrap(), &pool), expected, "{metadata}");
        }
    }
}
