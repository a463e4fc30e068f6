//! Looking at an installation.

use std::collections::BTreeSet;

use garboard_api::conditions::{KubeVirtConditionType, Reason, VmiConditionType};
use garboard_api::metadata::label::OUTDATED_LAUNCHER_IMAGE;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::Value;

use super::emulation::{EmulationSetting, kubevirts};
use super::manifest::{self, InstallOptions};
use super::{AGENT, AGENT_SELECTOR, CONTROLLER, CONTROLLER_SELECTOR, DASHBOARD, DASHBOARD_SELECTOR, MACHINES};
use crate::failure::Failure;
use crate::kubectl::{Kubectl, typed};

/// What there is of an installation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Installation {
    /// Its namespace.
    pub(super) namespace: String,
    /// Definitions that this release has.
    pub(super) wanted_definitions: Vec<String>,
    /// Those that are there and established.
    pub(super) established: Vec<String>,
    /// The controllers.
    pub(super) controller: Option<Deployment>,
    /// Their pods.
    pub(super) controllers: Vec<Pod>,
    /// The agents.
    pub(super) agent: Option<DaemonSet>,
    /// Their pods.
    pub(super) agents: Vec<Pod>,
    /// The dashboard, if it was chosen.
    pub(super) dashboard: Option<Deployment>,
    /// Its pods.
    pub(super) dashboards: Vec<Pod>,
    /// Every node.
    pub(super) nodes: Vec<Node>,
    /// Whether vCPUs are interpreted where there is no KVM.
    pub(super) emulation: EmulationSetting,
    /// How many instances report that their supervisor is of another image than that of new launcher pods.
    pub(super) outdated: usize,
    /// Why the controller replaces no supervisor, if it has stopped.
    pub(super) stopped: Option<String>,
    /// Nodes whose KVM interprets guest code, as far as their instances report it: node agents do not publish what they measured.
    pub(super) interpreting: BTreeSet<String>,
    /// `printableStatus` of every machine, or the phase of an instance without one.
    pub(super) machines: Vec<String>,
}

/// Looks. A cluster without Garboard is no failure.
pub(super) fn gather(kubectl: &Kubectl) -> Result<Installation, Failure> {
    let own = kubectl.within_garboard();
    let wanted_definitions = definitions();
    std::thread::scope(|scope| {
        let definitions = scope.spawn(|| {
            let arguments: Vec<&str> =
                ["crd"].into_iter().chain(wanted_definitions.iter().map(String::as_str)).collect();
            kubectl.get(&arguments)
        });
        let controller = scope.spawn(|| own.get(&["deployment", CONTROLLER]));
        let controllers = scope.spawn(|| own.get(&["pods", "-l", CONTROLLER_SELECTOR]));
        let agent = scope.spawn(|| own.get(&["daemonset", AGENT]));
        let agents = scope.spawn(|| own.get(&["pods", "-l", AGENT_SELECTOR]));
        let dashboard = scope.spawn(|| own.get(&["deployment", DASHBOARD]));
        let dashboards = scope.spawn(|| own.get(&["pods", "-l", DASHBOARD_SELECTOR]));
        let nodes = scope.spawn(|| kubectl.get(&["nodes"]));
        let settings = scope.spawn(|| kubevirts(kubectl));
        let lost = |_| Err(Failure::Other("a query failed".to_owned()));
        let definitions = definitions.join().unwrap_or_else(lost)?;
        let controller = controller.join().unwrap_or_else(lost)?;
        let settings = settings.join().unwrap_or_else(lost)?;
        let mut found = Installation {
            namespace: kubectl.garboard().to_owned(),
            established: definitions.iter().filter(|each| is_established(each)).map(name).collect(),
            emulation: EmulationSetting::of(&controller, &settings),
            stopped: settings.iter().find_map(stopped),
            controller: typed(controller).pop(),
            controllers: typed(controllers.join().unwrap_or_else(lost)?),
            agent: typed(agent.join().unwrap_or_else(lost)?).pop(),
            agents: typed(agents.join().unwrap_or_else(lost)?),
            dashboard: typed(dashboard.join().unwrap_or_else(lost)?).pop(),
            dashboards: typed(dashboards.join().unwrap_or_else(lost)?),
            nodes: typed(nodes.join().unwrap_or_else(lost)?),
            ..Installation::default()
        };
        if !found.established.is_empty() {
            let all = machines(kubectl)?;
            found.outdated = all.iter().filter(|each| is_outdated(each)).count();
            found.interpreting = all.iter().filter_map(interpreting).map(str::to_owned).collect();
            found.machines = states(&all);
        }
        found.wanted_definitions.clone_from(&wanted_definitions);
        Ok(found)
    })
}

