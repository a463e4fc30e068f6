//! Spans to a collector, by OTLP over HTTP with protobuf (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>). Off unless the variables of
//! OpenTelemetry's specification name a collector (`settings`): [`spans`] gives no layer then, and everything else here does nothing.
//!
//! ```text
//!   span ─► layer: ours, from INFO on, but those that last ─► queue, bounded ─► a batch ─► POST /v1/traces
//!                     ▲ follow: the trace of an annotation or of a header
//! ```
//!
//! What a line of the log is not written for, by the levels of this program, has no span here either. Lines themselves are not sent: they may have
//! more in them than who runs a collector is to see.

mod client;
mod context;
mod past;
mod queue;
mod settings;

use std::sync::OnceLock;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanExporter};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::registry::LookupSpan;

use crate::OWN;
use queue::Queue;

pub use client::ExporterError;
pub use context::{
    LONGEST_REASON, OPEN_FOR, TRACE_HEADER, annotation, failed, follow, follow_header, traceparent, unsent,
};
pub use past::{Past, record};
pub use queue::{Exporting, Sending};
pub use settings::SettingsError;

/// Spans that last as long as a machine. They are for lines of the log: what is in one would have a parent that is sent months later.
const LASTING: [&str; 2] = ["launcher", "vm"];
/// The name of a service that has none (OpenTelemetry's specification of resources).
const UNNAMED: &str = "unknown_service";
/// Attributes of where a program runs, by the variables of its pod.
const PLACES: [(&str, &str); 3] =
    [("NODE_NAME", "k8s.node.name"), ("POD_NAME", "k8s.pod.name"), ("POD_NAMESPACE", "k8s.namespace.name")];

/// That of this process, where spans are sent.
static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Why no spans are sent although a collector is named.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// A variable.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The way to the collector.
    #[error(transparent)]
    Exporter(#[from] ExporterError),
}

/// The layer that collects the spans of a program, and what is to [send](Sending::begin) them once there is a runtime; nothing of both where
/// no collector is named. To be called once, before there are threads. `program` is the name of the service, unless a variable has another one.
#[allow(clippy::type_complexity, reason = "two things, of which the first cannot be named")]
pub fn spans<S>(
    program: &'static str,
    version: &'static str,
) -> (Option<impl Layer<S> + Send + Sync + 'static>, Result<Option<Sending>, SetUpError>)
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    match exporter(program, version) {
        Ok(Some((exporter, collector, resource))) => {
            let (queue, sending) = queue::queue(exporter, collector);
            let provider = provider(queue, resource);
            let layer = layer::<S>(provider.tracer(program));
            let _ = PROVIDER.set(provider);
            (Some(layer), Ok(Some(sending)))
        }
        Ok(None) => (None, Ok(None)),
        Err(error) => (None, Err(error)),
    }
}

type Exporter = (opentelemetry_otlp::SpanExporter, String, Resource);

fn exporter(program: &'static str, version: &'static str) -> Result<Option<Exporter>, SetUpError> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(settings) = settings::read(variable)? else { return Ok(None) };
    let resource = resource(program, version, variable);
    let mut exporter = client::exporter(&settings)?;
    exporter.set_resource(&resource);
    Ok(Some((exporter, settings.collector(), resource)))
}

/// The resource of each batch: what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have, and where they have none, its name.
fn resource(program: &'static str, version: &'static str, variable: impl Fn(&str) -> Option<String>) -> Resource {
    let name = Key::from_static_str("service.name");
    let chosen = Resource::builder().build();
    let is_named = chosen.get(&name).is_some_and(|name| !name.as_str().starts_with(UNNAMED));
    let own = (!is_named).then(|| KeyValue::new(name, program));
    let places = PLACES.into_iter().filter_map(|(from, key)| Some(KeyValue::new(key, variable(from)?)));
    let of_program = [KeyValue::new("service.version", version)].into_iter().chain(own).chain(places);
    Resource::builder().with_attributes(of_program).build()
}

fn provider(queue: Queue, resource: Resource) -> SdkTracerProvider {
    SdkTracerProvider::builder().with_span_processor(queue).with_resource(resource).build()
}

fn layer<S>(tracer: SdkTracer) -> impl Layer<S> + Send + Sync + 'static
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    tracing_opentelemetry::layer::<S>()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        // A span is entered by many tasks: what it is in is asked of `tracing`.
        .with_context_activation(false)
        .with_filter(filter_fn(is_sent).with_max_level_hint(LevelFilter::INFO))
}

/// Whether a span is sent. Those of libraries may have what clients send.
fn is_sent(metadata: &Metadata<'_>) -> bool {
    metadata.is_span()
        && *metadata.level() <= Level::INFO
        && metadata.target().starts_with(OWN)
        && !LASTING.contains(&metadata.name())
}

#[cfg(test)]
mod tests;
