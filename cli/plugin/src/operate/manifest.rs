//! What is installed: deploy/garboard.yaml, which is part of this program, with the images and switches that were asked
//! for. Pure.

use serde_json::{Value, json};

use super::{DASHBOARD, NAMESPACE};
use crate::yaml;

const ALL: &str = include_str!("../../../../deploy/garboard.yaml");
/// What an installation may choose to have besides.
const OPTIONAL: &str = include_str!("../../../../deploy/base/dashboard.yaml");
/// The common instancetypes and preferences.
const CATALOGUE: &str = include_str!("../../../../deploy/common-instancetypes.yaml");
/// The dashboard's option for a name by which browsers reach it.
const HOST: &str = "--host=";
/// This version; the images that are installed are of it.
pub(crate) use crate::VERSION;
/// The registry in the names of images that are loaded on nodes. A pull policy of [`NEVER`] goes with it, so that a node
/// without them reports an error instead of pulling a privileged image from an unknown registry.
pub(crate) const REGISTRY: &str = "registry.garboard.dev";
/// The pull policy of images that are loaded.
pub(crate) const NEVER: &str = "Never";
/// The label that Garboard's definitions have, and KubeVirt's have not.
pub(crate) const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "garboard");

/// The label of objects that an installation has made beside Garboard, and that are not Garboard itself.
pub(crate) const MADE_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "garboard");
/// The label beside it with the object's own name. A copy that a user makes of one has both labels, and another name.
pub(crate) const MADE_AS: &str = "garboard.dev/made-as";

/// Why the manifest cannot be made; only a mistake in the build brings this about.
#[derive(Debug, thiserror::Error)]
#[error("the manifest in this program cannot be read: {0}")]
pub(crate) struct ManifestError(String);

/// Images and switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstallOptions {
    /// The controller's image.
    pub(crate) controller: String,
    /// The node agent's.
    pub(crate) node: String,
    /// That of launcher pods.
    pub(crate) launcher: String,
    /// When nodes pull them: `Always`, `IfNotPresent` or `Never`.
    pub(crate) pull_policy: String,
    /// The namespace of everything but machines.
    pub(crate) namespace: String,
    /// Whether vCPUs are interpreted where there is no KVM.
    pub(crate) emulation: bool,
    /// The dashboard, if it is wanted.
    pub(crate) dashboard: Option<DashboardOptions>,
}

/// How the dashboard is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DashboardOptions {
    /// Names by which browsers reach it, beside those of its Service and of a forwarded port.
    pub(crate) hosts: Vec<String>,
    /// An administrator's Secret with its certificate; without one the controller makes it.
    pub(crate) tls_secret: Option<String>,
}

impl DashboardOptions {
    /// As a deployment has it.
    pub(crate) fn of(deployment: &Value) -> Self {
        let pod = &deployment["spec"]["template"]["spec"];
        let arguments = pod["containers"][0]["args"].as_array();
        let hosts = arguments.into_iter().flatten().filter_map(|each| each.as_str()?.strip_prefix(HOST));
        let volumes = pod["volumes"].as_array();
        let mut secrets = volumes.into_iter().flatten().filter_map(|each| each["secret"]["secretName"].as_str());
        Self {
            hosts: hosts.map(str::to_owned).collect(),
            tls_secret: secrets.next().filter(|name| *name != DASHBOARD).map(str::to_owned),
        }
    }
}

