//! The aggregated APIs `subresources.kubevirt.io` and `subresources.garboard.dev`, served by every replica.
//!
//! ```text
//!   client ─► API server ─ TLS with its proxy certificate ─► peer: who is at the other end
//!                                                         ─► admit: route, user, its rate and its turn, rights, those of the
//!                                                            namespace (rates, shares, limits); nothing is read before
//!                                                         ─► answer: read the objects, decide (garboard-subresources), apply
//!                                                            stream: relay to a supervisor; forward: relay to a port of a guest
//! ```
//!
//! An API server authenticates the user and names it in headers; these count only from a connection whose certificate is
//! signed by the authority of request headers **and** has one of its allowed names (CVE-2025-64432 is the second check left
//! out). API servers check the user's rights before they forward; they are checked here again.

mod admit;
mod answer;
mod evacuation;
mod forward;
mod guest;
mod health;
mod instance;
mod leaving;
pub(crate) mod limits;
mod lines;
mod not_here;
mod peer;
mod qmp;
mod rates;
mod record;
mod relay;
mod screenshot;
mod server;
mod shares;
mod stream;
mod trust;
mod turns;

#[cfg(test)]
mod tests;

pub use server::run;

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::Call;

/// What a client gets of a refusal: its `Status`; only an error of this process is logged.
fn refused(refusal: &Refusal, call: Option<&Call<'_>>) -> Response {
    let status = StatusCode::from_u16(refusal.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Refusal::Internal(message) = refusal {
        tracing::warn!(error = message, "a subresource could not be answered");
    }
    let body = refusal.status(call);
    // KubeVirt's clients print a text, and of any other body of such an answer nothing.
    if matches!(refusal, Refusal::ConflictAsError(_)) {
        return (status, body.message.unwrap_or_default()).into_response();
    }
    let mut answer = (status, axum::Json(body)).into_response();
    // client-go asks again only with this header.
    if let Some(seconds) = refusal.retry_after_seconds() {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}
