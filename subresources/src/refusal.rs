//! Why a request is refused, and its answer: Kubernetes' `Status`, with the messages of its API machinery
//! (`k8s.io/apimachinery/pkg/api/errors`). Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};

use crate::route::{Call, Resource};

/// A fault of an object that a request carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The path of the field, as KubeVirt spells it.
    pub field: String,
    /// What is wrong with it, and what to write instead.
    pub message: String,
}

/// Why a request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request cannot be understood, or asks for what is never possible. 400.
    BadRequest(String),
    /// The same for an object that the request carries: its faults are beside the message. 400.
    BadObject {
        /// What is wrong.
        message: String,
        /// Each fault that is listed.
        causes: Vec<Cause>,
    },
    /// The caller did not show who it is, or may not do this. 401, for both: KubeVirt's answer.
    Unauthorized(String),
    /// The machine forbids it. 403.
    Forbidden(String),
    /// There is no such object. 404.
    NotFound,
    /// The VirtualMachine of the path has no instance. 404.
    NoInstance,
    /// There is nothing of this path. 404.
    NoSuchPath,
    /// There is nothing of this path any more, and this is what to do instead. 404.
    NoLonger(String),
    /// The record of the machine has no such part yet. 404.
    NoPart(String),
    /// The path has other methods. 405.
    MethodNotAllowed,
    /// The object is in a state in which this is not possible. 409.
    Conflict(String),
    /// The VirtualMachine of the instance of the path is in such a state. 409.
    MachineConflict(String),
    /// The same of a route that reads what the guest agent reports: KubeVirt answers with 500, and the message of a conflict as text.
    ConflictAsError(String),
    /// The body did not arrive within so many seconds. 408.
    SlowBody(u64),
    /// The body is too long. 413.
    TooLarge(usize),
    /// Too much is asked at once. 429.
    TooManyRequests,
    /// Too many streams are open. 429.
    TooManyStreams,
    /// Too much is asked in a short time, and more may be after so many seconds. 429.
    TooOften(i32),
    /// Something failed here. 500.
    Internal(String),
    /// Another one has what was asked for. 503.
    Unavailable(String),
    /// There was no answer within so many seconds. 504.
    Late(u64),
}

/// After how many seconds a request may be sent again that was one too many: API servers' own answer.
const RETRY_AFTER_SECONDS: i32 = 1;

impl Refusal {
    /// The HTTP status.
    #[must_use]
    pub const fn code(&self) -> u16 {
        if matches!(self, Self::ConflictAsError(_)) { 500 } else { self.code_in_body() }
    }

    /// The code in the body.
    const fn code_in_body(&self) -> u16 {
        match self {
            Self::BadRequest(_) | Self::BadObject { .. } => 400,
            Self::Unauthorized(_) => 401,
            Self::Forbidden(_) => 403,
            Self::NotFound | Self::NoInstance | Self::NoSuchPath | Self::NoLonger(_) | Self::NoPart(_) => 404,
            Self::MethodNotAllowed => 405,
            Self::Conflict(_) | Self::MachineConflict(_) | Self::ConflictAsError(_) => 409,
            Self::SlowBody(_) => 408,
            Self::TooLarge(_) => 413,
            Self::TooManyRequests | Self::TooManyStreams | Self::TooOften(_) => 429,
            Self::Internal(_) => 500,
            Self::Unavailable(_) => 503,
            Self::Late(_) => 504,
        }
    }

