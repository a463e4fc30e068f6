//! The HTTPS server that API servers ask.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::post;
use axum::{Json, Router};
use axum_server::Handle;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use futures::StreamExt;
use garboard_api::VirtualMachineInstancePreset;
use garboard_log::otlp;
use kube::ResourceExt;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionResponse, AdmissionReview, Operation};
use kube::core::conversion::{ConversionRequest, ConversionReview};
use tokio::sync::watch;
use tracing::{Instrument, Span};
use uuid::Uuid;

use super::bounds::{Limits, bounded};
use super::listener::{Listener, Places};
use super::paths::Paths;
use super::presets::KnownPresets;
use super::{AdmissionContext, Request, convert, eviction, mutate, sizes, trace, validate};
use crate::certificates::serving::{follow, tls};
use crate::context::Context;
use crate::shutdown::Stages;
use crate::stores::ObjectKey;

/// Whether a server can be asked: true once it has a certificate and listens.
pub type Readiness = watch::Receiver<bool>;

/// What an answer needs.
struct Serving {
    context: Context,
    presets: KnownPresets,
}

/// Serves until all is drained. `ready` is set when it listens, with the first certificate.
///
/// # Errors
/// The address cannot be listened at.
pub async fn run(
    context: Context,
    address: SocketAddr,
    ready: watch::Sender<bool>,
    mut stages: Stages,
) -> std::io::Result<()> {
    let mut certificates = std::pin::pin!(usable(context.clone()));
    let first = tokio::select! {
        first = certificates.next() => first,
        () = stages.draining() => None,
    };
    let Some((first, paths)) = first else { return Ok(()) };
    let tls = RustlsConfig::from_config(first);
    let reloading = tls.clone();
    let (known, paths) = watch::channel(paths);
    let (presets, following) = KnownPresets::follow(context.client.clone());
    let mut listed = presets.clone();
    let context = Arc::new(Serving { context, presets });
    let routes = Router::new()
        .route("/mutate", post(answer_mutate))
        .route("/mutate/{random}", post(answer_mutate))
        .route("/validate", post(answer_validate))
        .route("/validate/{random}", post(answer_validate))
        .with_state(context.clone());
    let conversions =
        Router::new().route("/convert", post(answer_convert)).route("/convert/{random}", post(answer_convert));
    let evictions = Router::new()
        .route("/evict", post(answer_evict))
        .route("/evict/{random}", post(answer_evict))
        .with_state(context);
    let routes = bounded(routes, Limits::USUAL).merge(bounded(evictions, Limits::EVICTIONS));
    let routes = routes.merge(bounded(conversions, Limits::CONVERSIONS));
    let routes = stages.closing(guarded(routes, paths));
    let handshakes = RustlsAcceptor::new(tls).handshake_timeout(Places::USUAL.handshake);
    let handle = Handle::new();
    let acceptor = handshakes.acceptor(Listener::new(Places::USUAL));
    let server = axum_server::bind(address).handle(handle.clone()).acceptor(acceptor);
    let listening = handle.clone();
    let reload = async {
        listed.first().await;
        ready.send_replace(listening.listening().await.is_some());
        while let Some((next, paths)) = certificates.next().await {
            known.send_replace(paths);
            reloading.reload_from_config(next);
        }
    };
    tokio::select! {
        outcome = server.serve(routes.into_make_service()) => outcome,
        () = reload => Ok(()),
        () = following => Ok(()),
        () = stages.drain(handle) => Ok(()),
    }
}

/// Only a request with the path of a webhook gets further: of everything else neither the body is read, nor does it take a turn.
fn guarded(routes: Router, paths: watch::Receiver<Option<Paths>>) -> Router {
    routes.route_layer(from_fn_with_state(paths, at_a_known_path))
}

async fn at_a_known_path(
    State(paths): State<watch::Receiver<Option<Paths>>>,
    request: axum::extract::Request,
    next: Next,
) -> Result<Response, StatusCode> {
    let is_known = Paths::are_known(paths.borrow().as_ref(), request.uri().path());
    if is_known { Ok(next.run(request).await) } else { Err(StatusCode::NOT_FOUND) }
}

