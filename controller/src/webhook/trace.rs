//! Which trace an admission request belongs to, and how what follows from the change learns of it: an annotation of the object
//! ([ADR 52](../../../docs/adr/0052-traces.md)).

use axum::http::HeaderMap;
use garboard_api::metadata::annotation;
use garboard_log::otlp;
use kube::core::DynamicObject;
use kube::core::admission::Operation;
use serde_json::{Value, json};
use tracing::Span;

use super::{AdmissionContext, Request};

/// Has the span of a request belong to the trace that its object got with this very change, and otherwise to the API server's. The object's
/// goes first: what the controller writes is asked for by an API server, which knows nothing of the controller's trace. An API server that does not
/// trace itself sends none.
pub(super) fn follow(span: &Span, request: &Request, headers: &HeaderMap) {
    if written(request.object.as_ref()).filter(|_| is_new(request)).is_some_and(|trace| otlp::follow(span, trace)) {
        return;
    }
    if let Some(traceparent) = headers.get(otlp::TRACE_HEADER).and_then(|value| value.to_str().ok()) {
        otlp::follow_header(span, traceparent);
    }
}

/// An object that is filled in, with the trace of the change: of a machine each time its specification changes, of an instance when it is made.
/// Pure.
pub(super) fn marked(mut filled: Value, request: &Request, context: &AdmissionContext<'_>) -> Value {
    let is_marked = match request.kind.kind.as_str() {
        "VirtualMachine" => true,
        "VirtualMachineInstance" => request.operation == Operation::Create,
        _ => false,
    };
    if let Some(trace) = context.trace.filter(|_| is_marked) {
        filled["metadata"]["annotations"][annotation::TRACE] = json!(trace);
    }
    filled
}

fn is_new(request: &Request) -> bool {
    written(request.object.as_ref()) != written(request.old_object.as_ref())
}

fn written(object: Option<&DynamicObject>) -> Option<&str> {
    object?.metadata.annotations.as_ref()?.get(annotation::TRACE).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use garboard_api::ClusterConfig;
    use kube::core::admission::AdmissionReview;

    use super::*;
    use crate::webhook::Sizes;

    fn request(kind: &str, operation: &str) -> Request {
        let object =
            json!({"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": "vm", "namespace": "ns"}});
        let review: AdmissionReview<DynamicObject> = serde_json::from_value(json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u-2", "kind": {"group": "kubevirt.io", "version": "v1", "kind": kind},
                "resource": {"group": "kubevirt.io", "version": "v1", "resource": "x"},
                "name": "vm", "namespace": "ns", "operation": operation, "userInfo": {"username": "ada"},
                "dryRun": false, "object": object, "oldObject": (operation == "UPDATE").then(|| object.clone()),
            },
        }))
        .unwrap();
        review.try_into().unwrap()
    }

    fn after(kind: &str, operation: &str, trace: Option<&str>) -> Value {
        let config = ClusterConfig::offline();
        let context = AdmissionContext {
            config: &config,
            namespace: "garboard",
            fresh: uuid::Uuid::from_u128(7),
            kubevirts: &[],
            sizes: &Sizes::default(),
            presets: &[],
            trace,
        };
        marked(json!({"metadata": {"name": "vm"}}), &request(kind, operation), &context)
    }

    #[test]
    fn machines_and_new_instances_have_the_trace_of_their_change_and_nothing_else_has() {
        let with = json!({"metadata": {"name": "vm", "annotations": {"garboard.dev/trace": "t"}}});
        let without = json!({"metadata": {"name": "vm"}});
        for (kind, operation, trace, expected) in [
            ("VirtualMachine", "CREATE", Some("t"), &with),
            ("VirtualMachine", "UPDATE", Some("t"), &with),
            ("VirtualMachine", "CREATE", None, &without),
            ("VirtualMachineInstance", "CREATE", Some("t"), &with),
            ("VirtualMachineInstance", "UPDATE", Some("t"), &without),
            ("VirtualMachinePool", "CREATE", Some("t"), &without),
        ] {
            assert_eq!(&after(kind, operation, trace), expected, "{kind} {operation} {trace:?}");
        }
    }

    #[test]
    fn a_trace_is_new_only_with_the_change_that_brings_it() {
        let mut request = request("VirtualMachine", "UPDATE");
        let annotate = |object: &mut Option<DynamicObject>| {
            let annotations = &mut object.as_mut().unwrap().metadata.annotations;
            annotations.get_or_insert_default().insert(annotation::TRACE.to_owned(), "t".to_owned());
        };
        assert!(!is_new(&request));
        annotate(&mut request.object);
        assert!(is_new(&request));
        annotate(&mut request.old_object);
        assert!(!is_new(&request));
    }
}
