//! QMP as a subresource: which command is asked for, what is sent, and what its reply comes to. What a command may reach is decided by
//! the broker of the supervisor (`qmp/src/broker`), by the level of the route. Pure.

use std::fmt::Write as _;

use garboard_api::VirtualMachineInstance;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::instance::{VMI_NOT_RUNNING, bad, is_running};
use crate::options::{self, parameter};
use crate::refusal::Refusal;
use crate::route::{Call, Method};

/// The longest name of a command, bytes. QEMU's longest has fewer than 50.
const LONGEST_NAME: usize = 96;
/// The most that is kept of a text of QEMU, characters.
const LONGEST_REASON: usize = 400;
/// What a reply to the command has as its ID; what comes before it is the answer to the negotiation, or an event.
const ID: u64 = 2;

/// Whether QEMU of an instance may be asked.
///
/// # Errors
/// The instance does not run.
pub fn may_use(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if is_running(vmi) { Ok(()) } else { Err(bad(VMI_NOT_RUNNING)) }
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    name: String,
    arguments: Map<String, Value>,
}

impl Command {
    /// That of a call. The arguments of a query are in the parameter `arguments`, those of a change in the body: a JSON object.
    ///
    /// # Errors
    /// It is no name of a command, or the arguments are no object.
    pub fn read(call: &Call<'_>, query: Option<&str>, body: &[u8]) -> Result<Self, Refusal> {
        let name = call.parameters.first().copied().unwrap_or_default();
        if !is_name(name) {
            return Err(bad("the command: write its name as in query-qmp-schema, such as query-block"));
        }
        let arguments = match call.route.method {
            Method::Get => match parameter(query, "arguments") {
                Some(text) => parsed(&decoded(text)?)?,
                None => Map::new(),
            },
            Method::Put => options::read(body)?,
        };
        Ok(Self { name: name.to_owned(), arguments })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is sent: the end of the negotiation, and the command.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut command = json!({ "execute": self.name, "id": ID });
        if !self.arguments.is_empty() {
            command["arguments"] = Value::Object(self.arguments.clone());
        }
        format!("{}\n{command}\n", json!({ "execute": "qmp_capabilities", "id": ID - 1 }))
    }

    /// What a line of QEMU is.
    ///
    /// # Errors
    /// It is not of QMP, or QEMU or the broker refuse.
    pub fn judge(&self, line: &[u8]) -> Result<Line, Refusal> {
        let parsed = serde_json::from_slice::<Message>(line);
        let message = parsed.map_err(|_| Refusal::Internal("the answer is not of QMP".to_owned()))?;
        match (message.error, message.id) {
            // Of the negotiation, or of what had no ID.
            (Some(Reason { desc }), _) => Err(Refusal::Conflict(format!("{}: {}", self.name, bounded(&desc)))),
            (None, Some(ID)) => {
                let returned = message.returned.as_deref().map_or("null", RawValue::get);
                Ok(Line::Reply(format!("{{\"return\":{returned}}}")))
            }
            (None, _) => Ok(Line::Other),
        }
    }
}

/// A line of QEMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The reply to the command: what the client gets, as JSON. It is as QEMU wrote it: taken apart it would be many times as large.
    Reply(String),
    /// A greeting, an event, or the answer to the negotiation.
    Other,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default, rename = "return")]
    returned: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Reason>,
    #[serde(default)]
    id: Option<u64>,
}

#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    desc: String,
}

fn is_name(text: &str) -> bool {
    let is_allowed = |one: u8| one.is_ascii_alphanumeric() || matches!(one, b'-' | b'_' | b'.');
    !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(is_allowed)
}

fn parsed(text: &str) -> Result<Map<String, Value>, Refusal> {
    serde_json::from_str(text).map_err(|error| bad(&format!("arguments: write a JSON object: {error}")))
}