async fn answer_evict(
    State(serving): State<Arc<Serving>>,
    headers: HeaderMap,
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Result<Json<AdmissionReview<DynamicObject>>, StatusCode> {
    let began = Instant::now();
    let request: Request = review.try_into().map_err(|_| StatusCode::BAD_REQUEST)?;
    let judging = async {
        let response = eviction::evict(&serving.context, &request).await;
        log(&request, &response);
        response
    };
    let response = judging.instrument(span(&request, &headers)).await;
    serving.context.metrics.admissions.evict.observe(began.elapsed().as_secs_f64());
    Ok(Json(response.into_review()))
}

async fn answer_convert(Json(review): Json<ConversionReview>) -> Result<Json<ConversionReview>, StatusCode> {
    let request = ConversionRequest::from_review(review).map_err(|_| StatusCode::BAD_REQUEST)?;
    let (uid, version) = (request.uid.clone(), request.desired_api_version.clone());
    let response = judged(|| convert(request))?;
    if response.converted_objects.is_empty() {
        tracing::info!(uid, version, reason = response.result.message, "conversion refused");
    }
    Ok(Json(response.into_review()))
}

async fn answer_mutate(
    State(serving): State<Arc<Serving>>,
    headers: HeaderMap,
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Result<Json<AdmissionReview<DynamicObject>>, StatusCode> {
    let (began, now) = (Instant::now(), jiff::Timestamp::now());
    let request: Request = review.try_into().map_err(|_| StatusCode::BAD_REQUEST)?;
    let asked = Asked { span: span(&request, &headers), request, presets: Some(&serving.presets) };
    let answered = answer(&serving.context, asked, |request, context| mutate(request, context, now)).await;
    serving.context.metrics.admissions.mutate.observe(began.elapsed().as_secs_f64());
    answered
}

async fn answer_validate(
    State(serving): State<Arc<Serving>>,
    headers: HeaderMap,
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Result<Json<AdmissionReview<DynamicObject>>, StatusCode> {
    let began = Instant::now();
    let request: Request = review.try_into().map_err(|_| StatusCode::BAD_REQUEST)?;
    // What presets give is written by then.
    let asked = Asked { span: span(&request, &headers), request, presets: None };
    let answered = answer(&serving.context, asked, validate).await;
    serving.context.metrics.admissions.validate.observe(began.elapsed().as_secs_f64());
    answered
}

/// A request, and what it may need.
struct Asked<'a> {
    span: Span,
    request: Request,
    presets: Option<&'a KnownPresets>,
}

async fn answer(
    context: &Context,
    asked: Asked<'_>,
    judge: impl FnOnce(&Request, &AdmissionContext<'_>) -> AdmissionResponse,
) -> Result<Json<AdmissionReview<DynamicObject>>, StatusCode> {
    let Asked { span, request, presets } = asked;
    let sizes = sizes::prepare(&context.client, &request).instrument(span.clone()).await;
    let settings = context.settings.borrow().clone();
    let objects = settings.object.iter();
    let kubevirts: Vec<ObjectKey> = objects
        .map(|object| ObjectKey { namespace: object.namespace().unwrap_or_default(), name: object.name_any() })
        .collect();
    let presets = presets.map(|known| of_new_instance(known, &request)).unwrap_or_default();
    let trace = otlp::annotation(&span);
    let context = AdmissionContext {
        config: &settings.config,
        namespace: &context.namespace,
        fresh: Uuid::new_v4(),
        kubevirts: &kubevirts,
        sizes: &sizes,
        presets: &presets,
        trace: trace.as_deref(),
    };
    let response = span.in_scope(|| {
        let response = judged(|| judge(&request, &context))?;
        log(&request, &response);
        Ok::<_, StatusCode>(response)
    })?;
    Ok(Json(response.into_review()))
}

/// The presets that count for what is asked about.
fn of_new_instance(presets: &KnownPresets, request: &Request) -> Vec<VirtualMachineInstancePreset> {
    let is_new = request.operation == Operation::Create && request.kind.kind == "VirtualMachineInstance";
    let namespace = request.namespace.as_deref().filter(|_| is_new);
    namespace.map(|namespace| presets.of(namespace)).unwrap_or_default()
}

/// What is logged of a request belongs here. Its UID is also in the API server's audit log.
fn span(request: &Request, headers: &HeaderMap) -> Span {
    let span = tracing::info_span!(
        "admission",
        uid = request.uid,
        operation = ?request.operation,
        resource = request.resource.resource,
        namespace = request.namespace,
        object = request.name,
        user = request.user_info.username,
    );
    trace::follow(&span, request, headers);
    span
}

fn log(request: &Request, response: &AdmissionResponse) {
    if response.allowed {
        return tracing::debug!(kind = request.kind.kind, "admitted");
    }
    tracing::info!(
        kind = request.kind.kind,
        namespace = request.namespace,
        name = request.name,
        user = request.user_info.username,
        reason = response.result.message,
        "admission refused"
    );
}

/// A panic ends this request, which the API server then refuses, and no other.
fn judged<T>(judge: impl FnOnce() -> T) -> Result<T, StatusCode> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge)).map_err(|_| {
        tracing::error!("the review of a request panicked");
        StatusCode::INTERNAL_SERVER_ERROR
    })
}

