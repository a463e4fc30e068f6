//! Why a subresource is refused, of two forms of one answer: what kubectl prints of a `Status`, and a `Status` instead of a
//! websocket. Pure.

use serde::Deserialize;

use super::Subresource;
use crate::failure::{Failure, bounded};

/// What kubectl prints before the reason of a `Status`.
const BY_SERVER: &str = "Error from server (";
/// Texts of API servers that reach no server of the group.
const NO_BACKEND: [&str; 4] = [
    "currently unable to handle the request",
    "service unavailable",
    "error trying to reach service",
    "no endpoints available",
];
/// What API servers say of a path that nobody serves, with and without the group.
const NO_PATH: [&str; 2] = ["could not find the requested resource", "page not found"];
/// What a controller says before a command of the guest agent that failed.
const IN_GUEST: &str = "Internal error occurred: command ";
/// What kubectl says when its time limit has passed.
const TOO_LATE: [&str; 2] = ["Client.Timeout", "context deadline exceeded"];

/// Takes standard error of kubectl apart.
pub(crate) fn of_kubectl(asked: &Subresource, stderr: &str) -> Failure {
    let printed = stderr.split_once(BY_SERVER).and_then(|(_, rest)| rest.split_once("): "));
    match printed {
        Some((reason, message)) if reason.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            of_status(asked, reason, message)
        }
        Some(_) | None => without_status(Failure::of(stderr)),
    }
}

/// What kubectl prints in another form.
fn without_status(failure: Failure) -> Failure {
    if let Failure::Unauthorized(text) = failure {
        return unauthorized(text);
    }
    if let Failure::Unreachable(text) = &failure
        && TOO_LATE.iter().any(|part| text.contains(part))
    {
        return Failure::NoAnswer(text.clone());
    }
    failure
}

/// The part of a `Status` that counts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    kind: String,
    reason: String,
    message: String,
}

/// Judges an answer that is no websocket.
pub(crate) fn of_answer(asked: &Subresource, code: u16, body: &[u8]) -> Failure {
    let status: Option<Status> = serde_json::from_slice(body).ok();
    if let Some(Status { reason, message, .. }) = status.filter(|status| status.kind == "Status") {
        return of_status(asked, &reason, &message);
    }
    let text = bounded(&String::from_utf8_lossy(body));
    let text = if text.is_empty() { format!("it answered with {code}") } else { text };
    match code {
        400 => of_status(asked, "BadRequest", &text),
        401 => of_status(asked, "Unauthorized", &text),
        403 => of_status(asked, "Forbidden", &text),
        404 | 405 => Failure::NotServed(asked.role()),
        503 => Failure::NoController(text),
        // kubectl itself, which does not reach the API server or gets no credentials.
        500 | 502 | 504 => Failure::Unreachable(text),
        _ => Failure::Other(format!("{}: {text}", asked.machine())),
    }
}

/// Judges a reason and a message of the API machinery.
fn of_status(asked: &Subresource, reason: &str, message: &str) -> Failure {
    let has = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    let of_machine = |text: &str| format!("{}: {}", asked.machine(), bounded(text));
    match reason {
        "Conflict" => Failure::Refused(of_machine(after(message, "\": ").unwrap_or(message))),
        "BadRequest" => Failure::Refused(of_machine(message)),
        // The machine forbids it, and nobody's rights.
        "Forbidden" if message.starts_with("virtualmachine") && has(&[".kubevirt.io \""]) && !has(&["User \""]) => {
            Failure::Refused(of_machine(after(message, "\" is forbidden: ").unwrap_or(message)))
        }
        "Forbidden" => Failure::Forbidden(bounded(message)),
        "Unauthorized" => unauthorized(bounded(message)),
        "NotFound" if has(&NO_PATH) => Failure::NotServed(asked.role()),
        "MethodNotAllowed" => Failure::NotServed(asked.role()),
        "NotFound" => Failure::NotFound(bounded(message)),
        "ServiceUnavailable" | "InternalError" if has(&NO_BACKEND) => Failure::NoController(bounded(message)),
        "ServiceUnavailable" => Failure::Refused(of_machine(message)),
        "InternalError" if message.starts_with(IN_GUEST) => {
            Failure::Refused(of_machine(after(message, " failed: ").unwrap_or(message)))
        }
        "Timeout" => Failure::NoAnswer(bounded(message)),
        _ => Failure::Other(of_machine(message.strip_prefix("Internal error occurred: ").unwrap_or(message))),
    }
}

/// A controller answers so, too, where the user is known and has no right: KubeVirt's answer.
fn unauthorized(text: String) -> Failure {
    if text.contains(" cannot ") { Failure::Forbidden(text) } else { Failure::Unauthorized(text) }
}