/// Names of the definitions of this release.
fn definitions() -> Vec<String> {
    let objects = manifest::objects(&InstallOptions::plain()).unwrap_or_default();
    objects.into_iter().filter(|object| object.is_definition()).map(|object| object.name).collect()
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|each| each["type"] == "Established" && each["status"] == "True")
}

/// The message of a roll-out of supervisors that has stopped.
fn stopped(kubevirt: &Value) -> Option<String> {
    let conditions = kubevirt["status"]["conditions"].as_array()?;
    let kind = KubeVirtConditionType::LaunchersUpdated.name();
    let stopped =
        conditions.iter().find(|each| each["type"] == kind && each["reason"] == Reason::UpdateStopped.name())?;
    stopped["message"].as_str().map(str::to_owned)
}

fn is_outdated(object: &Value) -> bool {
    !object["metadata"]["labels"][OUTDATED_LAUNCHER_IMAGE].is_null()
}

/// The node of an instance whose condition says that KVM there interprets guest code.
fn interpreting(instance: &Value) -> Option<&str> {
    let (kind, reason) = (VmiConditionType::SoftwareEmulation.name(), Reason::KvmInterpretsGuestCode.name());
    let conditions = instance["status"]["conditions"].as_array()?;
    let is_so =
        conditions.iter().any(|each| each["type"] == kind && each["status"] == "True" && each["reason"] == reason);
    instance["status"]["nodeName"].as_str().filter(|_| is_so)
}

/// Every machine and every instance.
fn machines(kubectl: &Kubectl) -> Result<Vec<Value>, Failure> {
    match kubectl.get(&[MACHINES, "-A"]) {
        // Half installed, or half removed.
        Err(Failure::NotInstalled(_)) => Ok(Vec::new()),
        other => other,
    }
}

/// An instance of a machine is listed by its machine.
fn states(all: &[Value]) -> Vec<String> {
    let key = |each: &Value| (each["metadata"]["namespace"].clone(), each["metadata"]["name"].clone());
    let owners: Vec<(Value, Value)> = all.iter().filter(|each| each["kind"] == "VirtualMachine").map(key).collect();
    let counts = |each: &&Value| each["kind"] == "VirtualMachine" || !owners.contains(&key(each));
    let state = |each: &Value| {
        let status = &each["status"];
        status["printableStatus"].as_str().or(status["phase"].as_str()).unwrap_or("no state yet").to_owned()
    };
    all.iter().filter(counts).map(state).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_instance_tells_that_kvm_of_its_node_interprets_guest_code() {
        let instance = |status: &str, reason: &str| {
            let conditions = json!([{"type": "SoftwareEmulation", "status": status, "reason": reason}]);
            json!({"status": {"nodeName": "node-1", "conditions": conditions}})
        };
        assert_eq!(interpreting(&instance("True", "KVMInterpretsGuestCode")), Some("node-1"));
        assert_eq!(interpreting(&instance("False", "KVMInterpretsGuestCode")), None);
        assert_eq!(interpreting(&instance("True", "NoKVM")), None, "of such a node KVM is not known");
        assert_eq!(interpreting(&json!({"status": {"nodeName": "node-1"}})), None);
    }

    #[test]
    fn outdated_supervisors_are_counted_and_a_stopped_roll_out_has_its_message() {
        let marked = json!({"metadata": {"labels": {"kubevirt.io/outdatedLauncherImage": ""}}});
        assert!(is_outdated(&marked) && !is_outdated(&json!({"metadata": {}})));
        let object = |reason: &str| json!({"status": {"conditions": [{"type": "garboard.dev/LaunchersUpdated", "reason": reason, "message": "why"}]}});
        assert_eq!(stopped(&object("UpdateStopped")).as_deref(), Some("why"));
        assert_eq!(stopped(&object("UpdateInProgress")), None);
    }
}
