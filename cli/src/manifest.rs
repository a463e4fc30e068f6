//! Reading manifests: files, directories and standard input to documents, each with where it came from.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use garboard_api::metadata::DEFAULT_NAMESPACE;
use garboard_api::versions::to_stored;
use serde_json::Value;

use crate::exit::{BAD_INPUT, exit_error};
use garboard_kubectl::yaml;

/// A manifest larger than this is not read: etcd takes no object over 1.5 MiB.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// One document of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document {
    /// The file, with the number of the document if it holds several.
    pub(crate) origin: String,
    /// Its content.
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
        self.value["metadata"]["namespace"].as_str().unwrap_or(DEFAULT_NAMESPACE)
    }

    /// Whether it is a machine: a VirtualMachine or VirtualMachineInstance of `kubevirt.io`.
    pub(crate) fn is_machine(&self) -> bool {
        matches!(self.kind(), "VirtualMachine" | "VirtualMachineInstance")
    }

    /// Whether it is something that machines name.
    pub(crate) fn is_given_to_machines(&self) -> bool {
        matches!(self.kind(), "Secret" | "ConfigMap" | "PersistentVolumeClaim" | "PersistentVolume")
    }
}

/// Reads every document of every path. All unreadable ones are reported at once.
pub(crate) fn load(paths: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
    let (documents, problems) = load_what_can_be(paths);
    if problems.is_empty() { Ok(documents) } else { Err(exit_error(BAD_INPUT, problems.join("\n"))) }
}

/// Reads what can be read; beside it one message for each file that cannot.
pub(crate) fn load_what_can_be(paths: &[PathBuf]) -> (Vec<Document>, Vec<String>) {
    let mut documents = Vec::new();
    let mut problems = Vec::new();
    for path in paths {
        let files = files_of(path).unwrap_or_else(|error| {
            problems.push(format!("{error:#}"));
            Vec::new()
        });
        for file in files {
            match read(&file) {
                Ok(read) => documents.extend(read),
                Err(error) => problems.push(format!("{error:#}")),
            }
        }
    }
    (documents, problems)
}

/// A directory stands for the manifests directly in it, sorted by name.
fn files_of(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if path.as_os_str() == "-" || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries =
        std::fs::read_dir(path).with_context(|| format!("could not read the directory {}", path.display()))?;
    let is_manifest = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_manifest).collect();
    files.sort();
    if files.is_empty() {
        anyhow::bail!("{} holds no .yaml, .yml or .json file; name the files themselves", path.display());
    }
    Ok(files)
}

fn read(path: &Path) -> anyhow::Result<Vec<Document>> {
    let mut text = String::new();
    // One byte more than the limit, to see that there is more.
    let (origin, read) = if path.as_os_str() == "-" {
        ("standard input".to_owned(), std::io::stdin().take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
    } else {
        let origin = path.display().to_string();
        let file = std::fs::File::open(path).with_context(|| format!("could not open {origin}"))?;
        (origin, file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
    };
    let bytes = read.with_context(|| format!("could not read {origin} as text"))?;
    if u64::try_from(bytes).is_ok_and(|bytes| bytes > MAX_FILE_BYTES) {
        anyhow::bail!("{origin} is larger than {} MiB; split it into several files", MAX_FILE_BYTES >> 20);
    }
    parse(&origin, &text)
}

/// Splits a YAML stream (JSON is YAML too) into documents; lists of kind `List` into their items.
pub(crate) fn parse(origin: &str, text: &str) -> anyhow::Result<Vec<Document>> {
    let values =
        yaml::read(text).map_err(|error| anyhow::anyhow!("{origin} is not valid YAML: {error}; correct it there"))?;
    let several = values.len() > 1;
    let mut documents = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        let origin = if several { format!("{origin}#{}", index + 1) } else { origin.to_owned() };
        match &value {
            Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                anyhow::bail!("{origin} holds no object; write one that begins with apiVersion, kind and metadata")
            }
            Value::Object(object) if object.get("kind").and_then(Value::as_str) == Some("List") => {
                let items = value["items"].as_array().into_iter().flatten();
                for item in items {
                    documents.push(document(&origin, item.clone())?);
                }
            }
            Value::Object(_) => documents.push(document(&origin, value)?),
        }
    }
    Ok(documents)
}

/// One object, in the stored version of its kind.
fn document(origin: &str, value: Value) -> anyhow::Result<Document> {
    let value = to_stored(value).map_err(|error| anyhow::anyhow!("{origin}: {error}"))?;
    Ok(Document { origin: origin.to_owned(), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_of_an_older_version_is_read_as_one_of_the_stored_one() {
        let old = "apiVersion: kubevirt.io/v1alpha2\nkind: VirtualMachineInstance\nmetadata: {name: a}\n\
                   spec: {domain: {devices: {disks: [{name: d, volumeName: v}]}}, volumes: [{name: v, registryDisk: {image: i}}]}\n";
        let documents = parse("old.yaml", old).unwrap();
        assert_eq!(documents[0].value["apiVersion"], "kubevirt.io/v1");
        assert_eq!(documents[0].value["spec"]["domain"]["devices"]["disks"][0]["name"], "v");
        assert_eq!(documents[0].value["spec"]["volumes"][0]["containerDisk"]["image"], "i");
    }

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
    fn nesting_without_end_is_refused_before_it_takes_time() {
        let error = parse("deep.yaml", &"[".repeat(1_000_000)).unwrap_err().to_string();
        assert!(error.contains("deep.yaml") && error.contains("flatter"), "{error}");
        assert!(parse("flat.yaml", &format!("kind: A\ntext: '{}'", "[] {} ".repeat(5000))).is_ok());
    }

    #[test]
    fn what_is_no_object_is_refused_by_file() {
        for text in ["- kind: VirtualMachine", "VirtualMachine", "7"] {
            let error = parse("list.yaml", text).unwrap_err().to_string();
            assert!(error.contains("list.yaml") && error.contains("apiVersion"), "{error}");
        }
    }

    #[test]
    fn one_broken_file_does_not_hide_the_others_of_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [("a.yaml", "a: ["), ("b.yaml", "kind: Secret"), ("c.yaml", "c: {")] {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let (documents, problems) = load_what_can_be(&[directory.path().to_owned()]);
        assert_eq!(documents.iter().map(Document::kind).collect::<Vec<_>>(), ["Secret"]);
        assert!(problems[0].contains("a.yaml") && problems[1].contains("c.yaml"), "{problems:?}");
    }

    #[test]
    fn a_file_of_which_only_a_part_would_be_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("huge.yaml");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(MAX_FILE_BYTES + 1).unwrap();
        let error = load(&[path]).unwrap_err().to_string();
        assert!(error.contains("huge.yaml") && error.contains("16 MiB"), "{error}");
    }

    #[test]
    fn every_unreadable_file_is_reported_at_once() {
        let error = load(&["/nowhere/a.yaml".into(), "/nowhere/b.yaml".into()]).unwrap_err().to_string();
        assert!(error.contains("a.yaml") && error.contains("b.yaml"), "{error}");
    }
}
