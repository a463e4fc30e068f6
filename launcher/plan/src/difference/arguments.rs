//! QEMU's command line taken apart. Pure.

use serde_json::Value;

/// One option with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Argument<'a> {
    /// With its hyphen.
    pub(super) option: &'a str,
    /// Empty where it has none.
    pub(super) value: String,
}

/// Options whose value may begin with a hyphen.
const ANY_VALUE: [&str; 1] = ["-append"];

/// The options of a command line, without the program.
pub(super) fn of(argv: &[String]) -> Vec<Argument<'_>> {
    let mut all = Vec::new();
    let mut rest = argv.iter().skip(1).peekable();
    while let Some(option) = rest.next() {
        let takes_any = ANY_VALUE.contains(&option.as_str());
        let value = rest.next_if(|next| takes_any || !next.starts_with('-')).cloned().unwrap_or_default();
        all.push(Argument { option, value });
    }
    all
}

/// The properties of a value, JSON or `first,key=value,…`; the one without a name has the name `first`. Flags (`+vmx`, `-vmx`) are
/// switches.
pub(super) fn properties(value: &str, first: &str) -> Vec<(String, String)> {
    if let Ok(Value::Object(members)) = serde_json::from_str(value) {
        return members.into_iter().map(|(key, value)| (key, text(&value))).collect();
    }
    // Two commas are one in a value.
    let doubled = value.replace(",,", "\u{0}");
    let parts = doubled.split(',').filter(|part| !part.is_empty()).enumerate();
    let property = |(position, part): (usize, &str)| {
        let part = part.replace('\u{0}', ",");
        match part.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None if position == 0 => (first.to_owned(), part),
            None => match (part.strip_prefix('+'), part.strip_prefix('-')) {
                (Some(flag), _) => (flag.to_owned(), "on".to_owned()),
                (None, Some(flag)) => (flag.to_owned(), "off".to_owned()),
                (None, None) => (part, "on".to_owned()),
            },
        }
    };
    parts.map(property).collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
