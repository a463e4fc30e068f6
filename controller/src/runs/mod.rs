//! Records of runs (`MachineRun`), which node agents write: the leader deletes what is old or too many
//! ([ADR 43](../../../docs/adr/0043-a-record-of-each-run.md)). It reads metadata alone, and watches nothing: all records now and then, and those of
//! a machine or a namespace where many runs have ended since.

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
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at};

use self::decide::{Kept, Runs, Scope, superfluous};
use crate::stores::{ObjectKey, is_absent};

/// How often all are looked through.
const EVERY: Duration = Duration::from_secs(1800);
/// Objects of one answer.
const PAGE: u32 = 500;
/// Deletions at once.
const AT_ONCE: usize = 4;
/// Runs that are over and not counted yet, at most: of what is beyond, the look through all takes care.
const BACKLOG: usize = 1024;

/// Where the reconcilers hand in instances whose run is over.
#[derive(Clone, Debug)]
pub struct RunsOver(mpsc::Sender<ObjectKey>);

impl RunsOver {
    /// The run of an instance is over. Does not wait.
    pub fn count(&self, namespace: &str, name: &str) {
        let _ = self.0.try_send(ObjectKey::new(namespace, name));
    }
}

/// A way for instances whose run is over, and its end for `run`.
#[must_use]
pub fn runs_over() -> (RunsOver, mpsc::Receiver<ObjectKey>) {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    (RunsOver(sender), receiver)
}

/// Looks now and then, and where runs end often, until it is dropped.
pub(crate) async fn run(client: Client, mut over: mpsc::Receiver<ObjectKey>) {
    let (mut runs, mut now_and_then) = (Runs::default(), interval_at(Instant::now() + EVERY, EVERY));
    loop {
        let scope = tokio::select! {
            _ = now_and_then.tick() => {
                runs = Runs::default();
                Some(Scope::Everything)
            }
            Some(instance) = over.recv() => runs.count(&instance),
        };
        let Some(scope) = scope else { continue };
        match clear(&client, &scope, Timestamp::now()).await {
            Ok(0) => {}
            Ok(deleted) => tracing::info!(deleted, ?scope, "records of runs deleted"),
            Err(error) => {
                tracing::warn!(error = %ErrorChain(&error), ?scope, "records of runs could not be looked through");
            }
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
async fn clear(client: &Client, scope: &Scope, now: Timestamp) -> Result<usize, kube::Error> {
    let all = listed(client, scope).await?;
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

/// What is listed for a scope. Records of one machine or namespace come from the API server's cache (resource version 0), in one page, because
/// they are asked for often; one that the cache does not have yet is in the next list.
fn list_of(client: &Client, scope: &Scope) -> (Api<DynamicObject>, ListParams) {
    let within =
        |namespace: &str| -> Api<DynamicObject> { Api::namespaced_with(client.clone(), namespace, &resource()) };
    match scope {
        Scope::Everything => (Api::all_with(client.clone(), &resource()), ListParams::default().limit(PAGE)),
        Scope::Namespace(namespace) => (within(namespace), ListParams::default().match_any()),
        Scope::Machine(ObjectKey { namespace, name }) => {
            let of_machine = format!("spec.machine={name}");
            (within(namespace), ListParams::default().match_any().fields(&of_machine))
        }
    }
}

async fn listed(client: &Client, scope: &Scope) -> Result<Vec<Kept>, kube::Error> {
    let (runs, mut wanted) = list_of(client, scope);
    let mut all = Vec::new();
    loop {
        let page = match runs.list_metadata(&wanted).await {
            Ok(page) => page,
            // An installation by an earlier manifest has no such kind.
            Err(kube::Error::Api(status)) if is_absent(&status) => return Ok(Vec::new()),
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
            let page = if path.contains("limit=") { 2 } else { records.len() };
            let first = usize::from(path.contains("continue=")) * page;
            let rest = if first == 0 && records.len() > page { "more" } else { "" };
            let items: Vec<Value> = records.iter().skip(first).take(page).cloned().collect();
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
        assert_eq!(clear(&client, &Scope::Everything, now).await.unwrap(), 1);
        let mut asked = asked.lock().unwrap().clone();
        asked.sort();
        let one = "/apis/garboard.dev/v1/namespaces/tenant/machineruns";
        assert_eq!(asked.len(), 4, "{asked:?}");
        for (line, name) in asked.iter().zip(["gone-0", "web-1"]) {
            assert!(line.starts_with(&format!("DELETE {one}/{name}")), "{asked:?}");
        }
        assert!(asked[2..].iter().all(|line| line.starts_with("GET /apis/garboard.dev/v1/machineruns?")), "{asked:?}");
    }

    #[tokio::test]
    async fn an_installation_without_the_kind_has_no_records() {
        let serve = |_: http::Request<Body>| async {
            let answer = Body::from(b"404 page not found\n".to_vec());
            Ok::<_, tower::BoxError>(http::Response::builder().status(404).body(answer)?)
        };
        let client = Client::new(tower::service_fn(serve), "ns");
        assert_eq!(clear(&client, &Scope::Everything, Timestamp::now()).await.unwrap(), 0);
    }

    /// How often the API server was asked something like this, once it was at least once.
    async fn asked_for(asked: &Mutex<Vec<String>>, what: &str) -> usize {
        loop {
            let count = asked.lock().unwrap().iter().filter(|line| line.contains(what)).count();
            if count > 0 {
                return count;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_ends_again_and_again_has_no_more_records_than_it_may_without_a_look_at_all() {
        let newest = Timestamp::now().as_second();
        let made = |seconds: i64| Timestamp::from_second(newest - seconds).unwrap().to_string();
        let records: Vec<Value> = (0..13).map(|number| record(&format!("web-{number:08}"), &made(number))).collect();
        let (client, asked) = server(records);
        let (over, receiver) = runs_over();
        let running = tokio::spawn(run(client, receiver));
        for _ in 1..decide::RUNS_OF_A_MACHINE {
            over.count("tenant", "web");
            over.count("tenant", "another");
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(asked.lock().unwrap().is_empty(), "a machine that ends now and then costs no request");
        over.count("tenant", "web");
        let path = "/apis/garboard.dev/v1/namespaces/tenant/machineruns";
        for number in 10..13 {
            assert_eq!(asked_for(&asked, &format!("DELETE {path}/web-{number:08}")).await, 1);
        }
        assert_eq!(asked_for(&asked, "DELETE ").await, 3, "the ten newest stay");
        let lists: Vec<String> =
            asked.lock().unwrap().iter().filter(|line| line.starts_with("GET ")).cloned().collect();
        let [list] = lists.as_slice() else { panic!("{lists:?}") };
        assert!(list.starts_with(&format!("GET {path}?")) && list.contains("spec.machine%3Dweb"), "{list}");
        assert!(list.contains("resourceVersion=0"), "{list}");
        running.abort();
    }
}
