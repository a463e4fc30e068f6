//! What is asked of a cluster about a machine. The plugin asks through the user's kubectl; the page that a cluster serves asks the API
//! server with the token of the page's user.

use serde_json::Value;

use crate::failure::Failure;
use crate::find::LAUNCHER;
use crate::kubectl::Kubectl;
use crate::operate::{AGENT_SELECTOR, CONTROLLER, CONTROLLER_SELECTOR, MACHINES};
use crate::set_kind::SetKind;

/// Records of runs, as kubectl names the kind.
const RUNS: &str = "machineruns.garboard.dev";
/// The longest name of Kubernetes, bytes.
const LONGEST_NAME: usize = 253;
/// Claims that are asked for by their names: those of the machine with most volumes.
const MOST_CLAIMS: usize = 128;

/// One question. All but those about nodes, settings and Garboard itself are about one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question<'a> {
    /// The VirtualMachine and the instance of this name, as far as there are such.
    Machine(&'a str),
    /// Every VirtualMachine and every instance.
    Machines,
    /// The set or the pool of this name.
    Set(SetKind, &'a str),
    /// Every set, or every pool.
    Sets(SetKind),
    /// Launcher pods.
    LauncherPods,
    /// Claims of these names.
    Claims(&'a [String]),
    /// DataVolumes of these names.
    DataVolumes(&'a [String]),
    /// Events about an object of this name.
    EventsOf(&'a str),
    /// Records of runs of a machine of this name.
    RunsOf(&'a str),
    /// All nodes.
    Nodes,
    /// The KubeVirt objects of all namespaces.
    KubeVirts,
    /// The deployment of the controllers.
    Controller,
    /// Their pods.
    Controllers,
    /// Pods of the node agents.
    Agents,
}

/// A cluster as one of its users sees it.
pub trait Look: Sync {
    /// The objects that answer a question. An object that is not there is no failure.
    ///
    /// # Errors
    /// [`Failure`]: the user may not see them, or the cluster cannot be asked.
    fn look(&self, question: Question<'_>) -> Result<Vec<Value>, Failure>;

    /// The namespace that is looked at.
    fn looked_at(&self) -> String;
}

impl Look for Kubectl {
    fn look(&self, question: Question<'_>) -> Result<Vec<Value>, Failure> {
        let named = |kind: &str, names: &[String]| {
            let arguments = by_name(kind, names);
            arguments.map_or_else(|| Ok(Vec::new()), |arguments| self.get(&arguments))
        };
        match question {
            Question::Machine(name) => self.get(&[
                &format!("virtualmachines.kubevirt.io/{name}"),
                &format!("virtualmachineinstances.kubevirt.io/{name}"),
            ]),
            Question::Machines => self.get(&[MACHINES]),
            Question::Set(kind, name) => self.get(&[&format!("{}/{name}", kind.resource())]),
            Question::Sets(kind) => self.get(&[&kind.resource()]),
            Question::LauncherPods => self.get(&["pods", "-l", LAUNCHER]),
            Question::Claims(names) => named("pvc", names),
            Question::DataVolumes(names) => named("datavolumes.cdi.kubevirt.io", names),
            Question::EventsOf(name) => self.get(&["events", &format!("--field-selector=involvedObject.name={name}")]),
            Question::RunsOf(name) => self.get(&[RUNS, &format!("--field-selector=spec.machine={name}")]),
            Question::Nodes => self.get(&["nodes"]),
            Question::KubeVirts => self.get(&["kubevirts.kubevirt.io", "-A"]),
            Question::Controller => self.within_garboard().get(&["deployment", CONTROLLER]),
            Question::Controllers => self.within_garboard().get(&["pods", "-l", CONTROLLER_SELECTOR]),
            Question::Agents => self.within_garboard().get(&["pods", "-l", AGENT_SELECTOR]),
        }
    }

    fn looked_at(&self) -> String {
        let of_context = || {
            let asked = self.run(&["config", "view", "--minify", "-o", "jsonpath={..namespace}"]).ok()?;
            Some(String::from_utf8_lossy(&asked).trim().to_owned()).filter(|namespace| !namespace.is_empty())
        };
        let chosen = self.namespace().map(str::to_owned);
        chosen.or_else(of_context).unwrap_or_else(|| garboard_api::metadata::DEFAULT_NAMESPACE.to_owned())
    }
}

impl Question<'_> {
    /// The paths of the API server whose objects, or whose lists of objects, answer it. A name that is none of Kubernetes has no path, so
    /// that what a machine's author wrote cannot mean another one. Pure.
    #[must_use]
    pub fn paths(self, namespace: &str, garboard: &str) -> Vec<String> {
        let machines = |kind: &str| format!("/apis/kubevirt.io/v1/namespaces/{namespace}/{kind}");
        let pods = |namespace: &str, selector: &str| {
            format!("/api/v1/namespaces/{namespace}/pods?labelSelector={}", encoded(selector))
        };
        let named = |collection: &str, names: &[String]| -> Vec<String> {
            let good = names.iter().filter(|name| is_name(name)).take(MOST_CLAIMS);
            good.map(|name| format!("{collection}/{name}")).collect()
        };
        match self {
            Self::Machine(name) if is_name(name) => {
                ["virtualmachines", "virtualmachineinstances"].map(|kind| format!("{}/{name}", machines(kind))).to_vec()
            }
            Self::EventsOf(name) if is_name(name) => {
                vec![format!("/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.name%3D{name}")]
            }
            Self::RunsOf(name) if is_name(name) => {
                vec![format!(
                    "/apis/garboard.dev/v1/namespaces/{namespace}/machineruns?fieldSelector=spec.machine%3D{name}"
                )]
            }
            Self::Set(kind, name) if is_name(name) => vec![format!("{}/{name}", kind.path(namespace))],
            Self::Machine(_) | Self::EventsOf(_) | Self::RunsOf(_) | Self::Set(..) => Vec::new(),
            Self::Sets(kind) => vec![kind.path(namespace)],
            Self::Machines => ["virtualmachines", "virtualmachineinstances"].map(machines).to_vec(),
            Self::LauncherPods => vec![pods(namespace, LAUNCHER)],
            Self::Claims(names) => named(&format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims"), names),
            Self::DataVolumes(names) => {
                named(&format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/datavolumes"), names)
            }
            Self::Nodes => vec!["/api/v1/nodes".to_owned()],
            Self::KubeVirts => vec!["/apis/kubevirt.io/v1/kubevirts".to_owned()],
            Self::Controller => vec![format!("/apis/apps/v1/namespaces/{garboard}/deployments/{CONTROLLER}")],
            Self::Controllers => vec![pods(garboard, CONTROLLER_SELECTOR)],
            Self::Agents => vec![pods(garboard, AGENT_SELECTOR)],
        }
    }
}

/// What kubectl is asked for by names that a machine's author wrote. One that is none of Kubernetes would be an option where it begins with
/// a hyphen, such as another server for the user's token. Nothing where no name is left: kubectl would list all. Pure.
fn by_name<'a>(kind: &'a str, names: &'a [String]) -> Option<Vec<&'a str>> {
    let mut good = names.iter().map(String::as_str).filter(|name| is_name(name)).peekable();
    good.peek().is_some().then(|| std::iter::once(kind).chain(good).collect())
}

/// A selector of labels in a query.
fn encoded(selector: &str) -> String {
    selector.replace('=', "%3D").replace(',', "%2C").replace('/', "%2F")
}

/// A name of Kubernetes: no `%`, no `..`, nothing that a proxy could read in another way. Pure.
pub(crate) fn is_name(text: &str) -> bool {
    let is_allowed = |one: u8| one.is_ascii_lowercase() || one.is_ascii_digit() || one == b'-' || one == b'.';
    !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(is_allowed) && !text.starts_with(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(question: Question<'_>) -> Vec<String> {
        question.paths("tenant", "vms")
    }

    #[test]
    fn a_question_has_the_paths_of_its_objects() {
        let of_tenant = "/apis/kubevirt.io/v1/namespaces/tenant";
        let both = ["virtualmachines/web", "virtualmachineinstances/web"].map(|each| format!("{of_tenant}/{each}"));
        assert_eq!(paths(Question::Machine("web")), both);
        assert_eq!(paths(Question::Machines).len(), 2);
        let claims = ["root".to_owned(), "data.1".to_owned()];
        assert_eq!(paths(Question::Claims(&claims))[1], "/api/v1/namespaces/tenant/persistentvolumeclaims/data.1");
        let agents = "/api/v1/namespaces/vms/pods?labelSelector=app.kubernetes.io%2Fname%3Dgarboard%2Capp.kubernetes.io%2Fcomponent%3Dnode";
        assert_eq!(paths(Question::Agents), [agents]);
        assert_eq!(paths(Question::Controllers), [agents.replace("node", "controller")]);
        assert_eq!(
            paths(Question::LauncherPods),
            ["/api/v1/namespaces/tenant/pods?labelSelector=kubevirt.io%3Dvirt-launcher"]
        );
        let events = "/api/v1/namespaces/tenant/events?fieldSelector=involvedObject.name%3Dweb";
        assert_eq!(paths(Question::EventsOf("web")), [events]);
        let runs = "/apis/garboard.dev/v1/namespaces/tenant/machineruns?fieldSelector=spec.machine%3Dweb";
        assert_eq!(paths(Question::RunsOf("web")), [runs]);
        let pools = "/apis/pool.kubevirt.io/v1beta1/namespaces/tenant/virtualmachinepools";
        assert_eq!(paths(Question::Sets(SetKind::Pool)), [pools]);
        assert_eq!(paths(Question::Set(SetKind::Pool, "web")), [format!("{pools}/web")]);
    }

    #[test]
    fn what_an_author_wrote_as_a_name_leads_nowhere_else() {
        let names = ["../../secrets/x", "a/b", "a?b", "a%2fb", "", "..", "A"].map(str::to_owned);
        assert_eq!(paths(Question::Claims(&names)), Vec::<String>::new());
        assert_eq!(paths(Question::DataVolumes(&names)), Vec::<String>::new());
        for name in &names {
            assert!(paths(Question::Machine(name)).is_empty() && paths(Question::EventsOf(name)).is_empty(), "{name}");
            assert!(paths(Question::RunsOf(name)).is_empty(), "{name}");
            assert!(paths(Question::Set(SetKind::ReplicaSet, name)).is_empty(), "{name}");
        }
        let options = ["--server=https://example.com", "-A"].map(str::to_owned);
        assert_eq!(by_name("pvc", &[names.as_slice(), &options].concat()), None);
        let [server, all] = options;
        assert_eq!(by_name("pvc", &[server, "root".to_owned(), all]), Some(vec!["pvc", "root"]));
        let many: Vec<String> = (0..1000).map(|number| format!("claim-{number}")).collect();
        assert_eq!(paths(Question::Claims(&many)).len(), MOST_CLAIMS);
    }
}
