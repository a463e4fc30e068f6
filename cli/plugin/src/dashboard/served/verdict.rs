//! What the page is given that is not the API server's: who the user is, and the diagnosis of a machine (`why`).

use serde_json::{Value, json};

use super::refusal::Refusal;
use crate::failure::Failure;
use crate::kubectl::Kubectl;
use crate::look::Look;
use crate::why;

/// Who asks, where, and in which namespace kubectl works.
pub(super) fn about(kubectl: &Kubectl) -> Value {
    json!({
        "version": crate::VERSION,
        "user": kubectl.who_am_i(),
        "context": kubectl.context(),
        "namespace": kubectl.looked_at(),
    })
}

/// What `kubectl garboard why -o json` prints.
pub(super) fn why(kubectl: &Kubectl, namespace: &str, name: &str) -> Result<Value, Refusal> {
    let failed = |failure: Failure| Refusal::Kubectl(failure.to_string());
    let diagnosis = why::of_machine(&kubectl.within(namespace), name).map_err(failed)?;
    serde_json::to_value(diagnosis).map_err(|error| Refusal::Kubectl(error.to_string()))
}
