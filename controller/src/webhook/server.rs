//! The HTTPS server that API servers ask.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use axum_server::tls_rustls::RustlsConfig;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionResponse, AdmissionReview};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, ResourceExt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use uuid::Uuid;

use super::{Premises, Request, mutate, validate};
use crate::certificates::{CertificateError, Chain, SECRET};
use crate::context::Context;

/// The largest object an API server stores, and the old one beside it (etcd's limit is 1.5 MiB for each).
const LARGEST_REQUEST: usize = 8 << 20;

/// Whether the webhooks can be asked: true once there is a certificate.
pub type Gate = watch::Receiver<bool>;

/// Serves until the process ends. `ready` hears when the first certificate has come.
///
/// # Errors
/// The address cannot be listened at.
pub async fn run(context: Context, address: SocketAddr, ready: watch::Sender<bool>) -> std::io::Result<()> {
    let mut certificates = std::pin::pin!(certificates(context.clone()));
    let Some(first) = certificates.next().await else { return Ok(()) };
    let tls = RustlsConfig::from_config(first);
    let reloading = tls.clone();
    let routes = Router::new()
        .route("/mutate", post(answer_mutate))
        .route("/validate", post(answer_validate))
        .layer(DefaultBodyLimit::max(LARGEST_REQUEST))
        .with_state(Arc::new(context));
    ready.send_replace(true);
    let reload = async {
        while let Some(next) = certificates.next().await {
            reloading.reload_from_config(next);
        }
    };
    tokio::select! {
        outcome = axum_server::bind_rustls(address, tls).serve(routes.into_make_service()) => outcome,
        () = reload => Ok(()),
    }
}

async fn answer_mutate(
    State(context): State<Arc<Context>>,
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Result<Json<AdmissionReview<DynamicObject>>, StatusCode> {
    let now = jiff::Timestamp::now();
    answer(&context, review, |request, premises| mutate(request, premises, now)).await
}

async fn answer_validate(
    State(context): State<Arc<Context>>,
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Result<Json<AdmissionReview<DynamicObject>>, StatusCode> {
    answer(&context, review, validate).await
}

async fn answer(
    context: &Context,
    review: AdmissionReview<DynamicObject>,
    judge: impl FnOnce(&Request, &Premises<'_>) -> AdmissionResponse,
) -> Result<Json<AdmissionReview<DynamicObject>>, StatusCode> {
    let request: Request = review.try_into().map_err(|_| StatusCode::BAD_REQUEST)?;
    let settings = context.settings.borrow().clone();
    let kubevirts: Vec<_> =
        settings.object.iter().map(|object| (object.namespace().unwrap_or_default(), object.name_any())).collect();
    let premises = Premises {
        config: &settings.config,
        namespace: &context.namespace,
        fresh: Uuid::new_v4(),
        kubevirts: &kubevirts,
    };
    let response = judge(&request, &premises);
    if !response.allowed {
        tracing::info!(
            kind = request.kind.kind,
            namespace = request.namespace,
            name = request.name,
            user = request.user_info.username,
            message = response.result.message,
            "refused"
        );
    }
    Ok(Json(response.into_review()))
}

/// The certificate to show, each time it is another.
fn certificates(context: Context) -> impl futures::Stream<Item = Arc<rustls::ServerConfig>> {
    let secrets: Api<Secret> = Api::namespaced(context.client, &context.namespace);
    let only = Config::default().fields(&format!("metadata.name={SECRET}"));
    watcher(secrets, only).default_backoff().filter_map(|event| async {
        match event {
            Ok(Event::Apply(secret) | Event::InitApply(secret)) => usable(&secret),
            Ok(Event::Init | Event::InitDone | Event::Delete(_)) => None,
            Err(error) => {
                tracing::warn!(%error, "the Secret of the webhooks' certificates cannot be read");
                None
            }
        }
    })
}

fn usable(secret: &Secret) -> Option<Arc<rustls::ServerConfig>> {
    let chain = secret.data.as_ref().map(Chain::read)?;
    match chain.and_then(|chain| chain.serving.map(|serving| tls(&serving.certificate, &serving.key)).transpose()) {
        Ok(config) => config,
        Err(error) => {
            tracing::warn!(%error, "the webhooks' certificate cannot be used");
            None
        }
    }
}

fn tls(certificate: &str, key: &str) -> Result<Arc<rustls::ServerConfig>, CertificateError> {
    let unreadable = |error: rustls::pki_types::pem::Error| CertificateError::Unreadable {
        what: SECRET,
        problem: error.to_string(),
    };
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unreadable)?;
    let mut config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
