//! How often this process asked the API server, for what, and what was answered. Each attempt counts: retries are made by the layers around
//! this one ([`crate::deadline`], those of `kube`). One that is given up counts as not answered. Names and namespaces of objects are not kept.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{Method, Request, Response, StatusCode, Uri};
use tower::{Layer, Service};

/// The code of a request that was not answered; KubeVirt's.
pub const NO_ANSWER: &str = "<error>";
/// Resource and verb of a path that is no resource's, as `/version`; KubeVirt's.
const NONE: &str = "none";

/// What was counted so far. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<BTreeMap<Asked, u64>>>);

/// A kind of request, and of answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// The status of the answer: `200`, or [`NO_ANSWER`].
    code: String,
    /// The method of HTTP: `GET`.
    method: String,
    /// The API server, as its address has it.
    host: String,
    /// The plural of the kind: `pods`.
    resource: String,
    /// What is to be done: `LIST`, `WATCH`, `GET`, `CREATE`, `UPDATE`, `PATCH`, `DELETE`.
    verb: String,
}

impl Asked {
    /// Names and values of the labels of KubeVirt's metric.
    #[must_use]
    pub fn labels(&self) -> [(&'static str, &str); 5] {
        let Self { code, method, host, resource, verb } = self;
        [
            ("code", code.as_str()),
            ("method", method.as_str()),
            ("host", host.as_str()),
            ("resource", resource.as_str()),
            ("verb", verb.as_str()),
        ]
    }

    /// One that has no answer yet.
    fn of(method: &Method, uri: &Uri) -> Self {
        let host = uri.authority().map(ToString::to_string).unwrap_or_default();
        let (resource, verb) = match resource(uri.path()) {
            Some((resource, is_of_one)) => (resource, verb(method, uri.query().unwrap_or_default(), is_of_one)),
            None => (NONE, NONE),
        };
        let [method, resource, verb] = [method.as_str(), resource, verb].map(str::to_owned);
        Self { code: NO_ANSWER.to_owned(), method, host, resource, verb }
    }
}

/// The resource that a path is about, and whether it is about one object.
fn resource(path: &str) -> Option<(&str, bool)> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    // `/api/VERSION/…`, `/apis/GROUP/VERSION/…`
    let before = match parts.next()? {
        "api" => 1,
        "apis" => 2,
        _ => return None,
    };
    let parts: Vec<&str> = parts.skip(before).collect();
    match parts.as_slice() {
        ["namespaces", _, resource, rest @ ..] | [resource, rest @ ..] => Some((*resource, !rest.is_empty())),
        [] => None,
    }
}

fn verb<'a>(method: &'a Method, query: &str, is_of_one: bool) -> &'a str {
    let is_watch = query.split('&').any(|each| matches!(each, "watch=true" | "watch=1"));
    match method.as_str() {
        "GET" if is_watch => "WATCH",
        "GET" if !is_of_one => "LIST",
        "POST" => "CREATE",
        "PUT" => "UPDATE",
        other => other,
    }
}

impl Requests {
    /// What was counted so far.
    #[must_use]
    pub fn counted(&self) -> Vec<(Asked, u64)> {
        self.lock().iter().map(|(asked, count)| (asked.clone(), *count)).collect()
    }

    /// Counts what passes through a service.
    #[must_use]
    pub fn layer(&self) -> CountLayer {
        CountLayer(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Asked, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts [`Counting`] around a service.
#[derive(Clone, Debug)]
pub struct CountLayer(Requests);

impl<S> Layer<S> for CountLayer {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Counting<S> {
        Counting { inner, requests: self.0.clone() }
    }
}

/// A service whose requests are counted.
#[derive(Clone, Debug)]
pub struct Counting<S> {
    inner: S,
    requests: Requests,
}

impl<S, A, B> Service<Request<A>> for Counting<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let mut open = Open { asked: Asked::of(request.method(), request.uri()), requests: self.requests.clone() };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let Ok(answer) = &answer {
                open.answered(answer.status());
            }
            answer
        })
    }
}

/// A request under way. It is counted when this is dropped, answered or not.
struct Open {
    asked: Asked,
    requests: Requests,
}

impl Open {
    fn answered(&mut self, status: StatusCode) {
        status.as_str().clone_into(&mut self.asked.code);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        *self.requests.lock().entry(self.asked.clone()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{ListParams, WatchParams};
    use kube::client::Body;
    use kube::{Api, Client};
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::deadline::DeadlineLayer;

    async fn absent(_: Request<Body>) -> Result<Response<Full<Bytes>>, BoxError> {
        Ok(Response::builder().status(404).body(Full::new(Bytes::from_static(b"{}")))?)
    }

    async fn silent(_: Request<Body>) -> Result<Response<Full<Bytes>>, BoxError> {
        std::future::pending().await
    }

    #[tokio::test]
    async fn each_request_is_counted_by_what_it_asks_for_and_how_it_was_answered() {
        let requests = Requests::default();
        let client = Client::new(requests.layer().layer(service_fn(absent)), "default");
        let (here, everywhere) = (Api::<Pod>::default_namespaced(client.clone()), Api::<Pod>::all(client));
        for _ in 0..2 {
            assert!(here.get("a").await.is_err() && everywhere.list(&ListParams::default()).await.is_err());
        }
        assert!(everywhere.watch(&WatchParams::default(), "0").await.is_err());
        let counted = requests.counted();
        let found = counted.iter().map(|(asked, count)| {
            let [code, .., verb] = asked.labels().map(|(_, value)| value);
            format!("{code} {verb} {count}")
        });
        assert_eq!(found.collect::<Vec<_>>(), ["404 GET 2", "404 LIST 2", "404 WATCH 1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_given_up_was_not_answered() {
        let requests = Requests::default();
        let counted = requests.layer().layer(service_fn(silent));
        let pods: Api<Pod> = Api::default_namespaced(Client::new(DeadlineLayer.layer(counted), "default"));
        assert!(pods.get("a").await.is_err());
        let counted = requests.counted();
        let [(asked, 1)] = counted.as_slice() else { panic!("{counted:?}") };
        let labels = [("code", NO_ANSWER), ("method", "GET"), ("host", ""), ("resource", "pods"), ("verb", "GET")];
        assert_eq!(asked.labels(), labels);
    }

    #[test]
    fn paths_are_read_without_the_names_in_them() {
        let asked = |method: Method, uri: &str| {
            let Asked { host, resource, verb, .. } = Asked::of(&method, &uri.parse().unwrap());
            [host, resource, verb].join(" ")
        };
        for (method, path, expected) in [
            (Method::GET, "/api/v1/namespaces/ns/pods/name/log?follow=true", "api:6443 pods GET"),
            (Method::GET, "/api/v1/nodes?watch=true", "api:6443 nodes WATCH"),
            (Method::GET, "/api/v1/namespaces", "api:6443 namespaces LIST"),
            (Method::GET, "/api/v1/namespaces/ns", "api:6443 namespaces GET"),
            (
                Method::PATCH,
                "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/vm/status",
                "api:6443 virtualmachines PATCH",
            ),
            (Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", "api:6443 tokenreviews CREATE"),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l", "api:6443 leases UPDATE"),
            (Method::GET, "/version", "api:6443 none none"),
            (Method::GET, "/apis/kubevirt.io/v1", "api:6443 none none"),
        ] {
            assert_eq!(asked(method, &format!("https://api:6443{path}")), expected, "{path}");
        }
    }
}