fn after<'a>(text: &'a str, border: &str) -> Option<&'a str> {
    text.split_once(border).map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::super::tests::of_instance;
    use super::*;
    use crate::exit::{FAILED, NOT_FOUND, REFUSED};

    /// Code and message of what kubectl prints.
    const PRINTED: [(&str, u8, &str); 12] = [
        (
            "Error from server (InternalError): Internal error occurred: command Freeze failed: the QEMU guest agent is not connected\n",
            REFUSED,
            "tenant/hello: the QEMU guest agent is not connected",
        ),
        (
            "Error from server (Conflict): Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"hello\": no guest agent is connected\n",
            REFUSED,
            "tenant/hello: no guest agent is connected",
        ),
        ("Error from server (BadRequest): VMI is not running\n", REFUSED, "tenant/hello: VMI is not running"),
        (
            "Error from server (Forbidden): virtualmachineinstance.kubevirt.io \"hello\" is forbidden: Pausing VMIs with LivenessProbe is currently not supported\n",
            REFUSED,
            "tenant/hello: Pausing VMIs with LivenessProbe is currently not supported",
        ),
        (
            "Error from server (Forbidden): virtualmachineinstances.subresources.kubevirt.io \"hello\" is forbidden: User \"bob\" cannot update resource \"virtualmachineinstances/pause\" in API group \"subresources.kubevirt.io\" in the namespace \"tenant\"\n",
            REFUSED,
            "you may not do this: virtualmachineinstances.subresources.kubevirt.io \"hello\" is forbidden: User \"bob\" cannot update resource \"virtualmachineinstances/pause\"",
        ),
        (
            "error: You must be logged in to the server (user \"bob\" cannot put virtualmachineinstances/pause in namespace \"tenant\")\n",
            REFUSED,
            "you may not do this: You must be logged in to the server (user \"bob\" cannot",
        ),
        (
            "error: You must be logged in to the server (Unauthorized)\n",
            REFUSED,
            "the cluster does not accept your credentials",
        ),
        (
            "Error from server (NotFound): the server could not find the requested resource\n",
            FAILED,
            "this cluster does not serve virtualmachineinstances/pause: its controller is of an earlier version",
        ),
        (
            "Error from server (NotFound): virtualmachineinstance.kubevirt.io \"hello\" not found\n",
            NOT_FOUND,
            "virtualmachineinstance.kubevirt.io \"hello\" not found",
        ),
        (
            "Error from server (ServiceUnavailable): the server is currently unable to handle the request\n",
            FAILED,
            "no controller answers: the server is currently unable to handle the request; `kubectl garboard cluster status`",
        ),
        (
            "Error from server (InternalError): Internal error occurred: QEMU has not done it in time; it may still\n",
            FAILED,
            "tenant/hello: QEMU has not done it in time; it may still",
        ),
        (
            "Unable to connect to the server: net/http: request canceled (Client.Timeout exceeded while awaiting headers)\n",
            FAILED,
            "there was no answer in time: ",
        ),
    ];

    #[test]
    fn what_kubectl_prints_of_a_refusal_is_a_sentence_about_the_machine() {
        for (stderr, code, message) in PRINTED {
            let failure = of_kubectl(&of_instance("pause"), stderr);
            assert_eq!(failure.code(), code, "{stderr}");
            assert!(failure.to_string().starts_with(message), "{stderr}: {failure}");
        }
    }

    #[test]
    fn an_answer_that_is_no_websocket_is_one_too() {
        let json = |reason: &str, message: &str| {
            serde_json::json!({ "kind": "Status", "reason": reason, "message": message }).to_string()
        };
        let table = [
            (
                503,
                json("ServiceUnavailable", "another client has opened this console"),
                "tenant/hello: another client has",
            ),
            (
                400,
                json("BadRequest", "No graphics devices are present."),
                "tenant/hello: No graphics devices are present",
            ),
            (403, json("Forbidden", "x is forbidden: User \"bob\" cannot get"), "you may not do this: x is forbidden"),
            (404, "404 page not found\n".to_owned(), "this cluster does not serve virtualmachineinstances/console"),
            (503, "service unavailable\n".to_owned(), "no controller answers: service unavailable"),
            (500, "dial tcp: no such host".to_owned(), "the cluster cannot be reached: dial tcp: no such host"),
            (418, String::new(), "tenant/hello: it answered with 418"),
            (400, "{\"kind\": 1".to_owned(), "tenant/hello: {\"kind\": 1"),
        ];
        for (code, body, message) in table {
            let failure = of_answer(&of_instance("console"), code, body.as_bytes());
            assert!(failure.to_string().starts_with(message), "{code} {body}: {failure}");
        }
    }

    #[test]
    fn what_a_server_writes_cannot_drive_the_terminal() {
        let text =
            of_answer(&of_instance("console"), 400, format!("\u{1b}[2J{}", "x".repeat(9000)).as_bytes()).to_string();
        assert!(text.len() < 1000 && !text.contains('\u{1b}'), "{text}");
    }
}
