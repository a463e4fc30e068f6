//! Finding the fields of a table in a manifest. Looks at a manifest as it was written, or as it is stored.

use serde_json::Value;

use super::{Annotation, Fate, INSTANCE, Line, Setting, Table, When};
use crate::fault::{Fault, FaultCode, FieldPath};
use crate::v1::VirtualMachineInstanceSpec;

/// What a table finds in a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What is refused.
    pub refused: Vec<Fault>,
    /// What has less effect than its name promises.
    pub warned: Vec<Fault>,
}

/// Judges `value`, which stands at `at`, by a table.
#[must_use]
pub fn judge(table: &Table, value: &Value, at: &FieldPath, setting: Setting) -> Judgement {
    let mut found = Judgement::default();
    for line in table.all() {
        let fate = line.fate(setting);
        if matches!(fate, Fate::Read(_) | Fate::Handed(_) | Fate::Name | Fate::NeverWritten) {
            continue;
        }
        // Of most lines there is not even the object.
        let objects = places(value, &steps(line.under), at);
        for field in line.below() {
            let field = steps(field);
            let written = objects.iter().flat_map(|(at, object)| places(object, &field, at));
            written.for_each(|(at, value)| found.record(fate, at, value));
        }
    }
    found
}

/// Judges the annotations of `metadata`, which stands at `at`.
#[must_use]
pub fn judge_annotations(list: &[Annotation], metadata: &Value, at: &FieldPath) -> Judgement {
    let mut found = Judgement::default();
    for annotation in list {
        let at = at.child("annotations").key(annotation.key);
        found.record(annotation.fate, at, &metadata["annotations"][annotation.key]);
    }
    found
}

impl Judgement {
    /// Adds what a line of the table finds in a value.
    fn record(&mut self, fate: Fate, at: FieldPath, value: &Value) {
        let (when, message, instead, list) = match fate {
            Fate::Refused { when, why, instead } => (when, why, instead, &mut self.refused),
            Fate::Warned { when, what, instead } => (when, what, instead, &mut self.warned),
            Fate::Read(_) | Fate::Handed(_) | Fate::Name | Fate::NeverWritten => return,
        };
        if applies(when, value) {
            list.push(Fault::new(at, FaultCode::NotInThisVersion, message).instead(instead));
        }
    }
}

/// What of a stored instance cannot be honoured in a setting: for those who act on it, and have no manifest to refuse.
#[must_use]
pub fn refused(spec: &VirtualMachineInstanceSpec, setting: Setting) -> Vec<Fault> {
    let value = serde_json::to_value(spec).unwrap_or_default();
    judge(&INSTANCE, &value, &FieldPath::from("spec"), setting).refused
}

/// The lines that cover a path of the published schema, each with its own path. Lists are compared by their names.
#[must_use]
pub fn lines_at(table: &Table, path: &str) -> Vec<(String, &'static Line)> {
    let plain = path.replace("[]", "");
    let covers = |line: &str| {
        let rest = plain.strip_prefix(&line.replace("[]", "")).map(str::to_owned);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    table.all().flat_map(|line| line.paths().map(move |path| (path, line))).filter(|(path, _)| covers(path)).collect()
}

/// The steps of a path; none lead to the object itself.
fn steps(path: &str) -> Vec<&str> {
    path.split('.').filter(|step| !step.is_empty()).collect()
}

/// Every place of a manifest that a path means and where something stands, with that.
fn places<'a>(value: &'a Value, steps: &[&str], at: &FieldPath) -> Vec<(FieldPath, &'a Value)> {
    if value.is_null() {
        return Vec::new();
    }
    let Some((step, rest)) = steps.split_first() else { return vec![(at.clone(), value)] };
    match step.strip_suffix("[]") {
        Some(list) => {
            let elements = value[list].as_array().into_iter().flatten().enumerate();
            elements.flat_map(|(index, element)| places(element, rest, &at.child(list).index(index))).collect()
        }
        None => places(&value[*step], rest, &at.child(step)),
    }
}

fn applies(when: When, value: &Value) -> bool {
    if value.is_null() || value.as_array().is_some_and(Vec::is_empty) {
        return false;
    }
    let text = value.as_str().filter(|text| !text.is_empty());
    match when {
        When::Written => true,
        When::Filled => !is_empty(value),
        When::True => value == &Value::Bool(true),
        When::False => value == &Value::Bool(false),
        When::Enabled => value["enabled"] != Value::Bool(false),
        When::Is(known) => text == Some(known),
        When::OtherThan(known) => text.is_some_and(|text| text != known),
        When::OtherKeys(known) => {
            value.as_object().is_some_and(|map| map.keys().any(|key| !known.contains(&key.as_str())))
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

#[cfg(test)]
mod tests;