    const fn reason(&self) -> &'static str {
        match self {
            Self::BadRequest(_) | Self::BadObject { .. } => "BadRequest",
            Self::Unauthorized(_) => "Unauthorized",
            Self::Forbidden(_) => "Forbidden",
            Self::NotFound | Self::NoInstance | Self::NoSuchPath | Self::NoLonger(_) | Self::NoPart(_) => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::Conflict(_) | Self::MachineConflict(_) | Self::ConflictAsError(_) => "Conflict",
            Self::TooLarge(_) => "RequestEntityTooLarge",
            Self::TooManyRequests | Self::TooManyStreams | Self::TooOften(_) => "TooManyRequests",
            Self::Internal(_) => "InternalError",
            Self::Unavailable(_) => "ServiceUnavailable",
            Self::SlowBody(_) | Self::Late(_) => "Timeout",
        }
    }

    /// After how many seconds the request may be sent again; nothing where that would be of no use. It is also the value of the header
    /// `Retry-After`, without which client-go does not.
    #[must_use]
    pub const fn retry_after_seconds(&self) -> Option<i32> {
        if let Self::TooOften(seconds) = self {
            return Some(*seconds);
        }
        if matches!(self, Self::TooManyRequests | Self::TooManyStreams) { Some(RETRY_AFTER_SECONDS) } else { None }
    }

    /// What a client gets.
    #[must_use]
    pub fn status(&self, call: Option<&Call<'_>>) -> Status {
        let object = call.map_or_else(|| "the request".to_owned(), |call| object(call, self.about(call)));
        let message = match self {
            Self::BadRequest(message)
            | Self::BadObject { message, .. }
            | Self::Unauthorized(message)
            | Self::NoLonger(message)
            | Self::NoPart(message)
            | Self::Unavailable(message) => message.clone(),
            Self::Forbidden(message) => format!("{object} is forbidden: {message}"),
            Self::NotFound | Self::NoInstance => format!("{object} not found"),
            Self::NoSuchPath => "the server could not find the requested resource".to_owned(),
            Self::MethodNotAllowed => "the server does not allow this method on the requested resource".to_owned(),
            Self::Conflict(message) | Self::MachineConflict(message) | Self::ConflictAsError(message) => {
                format!("Operation cannot be fulfilled on {object}: {message}")
            }
            Self::SlowBody(seconds) => format!("Timeout: the body of the request did not arrive within {seconds} s"),
            Self::TooLarge(limit) => format!("Request entity too large: limit is {limit}"),
            Self::TooManyRequests => {
                "too many requests of this user, or to this namespace or machine, at once; try again".to_owned()
            }
            Self::TooManyStreams => {
                "too many streams of this user or to this namespace are open; close one, or try again".to_owned()
            }
            Self::TooOften(seconds) => {
                format!(
                    "too many requests of this user, or to this namespace, in a short time; try again in {seconds} s"
                )
            }
            Self::Late(seconds) => {
                format!(
                    "Timeout: no answer within {seconds} s; it may have been done: look at the machine before you ask again"
                )
            }
            Self::Internal(message) => format!("Internal error occurred: {message}"),
        };
        Status {
            code: Some(self.code_in_body().into()),
            details: self.details(call),
            message: Some(message),
            reason: Some(self.reason().to_owned()),
            status: Some("Failure".to_owned()),
            ..Status::default()
        }
    }

    /// What the refusal is about: what the path names, or the other one of a machine and its instance, which have one name.
    const fn about(&self, call: &Call<'_>) -> Resource {
        if matches!(self, Self::NoInstance) {
            Resource::VirtualMachineInstance
        } else if matches!(self, Self::MachineConflict(_)) {
            Resource::VirtualMachine
        } else {
            call.route.resource
        }
    }

    fn details(&self, call: Option<&Call<'_>>) -> Option<StatusDetails> {
        if let Self::BadObject { causes, .. } = self {
            let causes = causes.iter().map(|cause| StatusCause {
                field: Some(cause.field.clone()).filter(|field| !field.is_empty()),
                message: Some(cause.message.clone()),
                reason: None,
            });
            return Some(StatusDetails { causes: Some(causes.collect()), ..StatusDetails::default() });
        }
        let Some(call) = call.filter(|_| self.names_its_object()) else { return self.retry_details() };
        Some(StatusDetails {
            group: Some(GROUP_OF_OBJECTS.to_owned()),
            kind: Some(kind(self.about(call)).to_owned()),
            name: Some(call.name.to_owned()),
            ..StatusDetails::default()
        })
    }

    fn retry_details(&self) -> Option<StatusDetails> {
        let of = |seconds| StatusDetails { retry_after_seconds: Some(seconds), ..StatusDetails::default() };
        self.retry_after_seconds().map(of)
    }

    const fn names_its_object(&self) -> bool {
        matches!(
            self,
            Self::Forbidden(_)
                | Self::NotFound
                | Self::NoInstance
                | Self::Conflict(_)
                | Self::MachineConflict(_)
                | Self::ConflictAsError(_)
        )
    }
}

/// The kind as KubeVirt's messages have it: in the singular, in small letters.
fn kind(resource: Resource) -> &'static str {
    match resource {
        Resource::VirtualMachine | Resource::ExpandVmSpec => "virtualmachine",
        Resource::VirtualMachineInstance => "virtualmachineinstance",
    }
}

const GROUP_OF_OBJECTS: &str = "kubevirt.io";

