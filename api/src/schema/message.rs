//! Messages of structural faults.

use std::collections::BTreeMap;

use serde_json::Value;

use super::shape::{Field, Shape};
use crate::suggest::{closest, listed};

/// The longest piece of a value that a message shows, in characters.
const SHOWN_MAX: usize = 40;
/// The most fields that a message lists.
const LISTED_MAX: usize = 8;
/// How many levels below a mapping a misplaced field is looked for.
const MISPLACED_DEPTH: usize = 3;

/// A value as a message shows it: escaped, and not too long.
pub(super) fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => return "nothing".to_owned(),
        Value::Object(_) => return "a mapping".to_owned(),
        Value::Array(_) => return "a list".to_owned(),
        Value::Bool(_) | Value::Number(_) => return format!("`{value}`"),
        Value::String(text) => text,
    };
    let mut short: String = text.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        short.push('…');
    }
    format!("`\"{short}\"`")
}

/// What belongs where the shape stands.
pub(super) fn expected(shape: &Shape) -> &'static str {
    match shape {
        Shape::Fields(_) | Shape::Map(_) => "a mapping",
        Shape::List(_) => "a list",
        Shape::Text(_) => "a text",
        Shape::Time => "a moment in time",
        Shape::Bytes => "base64",
        Shape::Whole(..) => "a whole number",
        Shape::Number => "a number",
        Shape::Flag => "`true` or `false`",
        Shape::Quantity => "a quantity",
        Shape::NumberOrText => "a number or a name",
        Shape::Any => "a value",
    }
}

/// A value of the shape, as YAML has it in one line.
pub(super) fn example(shape: &Shape) -> &'static str {
    match shape {
        Shape::Fields(_) | Shape::Map(_) => "{…}",
        Shape::List(_) => "[…]",
        Shape::Text(_) | Shape::NumberOrText | Shape::Any => "…",
        Shape::Time => "2026-08-22T10:00:00Z",
        Shape::Bytes => "Z2FyYm9hcmQ=",
        Shape::Whole(..) | Shape::Number => "1",
        Shape::Flag => "true",
        Shape::Quantity => "512Mi",
    }
}

/// What to write where a value of another type stands.
pub(super) fn instead_of_wrong_type(shape: &Shape, value: &Value) -> String {
    match (shape, value) {
        (Shape::Flag, _) => "write `true` or `false`, without quotes".to_owned(),
        (Shape::Whole(..) | Shape::Number, Value::String(text)) if text.trim().parse::<f64>().is_ok() => {
            format!("write `{}` without quotes", text.trim())
        }
        (Shape::Text(_) | Shape::Time | Shape::Bytes, Value::Bool(_) | Value::Number(_)) => {
            format!("put it in quotes: `\"{value}\"`")
        }
        (Shape::Fields(fields), Value::String(text)) if fields.contains_key(text) => {
            format!("write `{text}: {{…}}` below it")
        }
        (Shape::Fields(_) | Shape::Map(_), Value::Array(_)) => "write the fields without a dash before them".to_owned(),
        (Shape::Fields(_) | Shape::Map(_), _) => "write a mapping: `{}` or fields below it".to_owned(),
        (Shape::List(_), _) => "write a list: each element below it with a dash before".to_owned(),
        _ => format!("write {}", expected(shape)),
    }
}

/// What to write instead of an unknown field.
pub(super) fn instead_of_unknown(name: &str, fields: &BTreeMap<String, Field>) -> String {
    let known: Vec<&str> = fields.keys().map(String::as_str).collect();
    if let Some(same) = known.iter().find(|field| field.eq_ignore_ascii_case(name)) {
        return format!("did you mean `{same}`?");
    }
    if let Some(place) = place_below(name, fields, MISPLACED_DEPTH) {
        return format!("move it to `{place}`");
    }
    match closest(name, &known) {
        Some(field) => format!("did you mean `{field}`?"),
        None if known.is_empty() => "remove it: nothing can be set here, write `{}`".to_owned(),
        None if known.len() <= LISTED_MAX => format!("remove it, or use {}", listed(&known)),
        None => "remove it".to_owned(),
    }
}

/// Where, not far below these fields, there is a field of this name: the nearest place, if it is the only one so near.
fn place_below(name: &str, fields: &BTreeMap<String, Field>, depth: usize) -> Option<String> {
    (1..=depth).find_map(|depth| {
        let mut places = places_at(name, fields, depth);
        let only = places.pop()?;
        places.is_empty().then_some(only)
    })
}

fn places_at(name: &str, fields: &BTreeMap<String, Field>, depth: usize) -> Vec<String> {
    let mut places = Vec::new();
    for (step, field) in fields {
        let Shape::Fields(below) = &field.shape else { continue };
        if depth == 1 {
            if below.contains_key(name) {
                places.push(format!("{step}.{name}"));
            }
        } else {
            places.extend(places_at(name, below, depth - 1).into_iter().map(|place| format!("{step}.{place}")));
        }
    }
    places
}
