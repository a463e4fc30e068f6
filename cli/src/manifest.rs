//! Reading manifests: files, directories and standard input to documents, each with where it came from.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

use crate::exit::{BAD_INPUT, complaint};

/// A manifest larger than this is not read: etcd takes no object over 1.5 MiB.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// One document of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document {
    /// The file, with the number of the document if it holds several.
    pub(crate) origin: String,
    /// What it says.
    pub(crate) value: Value,
}

impl Document {
    /// The object's kind.
    pub(crate) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    /// The object's name.
    pub(crate) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The object's namespace, `default` if it names none.
    pub(crate) fn namespace(&self) -> &str {
        self.value["metadata"]["namespace"].as_str().unwrap_or("default")
    }

    /// Whether it is a machine: a VirtualMachine or VirtualMachineInstance of `kubevirt.io`.
    pub(crate) fn is_machine(&self) -> bool {
        matches!(self.kind(), "VirtualMachine" | "VirtualMachineInstance")
    }
}

/// Reads every document of every path. All unreadable ones are told at once.
pub(crate) fn load(paths: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    let mut problems = Vec::new();
    for path in paths {
        match files_of(path).and_then(|files| files.iter().map(|file| read(file)).collect::<anyhow::Result<Vec<_>>>()) {
            Ok(read) => documents.extend(read.into_iter().flatten()),
            Err(error) => problems.push(format!("{error:#}")),
        }
    }
    if problems.is_empty() { Ok(documents) } else { Err(complaint(BAD_INPUT, problems.join("\n"))) }
}

/// A directory stands for the manifests directly in it, sorted by name.
fn files_of(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if path.as_os_str() == "-" || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).with_context(|| format!("read directory {}", path.display()))?;
    let is_manifest = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_manifest).collect();
    files.sort();
    if files.is_empty() {
        anyhow::bail!("{} holds no .yaml, .yml or .json file", path.display());
    }
    Ok(files)
}

fn read(path: &Path) -> anyhow::Result<Vec<Document>> {
    let mut text = String::new();
    let (origin, read) = if path.as_os_str() == "-" {
        ("standard input".to_owned(), std::io::stdin().take(MAX_FILE_BYTES).read_to_string(&mut text))
    } else {
        let origin = path.display().to_string();
        let file = std::fs::File::open(path).with_context(|| format!("open {origin}"))?;
        (origin, file.take(MAX_FILE_BYTES).read_to_string(&mut text))
    };
    read.with_context(|| format!("read {origin}"))?;
    parse(&origin, &text)
}

/// Splits a YAML stream (JSON is YAML too) into documents; lists of kind `List` into their items.
pub(crate) fn parse(origin: &str, text: &str) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    let mut values = Vec::new();
    // One after the other: behind a syntax error the stream never ends, it repeats the error.
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        values.push(Value::deserialize(document).with_context(|| format!("{origin} is not valid YAML"))?);
    }
    let several = values.len() > 1;
    for (index, value) in values.into_iter().enumerate() {
        let origin = if several { format!("{origin}#{}", index + 1) } else { origin.to_owned() };
        match &value {
            Value::Null => {}
            Value::Object(object) if object.get("kind").and_then(Value::as_str) == Some("List") => {
                let items = value["items"].as_array().into_iter().flatten();
                documents.extend(items.map(|item| Document { origin: origin.clone(), value: item.clone() }));
            }
            _ => documents.push(Document { origin, value }),
        }
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_documents_is_split_and_empty_ones_skipped() {
        let documents =
            parse("x.yaml", "---\nkind: A\n---\n\n---\nkind: List\nitems: [{kind: B}, {kind: C}]\n").unwrap();
        let kinds: Vec<&str> = documents.iter().map(Document::kind).collect();
        assert_eq!(kinds, ["A", "B", "C"]);
        assert_eq!(documents[0].namespace(), "default");
    }

    #[test]
    fn broken_yaml_names_its_file() {
        let error = parse("broken.yaml", "a: [").unwrap_err();
        assert!(format!("{error:#}").contains("broken.yaml"), "{error:#}");
    }

    #[test]
    fn every_unreadable_file_is_told_at_once() {
        let error = load(&["/nowhere/a.yaml".into(), "/nowhere/b.yaml".into()]).unwrap_err().to_string();
        assert!(error.contains("a.yaml") && error.contains("b.yaml"), "{error}");
    }
}
