//! Which trace a span belongs to: the one that an object or a request has with it. Where no spans are sent these do nothing.
//!
//! An object has its trace in an annotation: W3C's `traceparent` (<https://www.w3.org/TR/trace-context/#traceparent-header>), a space, and when it
//! began, seconds since 1970. What is done for the object later than [`OPEN_FOR`] after that has a trace of its own: a machine that runs for months
//! would otherwise have one trace without an end.

use std::collections::HashMap;
use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Status, TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// How long what is done for an object belongs to the trace of its annotation.
pub const OPEN_FOR: Duration = Duration::from_secs(30 * 60);
/// How much the clock of another node may be ahead.
const AHEAD: Duration = Duration::from_secs(60);
/// The header of HTTP by which a request says to which trace it belongs.
pub const TRACE_HEADER: &str = "traceparent";
/// The most characters of a reason: an API server's answer may quote an object.
pub const LONGEST_REASON: usize = 512;

/// The header `traceparent` of what is asked for in a span; nothing where no spans are sent, or not this one.
#[must_use]
pub fn traceparent(span: &Span) -> Option<String> {
    let context = span.context();
    let span = context.span();
    let own = span.span_context();
    let flags = own.trace_flags().to_u8();
    own.is_valid().then(|| format!("00-{}-{}-{flags:02x}", own.trace_id(), own.span_id()))
}

/// The annotation of what is made or changed in a span, of a trace that begins now; nothing where no spans are sent, or not this one.
#[must_use]
pub fn annotation(span: &Span) -> Option<String> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    traceparent(span).map(|traceparent| format!("{traceparent} {seconds}"))
}

/// Has a span belong to the trace of an annotation, unless that began too long ago or is none; whether it does. To be called before anything
/// is done in the span.
pub fn follow(span: &Span, annotation: &str) -> bool {
    set(span, open(annotation, SystemTime::now()))
}

/// Has a span belong to the trace of a header `traceparent`, unless that is none; whether it does. To be called before anything is done in the
/// span.
pub fn follow_header(span: &Span, traceparent: &str) -> bool {
    set(span, remote(traceparent))
}

/// Has a span not be sent, nor what is inside of it, and gives it no trace: of what a stranger may cause as often as it likes. To be called before
/// anything is done in the span.
pub fn unsent(span: &Span) {
    // Fails where no spans are sent, or not this one.
    let _ = span.set_parent(Context::new().with_telemetry_suppressed());
}

/// What was done in a span has failed; of the reason, [`LONGEST_REASON`] characters are sent.
pub fn failed(span: &Span, reason: &impl Display) {
    let reason: String = reason.to_string().chars().take(LONGEST_REASON).collect();
    span.set_status(Status::error(reason));
}

/// The trace of an annotation, if it is open.
pub(super) fn open(annotation: &str, now: SystemTime) -> Option<Context> {
    let (traceparent, began) = annotation.split_once(' ')?;
    let began = UNIX_EPOCH.checked_add(Duration::from_secs(began.parse().ok()?))?;
    let is_open = match now.duration_since(began) {
        Ok(age) => age < OPEN_FOR,
        Err(early) => early.duration() < AHEAD,
    };
    if is_open { remote(traceparent) } else { None }
}

fn remote(traceparent: &str) -> Option<Context> {
    let carrier = HashMap::from([(TRACE_HEADER.to_owned(), traceparent.to_owned())]);
    let found = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    let is_valid = found.span().span_context().is_valid();
    is_valid.then_some(found)
}

fn set(span: &Span, context: Option<Context>) -> bool {
    let Some(context) = context else { return false };
    // Fails where no spans are sent, or not this one.
    let _ = span.set_parent(context);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_is_open_for_a_while() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let is_open = |began: u64| open(&format!("{TRACEPARENT} {began}"), now).is_some();
        let began = [1_800_000_000, 1_799_998_201, 1_800_000_059].map(is_open);
        assert_eq!(began, [true; 3]);
        let elsewhen = [1_799_998_200, 1_800_000_060, 0, u64::MAX].map(is_open);
        assert_eq!(elsewhen, [false; 4]);
    }

    #[test]
    fn what_is_no_trace_is_not_followed() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for wrong in [
            "",
            TRACEPARENT,
            "1800000000",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7 1800000000",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01 1800000000",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 -1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01  1800000000",
        ] {
            assert!(open(wrong, now).is_none(), "{wrong}");
        }
    }

    #[test]
    fn without_a_collector_there_is_no_trace_to_hand_on() {
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry());
        let span = tracing::info_span!("reconcile");
        assert!(follow_header(&span, TRACEPARENT), "it is one");
        assert_eq!((traceparent(&span), annotation(&span)), (None, None));
    }
}
