//! Comparing a manifest with the shape it should have.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::message;
use super::shape::{Field, Shape};
use crate::fault::{Fault, FaultCode, FieldPath};
use crate::quantity::Quantity;
use crate::suggest::one_of;

/// The most faults that are found. Who asks can ask for as many as a request is long, and each has a text and a search for what was meant.
pub(super) const MOST_FAULTS: usize = 1000;

/// Finds what is wrong with `value`, and takes the wrong parts out of it. Behind [`MOST_FAULTS`] everything is taken out.
pub(super) fn faults(shape: &Shape, value: &mut Value) -> Vec<Fault> {
    let mut walk = Walk { steps: Vec::new(), faults: Vec::new() };
    if !walk.fits(shape, value) {
        *value = blank(shape);
    }
    walk.faults
}

/// A step from a value to a part of it.
enum Step {
    Field(String),
    Index(usize),
}

/// Whether a mapping may have unknown fields.
#[derive(Clone, Copy, PartialEq)]
enum Unknown {
    Refused,
    Tolerated,
}

struct Walk {
    steps: Vec<Step>,
    faults: Vec<Fault>,
}

impl Walk {
    /// Compares a value with its shape. What is wrong below it is taken out; `false` means that it is wrong itself.
    fn fits(&mut self, shape: &Shape, value: &mut Value) -> bool {
        if self.is_full() {
            return false;
        }
        match (shape, &mut *value) {
            (Shape::Fields(fields), Value::Object(object)) => {
                self.fields(fields, object);
                true
            }
            (Shape::Map(shape), Value::Object(object)) => {
                object.retain(|name, value| self.part(Step::Field(name.clone()), shape, value));
                true
            }
            (Shape::List(shape), Value::Array(elements)) => {
                self.elements(shape, elements);
                true
            }
            _ => match scalar_problem(shape, value) {
                None => true,
                Some(Problem { code, message, instead }) => {
                    self.push(Fault::new(self.path(), code, message).instead(instead));
                    false
                }
            },
        }
    }

    /// Whether the object is refused for enough.
    fn is_full(&self) -> bool {
        self.faults.len() >= MOST_FAULTS
    }

    fn part(&mut self, step: Step, shape: &Shape, value: &mut Value) -> bool {
        self.steps.push(step);
        let fits = self.fits(shape, value);
        self.steps.pop();
        fits
    }

    fn elements(&mut self, shape: &Shape, elements: &mut [Value]) {
        for (index, element) in elements.iter_mut().enumerate() {
            // An element that is wrong keeps its place, so that the ones behind it keep their paths.
            if !self.part(Step::Index(index), shape, element) {
                *element = blank(shape);
            }
        }
    }

    fn fields(&mut self, fields: &BTreeMap<String, Field>, object: &mut Map<String, Value>) {
        let unknown = match self.steps.first() {
            Some(Step::Field(first)) if first == "status" => Unknown::Tolerated,
            _ => Unknown::Refused,
        };
        object.retain(|name, value| match fields.get(name) {
            // To Kubernetes a null is a field that is not there.
            Some(_) if value.is_null() => false,
            Some(field) => self.part(Step::Field(name.clone()), &field.shape, value),
            None => {
                if unknown == Unknown::Refused && !self.is_full() {
                    self.unknown(name, fields);
                }
                false
            }
        });
        for (name, field) in fields {
            // A field that was there and wrong has its fault already.
            if field.required && !object.contains_key(name) && !self.has_fault_at(name) {
                self.steps.push(Step::Field(name.clone()));
                let missing = Fault::new(self.path(), FaultCode::Required, "this must be there");
                self.push(missing.instead(format!("add it: `{name}: {}`", message::example(&field.shape))));
                self.steps.pop();
            }
        }
    }

    fn unknown(&mut self, name: &str, fields: &BTreeMap<String, Field>) {
        self.steps.push(Step::Field(name.to_owned()));
        let fault = Fault::new(self.path(), FaultCode::UnknownField, "there is no such field");
        self.push(fault.instead(message::instead_of_unknown(name, fields)));
        self.steps.pop();
    }

    fn has_fault_at(&self, name: &str) -> bool {
        let at = self.path().child(name);
        self.faults.iter().any(|fault| fault.path == at)
    }

    fn path(&self) -> FieldPath {
        self.steps.iter().fold(FieldPath::root(), |path, step| match step {
            Step::Field(name) => path.child(name),
            Step::Index(index) => path.index(*index),
        })
    }