/// The certificate to show and the paths to answer at, each time the Secret has changed.
fn usable(context: Context) -> impl futures::Stream<Item = (Arc<rustls::ServerConfig>, Option<Paths>)> {
    follow(context).filter_map(|certificate| async move {
        tls(&certificate.serving, None)
            .inspect_err(|error| tracing::warn!(%error, "the webhooks' certificate cannot be used"))
            .ok()
            .map(|config| (config, certificate.paths))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::paths::Webhook;

    #[test]
    fn a_panic_ends_the_request_that_it_happened_in() {
        let panicked = judged::<AdmissionResponse>(|| panic!("on purpose"));
        assert_eq!(panicked.unwrap_err(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(judged(|| AdmissionResponse::invalid("no")).is_ok());
    }

    #[test]
    fn what_is_logged_of_a_request_names_it() {
        let review: AdmissionReview<DynamicObject> = serde_json::from_value(serde_json::json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u-2", "kind": {"group": "kubevirt.io", "version": "v1", "kind": "VirtualMachine"},
                "resource": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"},
                "name": "vm", "namespace": "ns", "operation": "UPDATE", "userInfo": {"username": "ada"}, "dryRun": false,
            },
        }))
        .unwrap();
        let request: Request = review.try_into().unwrap();
        let (log, _guard) = crate::captured::Captured::begin();
        span(&request, &HeaderMap::new()).in_scope(|| log_answer(&request));
        let lines = log.lines();
        let spans = serde_json::json!([{"name": "admission", "uid": "u-2", "operation": "Update",
            "resource": "virtualmachines", "namespace": "ns", "object": "vm", "user": "ada"}]);
        assert_eq!((&lines[0]["fields"]["message"], &lines[0]["spans"]), (&"admission refused".into(), &spans));
    }

    fn log_answer(request: &Request) {
        super::log(request, &AdmissionResponse::from(request).deny("no"));
    }

    #[tokio::test]
    async fn without_the_path_nothing_is_read_and_none_is_the_old_one() {
        use tower::ServiceExt;

        let first = Paths::random();
        let (known, paths) = watch::channel(Some(first.clone()));
        let routes = Router::new()
            .route("/evict", post(|| async {}))
            .route("/evict/{random}", post(|body: axum::body::Bytes| async move { body.len().to_string() }))
            .route("/validate/{random}", post(|| async {}));
        let routes = guarded(bounded(routes, Limits::USUAL), paths);
        let status = async |path: &str, body: axum::body::Body| {
            let request = axum::http::Request::post(path).body(body).unwrap();
            routes.clone().oneshot(request).await.unwrap().status()
        };
        let unread = || {
            let read = |()| -> Option<(Result<&'static str, std::io::Error>, ())> { panic!("it was read") };
            axum::body::Body::from_stream(futures::stream::unfold((), move |state| std::future::ready(read(state))))
        };
        let evict = first.of(Webhook::Evict);
        for path in ["/evict", "/", "/evict/x", "/mutate", &evict.replace("evict", "validate"), &format!("{evict}/x")] {
            assert_eq!(status(path, unread()).await, StatusCode::NOT_FOUND, "{path}");
        }
        assert_eq!(status(&evict, "{}".into()).await, StatusCode::OK);
        let second = Paths::random();
        known.send_replace(Some(second.clone()));
        assert_eq!(status(&evict, unread()).await, StatusCode::NOT_FOUND);
        assert_eq!(status(&second.of(Webhook::Evict), "{}".into()).await, StatusCode::OK);
    }
}
