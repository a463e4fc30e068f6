//! What a run recorded, as people read it: a line of the supervisor's log, and QEMU's arguments.

/// The arguments of a plan, one a line.
pub fn argv_of(plan: &[u8]) -> anyhow::Result<Vec<u8>> {
    let plan: serde_json::Value = serde_json::from_slice(plan)?;
    let arguments = plan["argv"].as_array().into_iter().flatten();
    Ok(arguments.flat_map(|argument| format!("{}\n", argument.as_str().unwrap_or_default()).into_bytes()).collect())
}

/// One line of a supervisor's log. Control characters do not get to the terminal.
pub fn for_person(line: &str) -> String {
    let text = match serde_json::from_str::<serde_json::Value>(line) {
        Ok(event) if event.is_object() => human(&event),
        Ok(_) | Err(_) => line.to_owned(),
    };
    if !text.contains(char::is_control) {
        return text;
    }
    text.chars().flat_map(|one| if one.is_control() { one.escape_default().collect() } else { vec![one] }).collect()
}

fn human(event: &serde_json::Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let mut line =
        format!("{} {:5} {}", text("timestamp"), text("level"), event["fields"]["message"].as_str().unwrap_or(""));
    for (key, value) in event["fields"].as_object().into_iter().flatten() {
        if key != "message" {
            line.push_str(&format!(" {}", pair(key, value)));
        }
    }
    for span in event["spans"].as_array().into_iter().flatten().filter(|span| span["name"] != "vm") {
        let fields = span.as_object().into_iter().flatten().filter(|(key, _)| *key != "name");
        let fields: Vec<_> = fields.map(|(key, value)| pair(key, value)).collect();
        line.push_str(&format!(" {}{{{}}}", span["name"].as_str().unwrap_or_default(), fields.join(" ")));
    }
    line
}

/// Fields that are a part of the record, which `--part` of the same name shows whole.
const PARTS: [&str; 2] = ["plan", "argv"];
/// The most characters of such a field in a line.
const LONGEST_PART: usize = 60;

fn pair(key: &str, value: &serde_json::Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if PARTS.contains(&key) && text.chars().count() > LONGEST_PART {
        let beginning: String = text.chars().take(LONGEST_PART).collect();
        return format!("{key}={beginning}… (whole: --part {key})");
    }
    format!("{key}={text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_a_part_of_the_record_is_shortened_and_its_part_is_named() {
        for (key, part) in [("plan", "plan"), ("argv", "argv")] {
            let line =
                |value: &str| for_person(&serde_json::json!({"fields": {"message": "m", key: value}}).to_string());
            let shown = line(&"x".repeat(5000));
            assert!(shown.ends_with(&format!("{key}={}… (whole: --part {part})", "x".repeat(60))), "{shown}");
            assert!(line("short").ends_with(&format!("{key}=short")));
        }
        let other = serde_json::json!({"fields": {"message": "m", "error": "x".repeat(500)}}).to_string();
        assert!(for_person(&other).ends_with(&"x".repeat(500)), "no part has it");
    }

    #[test]
    fn a_line_is_shown_in_order_and_cannot_drive_the_terminal() {
        let line = r#"{"timestamp":"2026-01-01T00:00:00Z","level":"INFO","fields":{"message":"qmp audit","uid":107,"command":"stop"}}"#;
        assert_eq!(for_person(line), "2026-01-01T00:00:00Z INFO  qmp audit uid=107 command=stop");
        let spans = r#"{"timestamp":"t","level":"INFO","fields":{"message":"QMP message"},"spans":[{"name":"vm","vmi":"a"},{"name":"request","request":3,"ask":"pause"},{"name":"qmp","command":"stop","id":7}]}"#;
        let line = for_person(spans);
        assert!(line.ends_with(" QMP message request{request=3 ask=pause} qmp{command=stop id=7}"), "{line}");
        assert_eq!(for_person("garboard-init: no JSON"), "garboard-init: no JSON");
        let evil = r#"{"timestamp":"","level":"INFO","fields":{"message":"\u001b[2Jx"}}"#;
        assert_eq!(for_person(evil), " INFO  \\u{1b}[2Jx");
    }
}
