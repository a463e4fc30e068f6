//! The bodies of requests: KubeVirt's `StartOptions`, `StopOptions`, `RestartOptions`, `FreezeUnfreezeTimeout` and others. Pure.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::{document, unread};
use crate::duration;
use crate::refusal::Refusal;
use crate::routes::Action;

/// The longest body that is read, in bytes. The largest is a VirtualMachine, which etcd bounds to 1.5 MiB.
pub const LONGEST_BODY: usize = 2 << 20;
/// The same where it has no object, but options.
pub const LONGEST_OPTIONS: usize = 64 << 10;

/// The longest body of a request, in bytes.
#[must_use]
pub const fn longest_body(action: Action) -> usize {
    if matches!(action, Action::ExpandVmSpec) { LONGEST_BODY } else { LONGEST_OPTIONS }
}

/// `StartOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StartOptions {
    /// The guest's vCPUs stay stopped until `unpause`.
    pub paused: bool,
    /// `All`: nothing is stored.
    pub dry_run: Option<Vec<String>>,
}

/// `StopOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StopOptions {
    /// Seconds that the guest has to power itself down; its specification's, if it is not set.
    pub grace_period: Option<i64>,
    /// `All`: nothing is stored.
    pub dry_run: Option<Vec<String>>,
}

/// `PauseOptions` and `UnpauseOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PauseOptions {
    /// `All`: nothing is done.
    pub dry_run: Option<Vec<String>>,
}

/// `EvacuateCancelOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvacuateCancelOptions {
    /// The node that the instance was to leave when the caller looked; none: whichever it is.
    pub evacuation_node_name: Option<String>,
    /// `All`: nothing is stored.
    pub dry_run: Option<Vec<String>>,
}

/// How long file systems stay frozen where the request does not say it: KubeVirt's clients always do, with this by default.
const UNFREEZE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// `FreezeUnfreezeTimeout`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FreezeOptions {
    /// After how long they are thawed unasked, as `metav1.Duration`: a text of Go's form.
    pub unfreeze_timeout: Option<String>,
}

impl FreezeOptions {
    /// After how many seconds they are thawed unasked, rounded up; never, where it is zero.
    ///
    /// # Errors
    /// It is no duration, or a negative one.
    pub fn thaw_after_seconds(&self) -> Result<Option<u64>, Refusal> {
        let after = match &self.unfreeze_timeout {
            Some(text) => duration::parse(text).ok_or_else(|| {
                Refusal::BadRequest("unfreezeTimeout: write a duration that is not negative, such as 5m0s".to_owned())
            })?,
            None => UNFREEZE_TIMEOUT,
        };
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        Ok((seconds > 0).then_some(seconds))
    }
}

/// `RestartOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartOptions {
    /// Zero ends the guest at once; without it the guest has the time of its specification. Others are refused.
    pub grace_period_seconds: Option<i64>,
    /// `All`: nothing is stored.
    pub dry_run: Option<Vec<String>>,
}

/// Reads a body, JSON or YAML; none means the defaults.
///
/// # Errors
/// It is neither, or not of this shape.
pub fn read<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Refusal> {
    match document(body)? {
        // What clients of Go send for no options.
        Value::Null => Ok(T::default()),
        options @ Value::Object(_) => serde_json::from_value(options).map_err(|error| unread(&error)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Err(unread(&"it is no object")),
    }
}

/// Whether a new viewer leaves the session of another one as it is (`?preserveSession=`), in the spellings that Go takes.
///
/// # Errors
/// Another value.
pub fn preserves_session(query: Option<&str>) -> Result<bool, Refusal> {
    truth(query, "preserveSession")
}

/// Whether a client of a console only looks on (`?view=`), beside the session and as one of several: a parameter of ours.
///
/// # Errors
/// Another value.
pub fn looks_on(query: Option<&str>) -> Result<bool, Refusal> {
    truth(query, "view")
}

/// The first value of a parameter of a query, as it is written.
#[must_use]
pub fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let mut pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(each, _)| *each == name).map(|(_, value)| value)
}

