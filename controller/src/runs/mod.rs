//! Records of runs (`MachineRun`), which node agents write: the leader deletes what is old or too many
//! ([ADR 43](../../../docs/adr/0043-a-record-of-each-run.md)). It reads metadata alone, and watches nothing.

mod decide;

use std::time::Duration;

use futures::TryStreamExt;
use futures::stream::{self, StreamExt};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::record::{GROUP, KIND, PLURAL, VERSION};
use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams};
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Client};

use self::decide::{Kept, superfluous};

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(1800);
/// Objects of one answer.
const PAGE: u32 = 500;
/// Deletions at once.
const AT_ONCE: usize = 4;

/// Looks now and then, until it is dropped.
pub(crate) async fn run(client: Client) {
    loop {
        tokio::time::sleep(EVERY).await;
        match clear(&client, Timestamp::now()).await {
            Ok(0) => {}
            Ok(deleted) => tracing::info!(deleted, "records of runs deleted"),
            Err(error) => tracing::warn!(error = %ErrorChain(&error), "records of runs could not be looked through"),
        }
    }
}

fn resource() -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: KIND.to_owned(),
        plural: PLURAL.to_owned(),
    }
}

/// Deletes what is superfluous; how many.
///
/// # Errors
/// The API server cannot be asked, or refuses. One that is gone already is no error.
pub async fn clear(client: &Client, now: Timestamp) -> Result<usize, kube::Error> {
    let all = listed(client).await?;
    let deletions = stream::iter(superfluous(all, now)).map(|each| {
        let runs: Api<DynamicObject> = Api::namespaced_with(client.clone(), &each.namespace, &resource());
        async move {
            match runs.delete(&each.name, &DeleteParams::default()).await {
                Ok(_) => Ok(1),
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(0),
                Err(error) => Err(error),
            }
        }
    });
    deletions.buffer_unordered(AT_ONCE).try_fold(0, |sum, one| async move { Ok(sum + one) }).await
}

async fn listed(client: &Client) -> Result<Vec<Kept>, kube::Error> {
    let runs: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    let mut wanted = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = match runs.list_metadata(&wanted).await {
            Ok(page) => page,
            // An installation by an earlier manifest has no such kind.
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let read = page.items.iter().filter_map(|each| {
            let metadata = &each.metadata;
            Some(Kept {
                namespace: metadata.namespace.clone()?,
                name: metadata.name.clone()?,
                made: metadata.creation_timestamp.as_ref()?.0,
            })
        });
        all.extend(read);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => wanted = wanted.continue_token(&token),
            None => return Ok(all),
        }
    }
}
