//! What may be written down of a command, a reply or an event.
//!
//! Used by the transcript and by the audit of the debug broker; both are read by users who must not see the guest's
//! secrets. Everything comes out as one line of ASCII JSON, whatever went in: secrets replaced, strings, lists and
//! depth bounded, and what is too long to look at replaced by its length.
//!
//! What is secret is data, in the tables below: a rule by the name of a key, which also catches unknown commands, and
//! a rule by command, for keys whose name does not show it.

use serde_json::{Map, Value};

use crate::text::printable;

/// Longest JSON text that is parsed to be written down, in bytes. Longer ones are replies too long to read in a log
/// (schema, block graph), and a parsed copy costs several times this on the heap.
const PARSE_LIMIT: usize = 16 << 10;

/// Characters kept of one string.
const STRING_LIMIT: usize = 512;

/// Elements kept of one list or object.
const ELEMENT_LIMIT: usize = 64;

/// Levels kept.
const DEPTH_LIMIT: usize = 12;

/// The replacement of a secret.
const REDACTED: &str = "<redacted>";

/// Parts of key names that mean a secret.
const SECRET_KEY_PARTS: &[&str] =
    &["password", "passwd", "passphrase", "userdata", "user-data", "user_data", "networkdata", "private-key", "token"];

/// Key names that mean a secret only if they are the whole name.
const SECRET_KEYS: &[&str] = &["secret", "psk"];

/// Ends of key names that only point to a secret kept elsewhere (`password-secret: "sec0"`).
const REFERENCE_KEY_ENDS: &[&str] = &["-secret", "id", "-file"];

/// Keys that are secret in the arguments of one command, at any depth.
const SECRET_ARGUMENTS: &[(&str, &[&str])] = &[
    ("object-add", &["data"]),
    // Of a server that images come from by HTTP.
    ("blockdev-add", &["cookie"]),
    ("blockdev-reopen", &["cookie"]),
    // What is typed into a guest may be a password.
    ("send-key", &["keys"]),
    ("input-send-event", &["events"]),
    ("ringbuf-write", &["data"]),
    ("sev-inject-launch-secret", &["packet-header", "secret"]),
    ("qom-set", &["value"]),
    ("guest-file-write", &["buf-b64"]),
    ("guest-exec", &["arg", "env", "input-data"]),
    ("guest-ssh-add-authorized-keys", &["keys"]),
];

/// Commands whose reply may be a secret where it is a string: contents of the guest, or of a `secret` object.
const SECRET_REPLIES: &[&str] =
    &["qom-get", "ringbuf-read", "guest-file-read", "guest-exec-status", "guest-ssh-get-authorized-keys"];

/// Parts that make a text suspicious: a monitor line, a pseudo file name.
const SECRET_PARTS: &[&str] = &["password", "passwd", "secret", "sendkey", "userdata"];

/// Whose JSON it is.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// The arguments of this command.
    Arguments(&'a str),
    /// The reply to this command.
    Reply(&'a str),
    /// The data of an event.
    EventData,
}

/// `json` as it may be written down: one line of ASCII JSON.
pub fn redacted(subject: Subject<'_>, json: &str) -> String {
    if json.len() > PARSE_LIMIT {
        return format!("{{\"omitted_bytes\":{}}}", json.len());
    }
    match serde_json::from_str(json) {
        Ok(value) => to_ascii_json(&clean(&Rules::of(subject), value, 0)),
        Err(_) => format!("{{\"unreadable_bytes\":{}}}", json.len()),
    }
}

/// The annotation in which kubectl keeps the whole manifest, as text.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A manifest with every text replaced whose key means a secret, whole otherwise: it is read again by programs. What only
/// names a Secret is an object, and stays.
#[must_use]
pub fn without_secrets(manifest: Value) -> Value {
    let rules = Rules { secret_keys: &[APPLIED], strings_are_secret: false };
    hide_texts(&rules, manifest)
}

fn hide_texts(rules: &Rules, value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(|item| hide_texts(rules, item)).collect(),
        Value::Object(members) => {
            let hide = |(key, value): (String, Value)| match value {
                Value::String(text) if rules.hides(&key) => (key, hidden(&text)),
                other @ (Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_)
                | Value::Object(_)) => (key, hide_texts(rules, other)),
            };
            Value::Object(members.into_iter().map(hide).collect())
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => plain,
    }
}

/// Any value as one line of ASCII JSON: other characters become `\uNNNN`.
pub(crate) fn to_ascii_json<T: serde::Serialize>(value: &T) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, AsciiFormatter);
    if value.serialize(&mut serializer).is_err() {
        return "null".to_owned();
    }
    String::from_utf8(bytes).unwrap_or_else(|_| "null".to_owned())
}

#[derive(Debug)]
struct Rules {
    secret_keys: &'static [&'static str],
    strings_are_secret: bool,
}

