//! The common instancetypes and preferences of an installation: whether it has them, and what of them goes again. What an installation has
//! made has a label, and another one with its name; everything else of these kinds is its users', and stays, copies of the common ones too.

use serde_json::Value;

use super::emulation::oldest;
use super::manifest::{self, MADE_AS, MADE_BY, Object};
use crate::failure::Failure;
use crate::kubectl::{Kubectl, failed};
use crate::output::note;

/// The field of a KubeVirt object. KubeVirt's operator follows it all the time; here it counts when something is installed.
const FIELD: &str = "spec.configuration.commonInstancetypesDeployment";
/// The group of the four kinds.
pub(super) const GROUP: &str = "instancetype.kubevirt.io";
/// The kinds that the catalogue has.
const COMMON: &str = "virtualmachineclusterinstancetypes.instancetype.kubevirt.io,virtualmachineclusterpreferences.instancetype.kubevirt.io";
/// All kinds of the group.
const SIZES: &str = "virtualmachineinstancetypes.instancetype.kubevirt.io,virtualmachinepreferences.instancetype.kubevirt.io,\
                     virtualmachineclusterinstancetypes.instancetype.kubevirt.io,virtualmachineclusterpreferences.instancetype.kubevirt.io";

/// What decides whether the cluster has the common ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Catalogue {
    /// Those that an installation has made.
    made: Vec<Value>,
    /// What the KubeVirt object says, if it says anything.
    setting: Option<Setting>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    enabled: bool,
    namespace: String,
    name: String,
}

impl Setting {
    /// Of the KubeVirt objects of the installation's namespace. As in KubeVirt `enabled` is true where only it is left out.
    fn of(objects: &[Value]) -> Option<Self> {
        let object = oldest(objects)?;
        let written = object.pointer(&format!("/{}", FIELD.replace('.', "/"))).filter(|written| written.is_object())?;
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        let enabled = written["enabled"].as_bool().unwrap_or(true);
        Some(Self { enabled, namespace: text("namespace"), name: text("name") })
    }
}

impl Catalogue {
    /// Looks at the cluster; `settings` are its KubeVirt objects.
    pub(super) fn look(kubectl: &Kubectl, settings: &[Value]) -> Result<Self, Failure> {
        let (key, value) = MADE_BY;
        let labelled = if_served(kubectl.get(&[COMMON, "-l", &format!("{key}={value}")]))?;
        let known = manifest::catalogue().map_err(|error| Failure::Other(error.to_string()))?;
        Ok(Self::of(labelled, &known, Setting::of(settings)))
    }

    /// Of the objects with the label [`MADE_BY`]; `known` are those of this version.
    fn of(mut labelled: Vec<Value>, known: &[Object], setting: Option<Setting>) -> Self {
        labelled.retain(|object| is_made(object, known));
        Self { made: labelled, setting }
    }

    /// Why the option cannot be followed.
    pub(super) fn problem(&self, option: Option<bool>) -> Option<String> {
        let (wanted, Setting { enabled, namespace, name }) = (option?, self.setting.as_ref()?);
        (wanted != *enabled).then(|| {
            format!(
                "--common-instancetypes does not count here, because the KubeVirt object {name} in namespace {namespace} does: \
                 set its {FIELD}.enabled to {wanted}, and leave --common-instancetypes out"
            )
        })
    }

    /// The option, else what the KubeVirt object says, else what is there.
    pub(super) fn is_wanted(&self, option: Option<bool>) -> bool {
        let setting = self.setting.as_ref().map(|setting| setting.enabled);
        option.or(setting).unwrap_or(!self.made.is_empty())
    }

    /// Removes what an installation has made and this one does not make.
    pub(super) fn remove_but(&self, kubectl: &Kubectl, kept: &[Object]) -> anyhow::Result<()> {
        let gone = self.besides(kept);
        if gone.is_empty() {
            return Ok(());
        }
        let mut arguments = vec!["delete", "--ignore-not-found"];
        arguments.extend(gone.iter().map(String::as_str));
        kubectl.run(&arguments).map_err(failed)?;
        note!("removed {} common instancetypes and preferences", gone.len());
        Ok(())
    }

    fn besides(&self, kept: &[Object]) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let made = self.made.iter().map(|object| (text(&object["kind"]), text(&object["metadata"]["name"])));
        let is_kept =
            |(kind, name): &(String, String)| kept.iter().any(|object| object.kind == *kind && object.name == *name);
        made.filter(|each| !is_kept(each))
            .map(|(kind, name)| format!("{}s.{GROUP}/{name}", kind.to_lowercase()))
            .collect()
    }
}

