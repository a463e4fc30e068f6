//! The document that a request carries: JSON, or YAML as KubeVirt takes it too (`decodeBody` in `pkg/virt-api/rest/subresource.go`).
//! Pure.

use serde_json::Value;

use crate::refusal::Refusal;

/// The longest document of YAML, in bytes. What is larger than options is JSON.
pub const LONGEST_YAML: usize = 16 << 10;
/// Lists and objects within each other, in YAML.
const MAX_DEPTH: usize = 16;
/// Values of a document of YAML, those that aliases repeat among them.
const MAX_VALUES: usize = 1000;

/// Reads a body; nothing, and a document without content, is null. What begins with a brace is JSON, whatever the request calls
/// it.
///
/// # Errors
/// It is neither, or too long for YAML.
pub fn document(body: &[u8]) -> Result<Value, Refusal> {
    let start = body.trim_ascii_start();
    if start.is_empty() {
        return Ok(Value::Null);
    }
    if start.starts_with(b"{") {
        return serde_json::from_slice(start).map_err(|error| unread(&error));
    }
    if body.len() > LONGEST_YAML {
        return Err(Refusal::TooLarge(LONGEST_YAML));
    }
    let text = std::str::from_utf8(body).map_err(|error| unread(&error))?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_VALUES,
            max_events: 4 * MAX_VALUES,
            max_recorded_anchor_events: MAX_VALUES,
        },
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Option<Value>>(text, options)
        .map(Option::unwrap_or_default)
        .map_err(|error| unread(&error))
}

/// KubeVirt's message for a body that cannot be read.
pub(crate) fn unread(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::BadRequest(format!("Can not unmarshal Request body to struct, error: {error}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn json_and_yaml_are_read_alike() {
        let table = [
            ("", Value::Null),
            (" \n", Value::Null),
            ("null", Value::Null),
            ("---\n", Value::Null),
            ("# nothing\n", Value::Null),
            ("\n {\"paused\": true}", json!({"paused": true})),
            ("paused: true\n", json!({"paused": true})),
            ("---\ngracePeriod: 0\ndryRun:\n- All\n", json!({"gracePeriod": 0, "dryRun": ["All"]})),
            ("unfreezeTimeout: 5m0s", json!({"unfreezeTimeout": "5m0s"})),
            ("[1]", json!([1])),
        ];
        for (body, value) in table {
            assert_eq!(document(body.as_bytes()), Ok(value), "{body:?}");
        }
    }

    #[test]
    fn what_is_neither_is_refused_and_unfolds_no_further_than_its_bounds() {
        let deep = "a: ".to_owned() + &"[".repeat(100) + &"]".repeat(100);
        let many = "a: [".to_owned() + &"1,".repeat(5000) + "1]";
        let bomb = "a: &a [1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c]\n";
        for body in ["{", "{paused: true}", "[", "a: b: c", "a: 1\n---\nb: 2\n", &deep, &many, bomb] {
            assert_eq!(document(body.as_bytes()).map_err(|refusal| refusal.code()), Err(400), "{body:.40}");
        }
        assert_eq!(document(b"a: \xff").map_err(|refusal| refusal.code()), Err(400));
        let long = format!("# {}\n", "x".repeat(LONGEST_YAML));
        assert_eq!(document(long.as_bytes()), Err(Refusal::TooLarge(LONGEST_YAML)));
    }

    proptest! {
        #[test]
        fn no_body_is_too_strange(body in prop::collection::vec(any::<u8>(), 0..200), text in "[a-z:&*\\[\\]{}# \n-]{0,80}") {
            let _ = document(&body);
            let _ = document(text.as_bytes());
        }
    }
}