    /// KubeVirt 1.9 spells the field of a structural fault without list indices.
    fn push(&mut self, fault: Fault) {
        if self.is_full() {
            return;
        }
        let names = self.steps.iter().filter_map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            Step::Index(_) => None,
        });
        let spelling = names.collect::<Vec<_>>().join(".");
        self.faults.push(fault.field(spelling));
    }
}

/// What is wrong with one value.
struct Problem {
    code: FaultCode,
    message: String,
    instead: String,
}

impl Problem {
    fn new(code: FaultCode, message: String, instead: impl Into<String>) -> Option<Self> {
        Some(Self { code, message, instead: instead.into() })
    }
}

fn scalar_problem(shape: &Shape, value: &Value) -> Option<Problem> {
    match (shape, value) {
        (Shape::Any, _)
        | (Shape::Flag, Value::Bool(_))
        | (Shape::Number, Value::Number(_))
        | (Shape::NumberOrText, Value::String(_)) => None,
        (Shape::Text(values), Value::String(text)) => not_listed(values, text),
        (Shape::Quantity, Value::String(_) | Value::Number(_)) => quantity_problem(value),
        (Shape::Whole(low, high), Value::Number(number)) => {
            let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
            range_problem(value, whole, *low..=*high)
        }
        (Shape::NumberOrText, Value::Number(number)) => {
            range_problem(value, number.as_i64().map(i128::from), i128::from(i32::MIN)..=i128::from(i32::MAX))
        }
        (Shape::Time, Value::String(text)) if text.parse::<jiff::Timestamp>().is_ok() => None,
        (Shape::Time, Value::String(_)) => Problem::new(
            FaultCode::Invalid,
            format!("{} is not a moment in time", message::shown(value)),
            "write one such as `2026-08-22T10:00:00Z`",
        ),
        (Shape::Bytes, Value::String(text)) => {
            use base64::Engine as _;
            match base64::engine::general_purpose::STANDARD.decode(text) {
                Ok(_) => None,
                Err(error) => Problem::new(
                    FaultCode::Invalid,
                    format!("this is not base64: {error}"),
                    "encode it, or write plain text under `stringData`",
                ),
            }
        }
        _ => Problem::new(
            FaultCode::WrongType,
            format!("{} stands where {} belongs", message::shown(value), message::expected(shape)),
            message::instead_of_wrong_type(shape, value),
        ),
    }
}

fn not_listed(known: &[String], text: &str) -> Option<Problem> {
    if known.is_empty() || text.is_empty() || known.iter().any(|value| value == text) {
        return None;
    }
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    Problem::new(
        FaultCode::NotSupported,
        format!("{} is not a permitted value", message::shown(&Value::from(text))),
        one_of(text, &known),
    )
}

fn quantity_problem(value: &Value) -> Option<Problem> {
    let error = match value.as_str() {
        Some(text) => text.parse::<Quantity>().err()?.to_string(),
        None => serde_json::from_value::<Quantity>(value.clone()).err()?.to_string(),
    };
    Problem::new(
        FaultCode::Invalid,
        format!("{} is not a quantity: {error}", message::shown(value)),
        "write a number with its unit, such as `512Mi`",
    )
}

fn range_problem(value: &Value, number: Option<i128>, range: RangeInclusive<i128>) -> Option<Problem> {
    match number {
        None => Problem::new(
            FaultCode::WrongType,
            format!("{} is not a whole number", message::shown(value)),
            "write a whole number",
        ),
        Some(number) if range.contains(&number) => None,
        Some(_) => Problem::new(
            FaultCode::Invalid,
            format!("{} is out of range", message::shown(value)),
            format!("write a number from {} to {}", range.start(), range.end()),
        ),
    }
}

/// An empty value of the shape.
fn blank(shape: &Shape) -> Value {
    match shape {
        Shape::Fields(_) | Shape::Map(_) => Value::Object(Map::new()),
        Shape::List(_) => Value::Array(Vec::new()),
        Shape::Text(_) | Shape::Bytes => Value::from(""),
        Shape::Time => Value::from("1970-01-01T00:00:00Z"),
        Shape::Whole(..) | Shape::Number | Shape::NumberOrText | Shape::Quantity => Value::from(0),
        Shape::Flag => Value::Bool(false),
        Shape::Any => Value::Null,
    }
}
