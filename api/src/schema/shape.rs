//! A schema in the form in which a manifest is compared with it: only what the comparison needs.

use std::collections::BTreeMap;

use serde_json::Value;

/// What may stand somewhere.
#[derive(Debug)]
pub(super) enum Shape {
    /// A mapping with these fields.
    Fields(BTreeMap<String, Field>),
    /// A mapping of any names to values of one shape.
    Map(Box<Shape>),
    /// A list of values of one shape.
    List(Box<Shape>),
    /// A text; if values are listed, one of them.
    Text(Vec<String>),
    /// A text that is a moment in time.
    Time,
    /// A text that is bytes in base64.
    Bytes,
    /// A whole number between two others, both included.
    Whole(i128, i128),
    /// A number.
    Number,
    /// True or false.
    Flag,
    /// An amount with a unit.
    Quantity,
    /// A number or a name, such as a port.
    NumberOrText,
    /// Anything at all.
    Any,
}

/// A field of a mapping.
#[derive(Debug)]
pub(super) struct Field {
    /// What may stand there.
    pub(super) shape: Shape,
    /// Whether it must be there.
    pub(super) required: bool,
}

impl Shape {
    /// The shape a structural schema describes.
    pub(super) fn of(schema: &Value) -> Self {
        if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
            // Of the two types that are "a number or a text", only quantities have a pattern.
            return if schema.get("pattern").is_some() { Self::Quantity } else { Self::NumberOrText };
        }
        let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
        match (text("type"), text("format")) {
            ("object", _) => Self::mapping(schema),
            ("array", _) => Self::List(Box::new(schema.get("items").map_or(Self::Any, Self::of))),
            ("string", "date-time") => Self::Time,
            ("string", "byte") => Self::Bytes,
            ("string", _) => Self::Text(texts(schema.get("enum"))),
            ("boolean", _) => Self::Flag,
            ("number", _) => Self::Number,
            ("integer", format) => Self::whole(schema, format),
            _ => Self::Any,
        }
    }

    fn mapping(schema: &Value) -> Self {
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            return Self::Map(Box::new(Self::of(values)));
        }
        if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
            return Self::Any;
        }
        let required = texts(schema.get("required"));
        let Some(fields) = schema.get("properties").and_then(Value::as_object) else {
            return Self::Fields(BTreeMap::new());
        };
        let field = |(name, schema): (&String, &Value)| {
            let shape = Self::of(schema);
            let required = required.contains(name) && !shape.is_scalar();
            (name.clone(), Field { shape, required })
        };
        Self::Fields(fields.iter().map(field).collect())
    }

    fn whole(schema: &Value, format: &str) -> Self {
        let limit = |key: &str| schema.get(key).and_then(Value::as_i64).map(i128::from);
        let (low, high) = match format {
            "int32" => (i128::from(i32::MIN), i128::from(i32::MAX)),
            _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
        };
        Self::Whole(limit("minimum").unwrap_or(low), limit("maximum").unwrap_or(high))
    }

    /// Whether the value is one text or number, which KubeVirt decodes as empty if it is missing.
    fn is_scalar(&self) -> bool {
        match self {
            Self::Fields(_) | Self::Map(_) | Self::List(_) => false,
            Self::Text(_)
            | Self::Time
            | Self::Bytes
            | Self::Whole(..)
            | Self::Number
            | Self::Flag
            | Self::Quantity
            | Self::NumberOrText
            | Self::Any => true,
        }
    }
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|each| each.as_str().map(str::to_owned)).collect()
}
