//! The table of fields against the published schema and the sources: every leaf has one line, and what is called read is read.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

mod corpus;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use garboard_api::fields::{ANNOTATIONS, Fate, OF_MACHINES, OURS, Setting, TABLES, Table, lines_at};
use garboard_api::kind::Kind;
use garboard_api::schema::json_schema;
use serde_json::Value;

/// Names that so many types have that finding one in a file proves nothing: the object they are in must be found as well.
const COMMON: &[&str] = &["action", "bus", "enabled", "model", "name", "path", "present", "readonly", "type"];

/// Leaves whose object the code has under another name, with that name: a value is passed along, not its whole object.
const RENAMED: &[(&str, &str)] = &[
    ("domain.devices.disks[].name", "disk"),
    ("domain.devices.disks[].cdrom.bus", "cdrom"),
    ("domain.devices.inputs[].bus", "input"),
    ("domain.devices.inputs[].name", "input"),
    ("domain.devices.inputs[].type", "input"),
    ("domain.devices.interfaces[].model", "interface"),
    ("domain.devices.interfaces[].name", "interface"),
    ("domain.devices.interfaces[].ports[].name", "port"),
    ("volumes[].name", "volume"),
];

/// The leaves of KubeVirt's schema, and the fields of ours beside it.
fn leaves(table: &Table) -> BTreeSet<String> {
    let kind = format!("{}.{}\t", corpus::version_of(table.kind), table.kind);
    let ours = OURS.iter().filter(|(kind, _)| *kind == table.kind).map(|(_, path)| (*path).to_owned());
    let all: Vec<String> = corpus::text("fields.tsv")
        .lines()
        .filter_map(|line| line.strip_prefix(&kind)?.split('\t').next().map(str::to_owned))
        .chain(ours)
        .filter_map(|path| path.strip_prefix(table.part)?.strip_prefix('.').map(str::to_owned))
        .collect();
    let is_leaf = |path: &String| !all.iter().any(|other| other.starts_with(&format!("{path}.")));
    all.iter().filter(|path| is_leaf(path)).cloned().collect()
}

