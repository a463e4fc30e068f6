//! What arrives on monitor and agent channels, and from clients of the broker.

use garboard_qmp::redact::{Subject, redacted};
use garboard_qmp::schema::Schema;
use serde_json::Value;

/// Tokens of QMP.
pub const TOKENS: &[&str] = &[
    "{\"return\": {}}\n",
    "{\"return\": ",
    "\"error\"",
    "\"event\"",
    "\"SHUTDOWN\"",
    "\"id\": 1",
    "\"id\": 4294967297",
    "\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}",
    "\"class\"",
    "\"desc\"",
    "\"execute\"",
    "\"arguments\"",
    "\"QMP\"",
    "null",
    "true",
    "-1",
    "1e400",
    "18446744073709551616",
    "\"\\ud800\"",
    "\\u0000",
    "\u{202e}",
    "\n",
    "\r\n",
    "[[[[",
    "}}}}",
    "\"password\"",
    "\"data\"",
    "\"qom-type\"",
    "qom-get",
    "://a:b@c",
    "\"meta-type\"",
    "\"variants\"",
    "\"members\"",
    "\"prefix\"",
    "\"ip-address\"",
    "\"name\"",
];

/// Bytes of QEMU through the line splitter and the router, in pieces whose size the first byte chooses. Every
/// subscriber must receive the end exactly once, which the probe asserts.
pub fn qmp_lines(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    let chunks: Vec<&[u8]> = bytes.chunks(usize::from(size) + 1).collect();
    garboard_qmp::testing::route_bytes(&chunks);
}

/// Lines of a guest through the agent's reader and every answer's type.
pub fn agent_replies(data: &[u8]) {
    for line in data.split(|&byte| byte == b'\n') {
        garboard_qmp::agent::read_one_line(line);
    }
}

/// Bytes of a client through the object splitter, the command parser and the policy. Nothing forbidden may be allowed,
/// and nothing but queries to a read-only client, which the probe asserts.
pub fn broker_input(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    let chunks: Vec<&[u8]> = bytes.chunks(usize::from(size) + 1).collect();
    garboard_qmp::broker::read_client_bytes(&chunks);
}

/// Anything as arguments, reply or event: one line of ASCII JSON must come out, without what is under a key `password`.
pub fn redaction(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for subject in [Subject::Arguments("object-add"), Subject::Reply("qom-get"), Subject::EventData] {
        let written = redacted(subject, &text);
        assert!(written.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "not printable ASCII: {written}");
        let value: Value = serde_json::from_str(&written).expect("what is written down is JSON");
        if let Some(password) = value.get("password").filter(|value| value.is_string()) {
            assert_eq!(password, "<redacted>");
        }
    }
}

/// Anything as a schema, and everything that can be asked of it.
pub fn schema(data: &[u8]) {
    let Ok(schema) = Schema::parse(&String::from_utf8_lossy(data)) else { return };
    for name in schema.commands().chain(schema.events()) {
        let description = schema.describe(name).expect("what is listed can be described");
        assert!(!description.is_empty());
        let members = schema.arguments(name, &Value::Null);
        for member in members.iter().take(8) {
            let path =
                format!("{}.{}={}", member.name, member.name, member.choices.first().map_or("x", String::as_str));
            let _ = schema.accepts(name, &path);
        }
    }
}
