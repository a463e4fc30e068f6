//! What is installed: deploy/garboard.yaml, which is part of this program, with the images and switches that were asked
//! for. Pure.

use serde_json::{Value, json};

const ALL: &str = include_str!("../../../deploy/garboard.yaml");
/// This release; the manifest names its images.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The label that our definitions have, and KubeVirt's have not.
pub(crate) const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "garboard");

/// Why the manifest cannot be made; only a mistake in the build brings this about.
#[derive(Debug, thiserror::Error)]
#[error("the manifest in this program cannot be read: {0}")]
pub(crate) struct Broken(String);

/// Images and switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The controller's image.
    pub(crate) controller: String,
    /// The node agent's.
    pub(crate) node: String,
    /// That of launcher pods.
    pub(crate) launcher: String,
    /// Whether vCPUs are interpreted where there is no KVM.
    pub(crate) emulation: bool,
}

impl Choice {
    /// As the manifest has it.
    pub(crate) fn plain() -> Self {
        let image = |name: &str| format!("garboard/{name}:{VERSION}");
        Self { controller: image("controller"), node: image("node"), launcher: image("launcher"), emulation: false }
    }
}

/// One object of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// `GROUP/VERSION`, or `VERSION`.
    pub(crate) api_version: String,
    /// Its kind.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: String,
    /// Its namespace, if it is in one.
    pub(crate) namespace: Option<String>,
    /// All of it.
    pub(crate) text: String,
}

impl Object {
    fn read(text: &str) -> Option<Self> {
        let top = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned());
        let metadata: Vec<&str> = text
            .lines()
            .skip_while(|line| *line != "metadata:")
            .skip(1)
            .take_while(|line| line.starts_with(' '))
            .collect();
        let field =
            |key: &str| metadata.iter().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned());
        Some(Self {
            api_version: top("apiVersion:")?,
            kind: top("kind:")?,
            name: field("  name:")?,
            namespace: field("  namespace:"),
            text: text.to_owned(),
        })
    }

    /// The resource as `kubectl auth can-i` and `kubectl get` know it: plural, with its group.
    pub(crate) fn resource(&self) -> String {
        let kind = self.kind.to_lowercase();
        let plural = match kind.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None if kind.ends_with('s') => format!("{kind}es"),
            None => format!("{kind}s"),
        };
        match self.api_version.split_once('/') {
            Some((group, _)) => format!("{plural}.{group}"),
            None => plural,
        }
    }

    /// Whether it defines a kind.
    pub(crate) fn is_definition(&self) -> bool {
        self.kind == "CustomResourceDefinition"
    }
}

/// Every object, in the order in which they are needed.
pub(crate) fn objects(choice: &Choice) -> Result<Vec<Object>, Broken> {
    let documents = ALL.split("\n---\n").filter(|text| text.lines().any(|line| line.starts_with("kind:")));
    documents
        .map(|text| {
            let object = Object::read(text).ok_or_else(|| Broken("an object without a kind or a name".to_owned()))?;
            match object.kind.as_str() {
                "Deployment" | "DaemonSet" => adapted(object, choice),
                _ => Ok(object),
            }
        })
        .collect()
}

/// The texts in one file again.
pub(crate) fn text<'a>(objects: impl Iterator<Item = &'a Object>) -> String {
    objects.map(|object| object.text.trim_end().to_owned() + "\n").collect::<Vec<_>>().join("---\n")
}

fn adapted(object: Object, choice: &Choice) -> Result<Object, Broken> {
    let mut value: Value = serde_yaml_ng::from_str(&object.text).map_err(|error| Broken(error.to_string()))?;
    let container = value
        .pointer_mut("/spec/template/spec/containers/0")
        .ok_or_else(|| Broken(format!("{} {} has no container", object.kind, object.name)))?;
    if object.kind == "DaemonSet" {
        container["image"] = json!(choice.node);
        // What QEMU offers is asked of the image that has it.
        let before = value.pointer_mut("/spec/template/spec/initContainers").and_then(Value::as_array_mut);
        for init in before.into_iter().flatten() {
            init["image"] = json!(choice.launcher);
        }
    } else {
        container["image"] = json!(choice.controller);
        let written = container["args"].as_array().cloned().unwrap_or_default();
        let kept = written.into_iter().filter(|each| !each.as_str().is_some_and(is_chosen));
        let mut arguments: Vec<Value> = kept.collect();
        arguments.push(json!(format!("--launcher-image={}", choice.launcher)));
        arguments.extend(choice.emulation.then(|| json!("--emulation")));
        container["args"] = Value::Array(arguments);
    }
    let text = serde_yaml_ng::to_string(&value).map_err(|error| Broken(error.to_string()))?;
    Ok(Object { text, ..object })
}

fn is_chosen(argument: &str) -> bool {
    argument.starts_with("--launcher-image=") || argument == "--emulation"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_there_and_has_a_name() {
        let objects = objects(&Choice::plain()).unwrap();
        let documents = serde_yaml_ng::Deserializer::from_str(ALL).count();
        assert_eq!(objects.len(), documents);
        assert_eq!(objects[0].kind, "Namespace");
        let resources: Vec<String> = objects.iter().map(Object::resource).collect();
        for resource in [
            "namespaces",
            "customresourcedefinitions.apiextensions.k8s.io",
            "priorityclasses.scheduling.k8s.io",
            "clusterroles.rbac.authorization.k8s.io",
            "validatingadmissionpolicies.admissionregistration.k8s.io",
            "deployments.apps",
            "poddisruptionbudgets.policy",
        ] {
            assert!(resources.iter().any(|each| each == resource), "{resource}");
        }
        let node = objects.iter().find(|object| object.kind == "DaemonSet").unwrap();
        assert_eq!((node.name.as_str(), node.namespace.as_deref()), (crate::operate::AGENT, Some("garboard")));
    }

    #[test]
    fn definitions_are_told_from_foreign_ones_by_a_label() {
        let objects = objects(&Choice::plain()).unwrap();
        let definitions: Vec<&Object> = objects.iter().filter(|object| object.is_definition()).collect();
        assert!(definitions.len() >= 2);
        let label = format!("    {}: {}\n", PART_OF.0, PART_OF.1);
        assert!(definitions.iter().all(|object| object.text.contains(&label)));
    }

    #[test]
    fn images_and_switches_are_where_the_programs_look() {
        let choice =
            Choice { controller: "r/c:1".into(), node: "r/n:1".into(), launcher: "r/l:1".into(), emulation: true };
        let all = text(objects(&choice).unwrap().iter());
        for part in ["image: r/c:1\n", "image: r/n:1\n", "- --launcher-image=r/l:1\n", "- --emulation\n"] {
            assert_eq!(all.matches(part).count(), 1, "{part}");
        }
        assert!(!all.contains("garboard/launcher:"));
        let plain = text(objects(&Choice::plain()).unwrap().iter());
        assert!(
            !plain.contains("--emulation") && plain.contains(&format!("--launcher-image=garboard/launcher:{VERSION}"))
        );
    }
}
