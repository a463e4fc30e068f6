//! KubeVirt's subresources of a machine (`subresources.kubevirt.io`), asked by `kubectl replace --raw` and `get --raw`, and ours
//! (`subresources.garboard.dev`): each has a right of its own, and none of them lets its user into the pod.

pub(crate) mod refusal;

use std::time::Duration;

use serde_json::Value;

use crate::failure::{Failure, bounded};
use crate::kubectl::Kubectl;
use crate::output::note;

/// The group and its version that every controller has which serves any.
pub(crate) const GROUP: &str = "/apis/subresources.kubevirt.io/v1";

/// Our own group.
const OWN_GROUP: &str = "/apis/subresources.garboard.dev/v1";
/// QMP at its three levels: subresources of our own group.
pub(crate) const QMP_READ: &str = "qmp-read";
pub(crate) const QMP_WRITE: &str = "qmp-write";
pub(crate) const QMP_DANGEROUS: &str = "qmp-dangerous";
/// What a machine that runs is made of, and what it printed: subresources of our own group, too.
pub(crate) const PLAN: &str = "plan";
pub(crate) const LOGS: &str = "logs";
/// What kubectl writes before a warning of the server.
const WARNING: &str = "Warning: ";

/// Of what a subresource is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// A VirtualMachine.
    Machine,
    /// An instance.
    Instance,
}

impl Resource {
    /// As in paths and in roles.
    pub(crate) const fn plural(self) -> &'static str {
        match self {
            Self::Machine => "virtualmachines",
            Self::Instance => "virtualmachineinstances",
        }
    }
}

/// One subresource of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subresource {
    /// Of what.
    pub(crate) resource: Resource,
    /// The namespace, as the API server has written it.
    pub(crate) namespace: String,
    /// The name.
    pub(crate) name: String,
    /// `start`, `console`, …
    pub(crate) verb: &'static str,
}

impl Subresource {
    /// `NAMESPACE/NAME`, for messages.
    pub(crate) fn machine(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// As in roles: `virtualmachines/start`.
    pub(crate) fn role(&self) -> String {
        format!("{}/{}", self.resource.plural(), self.verb)
    }

    /// Its path at an API server. Names have no character that means something in a path.
    pub(crate) fn path(&self) -> String {
        let is_own = [QMP_READ, QMP_WRITE, QMP_DANGEROUS, PLAN, LOGS].contains(&self.verb);
        let group = if is_own { OWN_GROUP } else { GROUP };
        format!("{group}/namespaces/{}/{}/{}/{}", self.namespace, self.resource.plural(), self.name, self.verb)
    }

    /// Reads it, or what follows it in its path. A warning of the controller is printed.
    pub(crate) fn get(&self, kubectl: &Kubectl, tail: Option<&str>) -> Result<Vec<u8>, Failure> {
        let below = tail.map(|tail| format!("/{tail}")).unwrap_or_default();
        let path = format!("{}{}{below}", kubectl.server_path(), self.path());
        let output = kubectl.command(&["get", "--raw", &path]).output().map_err(|error| kubectl.missing(&error))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(refusal::of_kubectl(self, &stderr));
        }
        for warning in stderr.lines().filter_map(|line| line.strip_prefix(WARNING)) {
            note!("{}", bounded(warning));
        }
        Ok(output.stdout)
    }

    /// Asks for it with this body, and waits for the answer, without a limit of its own if none is given.
    pub(crate) fn put(&self, kubectl: &Kubectl, body: &Value, within: Option<Duration>) -> Result<(), Failure> {
        let path = kubectl.server_path() + &self.path();
        let limit = within.map(|limit| format!("--request-timeout={}s", limit.as_secs().max(1)));
        let mut arguments = vec!["replace", "--raw", path.as_str(), "-f", "-"];
        arguments.extend(limit.as_deref());
        let output = kubectl.fed(&arguments, body.to_string().as_bytes())?;
        if output.status.success() {
            return Ok(());
        }
        Err(refusal::of_kubectl(self, &String::from_utf8_lossy(&output.stderr)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn of_instance(verb: &'static str) -> Subresource {
        Subresource { resource: Resource::Instance, namespace: "tenant".into(), name: "hello".into(), verb }
    }

    #[test]
    fn a_path_is_that_of_kubevirt() {
        let start = Subresource { resource: Resource::Machine, ..of_instance("start") };
        assert_eq!(start.path(), "/apis/subresources.kubevirt.io/v1/namespaces/tenant/virtualmachines/hello/start");
        assert_eq!((start.role().as_str(), start.machine().as_str()), ("virtualmachines/start", "tenant/hello"));
    }

    #[test]
    fn qmp_and_the_record_are_of_our_own_group() {
        let base = "/apis/subresources.garboard.dev/v1/namespaces/tenant/virtualmachineinstances/hello";
        for verb in [QMP_READ, QMP_WRITE, QMP_DANGEROUS, PLAN, LOGS] {
            assert_eq!(of_instance(verb).path(), format!("{base}/{verb}"));
        }
        assert_eq!(of_instance(QMP_WRITE).role(), "virtualmachineinstances/qmp-write");
    }

    /// With a kubectl that writes down how it was called, and answers as the API server's client does.
    #[cfg(unix)]
    #[test]
    fn the_body_goes_to_the_path_and_a_refusal_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let answer = r#"Error from server (Conflict): Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io "hello": no"#;
        let seen = directory.path().join("seen");
        let config = r#"{"clusters": [{"cluster": {"server": "https://gateway/k8s/"}}]}"#;
        let script = format!(
            "case $1 in config) echo '{config}'; exit ;; esac\necho \"$@\" >'{0}'; cat >>'{0}'\ncase $* in *reset*) echo '{answer}' >&2; exit 1; esac",
            seen.display()
        );
        let kubectl = Kubectl::played(directory.path(), &script);
        let body = serde_json::json!({ "a": 1 });
        of_instance("pause").put(&kubectl, &body, Some(Duration::from_secs(7))).unwrap();
        let path = of_instance("pause").path();
        let expected = format!("replace --raw /k8s{path} -f - --request-timeout=7s\n{{\"a\":1}}");
        assert_eq!(std::fs::read_to_string(seen).unwrap(), expected);
        let refused = of_instance("reset").put(&kubectl, &body, None);
        assert_eq!(refused, Err(Failure::Refused("tenant/hello: no".into())));
    }
}