/// Whether a parameter is true; false without it.
fn truth(query: Option<&str>, name: &str) -> Result<bool, Refusal> {
    match parameter(query, name).unwrap_or_default() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(Refusal::BadRequest(format!("{name}={other}: write true or false"))),
    }
}

/// Whether nothing is to be stored.
///
/// # Errors
/// A value that is not `All`, the only one that Kubernetes has.
pub fn is_dry_run(values: Option<&Vec<String>>) -> Result<bool, Refusal> {
    match values.map_or(&[][..], Vec::as_slice) {
        [] => Ok(false),
        values if values.iter().all(|value| value == "All") => Ok(true),
        _ => Err(Refusal::BadRequest("dryRun: the only value is All".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_and_what_is_no_body_is_the_default() {
        let stop = |body: &str| read::<StopOptions>(body.as_bytes());
        assert_eq!(stop(r#"{"gracePeriod": 0, "later": 1}"#).unwrap().grace_period, Some(0));
        assert_eq!(stop("gracePeriod: 0\nlater: [1]\n").unwrap().grace_period, Some(0));
        for body in ["", " \n", "null", "{}"] {
            assert_eq!(stop(body), Ok(StopOptions::default()), "{body:?}");
        }
        for body in ["[", "[]", "\"x\"", r#"{"gracePeriod": "x"}"#, "gracePeriod: x", "- gracePeriod: 0"] {
            assert_eq!(stop(body).unwrap_err().code(), 400, "{body}");
        }
    }

    #[test]
    fn a_session_is_preserved_on_request() {
        for (query, expected) in [
            (None, Some(false)),
            (Some(""), Some(false)),
            (Some("preserveSession="), Some(false)),
            (Some("preserveSession=false"), Some(false)),
            (Some("preserveSession=true"), Some(true)),
            (Some("moveCursor=false&preserveSession=1"), Some(true)),
            (Some("preserveSession=yes"), None),
        ] {
            assert_eq!(preserves_session(query).ok(), expected, "{query:?}");
        }
    }

    #[test]
    fn parameters_are_read_by_their_names() {
        let query = Some("view=true&position=5e1f.7&position=new");
        assert_eq!((looks_on(query), preserves_session(query)), (Ok(true), Ok(false)));
        assert_eq!((parameter(query, "position"), parameter(query, "vie")), (Some("5e1f.7"), None));
        assert_eq!(looks_on(None), Ok(false));
        assert_eq!(looks_on(Some("view=please")).unwrap_err().code(), 400);
    }

    #[test]
    fn a_freeze_ends_after_its_time_or_never() {
        let after =
            |body: &str| read::<FreezeOptions>(body.as_bytes()).and_then(|options| options.thaw_after_seconds());
        for (body, seconds) in [
            ("", Some(300)),
            ("{}", Some(300)),
            (r#"{"unfreezeTimeout": "1m0s"}"#, Some(60)),
            (r#"{"unfreezeTimeout": "0s"}"#, None),
            (r#"{"unfreezeTimeout": "100ms"}"#, Some(1)),
        ] {
            assert_eq!(after(body), Ok(seconds), "{body}");
        }
        for body in [r#"{"unfreezeTimeout": "-1s"}"#, r#"{"unfreezeTimeout": "soon"}"#, r#"{"unfreezeTimeout": 5}"#] {
            assert_eq!(after(body).unwrap_err().code(), 400, "{body}");
        }
    }

    #[test]
    fn a_dry_run_is_requested_by_one_value() {
        let values = |values: &[&str]| Some(values.iter().map(|&value| value.to_owned()).collect());
        assert_eq!(is_dry_run(None), Ok(false));
        assert_eq!(is_dry_run(values(&[]).as_ref()), Ok(false));
        assert_eq!(is_dry_run(values(&["All"]).as_ref()), Ok(true));
        assert_eq!(is_dry_run(values(&["Some"]).as_ref()).unwrap_err().code(), 400);
    }
}