/// A value of a query, whose characters may be written as `%7B`, and a space as `+`.
fn decoded(text: &str) -> Result<String, Refusal> {
    let wrong = || bad("arguments: write a JSON object, with its special characters as %7B and the like");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let value = digit().zip(digit()).map(|(high, low)| 16 * high + low);
                bytes.push(value.and_then(|value| u8::try_from(value).ok()).ok_or_else(wrong)?);
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// QEMU may repeat what a guest wrote.
fn bounded(text: &str) -> String {
    let mut safe = String::new();
    for one in text.chars().take(LONGEST_REASON) {
        if one.is_control() {
            let _ = write!(safe, "{}", one.escape_default());
        } else {
            safe.push(one);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::OWN_GROUP;
    use crate::route::{Endpoint, endpoint};

    fn command(method: &str, tail: &str, query: Option<&str>, body: &str) -> Result<Command, Refusal> {
        let path = format!("/apis/{OWN_GROUP}/v1/namespaces/n/virtualmachineinstances/a/{tail}");
        let Ok(Endpoint::Call(call)) = endpoint(method, &path) else { panic!("{path}") };
        Command::read(&call, query, body.as_bytes())
    }

    fn lines(command: &Command) -> Vec<Value> {
        command.lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_query_has_its_arguments_in_the_query_and_a_change_in_the_body() {
        let plain = command("GET", "qmp-read/query-block", None, "").unwrap();
        assert_eq!(lines(&plain)[1], json!({"execute": "query-block", "id": 2}));
        assert_eq!(lines(&plain)[0]["execute"], "qmp_capabilities");
        let query = "arguments=%7b%22path%22:+%22/machine%22%7D";
        let with = command("GET", "qmp-read/qom-list", Some(query), "ignored").unwrap();
        assert_eq!(lines(&with)[1]["arguments"], json!({"path": "/machine"}));
        let change = command("PUT", "qmp-write/set_link", Some(query), r#"{"name": "net0", "up": false}"#).unwrap();
        assert_eq!(lines(&change)[1]["arguments"], json!({"name": "net0", "up": false}));
        assert_eq!(change.name(), "set_link");
        assert_eq!(command("PUT", "qmp-write/stop", None, ""), command("PUT", "qmp-write/stop", None, "{}"));
    }

    #[test]
    fn what_is_no_command_or_no_object_is_refused_before_qemu_is_asked() {
        let long = format!("qmp-read/{}", "x".repeat(97));
        for (method, tail, query, body) in [
            ("GET", "qmp-read/query%20block", None, ""),
            ("GET", long.as_str(), None, ""),
            ("GET", "qmp-read/qom-list", Some("arguments=[]"), ""),
            ("GET", "qmp-read/qom-list", Some("arguments=%7"), ""),
            ("GET", "qmp-read/qom-list", Some("arguments=%zz"), ""),
            ("GET", "qmp-read/qom-list", Some("arguments=%7b%+9%7d"), ""),
            ("GET", "qmp-read/qom-list", Some("arguments=%ff"), ""),
            ("PUT", "qmp-write/stop", None, "[1]"),
            ("PUT", "qmp-dangerous/quit", None, "\"now\""),
        ] {
            assert_eq!(command(method, tail, query, body).unwrap_err().code(), 400, "{tail} {query:?} {body}");
        }
    }

    #[test]
    fn the_reply_to_the_command_is_the_answer_and_a_refusal_a_conflict() {
        let asked = command("GET", "qmp-read/query-status", None, "").unwrap();
        for other in [r#"{"QMP": {}}"#, r#"{"return": {}, "id": 1}"#, r#"{"event": "STOP", "timestamp": {}}"#] {
            assert_eq!(asked.judge(other.as_bytes()), Ok(Line::Other), "{other}");
        }
        let reply = asked.judge(br#"{"return": {"running": true}, "id": 2}"#);
        assert_eq!(reply, Ok(Line::Reply(r#"{"return":{"running": true}}"#.to_owned())));
        let refused =
            asked.judge(br#"{"error": {"class": "GenericError", "desc": "no\u001b[2J"}, "id": 2}"#).unwrap_err();
        let message = refused.status(None).message.unwrap();
        assert!(refused.code() == 409 && message.ends_with("query-status: no\\u{1b}[2J"), "{message}");
        assert_eq!(asked.judge(b"login: ").unwrap_err().code(), 500);
    }
}
