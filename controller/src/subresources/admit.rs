//! Which requests are answered. Before one is, nothing of its body is read.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use garboard_log::otlp;
use garboard_protocol::text::printable;
use garboard_subresources::access::review;
use garboard_subresources::caller::{Caller, RequestHeader};
use garboard_subresources::options::{LONGEST_OPTIONS, longest_body};
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::{Call, Endpoint, NoEndpoint, endpoint};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::limits::{ANSWERED_WITHIN, TURN_WITHIN};
use super::peer::Peer;
use super::refused;
use super::server::Serving;
use crate::nodes::control::Requester;
use crate::webhook::bounds::Longest;

/// `k8s.io/apiserver`, `pkg/apis/audit`, `HeaderAuditID`. A client may choose it; what a server makes itself is a UUID.
const AUDIT_ID: &str = "audit-id";
/// The most characters of an audit ID.
const LONGEST_AUDIT_ID: usize = 64;
/// The most characters of a user's name in the log: it is in each line.
const LONGEST_USER: usize = 128;

/// Lets a request through to its answer, or refuses it.
pub(super) async fn admit(State(serving): State<Serving>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let method = request.method().as_str().to_owned();
    match endpoint(&method, &path) {
        Ok(Endpoint::Call(call)) => {
            let span = tracing::info_span!(
                "subresource",
                resource = call.route.name(),
                namespace = call.namespace,
                object = call.name,
                user = tracing::field::Empty,
                audit_id = tracing::field::Empty,
            );
            admit_call(&serving, &call, request, next).instrument(span).await
        }
        // It needs no user, and has no share: nothing of a body is read.
        Ok(_) => next.run(request.map(|_| Body::empty())).await,
        Err(NoEndpoint::NotFound) => refused(&Refusal::NoSuchPath, None),
        Err(NoEndpoint::MethodNotAllowed) => refused(&Refusal::MethodNotAllowed, None),
    }
}

async fn admit_call(serving: &Serving, call: &Call<'_>, request: Request, next: Next) -> Response {
    let late = || Err(Refusal::Late(ANSWERED_WITHIN.as_secs()));
    let answered = timeout(ANSWERED_WITHIN, admitted(serving, call, request, next)).await.unwrap_or_else(|_| late());
    answered.unwrap_or_else(|refusal| refused(&refusal, Some(call)))
}

async fn admitted(serving: &Serving, call: &Call<'_>, mut request: Request, next: Next) -> Result<Response, Refusal> {
    let header = serving.header.borrow().clone();
    let span = tracing::Span::current();
    // Any pod that reaches the port could have a collector keep names of its own making.
    let caller = caller(&header, &request).inspect_err(|_| otlp::unsent(&span))?;
    let by = Requester { user: caller.user.clone(), audit_id: audit_id(&request) };
    // Of nobody but an API server: who asks without one has not been believed anything until here.
    if let Some(traceparent) = request.headers().get(otlp::TRACE_HEADER).and_then(|value| value.to_str().ok()) {
        otlp::follow_header(&span, traceparent);
    }
    span.record("user", printable(&by.user, LONGEST_USER));
    span.record("audit_id", by.audit_id.as_deref());
    let (requests, until) = (&serving.requests, Instant::now() + TURN_WITHIN);
    let full = || Refusal::TooManyRequests;
    let has_a_rate = call.route.action.is_more_than_a_look();
    if has_a_rate {
        serving.rates.of_user(&caller.user, Instant::now())?;
    }
    let _of_user = requests.of_user(&caller.user, call.namespace, until).await.ok_or_else(full)?;
    may(serving, call, &caller).await?;
    if has_a_rate {
        serving.rates.of_namespace(call.namespace, Instant::now())?;
    }
    let longest = longest_body(call.route.action);
    let _large = if longest > LONGEST_OPTIONS {
        let turns = requests.of_a_large_body(&caller.user, call.namespace, until).await;
        Some(turns.ok_or_else(full)?)
    } else {
        None
    };
    // Not before the rights are known: who has none in a namespace takes no turn of it.
    let _of_namespace = requests.of_namespace(call.namespace, until).await.ok_or_else(full)?;
    request.extensions_mut().insert(Longest(longest));
    request.extensions_mut().insert(by);
    Ok(next.run(request).await)
}

/// What the API server calls this request in its audit log: it sends the ID to the servers of aggregated APIs.
fn audit_id(request: &Request) -> Option<String> {
    let value = request.headers().get(AUDIT_ID)?.to_str().ok()?;
    Some(printable(value, LONGEST_AUDIT_ID)).filter(|id| !id.is_empty())
}

/// The caller. A header counts only from an API server.
fn caller(header: &RequestHeader, request: &Request) -> Result<Caller, Refusal> {
    let unproven = || Refusal::Unauthorized("request is not authenticated".to_owned());
    let peer = request.extensions().get::<Peer>().ok_or_else(unproven)?;
    let names: Vec<&str> = peer.common_names.iter().map(String::as_str).collect();
    if !header.allows(&names) {
        tracing::warn!(certificate = ?names, "a certificate without an allowed name was shown for request headers");
        return Err(unproven());
    }
    // A value that is no text is not one that an API server writes.
    let headers = request.headers().iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let unnamed = || Refusal::Unauthorized("a valid user header is required for authorization".to_owned());
    header.caller(&headers.collect::<Vec<_>>()).ok_or_else(unnamed)
}

async fn may(serving: &Serving, call: &Call<'_>, caller: &Caller) -> Result<(), Refusal> {
    let reviews: Api<SubjectAccessReview> = Api::all(serving.context.client.clone());
    let failed = |error: kube::Error| Refusal::Internal(format!("the user's rights cannot be asked for: {error}"));
    let answer = reviews.create(&PostParams::default(), &review(call, caller)).await.map_err(failed)?;
    let status = answer.status.unwrap_or_default();
    if status.allowed && !status.denied.unwrap_or_default() {
        return Ok(());
    }
    let reason = status.reason.filter(|reason| !reason.is_empty());
    let name = call.route.name();
    let usual =
        || format!("user {:?} cannot {} {name} in namespace {:?}", caller.user, call.route.verb(), call.namespace);
    tracing::info!("refused: the user has no right to it");
    Err(Refusal::Unauthorized(reason.unwrap_or_else(usual)))
}