/// Whether an installation has made an object that has its label.
fn is_made(object: &Value, known: &[Object]) -> bool {
    let (name, original) = (&object["metadata"]["name"], &object["metadata"]["labels"][MADE_AS]);
    // A version before wrote no name beside the label.
    if original.is_null() { known.iter().any(|each| *name == each.name) } else { original == name }
}

/// How many instancetypes and preferences there are, of namespaces and of the cluster.
pub(super) fn count(kubectl: &Kubectl) -> Result<usize, Failure> {
    if_served(kubectl.get(&[SIZES, "-A"])).map(|found| found.len())
}

/// A cluster with an earlier version has none of these kinds.
fn if_served(answer: Result<Vec<Value>, Failure>) -> Result<Vec<Value>, Failure> {
    match answer {
        Err(Failure::NotInstalled(_)) => Ok(Vec::new()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kubevirt(deployment: Value) -> Value {
        json!({
            "metadata": {"namespace": "garboard", "name": "kv", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"configuration": {"commonInstancetypesDeployment": deployment}},
        })
    }

    fn with(made: Vec<Value>, setting: Option<Value>) -> Catalogue {
        let objects: Vec<Value> = setting.into_iter().map(kubevirt).collect();
        Catalogue::of(made, &manifest::catalogue().unwrap(), Setting::of(&objects))
    }

    fn made(kind: &str, name: &str) -> Value {
        copied(kind, name, name)
    }

    /// One with the labels of another.
    fn copied(kind: &str, name: &str, original: &str) -> Value {
        let labels = json!({"app.kubernetes.io/managed-by": "garboard", "garboard.dev/made-as": original});
        json!({"kind": kind, "metadata": {"name": name, "labels": labels}})
    }

    #[test]
    fn the_option_counts_then_the_kubevirt_object_and_then_what_is_there() {
        let there = || vec![made("VirtualMachineClusterInstancetype", "u1.small")];
        let table = [
            (None, vec![], None, false),
            (None, there(), None, true),
            (Some(true), vec![], None, true),
            (Some(false), there(), None, false),
            (None, vec![], Some(json!({"enabled": true})), true),
            (None, vec![], Some(json!({})), true),
            (None, there(), Some(json!({"enabled": false})), false),
            (None, there(), Some(Value::Null), true),
        ];
        for (option, there, setting, expected) in table {
            let catalogue = with(there, setting.clone());
            assert_eq!(catalogue.is_wanted(option), expected, "{option:?} {setting:?}");
            assert_eq!(catalogue.problem(option), None);
        }
    }

    #[test]
    fn an_option_that_contradicts_the_kubevirt_object_is_refused_and_the_field_named() {
        let disabled = with(Vec::new(), Some(json!({"enabled": false})));
        let problem = disabled.problem(Some(true)).unwrap();
        assert!(problem.contains("kv in namespace garboard does: set its spec.configuration."), "{problem}");
        assert!(problem.contains("commonInstancetypesDeployment.enabled to true"), "{problem}");
        assert_eq!((disabled.problem(Some(false)), disabled.problem(None)), (None, None));
    }

    #[test]
    fn only_what_an_installation_made_and_this_one_does_not_make_goes() {
        let objects = manifest::catalogue().unwrap();
        let (kind, known) = ("VirtualMachineClusterInstancetype", &objects[0]);
        let both = with(vec![made(&known.kind, &known.name), made(kind, "u1.gone")], None);
        assert_eq!(both.besides(&objects), ["virtualmachineclusterinstancetypes.instancetype.kubevirt.io/u1.gone"]);
        assert_eq!(both.besides(&[]).len(), 2);
        assert_eq!(with(Vec::new(), None).besides(&[]), [] as [&str; 0]);
    }

    #[test]
    fn a_copy_that_a_user_has_made_of_one_is_the_users() {
        let kind = "VirtualMachineClusterInstancetype";
        let of_before = |name: &str| {
            let mut object = made(kind, name);
            object["metadata"]["labels"].as_object_mut().unwrap().remove(MADE_AS);
            object
        };
        let copies = with(vec![copied(kind, "mine", "u1.small"), of_before("ours")], None);
        assert_eq!(copies.besides(&[]), [] as [&str; 0]);
        assert!(!copies.is_wanted(None), "no installation has made any");
        let original = with(vec![of_before("u1.small")], None);
        assert_eq!(original.besides(&[]), ["virtualmachineclusterinstancetypes.instancetype.kubevirt.io/u1.small"]);
    }
}
