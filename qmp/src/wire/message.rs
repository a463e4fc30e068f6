//! One line of QEMU to one message. Bodies stay raw JSON: the caller decodes them.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::value::RawValue;

/// What QEMU may send.
#[derive(Debug)]
pub enum Message<'a> {
    /// The first thing on a connection: the value of `QMP`.
    Greeting(&'a RawValue),
    /// A command succeeded.
    Reply {
        /// The id sent with the command, if it is one of our numbers.
        id: Option<u64>,
        /// The value of `return`.
        returned: &'a RawValue,
    },
    /// A command failed, or could not be read (then without id).
    Refusal {
        /// The id sent with the command, if it is one of our numbers.
        id: Option<u64>,
        /// `GenericError`, `CommandNotFound`, …
        class: Cow<'a, str>,
        /// QEMU's message.
        desc: Cow<'a, str>,
    },
    /// Something happened.
    Event {
        /// `SHUTDOWN`, `DEVICE_DELETED`, … or a name that is in no schema.
        name: Cow<'a, str>,
        /// The value of `data`; absent for events that have none.
        data: Option<&'a RawValue>,
        /// When, by QEMU's clock.
        at: Option<EventTime>,
    },
}

/// Why a line is not a message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// Bytes that are no UTF-8.
    #[error("the line is not UTF-8 (byte {offset})")]
    NotText {
        /// Offset of the first wrong byte.
        offset: usize,
    },
    /// Text that is no JSON object of the expected form.
    #[error("the line is not a QMP message")]
    NotJson(#[source] serde_json::Error),
    /// A JSON object with none of `QMP`, `return`, `error`, `event`, or with several.
    #[error("the object has {found} of the keys QMP, return, error and event; a message has exactly one")]
    NotOneKind {
        /// How many of the four it has.
        found: usize,
    },
}

/// A moment by the clock of the sender. QEMU writes -1 where it could not read its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct EventTime {
    seconds: i64,
    #[serde(default)]
    microseconds: i64,
}

impl EventTime {
    /// The same moment as a system time; `None` if the sender knew none or wrote nonsense.
    pub fn to_system_time(self) -> Option<SystemTime> {
        let seconds = u64::try_from(self.seconds).ok()?;
        let microseconds = u32::try_from(self.microseconds).ok().filter(|&value| value < 1_000_000)?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, microseconds * 1_000))
    }
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(rename = "QMP", borrow, default)]
    greeting: Option<&'a RawValue>,
    #[serde(rename = "return", borrow, default)]
    returned: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<ErrorFields<'a>>,
    #[serde(borrow, default)]
    event: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    timestamp: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ErrorFields<'a> {
    #[serde(borrow)]
    class: Cow<'a, str>,
    #[serde(borrow)]
    desc: Cow<'a, str>,
}

