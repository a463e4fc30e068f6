//! YAML, read with bounds and written so that YAML 1.1 (kubectl's) and 1.2 read the same. Pure.

use serde::Serialize;
use serde_json::Value;
use serde_saphyr::{Error, MessageFormatter, SerializerOptions, UserMessageFormatter, budget::BudgetBreach};

/// Lists and objects within each other. Each takes the reader about 25 KiB of stack where nothing is optimised.
const MAX_DEPTH: usize = 64;

/// Values of a file, those that aliases repeat among them.
const MAX_VALUES: usize = 1_000_000;

/// Every document of a stream that holds something; or a message with line and column about the first mistake.
///
/// `on`, `yes` and `010` are text, as in YAML 1.2; merge keys are followed; a key that is written twice is a mistake.
pub fn read(text: &str) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            // More than the reader looks ahead: `max_depth` is met first.
            flow_nesting_limit: 2048,
            max_nodes: MAX_VALUES,
            max_events: 4 * MAX_VALUES,
            max_recorded_anchor_events: MAX_VALUES / 4,
            max_documents: MAX_VALUES,
            // A list may name one anchor often. What repeats is counted among the values.
            enforce_alias_anchor_ratio: false,
        },
        strict_booleans: true,
        null_as_string: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| message(&error) + &about_tabs(&error, text))
}

fn message(error: &Error) -> String {
    // What is met where an alias is followed has the same limits.
    let met = error.without_snippet();
    let cause = if let Error::AliasError { error, .. } = met { error.without_snippet() } else { met };
    let Error::Budget { breach, location } = cause else {
        return UserMessageFormatter.format_message(error).into_owned() + &place(error);
    };
    let (line, column) = (location.line(), location.column());
    if let BudgetBreach::Depth { .. } = breach {
        return format!("more than {MAX_DEPTH} levels at line {line} column {column}; write it flatter");
    }
    format!("too much repetition or too many values ({MAX_VALUES} at most) at line {line} column {column}")
}

fn place(error: &Error) -> String {
    error.location().map(|at| format!(" at line {} column {}", at.line(), at.column())).unwrap_or_default()
}

/// The reader names the beginning of what a tab breaks, which may be on the line before.
fn about_tabs(error: &Error, text: &str) -> String {
    let Some(line) = error.location().and_then(|at| usize::try_from(at.line()).ok()) else { return String::new() };
    let by_tab = |line: &str| line.chars().take_while(|each| each.is_whitespace()).any(|each| each == '\t');
    let mut near = text.lines().enumerate().skip(line.saturating_sub(1)).take(2);
    near.find(|(_, text)| by_tab(text))
        .map(|(index, _)| format!(" (line {} is indented with a tab; use spaces)", index + 1))
        .unwrap_or_default()
}

/// One value as a document.
pub fn write(value: &(impl Serialize + ?Sized)) -> Result<String, serde_saphyr::SerializeError> {
    serde_saphyr::to_string_with_options(&value, options())
}

/// No line is folded: people compare and search lines.
fn options() -> SerializerOptions {
    serde_saphyr::ser_options! { min_fold_chars: usize::MAX, folded_wrap_chars: usize::MAX }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strings_and_numbers_mean_what_they_did() {
        let text =
            "a: on\nb: yes\nc: 010\nd: 1_000\ne: 0x1F\nf: true\ng: 1e3\nh: 12:30:45\ni: 1E\nj:\nk: 1.10\nnull: x\n";
        let value = json!({"a": "on", "b": "yes", "c": "010", "d": "1_000", "e": 31, "f": true, "g": 1000.0,
            "h": "12:30:45", "i": "1E", "j": null, "k": 1.1, "null": "x"});
        assert_eq!(read(text).unwrap(), [value]);
    }

    #[test]
    fn anchors_and_merge_keys_are_followed_and_keys_keep_their_order() {
        let documents = read("z: &x {b: 1}\na: {<<: *x, d: 2}\nc: *x\n").unwrap();
        assert_eq!(documents, [json!({"z": {"b": 1}, "a": {"b": 1, "d": 2}, "c": {"b": 1}})]);
        let keys: Vec<&String> = documents[0].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["z", "a", "c"]);
        let often = "a: &a {x: 1}\n".to_owned() + &(0..2000).map(|n| format!("k{n}: *a\n")).collect::<String>();
        assert_eq!(read(&often).unwrap()[0]["k1999"]["x"], 1);
    }

    #[test]
    fn a_mistake_has_its_line_and_column() {
        for (text, message) in [
            ("a: 1\nb: [", "line 2 column 4"),
            ("kind: A\nkind: B\n", "`kind` is not allowed here at line 2 column 1"),
            ("a: {b: 1, b: 2}", "line 1 column 11"),
            ("a: 1\n---\n b: c: d", "line 3 column 6"),
            ("a: *b", "line 1 column 4"),
            ("a: .inf", "line 1 column 4"),
            ("a:\n\tb: 1", "line 2 column"),
            ("kind: A\n\tmetadata: {}", "line 2 is indented with a tab"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(message), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_unfolds_without_end_is_refused() {
        let level = |n: usize| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", "));
        let bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned() + &(1..10).map(level).collect::<String>();
        assert!(read(&bomb).unwrap_err().contains("repetition"));
        for deep in
            ["[".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(100_000), "[".repeat(100) + &"]".repeat(100)]
        {
            assert!(read(&deep).unwrap_err().contains("flatter"));
        }
        assert!(read(&("[".repeat(60) + &"]".repeat(60))).is_ok());
    }

    #[test]
    fn what_is_written_reads_the_same_and_looks_like_nothing_else() {
        let value = json!({"on": "yes", "n": "010", "a": "null", "b": "1e3", "c": "x: y", "d": "two\nlines\n",
            "e": "long lines ".repeat(40), "f": [{"g": ["h"]}], "i": {}, "j": [], "k": "\u{1b}[1m", "l": " x "});
        let text = write(&value).unwrap();
        assert_eq!(read(&text).unwrap(), [value]);
        for quoted in ["\"on\": \"yes\"", "\"n\": \"010\"", "a: \"null\"", "d: |"] {
            assert!(text.contains(quoted), "{text}");
        }
        assert!(!text.contains('\u{1b}') && text.lines().any(|line| line.len() > 400), "{text}");
    }
}
