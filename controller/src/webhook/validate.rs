//! Judging an object as it would be stored. Pure.

use garboard_api::validate::{Object, review_sized};
use garboard_api::{Fault, FaultCode, FieldPath};
use kube::core::admission::{AdmissionResponse, Operation};

use super::answer::{forbid, refuse, warn};
use super::{AdmissionContext, Request, change, kept, sizes};
use crate::stores::ObjectKey;

/// Answers a request of `/validate`.
#[must_use]
pub fn validate(request: &Request, context: &AdmissionContext<'_>) -> AdmissionResponse {
    let response = AdmissionResponse::from(request);
    let Some(object) = &request.object else { return response };
    let is_ours = context.is_ours(request);
    if let Some(old) = &request.old_object
        && request.operation == Operation::Update
        && request.kind.kind == "VirtualMachineInstance"
    {
        return match change::of_instance(old, object, context.writer(request)) {
            Ok(()) => response,
            Err(change::Denial::Fault(fault)) => refuse(response, &[*fault]),
            Err(change::Denial::Forbidden(message)) => forbid(response, message),
        };
    }
    if object.metadata.deletion_timestamp.is_some() {
        return response;
    }
    // What the controller writes it has judged itself.
    let kept = kept::fault(request, object).filter(|_| !is_ours);
    if change::is_of_metadata_only(request) {
        return match kept {
            Some(fault) => refuse(response, &[fault]),
            None => response,
        };
    }
    let written = serde_json::to_value(object).unwrap_or_default();
    let admission = review_sized(&written, context.config, &context.sizes.sizing);
    let mut faults = admission.faults;
    faults.extend(sizes::renamed(request));
    faults.extend(kept);
    faults.extend(change::of_selector(request));
    if matches!(admission.object, Some(Object::KubeVirt(_))) {
        let stray = elsewhere(request, context);
        let is_new = stray.is_none() && request.operation == Operation::Create;
        faults.extend(stray.or_else(|| second(context).filter(|_| is_new)));
    }
    let response = warn(response, &admission.warnings);
    if faults.is_empty() { response } else { refuse(response, &faults) }
}

/// Settings are the cluster's: who may write to any other namespace does not choose them.
fn elsewhere(request: &Request, context: &AdmissionContext<'_>) -> Option<Fault> {
    let namespace = request.namespace.as_deref().filter(|namespace| *namespace != context.namespace)?;
    let message = format!("the settings of the cluster are in the namespace of Garboard, not in `{namespace}`");
    let fault = Fault::new(FieldPath::from("metadata.namespace"), FaultCode::NotSupported, message);
    Some(fault.instead(format!("write `{}`", context.namespace)))
}

/// A cluster has one object of settings.
fn second(context: &AdmissionContext<'_>) -> Option<Fault> {
    let ObjectKey { namespace, name } = context.kubevirts.first()?;
    let message = format!("the cluster has its settings already, in the KubeVirt object {namespace}/{name}");
    Some(Fault::new(FieldPath::from("metadata.name"), FaultCode::Duplicate, message).instead("change that one"))
}