impl InstallOptions {
    /// As the manifest has it.
    pub(crate) fn plain() -> Self {
        let image = |name: &str| format!("{REGISTRY}/garboard/{name}:{VERSION}");
        Self {
            controller: image("controller"),
            node: image("node"),
            launcher: image("launcher"),
            pull_policy: NEVER.to_owned(),
            namespace: NAMESPACE.to_owned(),
            emulation: false,
            dashboard: None,
        }
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

    /// The resource as `kubectl auth can-i` and `kubectl get` take it: plural, with its group.
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
pub(crate) fn objects(choice: &InstallOptions) -> Result<Vec<Object>, ManifestError> {
    let mut all = read(ALL, choice)?;
    if let Some(options) = &choice.dashboard {
        let is_wanted = |object: &Object| object.kind != "Secret" || options.tls_secret.is_none();
        all.extend(read(OPTIONAL, choice)?.into_iter().filter(is_wanted));
    }
    Ok(all)
}

/// Every object of the dashboard in a namespace, to be removed.
pub(crate) fn of_dashboard(namespace: &str) -> Result<Vec<Object>, ManifestError> {
    read(OPTIONAL, &InstallOptions { namespace: namespace.to_owned(), ..InstallOptions::plain() })
}

/// Every common instancetype and preference, with the labels [`MADE_BY`] and [`MADE_AS`]: one that a user has applied does without them.
pub(crate) fn catalogue() -> Result<Vec<Object>, ManifestError> {
    let (key, value) = MADE_BY;
    let marked = |object: Object| {
        let labels = format!("\n  labels:\n    {key}: {value}\n    {MADE_AS}: \"{}\"\n", object.name);
        let text = object.text.replacen("\n  labels:\n", &labels, 1);
        Object { text, ..object }
    };
    Ok(read(CATALOGUE, &InstallOptions::plain())?.into_iter().map(marked).collect())
}

fn read(manifest: &str, choice: &InstallOptions) -> Result<Vec<Object>, ManifestError> {
    let documents = manifest.split("\n---\n").filter(|text| text.lines().any(|line| line.starts_with("kind:")));
    documents
        .map(|text| {
            let object =
                Object::read(text).ok_or_else(|| ManifestError("an object without a kind or a name".to_owned()))?;
            let object = match object.kind.as_str() {
                "Deployment" if object.name == DASHBOARD => adapted_dashboard(object, choice)?,
                "Deployment" | "DaemonSet" => adapted(object, choice)?,
                _ => object,
            };
            if choice.namespace == NAMESPACE { Ok(object) } else { relocated(object, &choice.namespace) }
        })
        .collect()
}

/// The texts in one file again.
pub(crate) fn text<'a>(objects: impl Iterator<Item = &'a Object>) -> String {
    objects.map(|object| object.text.trim_end().to_owned() + "\n").collect::<Vec<_>>().join("---\n")
}

fn adapted(object: Object, choice: &InstallOptions) -> Result<Object, ManifestError> {
    let mut value = parsed(&object.text)?;
    let container = value
        .pointer_mut("/spec/template/spec/containers/0")
        .ok_or_else(|| ManifestError(format!("{} {} has no container", object.kind, object.name)))?;
    if object.kind == "DaemonSet" {
        container["image"] = json!(choice.node);
        container["imagePullPolicy"] = json!(choice.pull_policy);
        // What QEMU offers is asked of the image that has it.
        let before = value.pointer_mut("/spec/template/spec/initContainers").and_then(Value::as_array_mut);
        for init in before.into_iter().flatten() {
            init["image"] = json!(choice.launcher);
            init["imagePullPolicy"] = json!(choice.pull_policy);
        }
    } else {
        container["image"] = json!(choice.controller);
        container["imagePullPolicy"] = json!(choice.pull_policy);
        let chosen = chosen_arguments(choice);
        let is_chosen =
            |each: &Value| chosen.iter().any(|(option, _)| each.as_str().is_some_and(|each| is_of(each, option)));
        let written = container["args"].as_array().cloned().unwrap_or_default();
        let kept = written.into_iter().filter(|each| !is_chosen(each));
        let new = chosen.iter().filter_map(|(option, value)| Some(json!(format!("{option}{}", value.as_deref()?))));
        container["args"] = Value::Array(kept.chain(new).collect());
    }
    let text = yaml::write(&value).map_err(|error| ManifestError(error.to_string()))?;
    Ok(Object { text, ..object })
}

/// The dashboard's deployment. It is a program of the controller's image.
fn adapted_dashboard(object: Object, choice: &InstallOptions) -> Result<Object, ManifestError> {
    let mut value = parsed(&object.text)?;
    let missing = || ManifestError(format!("{} {} has no container", object.kind, object.name));
    let options = choice.dashboard.clone().unwrap_or_default();
    let container = value.pointer_mut("/spec/template/spec/containers/0").ok_or_else(missing)?;
    container["image"] = json!(choice.controller);
    container["imagePullPolicy"] = json!(choice.pull_policy);
    let hosts = options.hosts.iter().map(|host| json!(format!("{HOST}{host}")));
    container["args"].as_array_mut().ok_or_else(missing)?.extend(hosts);
    if let (Some(secret), Some(pod)) = (options.tls_secret, value.pointer_mut("/spec/template/spec")) {
        let names = each(pod, "volumes").filter_map(|volume| volume.pointer_mut("/secret/secretName"));
        names.for_each(|name| *name = json!(secret));
    }
    let text = yaml::write(&value).map_err(|error| ManifestError(error.to_string()))?;
    Ok(Object { text, ..object })
}

/// The same in another namespace: the object itself, the subjects of a binding, and the service that a webhook or an APIService asks. Nothing else
/// names it.
fn relocated(object: Object, namespace: &str) -> Result<Object, ManifestError> {
    // Definitions and policies are the cluster's, and name no namespace.
    if object.namespace.is_none() && !object.text.contains("namespace:") && object.kind != "Namespace" {
        return Ok(object);
    }
    let mut value = parsed(&object.text)?;
    let mut name = object.name.clone();
    if object.kind == "Namespace" {
        namespace.clone_into(&mut name);
        value["metadata"]["name"] = json!(namespace);
    }
    let named = |part: &mut Value| {
        if part["namespace"] == NAMESPACE {
            part["namespace"] = json!(namespace);
        }
    };
    named(&mut value["metadata"]);
    each(&mut value, "subjects").for_each(named);
    each(&mut value, "webhooks").filter_map(|webhook| webhook.pointer_mut("/clientConfig/service")).for_each(named);
    // The service that an API server forwards requests of an APIService to.
    value.pointer_mut("/spec/service").into_iter().for_each(named);
    // What a FlowSchema matches.
    for rule in value.pointer_mut("/spec/rules").and_then(Value::as_array_mut).into_iter().flatten() {
        each(rule, "subjects").filter_map(|subject| subject.get_mut("serviceAccount")).for_each(named);
        let namespaces = each(rule, "resourceRules").flat_map(|resources| each(resources, "namespaces"));
        namespaces.filter(|each| **each == NAMESPACE).for_each(|each| *each = json!(namespace));
    }
    let text = yaml::write(&value).map_err(|error| ManifestError(error.to_string()))?;
    // A binding in kube-system stays there.
    let place = object.namespace.map(|own| if own == NAMESPACE { namespace.to_owned() } else { own });
    Ok(Object { name, namespace: place, text, ..object })
}

fn parsed(text: &str) -> Result<Value, ManifestError> {
    yaml::read(text).map_err(ManifestError)?.pop().ok_or_else(|| ManifestError("an empty object".to_owned()))
}

fn each<'a>(value: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The controller's arguments that an installation chooses: the option, and its value if it is written. `deploy/chart.py` has
/// those of the chart.
fn chosen_arguments(choice: &InstallOptions) -> [(&'static str, Option<String>); 3] {
    let InstallOptions { controller: _, node: _, launcher, pull_policy, namespace: _, emulation, dashboard: _ } =
        choice;
    [
        ("--launcher-image=", Some(launcher.clone())),
        ("--launcher-pull-policy=", Some(pull_policy.clone())),
        ("--emulation", emulation.then(String::new)),
    ]
}

/// Whether an argument is this option, with a value if the option ends with `=`.
fn is_of(argument: &str, option: &str) -> bool {
    argument.strip_prefix(option).is_some_and(|value| value.is_empty() || option.ends_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_there_and_has_a_name() {
        let objects = objects(&InstallOptions::plain()).unwrap();
        let documents = yaml::read(ALL).unwrap().len();
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
    fn a_label_distinguishes_our_definitions_from_foreign_ones() {
        let objects = objects(&InstallOptions::plain()).unwrap();
        let definitions: Vec<&Object> = objects.iter().filter(|object| object.is_definition()).collect();
        assert!(definitions.len() >= 2);
        let label = format!("    {}: {}\n", PART_OF.0, PART_OF.1);
        assert!(definitions.iter().all(|object| object.text.contains(&label)));
    }

    #[test]
    fn images_and_switches_are_where_the_programs_look() {
        let choice = InstallOptions {
            controller: "r/c:1".into(),
            node: "r/n:1".into(),
            launcher: "r/l:1".into(),
            pull_policy: "IfNotPresent".into(),
            namespace: NAMESPACE.into(),
            emulation: true,
            dashboard: None,
        };
        let all = text(objects(&choice).unwrap().iter());
        let pulled = "- --launcher-pull-policy=IfNotPresent\n";
        for part in ["image: r/c:1\n", "image: r/n:1\n", "- --launcher-image=r/l:1\n", pulled, "- --emulation\n"] {
            assert_eq!(all.matches(part).count(), 1, "{part}");
        }
        assert_eq!(all.matches("imagePullPolicy: IfNotPresent\n").count(), 3);
        assert!(!all.contains("garboard/launcher:") && !all.contains("imagePullPolicy: Never"));
        let plain = text(objects(&InstallOptions::plain()).unwrap().iter());
        assert!(
            !plain.contains("--emulation")
                && plain.contains(&format!("--launcher-image={REGISTRY}/garboard/launcher:{VERSION}"))
        );
    }

    #[test]
    fn the_dashboard_is_there_where_it_is_wanted_and_as_it_is_chosen() {
        let plain = objects(&InstallOptions::plain()).unwrap();
        assert!(plain.iter().all(|object| object.name != DASHBOARD));
        let options = |hosts: &[&str], secret: Option<&str>| DashboardOptions {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            tls_secret: secret.map(str::to_owned),
        };
        let kinds = |dashboard: &DashboardOptions, namespace: &str| -> Vec<(String, Option<String>)> {
            let (dashboard, namespace) = (Some(dashboard.clone()), namespace.to_owned());
            let choice = InstallOptions { dashboard, namespace, controller: "r/c:1".into(), ..InstallOptions::plain() };
            let all = objects(&choice).unwrap().into_iter().filter(|object| object.name == DASHBOARD);
            all.map(|object| (object.kind, object.namespace)).collect()
        };
        let expected = ["ServiceAccount", "Secret", "Service", "NetworkPolicy", "Deployment"];
        let found = kinds(&options(&[], None), "vms");
        assert_eq!(found, expected.map(|kind| (kind.to_owned(), Some("vms".to_owned()))));
        assert_eq!(
            kinds(&options(&[], Some("mine")), "garboard").len(),
            expected.len() - 1,
            "its Secret is another one"
        );
        for chosen in [options(&[], None), options(&["vms.example.com", "b.example"], Some("mine"))] {
            let dashboard = Some(chosen.clone());
            let choice = InstallOptions { dashboard, controller: "r/c:1".into(), ..InstallOptions::plain() };
            let all = objects(&choice).unwrap();
            let deployment = all.iter().find(|object| object.kind == "Deployment" && object.name == DASHBOARD).unwrap();
            assert!(deployment.text.contains("image: r/c:1\n"), "{}", deployment.text);
            assert!(!deployment.text.contains("launcher"), "{}", deployment.text);
            assert_eq!(DashboardOptions::of(&parsed(&deployment.text).unwrap()), chosen);
        }
        assert_eq!(of_dashboard("vms").unwrap().len(), expected.len());
    }

    /// The longest value of a label, bytes.
    const LONGEST_LABEL: usize = 63;

    #[test]
    fn each_object_of_the_catalogue_has_the_labels_of_an_installation() {
        let objects = catalogue().unwrap();
        assert_eq!(objects.len(), yaml::read(CATALOGUE).unwrap().len());
        for object in &objects {
            let labels = &parsed(&object.text).unwrap()["metadata"]["labels"];
            assert_eq!(labels[MADE_BY.0], MADE_BY.1, "{}", object.text);
            assert_eq!(labels[MADE_AS], object.name, "{}", object.text);
            assert!(object.name.len() <= LONGEST_LABEL, "{}", object.name);
            assert_eq!(labels[PART_OF.0], PART_OF.1, "{}", object.text);
        }
        let resources: std::collections::BTreeSet<String> = objects.iter().map(Object::resource).collect();
        let of_group = |plural: &str| format!("{plural}.instancetype.kubevirt.io");
        let expected = ["virtualmachineclusterinstancetypes", "virtualmachineclusterpreferences"].map(of_group);
        assert_eq!(resources, std::collections::BTreeSet::from(expected));
    }

    #[test]
    fn in_another_namespace_nothing_names_the_usual_one() {
        let objects = objects(&InstallOptions { namespace: "vms".into(), ..InstallOptions::plain() }).unwrap();
        let namespaced: Vec<&str> = objects.iter().filter_map(|object| object.namespace.as_deref()).collect();
        assert!(
            namespaced.len() > 8 && namespaced.iter().all(|namespace| ["vms", "kube-system"].contains(namespace)),
            "{namespaced:?}"
        );
        assert_eq!(objects[0].name, "vms");
        let all = text(objects.iter());
        let usual: Vec<&str> = all
            .lines()
            .filter(|line| line.trim_start().trim_start_matches("- ").starts_with("namespace: "))
            // The binding of the reader of request headers.
            .filter(|line| !line.ends_with(" vms") && !line.ends_with(" kube-system"))
            .collect();
        assert_eq!(usual, [] as [&str; 0]);
        // Policies name accounts in any namespace.
        assert!(!all.contains("serviceaccount:garboard") && !all.contains("serviceaccount:vms"), "{all}");
        assert_eq!(all.matches("namespace: vms").count(), ALL.matches("namespace: garboard").count());
    }

    #[test]
    fn without_a_registry_nothing_of_ours_is_ever_pulled() {
        let written = objects(&InstallOptions::plain()).unwrap();
        for all in [ALL.to_owned(), text(written.iter())] {
            let workloads =
                all.split("\n---\n").filter(|text| text.contains("\nkind: D") || text.starts_with("kind: D"));
            let lines: Vec<&str> = workloads.flat_map(str::lines).map(str::trim).collect();
            let images: Vec<&&str> =
                lines.iter().filter(|line| line.contains("image: ") || line.contains("-image=")).collect();
            assert_eq!(images.len(), 4, "{images:?}");
            assert!(images.iter().all(|line| line.contains(&format!("{REGISTRY}/garboard/"))), "{images:?}");
            let policies = lines.iter().filter(|line| line.starts_with("imagePullPolicy: "));
            assert!(policies.clone().count() == 3 && policies.clone().all(|line| line.ends_with(NEVER)), "{lines:?}");
            assert!(lines.contains(&"- --launcher-pull-policy=Never"), "{lines:?}");
        }
    }
}
