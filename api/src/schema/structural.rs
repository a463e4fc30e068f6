//! From the schema of a Rust type to a structural schema: every reference replaced by what it refers to, no null types, no
//! defaults, and the permitted values of Kubernetes' types added.

use schemars::JsonSchema;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value};

use super::core_enums::CORE_ENUMS;
use crate::quantity::QUANTITY_PATTERN;

const REFERENCE: &str = "#/$defs/";

/// What is to become of descriptions: they are nine tenths of a schema.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Descriptions {
    /// Kept, for people.
    Kept,
    /// Left out, for a comparison.
    LeftOut,
}

/// The structural schema of a type.
pub(super) fn structural<T: JsonSchema>(descriptions: Descriptions) -> Value {
    // What is written always, though it may be left out when reading, is what the schema of KubeVirt requires.
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.contract = Contract::Serialize;
        settings.meta_schema = None;
        settings.transforms = Vec::new();
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let definitions = schema["$defs"].take();
    let mut definitions = if let Value::Object(definitions) = definitions { definitions } else { Map::new() };
    add_values(&mut definitions);
    complete(&mut definitions);
    Resolution { definitions, descriptions }.resolved(&schema)
}

fn add_values(definitions: &mut Map<String, Value>) {
    for entry in CORE_ENUMS {
        let field = definitions
            .get_mut(entry.definition)
            .and_then(|definition| definition.get_mut("properties"))
            .and_then(|properties| properties.get_mut(entry.field))
            .and_then(Value::as_object_mut);
        if let Some(field) = field {
            field.insert("enum".to_owned(), Value::from(entry.values));
        }
    }
}

/// Adds to two types of Kubernetes what their schemas leave to their descriptions.
fn complete(definitions: &mut Map<String, Value>) {
    for (name, statement, value) in [
        ("io.k8s.apimachinery.pkg.api.resource.Quantity", "pattern", Value::from(QUANTITY_PATTERN)),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "x-kubernetes-preserve-unknown-fields", Value::Bool(true)),
    ] {
        if let Some(definition) = definitions.get_mut(name).and_then(Value::as_object_mut) {
            definition.insert(statement.to_owned(), value);
        }
    }
}

/// What a schema's references lead to.
struct Resolution {
    definitions: Map<String, Value>,
    descriptions: Descriptions,
}

impl Resolution {
    fn resolved(&self, schema: &Value) -> Value {
        let Value::Object(schema) = schema else { return schema.clone() };
        if let Some(of_option) = schema.get("anyOf").and_then(|choices| only_choice(choices)) {
            return self.overlaid(self.resolved(of_option), schema);
        }
        match schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix(REFERENCE)) {
            Some(name) => {
                let target = self.definitions.get(name).map_or(Value::Null, |target| self.resolved(target));
                self.overlaid(target, schema)
            }
            None => Value::Object(self.own(schema)),
        }
    }

    /// What stands beside a reference (a description) goes over what the reference stands for.
    fn overlaid(&self, target: Value, beside: &Map<String, Value>) -> Value {
        let mut merged = if let Value::Object(target) = target { target } else { Map::new() };
        merged.extend(self.own(beside));
        Value::Object(merged)
    }

    /// The schema's own statements, without references and what Kubernetes does not know.
    fn own(&self, schema: &Map<String, Value>) -> Map<String, Value> {
        let mut own = Map::new();
        for (key, value) in schema {
            let value = match (key.as_str(), value) {
                ("$ref" | "anyOf" | "$defs" | "$schema" | "default" | "title", _) => continue,
                ("description", _) if self.descriptions == Descriptions::LeftOut => continue,
                ("type", Value::Array(types)) => not_null(types),
                ("properties", Value::Object(fields)) => fields
                    .iter()
                    .map(|(name, field)| (name.clone(), self.resolved(field)))
                    .collect::<Map<_, _>>()
                    .into(),
                ("items" | "additionalProperties", nested) => self.resolved(nested),
                _ => value.clone(),
            };
            own.insert(key.clone(), value);
        }
        // Kubernetes' formats of integers are signed; limits are for those that are not.
        match own.get("format").and_then(Value::as_str) {
            Some("uint32") => {
                own.insert("maximum".to_owned(), Value::from(u32::MAX));
                own.insert("format".to_owned(), Value::from("int64"));
            }
            // Its limit is that of the format and must not be written: the API server reads limits as floating-point
            // numbers, 2⁶³−1 becomes 2⁶³, and then it refuses every object that has the field.
            Some("uint64") => drop(own.insert("format".to_owned(), Value::from("int64"))),
            _ => {}
        }
        own
    }
}

/// The other choice of "this or null": schemars' form of an optional value.
fn only_choice(choices: &Value) -> Option<&Value> {
    let choices = choices.as_array()?;
    let mut real = choices.iter().filter(|choice| choice.get("type").and_then(Value::as_str) != Some("null"));
    let first = real.next()?;
    real.next().is_none().then_some(first)
}

fn not_null(types: &[Value]) -> Value {
    types.iter().find(|each| each.as_str() != Some("null")).cloned().unwrap_or(Value::Null)
}
