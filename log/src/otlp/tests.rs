use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A program of this thread whose spans an exporter gets.
fn program<E: SpanExporter>(exporter: E) -> (Sending<E>, SdkTracer, DefaultGuard) {
    let (queue, sending) = queue::queue(exporter, "collector:4318".to_owned());
    let tracer = provider(queue, Resource::builder_empty().build()).tracer("test");
    let (filter, _levels) = crate::filter(None);
    // A callsite that another test meets first is not cached as switched off: every thread has a subscriber.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let subscriber = tracing_subscriber::registry().with(layer(tracer.clone())).with(filter);
    (sending, tracer, tracing::subscriber::set_default(subscriber))
}

/// The spans of what is done.
async fn sent(done: impl FnOnce(&SdkTracer)) -> Vec<SpanData> {
    let exporter = InMemorySpanExporter::default();
    let (sending, tracer, _guard) = program(exporter.clone());
    done(&tracer);
    sending.begin().finish().await;
    exporter.get_finished_spans().unwrap()
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} among {spans:?}"))
}

fn annotation_of(seconds_ago: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    format!("00-{TRACE}-{PARENT}-01 {}", now - seconds_ago)
}

#[tokio::test]
async fn one_trace_goes_through_an_annotation_and_a_header() {
    let spans = sent(|_| {
        let admission = tracing::info_span!("admission", uid = "u-1");
        let annotation = annotation(&admission).unwrap();
        // Another program.
        let reconcile = tracing::info_span!("reconcile", object = "vm");
        assert!(follow(&reconcile, &annotation));
        let header = reconcile.in_scope(|| traceparent(&tracing::Span::current())).unwrap();
        let connection = tracing::info_span!("connection");
        assert!(follow_header(&connection, &header));
        failed(&connection, &"no supervisor");
    })
    .await;
    let [admission, reconcile, connection] = ["admission", "reconcile", "connection"].map(|name| named(&spans, name));
    let trace = admission.span_context.trace_id();
    assert!(spans.len() == 3 && spans.iter().all(|span| span.span_context.trace_id() == trace), "{spans:?}");
    let parents = [admission, reconcile, connection].map(|span| span.parent_span_id);
    assert_eq!(parents, [SpanId::INVALID, admission.span_context.span_id(), reconcile.span_context.span_id()]);
    assert!(admission.attributes.contains(&KeyValue::new("uid", "u-1")), "{admission:?}");
    assert_eq!(connection.status, Status::error("no supervisor"));
}

#[tokio::test]
async fn spans_that_last_lines_libraries_and_what_is_for_debugging_are_not_sent() {
    let spans = sent(|_| {
        let launcher = tracing::info_span!(parent: None, "launcher", vmi = "vm");
        let _entered = launcher.enter();
        tracing::info_span!(target: "hyper::client", "theirs").in_scope(|| {
            tracing::debug_span!("step").in_scope(|| {
                tracing::info_span!("request", ask = "plumb").in_scope(|| tracing::info!("a line"));
            });
        });
    })
    .await;
    let names: Vec<_> = spans.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(names, ["request"]);
    assert_eq!((spans[0].parent_span_id, spans[0].events.len()), (SpanId::INVALID, 0), "{spans:?}");
}

#[tokio::test]
async fn what_is_inside_of_a_span_is_its_child_and_an_old_trace_is_not_followed() {
    let spans = sent(|_| {
        let late = tracing::info_span!("late");
        assert!(!follow(&late, &annotation_of(OPEN_FOR.as_secs())));
        late.in_scope(|| tracing::info_span!("inside").in_scope(|| ()));
        let early = tracing::info_span!("early");
        assert!(follow(&early, &annotation_of(60)));
    })
    .await;
    let [late, inside, early] = ["late", "inside", "early"].map(|name| named(&spans, name));
    assert_eq!(inside.parent_span_id, late.span_context.span_id());
    assert_eq!(
        (early.span_context.trace_id().to_string(), early.parent_span_id.to_string()),
        (TRACE.into(), PARENT.into())
    );
    assert_ne!(late.span_context.trace_id(), early.span_context.trace_id());
}

#[tokio::test]
async fn what_is_not_to_be_sent_has_no_trace_and_neither_has_what_is_inside_of_it() {
    let spans = sent(|_| {
        let flood = tracing::info_span!("flood");
        unsent(&flood);
        flood.in_scope(|| tracing::info_span!("inside").in_scope(|| ()));
        assert_eq!((traceparent(&flood), annotation(&flood)), (None, None));
        tracing::info_span!("other").in_scope(|| ());
    })
    .await;
    let names: Vec<_> = spans.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(names, ["other"]);
}

#[tokio::test]
async fn a_reason_is_bounded() {
    let spans = sent(|_| failed(&tracing::info_span!("reconcile"), &"ö".repeat(LONGEST_REASON + 1))).await;
    assert_eq!(named(&spans, "reconcile").status, Status::error("ö".repeat(LONGEST_REASON)));
}

#[tokio::test]
async fn what_another_program_did_has_its_own_times() {
    let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let past = |name, from: u64, to: u64, parts| Past {
        name,
        began: began + Duration::from_secs(from),
        ended: began + Duration::from_secs(to),
        attributes: vec![("vmi", "vm".to_owned())],
        parts,
    };
    let start = past("start", 0, 5, vec![past("prepare", 0, 2, Vec::new()), past("boot", 2, 5, Vec::new())]);
    let spans = sent(|tracer| {
        let context = context::open(&annotation_of(0), SystemTime::now()).unwrap();
        past::put(tracer, &context, start);
    })
    .await;
    let [start, prepare, boot] = ["start", "prepare", "boot"].map(|name| named(&spans, name));
    assert_eq!(start.parent_span_id.to_string(), PARENT);
    assert_eq!([prepare, boot].map(|part| part.parent_span_id), [start.span_context.span_id(); 2]);
    let times =
        |span: &SpanData| [span.start_time, span.end_time].map(|at| at.duration_since(began).unwrap().as_secs());
    assert_eq!([start, prepare, boot].map(times), [[0, 5], [0, 2], [2, 5]]);
}

#[test]
fn a_service_has_the_name_of_its_program_and_where_it_runs() {
    let variable = |name: &str| (name == "NODE_NAME").then(|| "node-1".to_owned());
    let resource = resource("garboard-node", "1.2.3", variable);
    let of = |key: &'static str| resource.get(&Key::from_static_str(key)).map(|value| value.to_string());
    // Unless the environment of this test names another one.
    if std::env::var_os("OTEL_SERVICE_NAME").is_none() && std::env::var_os("OTEL_RESOURCE_ATTRIBUTES").is_none() {
        assert_eq!(of("service.name").as_deref(), Some("garboard-node"));
    }
    assert_eq!(of("service.version").as_deref(), Some("1.2.3"));
    assert_eq!((of("k8s.node.name").as_deref(), of("k8s.pod.name")), (Some("node-1"), None));
}
