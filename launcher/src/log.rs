//! The supervisor's log: one JSON object a line, with the spans that it belongs to, outermost first.

use std::io::Write;

use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

/// Writes lines to what `writer` gives.
pub fn lines<S, W, O>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: Fn() -> O + Send + Sync + 'static,
    O: Write,
{
    // The innermost span is the last of the list.
    tracing_subscriber::fmt::layer().json().with_current_span(false).with_writer(writer)
}
