//! Our schema compared with the published one of KubeVirt, field by field: the same fields, types, requirements and permitted values.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "the whole file is a test")]

mod corpus;

use std::collections::BTreeMap;

use garboard_api::fields::OURS;
use garboard_api::kind::Kind;
use garboard_api::schema::json_schema;
use serde_json::Value;

/// The properties of one field.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// `string`, `integer:int64`, `object`, `map of string`…
    of_type: String,
    required: bool,
    values: Vec<String>,
}

type Rows = BTreeMap<String, Row>;

#[test]
fn every_field_of_a_virtual_machine_is_there_and_no_other() {
    agree(Kind::VirtualMachine);
}

#[test]
fn every_field_of_an_instance_is_there_and_no_other() {
    agree(Kind::VirtualMachineInstance);
}

#[test]
fn every_field_of_instancetypes_and_preferences_is_there_and_no_other() {
    agree(Kind::VirtualMachineInstancetype);
    agree(Kind::VirtualMachinePreference);
}

#[test]
fn every_field_of_a_replica_set_is_there_and_no_other() {
    agree(Kind::ReplicaSet);
}

#[test]
fn every_field_of_a_preset_is_there_and_no_other() {
    agree(Kind::Preset);
}

#[test]
fn every_field_of_a_pool_is_there_and_no_other() {
    agree(Kind::Pool);
}

fn agree(kind: Kind) {
    let published = published(kind);
    let ours = ours(kind, &published);
    let mut differences = Vec::new();
    for (path, row) in &published {
        match ours.get(path) {
            None => differences.push(format!("{path}: we do not have it")),
            Some(our) if our != row => differences.push(format!("{path}: KubeVirt has {row:?}, we have {our:?}")),
            Some(_) => {}
        }
    }
    let listed: Vec<&str> = OURS.iter().filter(|(of, _)| *of == kind.name()).map(|(_, path)| *path).collect();
    let unknown = ours.keys().filter(|path| !published.contains_key(*path) && !listed.contains(&path.as_str()));
    differences.extend(unknown.map(|path| format!("{path}: only ours, and not in api/src/fields/ours.rs")));
    let stale = listed.iter().filter(|path| published.contains_key(**path) || !ours.contains_key(**path));
    differences.extend(stale.map(|path| format!("{path}: is in api/src/fields/ours.rs and is no field of ours alone")));
    eprintln!("{} fields of {}, {} differ", published.len(), kind.name(), differences.len());
    assert_eq!(differences, Vec::<String>::new());
}

/// The rows of the published schema. Types that are mappings with rows below them become `object`.
fn published(kind: Kind) -> Rows {
    let wanted = format!("{}.{}", corpus::version_of(kind.name()), kind.name());
    let file = corpus::text("fields.tsv");
    let cells = file.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    cells
        .filter(|cells| cells[0] == wanted)
        .map(|cells| {
            let values = cells.get(4).filter(|values| !values.is_empty());
            let row = Row {
                of_type: plain_type(cells[2]),
                required: cells.get(3) == Some(&"required"),
                values: values.map_or_else(Vec::new, |values| values.split(',').map(str::to_owned).collect()),
            };
            (cells[1].to_owned(), row)
        })
        .collect()
}

/// A published type by the names of a schema. Kubernetes' own types have no rows below them: `kubernetes`.
fn plain_type(published: &str) -> String {
    if let Some(values) = published.strip_prefix("map of ") {
        return format!("map of {}", plain_type(values));
    }
    match published {
        "string" | "boolean" | "integer:int32" | "integer:int64" | "object" => published.to_owned(),
        "string|null" => "time".to_owned(),
        name if name.ends_with("resource.Quantity") => "quantity".to_owned(),
        name if name.ends_with("meta.v1.Time") => "time".to_owned(),
        name if name.ends_with("meta.v1.Duration") => "string".to_owned(),
        name if name.ends_with("intstr.IntOrString") => "number or text".to_owned(),
        name if name.starts_with("v1.") || name.starts_with("v1beta1.") => "object".to_owned(),
        name if name.contains("apimachinery.pkg") || name.starts_with("api.core") => "kubernetes".to_owned(),
        other => panic!("unknown type {other}"),
    }
}

fn ours(kind: Kind, published: &Rows) -> Rows {
    let schema = json_schema(kind).unwrap();
    let mut rows = Rows::new();
    collect("", &schema, published, &mut rows);
    for of_every_kind in ["apiVersion", "kind", "metadata"] {
        rows.remove(of_every_kind).unwrap();
    }
    rows
}

fn collect(path: &str, schema: &Value, published: &Rows, rows: &mut Rows) {
    let Some(fields) = schema["properties"].as_object() else { return };
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in fields {
        let (field, suffix) = if field["type"] == "array" { (&field["items"], "[]") } else { (field, "") };
        let at = if path.is_empty() { format!("{name}{suffix}") } else { format!("{path}.{name}{suffix}") };
        let values: Vec<String> = field_values(schema, name)
            .into_iter()
            .flatten()
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect();
        let of_type = type_of(field, published.get(&at));
        // The template is listed once, with the instance.
        let goes_on = of_type == "object"
            && at != "spec.template.spec"
            && published.keys().any(|row| row.starts_with(&format!("{at}.")));
        rows.insert(at.clone(), Row { of_type, required: required.contains(&name.as_str()), values });
        if goes_on {
            collect(&at, field, published, rows);
        }
    }
}

fn field_values<'a>(schema: &'a Value, name: &str) -> Option<&'a Vec<Value>> {
    schema["properties"][name]["enum"].as_array()
}

fn type_of(field: &Value, published: Option<&Row>) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        // Only quantities have a pattern.
        return if field["pattern"].is_string() { "quantity" } else { "number or text" }.to_owned();
    }
    let of_type = field["type"].as_str().unwrap_or_default();
    let format = field["format"].as_str().unwrap_or_default();
    match (of_type, format) {
        ("string", "date-time") => "time".to_owned(),
        // Go's `uint` and `uint32` are published with different formats; ours are both "64 bits, from 0 to 2³²−1".
        ("integer", "int64")
            if field["minimum"] == 0 && published.is_some_and(|row| row.of_type == "integer:int32") =>
        {
            "integer:int32".to_owned()
        }
        ("integer", format) => format!("integer:{format}"),
        ("object", _) if field["additionalProperties"].is_object() => {
            format!("map of {}", type_of(&field["additionalProperties"], None))
        }
        ("object", _) if published.is_some_and(|row| row.of_type == "kubernetes") => "kubernetes".to_owned(),
        (other, _) => other.to_owned(),
    }
}
