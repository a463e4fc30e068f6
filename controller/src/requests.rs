//! Many requests about the objects of one set or pool: how many are under way, and which failure is reported.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::context::{ReconcileError, while_trying};
use crate::replica_set::decide::Claim;
use crate::stores::Kind;
use crate::unread::{self, NamespacedName};

/// How many requests of a set are under way at most.
const AT_ONCE: usize = 16;

/// One, two, four and so on, up to [`AT_ONCE`]: where everything is refused, a quota perhaps, few requests are made for nothing.
pub(crate) fn batches<T>(items: &[T]) -> Vec<&[T]> {
    let (mut rest, mut size, mut batches) = (items, 1, Vec::new());
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(size.min(rest.len()));
        batches.push(batch);
        rest = later;
        size = (size * 2).min(AT_ONCE);
    }
    batches
}

/// The first of those that failed; another writer's only if nothing else is wrong.
pub(crate) fn first_failure(outcomes: Vec<Result<(), ReconcileError>>) -> Option<ReconcileError> {
    let mut failed: Vec<ReconcileError> = outcomes.into_iter().filter_map(Result::err).collect();
    failed.sort_by_key(|error| error.message().is_none());
    failed.into_iter().next()
}

/// Gives an object of a namespace other owners. One that is gone needs none.
///
/// # Errors
/// The API server refused, or another client was faster.
pub(crate) async fn change_owners<K: Kind>(
    client: &Client,
    namespace: &str,
    claim: &Claim,
) -> Result<(), ReconcileError> {
    let Claim { name, uid, resource_version, owners, .. } = claim;
    let metadata = json!({ "uid": uid, "resourceVersion": resource_version, "ownerReferences": owners });
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    let object = NamespacedName { namespace, name };
    match unread::patch::<K>(client, object, &PatchParams::default(), &patch).await {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("change the owners of the object")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_requests_are_few() {
        let sizes = |count: usize| batches(&vec![(); count]).into_iter().map(<[()]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(0), [] as [usize; 0]);
        assert_eq!(sizes(6), [1, 2, 3]);
        assert_eq!(sizes(64), [1, 2, 4, 8, 16, 16, 16, 1]);
    }

    #[test]
    fn what_was_refused_is_reported_before_what_another_writer_did() {
        let refused = || Err(ReconcileError::Refused { message: "exceeded quota".to_owned() });
        let outcome = |outcomes| first_failure(outcomes).map(|error| error.message());
        assert_eq!(outcome(vec![Ok(()), Ok(())]), None);
        assert_eq!(outcome(vec![Ok(()), Err(ReconcileError::Overtaken)]), Some(None));
        let message = Some(Some("exceeded quota".to_owned()));
        assert_eq!(outcome(vec![Err(ReconcileError::Overtaken), Ok(()), refused()]), message);
    }
}
