//! `garboard cluster`: Garboard itself on a cluster, through the user's kubectl.

pub(crate) mod args;
mod catalogue;
pub(crate) mod emulation;
mod gather;
mod install;
mod manifest;
mod report;
mod status;
mod uninstall;

use std::time::{Duration, Instant};

use args::{ClusterCommand, ClusterCommandArgs};
use serde_json::Value;

use crate::failure::Failure;
use crate::kubectl::{Kubectl, failed};
use crate::output::note;

/// Where everything but machines is, unless an installation chooses another namespace.
pub(crate) const NAMESPACE: &str = "garboard";
/// The deployment of the controllers.
pub(crate) const CONTROLLER: &str = "garboard-controller";
/// The daemon set of the node agents.
pub(crate) const AGENT: &str = "garboard-node";
/// The deployment of the dashboard, and its Secret, which are optional.
pub(crate) const DASHBOARD: &str = "garboard-dashboard";
/// Pods of the controllers.
pub(crate) const CONTROLLER_SELECTOR: &str = "app.kubernetes.io/name=garboard,app.kubernetes.io/component=controller";
/// Pods of the dashboard.
pub(crate) const DASHBOARD_SELECTOR: &str = "app.kubernetes.io/name=garboard,app.kubernetes.io/component=dashboard";
/// Pods of the node agents.
pub(crate) const AGENT_SELECTOR: &str = "app.kubernetes.io/name=garboard,app.kubernetes.io/component=node";
/// Sets of instances, which a cluster with an earlier version does not have.
pub(crate) const SETS: &str = "virtualmachineinstancereplicasets.kubevirt.io";
/// Sets of machines, which a cluster with an earlier version does not have either.
pub(crate) const POOLS: &str = "virtualmachinepools.pool.kubevirt.io";
/// Both kinds of machines.
pub(crate) const MACHINES: &str = "virtualmachines.kubevirt.io,virtualmachineinstances.kubevirt.io";

/// `garboard cluster …`.
pub fn run(args: &ClusterCommandArgs) -> anyhow::Result<u8> {
    execute(&Kubectl::new(&args.cluster, None), &args.command)
}

/// The same with a kubectl that is chosen.
pub(crate) fn execute(kubectl: &Kubectl, command: &ClusterCommand) -> anyhow::Result<u8> {
    match command {
        ClusterCommand::Install(args) => install::run(kubectl, args),
        ClusterCommand::Uninstall(args) => uninstall::run(kubectl, args),
        ClusterCommand::Status(args) => status::run(kubectl, args),
    }
}

/// Whether a controller's deployment has vCPUs interpreted where there is no KVM. Whether that counts is for
/// [`emulation::EmulationSetting`].
fn emulates(deployment: &Value) -> bool {
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let given = |part: &str| container[part].as_array().into_iter().flatten();
    let by_argument = given("args").any(|each| each == "--emulation");
    let by_environment = given("env").any(|each| each["name"] == "GARBOARD_EMULATION" && each["value"] == "true");
    by_argument || by_environment
}

/// Waits until `settled` answers, printing its state whenever that changes.
fn follow(patience: Duration, mut look: impl FnMut() -> Result<Progress, Failure>) -> anyhow::Result<Option<String>> {
    let deadline = Instant::now() + patience;
    let mut printed = String::new();
    loop {
        let line = match look().map_err(failed)? {
            Progress::Done(line) => {
                note!("{line}");
                return Ok(None);
            }
            Progress::Waiting(line) => line,
        };
        if line != printed {
            note!("{line}");
            printed = line;
        }
        if Instant::now() >= deadline {
            return Ok(Some(printed));
        }
        crate::pause::between_questions();
    }
}

/// What was found by one look.
enum Progress {
    Done(String),
    Waiting(String),
}