fn object(call: &Call<'_>, resource: Resource) -> String {
    format!("{}.{GROUP_OF_OBJECTS} \"{}\"", kind(resource), call.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::route::{Endpoint, endpoint};

    #[test]
    fn a_refusal_is_the_status_that_the_api_machinery_makes() {
        let path = "/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachines/a/start";
        let Ok(Endpoint::Call(call)) = endpoint("PUT", path) else { panic!("no call") };
        let status = |refusal: Refusal| serde_json::to_value(refusal.status(Some(&call))).unwrap();
        let details = json!({"name": "a", "group": "kubevirt.io", "kind": "virtualmachine"});
        let conflict = status(Refusal::Conflict("VM is already running".to_owned()));
        assert_eq!(
            conflict["message"],
            r#"Operation cannot be fulfilled on virtualmachine.kubevirt.io "a": VM is already running"#
        );
        assert_eq!(
            (&conflict["code"], &conflict["reason"], &conflict["details"]),
            (&json!(409), &json!("Conflict"), &details)
        );
        assert_eq!((&conflict["kind"], &conflict["apiVersion"]), (&json!("Status"), &json!("v1")));
        let reading = Refusal::ConflictAsError("VM is already running".to_owned());
        assert_eq!((reading.code(), status(reading)), (500, conflict));
        assert_eq!(status(Refusal::NotFound)["message"], r#"virtualmachine.kubevirt.io "a" not found"#);
        let gone = status(Refusal::NoLonger("go on".to_owned()));
        assert_eq!((&gone["message"], &gone["code"], gone.get("details")), (&json!("go on"), &json!(404), None));
        let none = status(Refusal::NoPart("this run has no exit.json yet".to_owned()));
        assert_eq!((&none["reason"], &none["code"], none.get("details")), (&json!("NotFound"), &json!(404), None));
        let bad = status(Refusal::BadRequest("no".to_owned()));
        assert_eq!((&bad["message"], &bad["code"], bad.get("details")), (&json!("no"), &json!(400), None));
    }

    #[test]
    fn a_refusal_may_be_about_the_other_one_of_machine_and_instance() {
        let base = "/apis/subresources.kubevirt.io/v1/namespaces/n";
        let status = |path: &str, refusal: Refusal| {
            let path = format!("{base}/{path}");
            let Ok(Endpoint::Call(call)) = endpoint("PUT", &path) else { panic!("{path}") };
            serde_json::to_value(refusal.status(Some(&call))).unwrap()
        };
        let missing = status("virtualmachines/a/migrate", Refusal::NoInstance);
        assert_eq!(missing["message"], r#"virtualmachineinstance.kubevirt.io "a" not found"#);
        assert_eq!((&missing["code"], &missing["details"]["kind"]), (&json!(404), &json!("virtualmachineinstance")));
        let busy = status("virtualmachineinstances/a/freeze", Refusal::MachineConflict("busy".to_owned()));
        assert_eq!(busy["message"], r#"Operation cannot be fulfilled on virtualmachine.kubevirt.io "a": busy"#);
        assert_eq!((&busy["code"], &busy["details"]["kind"]), (&json!(409), &json!("virtualmachine")));
    }

    #[test]
    fn faults_of_an_object_are_causes() {
        let cause = |field: &str| Cause { field: field.to_owned(), message: "no".to_owned() };
        let refusal = Refusal::BadObject { message: "bad".to_owned(), causes: vec![cause("spec.x"), cause("")] };
        let status = serde_json::to_value(refusal.status(None)).unwrap();
        assert_eq!((refusal.code(), &status["reason"], &status["message"]), (400, &json!("BadRequest"), &json!("bad")));
        assert_eq!(status["details"], json!({"causes": [{"field": "spec.x", "message": "no"}, {"message": "no"}]}));
    }

    #[test]
    fn what_may_come_later_says_when_and_nothing_else_does() {
        let shown = |refusal: Refusal| {
            let status = serde_json::to_value(refusal.status(None)).unwrap();
            (status["code"].clone(), status["reason"].clone(), status["details"].clone())
        };
        let details = json!({"retryAfterSeconds": 1});
        for refusal in [Refusal::TooManyRequests, Refusal::TooManyStreams] {
            assert_eq!(refusal.retry_after_seconds(), Some(1));
            assert_eq!(shown(refusal), (json!(429), json!("TooManyRequests"), details.clone()));
        }
        let often = Refusal::TooOften(7);
        assert_eq!(often.retry_after_seconds(), Some(7));
        assert_eq!(shown(often), (json!(429), json!("TooManyRequests"), json!({"retryAfterSeconds": 7})));
        let table = [
            (Refusal::SlowBody(2), 408, "Timeout"),
            (Refusal::TooLarge(7), 413, "RequestEntityTooLarge"),
            (Refusal::Unavailable(String::new()), 503, "ServiceUnavailable"),
            (Refusal::Late(25), 504, "Timeout"),
        ];
        for (refusal, code, reason) in table {
            assert_eq!((refusal.code(), refusal.retry_after_seconds()), (code, None));
            assert_eq!(shown(refusal), (json!(code), json!(reason), json!(null)));
        }
        let message = Refusal::TooLarge(7).status(None).message.unwrap();
        assert_eq!(message, "Request entity too large: limit is 7");
    }
}
