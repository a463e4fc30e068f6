//! `healthz`: whether the API server answers this replica, in KubeVirt's shape (`pkg/healthz`).

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::text::printable;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

use super::instance::LONGEST_REASON;
use crate::settings::Settings;

/// How long the API server may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// How long an answer counts: however often health is asked for, the API server is asked no more than this often.
const COUNTS_FOR: Duration = Duration::from_secs(2);

/// What is known of the API server.
#[derive(Clone)]
pub(super) struct Health {
    client: Client,
    settings: watch::Receiver<Settings>,
    last: Arc<Mutex<Option<Seen>>>,
}

/// The last answer: its version, or why there was none.
#[derive(Clone)]
struct Seen {
    at: Instant,
    version: Result<Value, String>,
}

impl Health {
    /// Nothing is known yet.
    pub(super) fn new(client: Client, settings: watch::Receiver<Settings>) -> Self {
        Self { client, settings, last: Arc::default() }
    }

    /// The answer: 200, or 500 where the API server does not answer.
    pub(super) async fn answer(&self) -> Response {
        let version = self.version().await;
        let settings = self.settings.borrow().object.clone();
        let resource_version = settings.and_then(|object| object.metadata.resource_version.clone()).unwrap_or_default();
        let (status, apiserver) = match version {
            Ok(version) => (StatusCode::OK, json!({ "connectivity": "ok", "version": version })),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, json!({ "connectivity": "failed", "error": error })),
        };
        let body = json!({ "apiserver": apiserver, "config-resource-version": resource_version });
        (status, Json(body)).into_response()
    }

    /// The version of the API server. One asks at a time; those who wait meanwhile have the same answer.
    async fn version(&self) -> Result<Value, String> {
        let mut last = self.last.lock().await;
        if let Some(seen) = last.as_ref().filter(|seen| seen.at.elapsed() < COUNTS_FOR) {
            return seen.version.clone();
        }
        let version = self.look().await;
        *last = Some(Seen { at: Instant::now(), version: version.clone() });
        version
    }

    async fn look(&self) -> Result<Value, String> {
        let request = http::Request::get("/version").body(Vec::new()).map_err(|error| error.to_string())?;
        let asking = self.client.request::<Value>(request);
        let slow = |_| format!("no answer within {} s", ANSWER_WITHIN.as_secs());
        let answer = timeout(ANSWER_WITHIN, asking).await.map_err(slow)?;
        answer.map_err(|error| printable(&ErrorChain(&error).to_string(), LONGEST_REASON))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use garboard_api::cluster::Emulation;
    use kube::client::Body;
    use tokio::time::sleep;

    use super::*;
    use crate::settings::Defaults;

    /// How the API server does.
    #[derive(Clone, Copy)]
    enum Server {
        Answers,
        Refuses,
        Hangs,
    }

    /// A replica whose API server is played, and how often that was asked.
    fn health(server: watch::Receiver<Server>) -> (Health, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let serve = move |_: http::Request<Body>| {
            let does = *server.borrow();
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match does {
                    Server::Answers => {}
                    Server::Refuses => return Err(tower::BoxError::from("connection refused")),
                    Server::Hangs => std::future::pending::<()>().await,
                }
                let version = json!({ "gitVersion": "v1.33.0" }).to_string();
                Ok::<_, tower::BoxError>(http::Response::new(Body::from(version.into_bytes())))
            }
        };
        let client = Client::new(tower::service_fn(serve), "ns");
        let defaults = Defaults { emulation: Emulation::Refused, image_pull_policy: "Never".to_owned() };
        let (_keeps, settings) = watch::channel(Settings::of([], "garboard", &defaults));
        (Health::new(client, settings), asked)
    }

    async fn shown(health: &Health) -> (u16, Value) {
        let answer = health.answer().await;
        let code = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (code, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn the_api_server_is_asked_and_once_for_all_who_ask() {
        let (server, does) = watch::channel(Server::Answers);
        let (health, asked) = health(does);
        let well = json!({
            "apiserver": { "connectivity": "ok", "version": { "gitVersion": "v1.33.0" } }, "config-resource-version": "",
        });
        let (first, second) = tokio::join!(shown(&health), shown(&health));
        assert_eq!((&first, &second), (&(200, well.clone()), &(200, well)));
        server.send_replace(Server::Refuses);
        assert_eq!(shown(&health).await.0, 200, "the last answer counts for a while");
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        for (does, reason) in [(Server::Refuses, "connection refused"), (Server::Hangs, "no answer within 3 s")] {
            server.send_replace(does);
            sleep(COUNTS_FOR).await;
            let (code, body) = shown(&health).await;
            assert_eq!((code, &body["apiserver"]["connectivity"]), (500, &json!("failed")));
            assert!(body["apiserver"]["error"].as_str().unwrap().contains(reason), "{body}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }
}
