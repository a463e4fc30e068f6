//! What the page is given that is not the API server's: who the user is, and the diagnosis of a machine (`why`).

use serde_json::{Value, json};

use super::refusal::Refusal;
use crate::failure::Failure;
use crate::kubectl::Kubectl;
use crate::why;

/// Who asks, where, and in which namespace kubectl works.
pub(super) fn about(kubectl: &Kubectl) -> Value {
    let line = |arguments: &[&str]| {
        let printed = kubectl.run(arguments).ok()?;
        Some(String::from_utf8_lossy(&printed).trim().to_owned()).filter(|text| !text.is_empty())
    };
    let of_context = || line(&["config", "view", "--minify", "-o", "jsonpath={..namespace}"]);
    let namespace = kubectl.namespace().map(str::to_owned).or_else(of_context);
    json!({
        "version": crate::VERSION,
        "user": kubectl.who_am_i(),
        "context": kubectl.context(),
        "namespace": namespace.unwrap_or_else(|| garboard_api::metadata::DEFAULT_NAMESPACE.to_owned()),
    })
}

/// What `kubectl garboard why -o json` prints.
pub(super) fn why(kubectl: &Kubectl, namespace: &str, name: &str) -> Result<Value, Refusal> {
    let failed = |failure: Failure| Refusal::Kubectl(failure.to_string());
    let diagnosis = why::of_machine(&kubectl.within(namespace), name).map_err(failed)?;
    serde_json::to_value(diagnosis).map_err(|error| Refusal::Kubectl(error.to_string()))
}