impl Rules {
    fn of(subject: Subject<'_>) -> Self {
        let (secret_keys, strings_are_secret) = match subject {
            Subject::Arguments(command) => {
                let row = SECRET_ARGUMENTS.iter().find(|(name, _)| *name == command);
                (row.map_or(&[][..], |(_, keys)| keys), false)
            }
            Subject::Reply(command) => (&[][..], SECRET_REPLIES.contains(&command)),
            Subject::EventData => (&[][..], false),
        };
        Self { secret_keys, strings_are_secret }
    }

    fn hides(&self, key: &str) -> bool {
        let key = key.to_ascii_lowercase();
        let by_part = SECRET_KEY_PARTS.iter().any(|part| key.contains(part))
            && !REFERENCE_KEY_ENDS.iter().any(|end| key.ends_with(end));
        by_part || SECRET_KEYS.contains(&key.as_str()) || self.secret_keys.contains(&key.as_str())
    }
}

fn clean(rules: &Rules, value: Value, depth: usize) -> Value {
    match value {
        Value::String(text) if rules.strings_are_secret => hidden(&text),
        Value::String(text) => clean_string(text),
        Value::Array(_) | Value::Object(_) if depth == DEPTH_LIMIT => Value::from("<deeper>"),
        Value::Array(items) => clean_array(rules, items, depth),
        Value::Object(members) => clean_object(rules, members, depth),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}

fn hidden(text: &str) -> Value {
    if text.is_empty() { Value::from("") } else { Value::from(REDACTED) }
}

fn clean_string(text: String) -> Value {
    if let Some(masked) = without_credentials(&text) {
        return Value::from(printable(&masked, STRING_LIMIT));
    }
    if text.chars().nth(STRING_LIMIT).is_some() {
        let kept: String = text.chars().take(STRING_LIMIT).collect();
        return Value::from(format!("{kept}… ({} bytes)", text.len()));
    }
    Value::from(text)
}

/// Text that may hold a secret, without it: `None` when there is no sign of one.
fn without_credentials(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let is_one_name = !text.contains([' ', '=', ',', ':']);
    if !is_one_name && SECRET_PARTS.iter().any(|part| lower.contains(part)) {
        let first = text.split([' ', '=', ',', ':']).next().unwrap_or_default();
        return Some(format!("{first} {REDACTED}"));
    }
    let (scheme, rest) = text.split_once("://")?;
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let at = rest[..authority_end].rfind('@')?;
    Some(format!("{scheme}://{REDACTED}{}", &rest[at..]))
}

fn clean_array(rules: &Rules, items: Vec<Value>, depth: usize) -> Value {
    let more = items.len().saturating_sub(ELEMENT_LIMIT);
    let mut kept: Vec<Value> =
        items.into_iter().take(ELEMENT_LIMIT).map(|item| clean(rules, item, depth + 1)).collect();
    if more > 0 {
        kept.push(Value::from(format!("<{more} more>")));
    }
    Value::Array(kept)
}

fn clean_object(rules: &Rules, members: Map<String, Value>, depth: usize) -> Value {
    let more = members.len().saturating_sub(ELEMENT_LIMIT);
    let mut kept = Map::new();
    for (key, value) in members.into_iter().take(ELEMENT_LIMIT) {
        let hide = rules.hides(&key) && !matches!(value, Value::Bool(_) | Value::Null);
        let value = if hide { Value::from(REDACTED) } else { clean(rules, value, depth + 1) };
        kept.insert(printable(&key, 64), value);
    }
    if more > 0 {
        kept.insert("<more>".to_owned(), Value::from(more));
    }
    Value::Object(kept)
}

/// Writes compact JSON in which every character is printable ASCII.
struct AsciiFormatter;

impl serde_json::ser::Formatter for AsciiFormatter {
    fn write_string_fragment<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> std::io::Result<()> {
        for character in fragment.chars() {
            if character.is_ascii() && !character.is_ascii_control() {
                write!(writer, "{character}")?;
                continue;
            }
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const SECRET: &str = "hunter2";

    #[test]
    fn secrets_vanish_from_arguments() {
        let cases = [
            ("set_password", json!({"protocol": "vnc", "password": SECRET})),
            ("change-vnc-password", json!({"password": SECRET})),
            ("object-add", json!({"qom-type": "secret", "id": "s0", "data": SECRET})),
            ("object-add", json!({"qom-type": "secret", "id": "s0", "props": {"data": SECRET, "format": "raw"}})),
            ("human-monitor-command", json!({"command-line": format!("set_password vnc {SECRET}")})),
            ("human-monitor-command", json!({"command-line": format!("object_add secret,id=a,data={SECRET}")})),
            ("blockdev-add", json!({"driver": "ssh", "server": {"x-password": SECRET}})),
            ("blockdev-add", json!({"filename": format!("https://user:{SECRET}@host/disk.qcow2")})),
            ("blockdev-add", json!({"filename": format!("json:{{\"password\":\"{SECRET}\"}}")})),
            ("blockdev-add", json!({"driver": "raw", "file": {"driver": "https", "cookie": format!("id={SECRET}")}})),
            ("blockdev-reopen", json!({"options": [{"driver": "https", "cookie": SECRET}]})),
            ("send-key", json!({"keys": [{"type": "qcode", "data": SECRET}]})),
            ("qom-set", json!({"path": "/objects/s0", "property": "data", "value": SECRET})),
            ("no-such-command", json!({"a": [{"vncPassword": SECRET, "UserData": SECRET}]})),
            ("guest-set-user-password", json!({"username": "root", "password": SECRET, "crypted": false})),
            ("guest-exec", json!({"path": "/bin/sh", "arg": ["-c", SECRET]})),
        ];
        for (command, arguments) in cases {
            let written = redacted(Subject::Arguments(command), &arguments.to_string());
            assert!(!written.contains(SECRET), "{command}: {written}");
            assert!(written.contains(REDACTED), "{command}: {written}");
        }
    }

    #[test]
    fn secrets_vanish_from_replies() {
        assert_eq!(redacted(Subject::Reply("qom-get"), "\"hunter2\""), "\"<redacted>\"");
        assert_eq!(redacted(Subject::Reply("qom-get"), "42"), "42");
        assert_eq!(redacted(Subject::Reply("guest-exec-status"), r#"{"out-data":"aHVudGVyMg=="}"#), {
            r#"{"out-data":"<redacted>"}"#
        });
    }

    #[test]
    fn a_manifest_loses_its_secrets_and_nothing_else() {
        let manifest = |secret: &str| {
            json!({
                "metadata": {"annotations": {APPLIED: secret, "owner": "harbour"}},
                "spec": {"volumes": [
                    {"name": "seed", "cloudInitNoCloud": {"userData": secret, "networkDataBase64": secret,
                        "networkDataSecretRef": {"name": "net"}}},
                    {"name": "long", "cloudInitConfigDrive": {"userDataBase64": secret, "secretRef": {"name": "user"}}},
                ], "many": vec![json!({"a": "x".repeat(2_000)}); 100]},
            })
        };
        assert_eq!(without_secrets(manifest(SECRET)), manifest(REDACTED));
    }

    #[test]
    fn what_is_no_secret_stays() {
        let arguments = r#"{"driver":"virtio-blk-pci","id":"disk0","password-secret":"sec0","tls":false}"#;
        let written = redacted(Subject::Arguments("device_add"), arguments);
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), serde_json::from_str::<Value>(arguments).unwrap());
        let line = r#"{"command-line":"info block -v"}"#;
        assert_eq!(redacted(Subject::Arguments("human-monitor-command"), line), line);
    }

    #[test]
    fn long_things_are_cut() {
        let long = json!({"s": "x".repeat(2_000), "l": vec![1; 200]}).to_string();
        let written = redacted(Subject::EventData, &long);
        assert!(written.len() < 1_200 && written.contains("(2000 bytes)") && written.contains("<136 more>"));
        let huge = format!("\"{}\"", "x".repeat(PARSE_LIMIT));
        assert_eq!(redacted(Subject::EventData, &huge), format!("{{\"omitted_bytes\":{}}}", huge.len()));
        let deep = format!("{}{}", "[".repeat(90), "]".repeat(90));
        assert!(redacted(Subject::EventData, &deep).contains("<deeper>"));
        let deeper = format!("{}{}", "[".repeat(900), "]".repeat(900));
        assert_eq!(redacted(Subject::EventData, &deeper), "{\"unreadable_bytes\":1800}");
    }

    proptest! {
        #[test]
        fn any_input_becomes_one_line_of_ascii_json(text in "\\PC{0,80}", key in "\\PC{0,20}", junk in ".{0,60}") {
            let valid = json!({key: [text.clone(), {"k": text}]}).to_string();
            for json in [valid, junk] {
                for subject in [Subject::Arguments("object-add"), Subject::Reply("qom-get"), Subject::EventData] {
                    let written = redacted(subject, &json);
                    prop_assert!(written.chars().all(|c| c.is_ascii() && !c.is_ascii_control()), "{written}");
                    prop_assert!(serde_json::from_str::<Value>(&written).is_ok(), "{written}");
                }
            }
        }

        #[test]
        fn a_password_never_gets_through(secret in "[A-Za-z0-9]{12,30}", depth in 0usize..6) {
            let mut value = json!({"password": secret});
            for _ in 0..depth { value = json!({"a": [value]}); }
            prop_assert!(!redacted(Subject::EventData, &value.to_string()).contains(&secret));
        }
    }
}