impl<'a> Message<'a> {
    /// Reads one line. Unknown keys are skipped: a newer QEMU may add some.
    pub fn parse(line: &'a [u8]) -> Result<Self, MessageError> {
        let text = std::str::from_utf8(line).map_err(|error| MessageError::NotText { offset: error.valid_up_to() })?;
        let fields: Fields<'a> = serde_json::from_str(text).map_err(MessageError::NotJson)?;
        let id = fields.id.and_then(|raw| raw.get().parse().ok());
        match (fields.greeting, fields.returned, fields.error, fields.event) {
            (Some(greeting), None, None, None) => Ok(Self::Greeting(greeting)),
            (None, Some(returned), None, None) => Ok(Self::Reply { id, returned }),
            (None, None, Some(error), None) => Ok(Self::Refusal { id, class: error.class, desc: error.desc }),
            (None, None, None, Some(name)) => {
                let at = fields.timestamp.and_then(|raw| serde_json::from_str(raw.get()).ok());
                Ok(Self::Event { name, data: fields.data, at })
            }
            (greeting, returned, error, event) => {
                let present = [greeting.is_some(), returned.is_some(), error.is_some(), event.is_some()];
                Err(MessageError::NotOneKind { found: present.into_iter().filter(|&present| present).count() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reply_keeps_its_body_as_it_was_written() {
        let Ok(Message::Reply { id, returned }) = Message::parse(br#"{"return": {"a" : [1, 2]}, "id": 7}"#) else {
            panic!("not a reply");
        };
        assert_eq!((id, returned.get()), (Some(7), r#"{"a" : [1, 2]}"#));
    }

    #[test]
    fn refusal_without_id_is_a_refusal() {
        let line = br#"{"error": {"class": "GenericError", "desc": "JSON parse error, \"x\""}}"#;
        let Ok(Message::Refusal { id, class, desc }) = Message::parse(line) else { panic!("not a refusal") };
        assert_eq!((id, &*class, &*desc), (None, "GenericError", "JSON parse error, \"x\""));
    }

    #[test]
    fn an_unknown_event_with_unknown_keys_is_an_event() {
        let line = br#"{"timestamp": {"seconds": 5, "microseconds": 7}, "event": "NEVER_SEEN", "new": [1]}"#;
        let Ok(Message::Event { name, data, at }) = Message::parse(line) else { panic!("not an event") };
        assert_eq!((&*name, data.is_none()), ("NEVER_SEEN", true));
        let at = at.and_then(EventTime::to_system_time).unwrap();
        assert_eq!(at.duration_since(SystemTime::UNIX_EPOCH).unwrap(), Duration::from_micros(5_000_007));
    }

    #[test]
    fn a_clock_that_failed_is_no_time() {
        for (seconds, microseconds) in [(-1, -1), (1, 1_000_000), (1, -1), (i64::MAX, 0)] {
            let _ = EventTime { seconds, microseconds }.to_system_time();
        }
        assert!(EventTime { seconds: -1, microseconds: -1 }.to_system_time().is_none());
        assert!(EventTime { seconds: 1, microseconds: 1_000_000 }.to_system_time().is_none());
    }

    #[test]
    fn ids_that_are_not_ours_are_no_ids() {
        for id in ["\"libvirt-12\"", "-1", "1.5", "{}", "99999999999999999999999"] {
            let line = format!(r#"{{"return": {{}}, "id": {id}}}"#);
            assert!(matches!(Message::parse(line.as_bytes()), Ok(Message::Reply { id: None, .. })), "{id}");
        }
    }

    #[test]
    fn what_is_no_message_is_an_error_value() {
        assert!(matches!(Message::parse(b"\xff\xfe"), Err(MessageError::NotText { offset: 0 })));
        assert!(matches!(Message::parse(b"RFB 003.008"), Err(MessageError::NotJson(_))));
        assert!(matches!(Message::parse(b"{}"), Err(MessageError::NotOneKind { found: 0 })));
        assert!(matches!(
            Message::parse(br#"{"return": {}, "event": "X"}"#),
            Err(MessageError::NotOneKind { found: 2 })
        ));
        assert!(matches!(Message::parse(br#"{"return": 1, "return": 2}"#), Err(MessageError::NotJson(_))));
        assert!(matches!(Message::parse(b"[]"), Err(MessageError::NotJson(_) | MessageError::NotOneKind { .. })));
    }

    #[test]
    fn deep_nesting_does_not_exhaust_the_stack() {
        let line = format!(r#"{{"return": {}{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
        let _ = Message::parse(line.as_bytes());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::parse(&bytes);
        }

        #[test]
        fn any_event_name_and_id_survive(name in "\\PC{1,30}", id in 0u64..1 << 53) {
            let event = serde_json::json!({"event": name, "timestamp": {"seconds": 1, "microseconds": 2}}).to_string();
            let Ok(Message::Event { name: found, .. }) = Message::parse(event.as_bytes()) else { panic!("{event}") };
            prop_assert_eq!(found, name);
            let reply = serde_json::json!({"return": {}, "id": id}).to_string();
            let Ok(Message::Reply { id: found, .. }) = Message::parse(reply.as_bytes()) else { panic!("{reply}") };
            prop_assert_eq!(found, Some(id));
        }
    }
}
