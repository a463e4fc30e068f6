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
    deletions.buffer_unordered(AT_ONCE).try_fold(0, |sum: usize, one: usize| async move { Ok(sum + one) }).await
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server with these records, in pages of two; what it was asked.
    fn server(records: Vec<Value>) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let serve = move |request: http::Request<Body>| {
            let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            seen.lock().unwrap().push(format!("{} {path}", request.method()));
            let first = usize::from(path.contains("continue=")) * 2;
            let rest = if first == 0 && records.len() > 2 { "more" } else { "" };
            let items: Vec<Value> = records.iter().skip(first).take(2).cloned().collect();
            let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {"continue": rest}, "items": items});
            let gone = path.contains("/gone-0");
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
                "code": 404, "message": "not found"});
            let deleted = json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 200});
            let (code, answer) = match (request.method() == http::Method::DELETE, gone) {
                (true, true) => (404, status),
                (true, false) => (200, deleted),
                (false, _) => (200, list),
            };
            async move {
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, tower::BoxError>(http::Response::builder().status(code).body(answer)?)
            }
        };
        (Client::new(tower::service_fn(serve), "ns"), asked)
    }

    fn record(name: &str, made: &str) -> Value {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"namespace": "tenant", "name": name, "creationTimestamp": made}})
    }

    #[tokio::test]
    async fn what_is_old_is_deleted_on_every_page_and_what_is_gone_is_no_error() {
        let records = vec![
            record("web-1", "2026-01-01T00:00:00Z"),
            record("web-2", "2026-01-20T00:00:00Z"),
            record("gone-0", "2026-01-01T00:00:00Z"),
        ];
        let (client, asked) = server(records);
        let now = "2026-01-20T01:00:00Z".parse().unwrap();
        assert_eq!(clear(&client, now).await.unwrap(), 1);
        let mut asked = asked.lock().unwrap().clone();
        asked.sort();
        let one = "/apis/garboard.dev/v1/namespaces/tenant/machineruns";
        assert_eq!(asked.len(), 4, "{asked:?}");
        for (line, name) in asked.iter().zip(["gone-0", "web-1"]) {
            assert!(line.starts_with(&format!("DELETE {one}/{name}")), "{asked:?}");
        }
        assert!(asked[2..].iter().all(|line| line.starts_with("GET /apis/garboard.dev/v1/machineruns?")), "{asked:?}");
    }
}
