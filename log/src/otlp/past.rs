//! Spans of what another program has done, which sends none itself: a supervisor has no network.

use std::time::SystemTime;

use opentelemetry::trace::{TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;

use super::{PROVIDER, context};

/// What was done, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// The name of the span.
    pub name: &'static str,
    /// When it began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// Its attributes.
    pub attributes: Vec<(&'static str, String)>,
    /// Of what it was made.
    pub parts: Vec<Past>,
}

/// Sends them with the trace of an annotation, if that is open. `program` is the one that did it: the scope of the spans.
pub fn record(program: &'static str, annotation: &str, past: Past) {
    let Some(provider) = PROVIDER.get() else { return };
    let Some(context) = context::open(annotation, SystemTime::now()) else { return };
    put(&provider.tracer(program), &context, past);
}

pub(super) fn put(tracer: &SdkTracer, context: &Context, past: Past) {
    let Past { name, began, ended, attributes, parts } = past;
    let attributes = attributes.into_iter().map(|(key, value)| KeyValue::new(key, value));
    let builder = tracer.span_builder(name).with_start_time(began).with_attributes(attributes);
    let inside = context.with_span(tracer.build_with_context(builder, context));
    parts.into_iter().for_each(|part| put(tracer, &inside, part));
    inside.span().end_with_timestamp(ended);
}