/// The identifiers of a file, without its tests, as one writes them in a manifest but for case.
fn identifiers(file: &str) -> BTreeSet<String> {
    let path = PathBuf::from("..").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    let code: Vec<&str> =
        text.split("#[cfg(test)]\nmod tests {").next().unwrap().lines().filter(|line| !is_comment(line)).collect();
    let code = code.join("\n");
    code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .map(|name| name.replace('_', "").to_lowercase())
        .collect()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

#[test]
fn every_leaf_of_the_published_schema_has_one_line() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for table in TABLES {
        for leaf in leaves(&table) {
            seen += 1;
            let lines = lines_at(&table, &leaf);
            if lines.len() != 1 {
                let paths: Vec<String> = lines.into_iter().map(|(path, _)| path).collect();
                wrong.push(format!("{} {}.{leaf}: lines {paths:?}", table.kind, table.part));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(seen > 790, "only {seen} leaves");
}

#[test]
fn every_line_is_about_a_field_that_exists() {
    let mut wrong = Vec::new();
    for table in TABLES {
        let leaves: Vec<String> = leaves(&table).into_iter().map(|leaf| leaf.replace("[]", "")).collect();
        for path in table.all().flat_map(|line| line.paths()) {
            let plain = path.replace("[]", "");
            let below = format!("{plain}.");
            if !leaves.iter().any(|leaf| *leaf == plain || leaf.starts_with(&below)) {
                wrong.push(format!("{} {}.{path}", table.kind, table.part));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn what_is_called_read_is_read_by_that_file() {
    let mut wrong = Vec::new();
    let mut known: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for table in TABLES {
        for line in table.all() {
            for setting in [Setting::Cluster, Setting::BareHost] {
                let (Fate::Read(file) | Fate::Handed(file)) = line.fate(setting) else { continue };
                let names = known.entry(file).or_insert_with(|| identifiers(file));
                for path in line.paths() {
                    wrong.extend(missing(&path, names).map(|name| format!("{path}: {file} has no `{name}`")));
                }
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Of KubeVirt's settings our type has those that are read. One that the type lacks is accepted, dropped, and never read.
#[test]
fn a_setting_that_is_read_is_a_field_of_our_type() {
    let schema = json_schema(Kind::KubeVirt).unwrap();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for table in TABLES.iter().filter(|table| table.kind == Kind::KubeVirt.name()) {
        let read = table.all().filter(|line| matches!(line.fate(Setting::Cluster), Fate::Read(_) | Fate::Handed(_)));
        for path in read.flat_map(|line| line.paths()) {
            seen += 1;
            if !has(&schema["properties"][table.part], &path) {
                wrong.push(format!("{}.{path} is not in api/src/v1/kubevirt.rs", table.part));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(seen > 20, "only {seen} settings");
}

fn has(schema: &Value, path: &str) -> bool {
    let below = |schema: &'_ Value, step: &str| match step.strip_suffix("[]") {
        Some(list) => schema["properties"][list]["items"].clone(),
        None => schema["properties"][step].clone(),
    };
    !path.split('.').fold(schema.clone(), |schema, step| below(&schema, step)).is_null()
}

/// The name that a file that reads this field would have, and has not.
fn missing(path: &str, names: &BTreeSet<String>) -> Option<String> {
    let plain = path.replace("[]", "");
    let mut steps = plain.rsplit('.');
    let name = steps.next().unwrap();
    let holder = RENAMED.iter().find(|(renamed, _)| *renamed == path).map(|(_, holder)| *holder).or(steps.next());
    let holder = holder.filter(|_| COMMON.contains(&name));
    [Some(name), holder].into_iter().flatten().find(|name| !names.contains(&name.to_lowercase())).map(str::to_owned)
}

#[test]
fn only_a_name_is_taken_without_a_use() {
    for line in TABLES.iter().flat_map(Table::all) {
        let is_name = [Setting::Cluster, Setting::BareHost].iter().any(|setting| line.fate(*setting) == Fate::Name);
        assert!(!is_name || line.paths().all(|path| path.ends_with(".name")), "{line:?}");
    }
}

#[test]
fn what_a_line_covers_whole_is_refused_warned_of_handed_on_or_never_written() {
    let mut wrong = Vec::new();
    for table in TABLES {
        let leaves = leaves(&table);
        for line in table.all() {
            for path in line.paths() {
                let below = format!("{}.", path.replace("[]", ""));
                let covers_more = leaves.iter().any(|leaf| leaf.replace("[]", "").starts_with(&below));
                let is_read = [Setting::Cluster, Setting::BareHost]
                    .into_iter()
                    .any(|setting| matches!(line.fate(setting), Fate::Read(_)));
                if covers_more && is_read {
                    wrong.push(format!("{path} has fields of its own: list them"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The constant of `api/src/metadata.rs` that has this text.
fn constant_of(key: &str) -> Option<String> {
    let text = std::fs::read_to_string("src/metadata.rs").unwrap();
    let line = text.lines().find(|line| line.ends_with(&format!("= \"{key}\";")))?;
    line.trim().strip_prefix("pub const ")?.split_once(':').map(|(name, _)| format!("annotation::{name}"))
}

#[test]
fn annotations_that_are_called_read_are_read() {
    for annotation in ANNOTATIONS.iter().chain(OF_MACHINES) {
        let Fate::Read(file) = annotation.fate else { continue };
        let path = PathBuf::from("..").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let constant = constant_of(annotation.key).unwrap_or_else(|| panic!("{} has no constant", annotation.key));
        assert!(text.contains(&constant), "{}: {file} does not name {constant}", annotation.key);
    }
}

#[test]
fn every_annotation_of_ours_is_in_the_table() {
    let text = std::fs::read_to_string("src/metadata.rs").unwrap();
    let block = text.split_once("pub mod annotation {").unwrap().1.split_once("\n}").unwrap().0;
    let ours: Vec<&str> = block.split('"').filter(|each| each.starts_with("garboard.dev/")).collect();
    assert!(ours.len() >= 2, "{ours:?}");
    for key in ours {
        let is_there = ANNOTATIONS.iter().chain(OF_MACHINES).any(|annotation| annotation.key == key);
        assert!(is_there, "{key} has no line in src/fields/annotations.rs");
    }
}
