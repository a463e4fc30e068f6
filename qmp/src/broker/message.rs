//! What clients of the broker send and get, in the form QEMU uses.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::policy::ClientAccess;
use crate::connection::Greeting;
use crate::event::Event;

/// A command of a client.
#[derive(Debug)]
pub(super) struct ClientCommand {
    pub(super) name: String,
    /// A JSON object, or null where there were no arguments.
    pub(super) arguments: Value,
    /// To be given back with the answer.
    pub(super) id: Option<Box<RawValue>>,
}

/// Why an object is no command, in QEMU's terms, and the id to answer with.
#[derive(Debug)]
pub(super) struct NotACommand {
    pub(super) desc: String,
    pub(super) id: Option<Box<RawValue>>,
}

impl ClientCommand {
    pub(super) fn parse(object: &[u8]) -> Result<Self, NotACommand> {
        #[derive(Deserialize)]
        struct Id {
            #[serde(default)]
            id: Option<Box<RawValue>>,
        }
        let without_id = |desc| NotACommand { desc, id: None };
        let text = std::str::from_utf8(object).map_err(|_| without_id("JSON parse error, not UTF-8".to_owned()))?;
        let parse_error = |error| without_id(format!("JSON parse error, {error}"));
        let Id { id } = serde_json::from_str(text).map_err(parse_error)?;
        let mut members: Map<String, Value> = serde_json::from_str(text).map_err(parse_error)?;
        members.remove("id");
        let name = members.remove("execute");
        let arguments = members.remove("arguments").unwrap_or(Value::Null);
        let desc = match (name, members.keys().next()) {
            (_, Some(key)) => format!("QMP input member '{key}' is unexpected"),
            (Some(Value::String(_)), None) if !(arguments.is_object() || arguments.is_null()) => {
                "QMP input member 'arguments' must be an object".to_owned()
            }
            (Some(Value::String(name)), None) => return Ok(Self { name, arguments, id }),
            (Some(_), None) => "QMP input member 'execute' must be a string".to_owned(),
            (None, None) => "QMP input lacks member 'execute'".to_owned(),
        };
        Err(NotACommand { desc, id })
    }
}

#[derive(Serialize)]
struct Answer<'a, T> {
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    returned: Option<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    class: &'a str,
    desc: &'a str,
}

fn line<T: Serialize>(message: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(message).unwrap_or_default();
    bytes.extend_from_slice(b"\r\n");
    bytes
}

pub(super) fn success<T: Serialize>(returned: T, id: Option<&RawValue>) -> Vec<u8> {
    line(&Answer { returned: Some(returned), error: None, id })
}

pub(super) fn failure(class: &str, desc: &str, id: Option<&RawValue>) -> Vec<u8> {
    line(&Answer::<()> { returned: None, error: Some(ErrorBody { class, desc }), id })
}

/// The greeting: QEMU's version, and the levels of access that can be asked for in place of its capabilities.
pub(super) fn greeting(of: &Greeting, start: ClientAccess, ceiling: ClientAccess) -> Vec<u8> {
    let version = &of.version;
    let levels = ClientAccess::ALL.into_iter().filter(|level| *level > start && *level <= ceiling);
    let capabilities: Vec<_> = levels.filter_map(ClientAccess::capability).collect();
    line(&json!({"QMP": {
        "version": {
            "qemu": {"major": version.major, "minor": version.minor, "micro": version.micro},
            "package": version.package,
        },
        "capabilities": capabilities,
    }}))
}

pub(super) fn event(event: &Event) -> Vec<u8> {
    #[derive(Serialize)]
    struct Message<'a> {
        timestamp: Value,
        event: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a RawValue>,
    }
    line(&Message { timestamp: timestamp(event.at), event: &event.name, data: event.data.as_deref() })
}

/// Reports to a client that it was too slow and this many events are gone.
pub(super) fn events_lost(count: u64) -> Vec<u8> {
    let data = json!({ "count": count });
    line(&json!({"timestamp": timestamp(SystemTime::now()), "event": super::EVENTS_LOST, "data": data}))
}

fn timestamp(at: SystemTime) -> Value {
    let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    json!({"seconds": since_epoch.as_secs(), "microseconds": since_epoch.subsec_micros()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desc(object: &str) -> String {
        ClientCommand::parse(object.as_bytes()).unwrap_err().desc
    }

    #[test]
    fn a_command_keeps_its_id_whatever_it_is() {
        let command = ClientCommand::parse(br#"{"execute": "stop", "id": {"a": [1]}}"#).unwrap();
        assert_eq!((&*command.name, command.id.unwrap().get()), ("stop", r#"{"a": [1]}"#));
        assert!(command.arguments.is_null());
    }

    #[test]
    fn what_is_no_command_is_answered_as_qemu_does() {
        assert_eq!(desc(r#"{"arguments": {}}"#), "QMP input lacks member 'execute'");
        assert_eq!(desc(r#"{"execute": 1}"#), "QMP input member 'execute' must be a string");
        assert_eq!(desc(r#"{"execute": "x", "arguments": []}"#), "QMP input member 'arguments' must be an object");
        assert_eq!(desc(r#"{"exec-oob": "x"}"#), "QMP input member 'exec-oob' is unexpected");
        assert!(desc("{'execute': 'x'}").starts_with("JSON parse error"));
    }

    #[test]
    fn a_refused_command_is_answered_with_its_id() {
        let refused = ClientCommand::parse(br#"{"execute": 1, "id": 7}"#).unwrap_err();
        assert_eq!(refused.id.unwrap().get(), "7");
        assert_eq!(
            failure("GenericError", "no", RawValue::from_string("7".into()).ok().as_deref()),
            b"{\"error\":{\"class\":\"GenericError\",\"desc\":\"no\"},\"id\":7}\r\n"
        );
    }
}
