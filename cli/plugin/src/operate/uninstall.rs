//! `garboard cluster uninstall`: machines first, while the controller is there to shut them down and to remove their
//! finalizers; then controller and node agents; then the definitions; last labels of nodes. Instancetypes and preferences that no
//! installation has made stay, and with them their definitions.

use std::collections::BTreeSet;
use std::time::Duration;

use garboard_api::metadata::node_annotation::CONTROLLERS;
use serde_json::Value;

use super::args::UninstallArgs;
use super::catalogue::{self, Catalogue};
use super::gather::gather;
use super::install::check_rights;
use super::manifest::{self, DashboardOptions, InstallOptions, Object};
use super::{MACHINES, POOLS, Progress, SETS, follow};
use crate::exit::{self, FAILED, REFUSED, exit_error};
use crate::failure::Failure;
use crate::kubectl::{Kubectl, failed};
use crate::output::{note, outln};

/// Machines that a refusal names.
const NAMED: usize = 5;
/// Labels and annotations of nodes that the agents write, beside [`CONTROLLERS`].
const OF_NODES: &str = "kubevirt.io";
/// … or end so: one group for each family of labels.
const FAMILIES_OF_NODES: &str = ".node.kubevirt.io";

/// `garboard cluster uninstall`.
pub(super) fn run(kubectl: &Kubectl, args: &UninstallArgs) -> anyhow::Result<u8> {
    // Whatever was chosen: what is not there is no failure.
    let (namespace, dashboard) = (kubectl.garboard().to_owned(), Some(DashboardOptions::default()));
    let choice = InstallOptions { namespace, dashboard, ..InstallOptions::plain() };
    let objects = manifest::objects(&choice)?;
    let found = gather(kubectl).map_err(failed)?;
    let is_there = !found.established.is_empty() || found.controller.is_some() || found.agent.is_some();
    let namespace = kubectl.get(&["namespace", kubectl.garboard()]).map_err(failed)?;
    if !is_there && namespace.is_empty() {
        outln!("Garboard is not installed here")?;
        return Ok(exit::OK);
    }
    check_rights(kubectl, &objects, "delete")?;
    check_rights(kubectl, &manifest::catalogue()?, "delete")?;
    let machines = machines(kubectl).map_err(failed)?;
    if !machines.is_empty() {
        if !args.and_delete_machines {
            return Err(exit_error(REFUSED, refusal(&machines)));
        }
        let works = found.controllers.iter().any(crate::why::ready_of);
        if !works {
            let text = "machines can only be deleted while a controller is ready, and none is: `kubectl garboard cluster install` \
                        brings it back, `kubectl garboard cluster status` shows what is wrong";
            return Err(exit_error(REFUSED, text));
        }
        delete_machines(kubectl, &machines, args.timeout)?;
    }
    Catalogue::look(kubectl, &[]).map_err(failed)?.remove_but(kubectl, &[])?;
    let left = catalogue::count(kubectl).map_err(failed)?;
    let (definitions, rest): (Vec<&Object>, Vec<&Object>) =
        objects.iter().filter(|object| object.kind != "Namespace").partition(|object| object.is_definition());
    delete(kubectl, &rest, args.timeout)?;
    delete(kubectl, &without_sizes(&definitions, left), args.timeout)?;
    let namespaces: Vec<&Object> = objects.iter().filter(|object| object.kind == "Namespace").collect();
    delete(kubectl, &namespaces, args.timeout)?;
    // With the namespace the last agent is gone, which would write its labels again.
    unlabel(kubectl).map_err(failed)?;
    outln!(
        "Garboard is removed; claims and their data are left, and /run/garboard-agent on nodes until they start again"
    )?;
    if left > 0 {
        outln!("{}", kept(&definitions, left))?;
    }
    Ok(exit::OK)
}

/// The definitions that go: those of instancetypes and preferences stay while there are any, because all of a kind go with its definition.
fn without_sizes<'a>(definitions: &[&'a Object], left: usize) -> Vec<&'a Object> {
    definitions.iter().copied().filter(|object| left == 0 || !is_of_sizes(object)).collect()
}

fn is_of_sizes(definition: &Object) -> bool {
    definition.name.ends_with(&format!(".{}", catalogue::GROUP))
}

fn kept(definitions: &[&Object], left: usize) -> String {
    let names = definitions.iter().filter(|object| is_of_sizes(object)).map(|object| object.name.as_str());
    let names: Vec<&str> = names.collect();
    format!(
        "{left} instancetypes and preferences that no installation has made are left, with their definitions; `kubectl delete crd {}` \
         removes both",
        names.join(" ")
    )
}

/// Every machine, every instance, and every set of either: namespace, resource, name.
fn machines(kubectl: &Kubectl) -> Result<Vec<(String, &'static str, String)>, Failure> {
    let of_kind = |kinds: &str| match kubectl.get(&[kinds, "-A"]) {
        Err(Failure::NotInstalled(_)) => Ok(Vec::new()),
        other => other,
    };
    let mut all = of_kind(MACHINES)?;
    for sets in [SETS, POOLS] {
        all.extend(of_kind(sets)?);
    }
    let text = |object: &Value, key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    let resource = |object: &Value| match object["kind"].as_str() {
        Some("VirtualMachine") => "vm",
        Some("VirtualMachineInstanceReplicaSet") => "vmirs",
        Some("VirtualMachinePool") => "vmpool",
        Some(_) | None => "vmi",
    };
    Ok(all.iter().map(|object| (text(object, "namespace"), resource(object), text(object, "name"))).collect())
}

fn refusal(machines: &[(String, &str, String)]) -> String {
    let names: BTreeSet<String> = machines.iter().map(|(namespace, _, name)| format!("{namespace}/{name}")).collect();
    let shown: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    let more = names
        .len()
        .checked_sub(NAMED)
        .filter(|more| *more > 0)
        .map(|more| format!(" and {more} more"))
        .unwrap_or_default();
    format!(
        "there are machines ({}{more}), and without Garboard they cannot run: delete them first, or add \
         --and-delete-machines",
        shown.join(", ")
    )
}

/// Pools before machines, machines and sets before instances, or the former would create the latter again.
fn delete_machines(kubectl: &Kubectl, machines: &[(String, &str, String)], timeout: u64) -> anyhow::Result<()> {
    let namespaces: BTreeSet<&String> = machines.iter().map(|(namespace, _, _)| namespace).collect();
    let has = |wanted: &str| machines.iter().any(|(_, resource, _)| *resource == wanted);
    let sets = [("vmpool", POOLS), ("vmirs", SETS)].into_iter().filter(|(resource, _)| has(resource));
    let kinds = sets.map(|(_, kind)| kind);
    for kind in kinds.chain(["virtualmachines.kubevirt.io", "virtualmachineinstances.kubevirt.io"]) {
        for namespace in &namespaces {
            kubectl.within(namespace).run(&["delete", kind, "--all", "--wait=false"]).map_err(failed)?;
        }
    }
    let overdue = follow(Duration::from_secs(timeout), || {
        let left = self::machines(kubectl)?;
        let pods = kubectl.get(&["pods", "-A", "-l", "kubevirt.io=virt-launcher"])?;
        Ok(if left.is_empty() && pods.is_empty() {
            Progress::Done("machines: all deleted".to_owned())
        } else {
            Progress::Waiting(format!("machines: {} objects and {} pods left", left.len(), pods.len()))
        })
    })?;
    match overdue {
        None => Ok(()),
        Some(left) => {
            let text = format!(
                "after {timeout} s there are still {left}; `kubectl garboard why NAME` shows what they wait for. \
                                Nothing else was removed"
            );
            Err(exit_error(FAILED, text))
        }
    }
}

/// In the reverse order of their making.
fn delete(kubectl: &Kubectl, objects: &[&Object], timeout: u64) -> anyhow::Result<()> {
    let input = manifest::text(objects.iter().rev().copied());
    let timeout = format!("--timeout={timeout}s");
    kubectl.feed(&["delete", "--ignore-not-found", "--wait=true", &timeout, "-f", "-"], input.as_bytes()).map_err(
        |failure| {
            let text = format!("not everything could be removed: {failure}; run it again when that is corrected");
            exit_error(failure.code(), text)
        },
    )?;
    let kinds: BTreeSet<&str> = objects.iter().map(|object| object.kind.as_str()).collect();
    note!("removed {}", kinds.into_iter().collect::<Vec<_>>().join(", "));
    Ok(())
}

/// Takes from nodes what their agents have written on them.
fn unlabel(kubectl: &Kubectl) -> Result<(), Failure> {
    for node in kubectl.get(&["nodes"])? {
        let Some(name) = node["metadata"]["name"].as_str() else { continue };
        for (verb, part) in [("label", "labels"), ("annotate", "annotations")] {
            let keys = own_objects(&node["metadata"][part]);
            if keys.is_empty() {
                continue;
            }
            let mut arguments = vec![verb.to_owned(), format!("node/{name}")];
            arguments.extend(keys.into_iter().map(|key| format!("{key}-")));
            kubectl.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

fn own_objects(all: &Value) -> Vec<String> {
    let keys = all.as_object().into_iter().flatten().map(|(key, _)| key);
    let group = |key: &str| key.split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default();
    let is_family = |key: &str| group(key) == OF_NODES || group(key).ends_with(FAMILIES_OF_NODES);
    let is_ours = |key: &&String| is_family(key) || key.as_str() == CONTROLLERS;
    keys.filter(is_ours).cloned().collect()
}

#[cfg(test)]
mod tests {
    use garboard_api::metadata::node_label::{SET_FAMILIES, SET_SINGLE};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_names_machines_once_and_not_all() {
        let machine = |kind, name: &str| ("tenant".to_owned(), kind, name.to_owned());
        let text = refusal(&[machine("vm", "a"), machine("vmi", "a")]);
        assert!(text.starts_with("there are machines (tenant/a), "), "{text}");
        let many: Vec<_> = (0..8).map(|number| machine("vm", &format!("m{number}"))).collect();
        assert!(refusal(&many).contains("tenant/m4 and 3 more)"), "{}", refusal(&many));
    }

    #[test]
    fn instancetypes_of_users_keep_their_definitions() {
        let objects = manifest::objects(&InstallOptions::plain()).unwrap();
        let definitions: Vec<&Object> = objects.iter().filter(|object| object.is_definition()).collect();
        assert_eq!(without_sizes(&definitions, 0).len(), definitions.len());
        let gone = without_sizes(&definitions, 3);
        assert_eq!(gone.len(), definitions.len() - 4);
        assert!(gone.iter().all(|object| !object.name.contains("instancetype")), "{gone:?}");
        let text = kept(&definitions, 3);
        assert!(
            text.starts_with("3 instancetypes") && text.contains("virtualmachinepreferences.instancetype"),
            "{text}"
        );
    }

    #[test]
    fn what_agents_write_is_taken_from_nodes() {
        let families = SET_FAMILIES.iter().map(|family| format!("{family}x"));
        let all: BTreeSet<String> = families.chain(SET_SINGLE.map(str::to_owned)).collect();
        let labels = all.iter().map(|label| (label.clone(), json!("true"))).collect();
        assert_eq!(own_objects(&Value::Object(labels)).into_iter().collect::<BTreeSet<_>>(), all);
    }

    #[test]
    fn only_what_agents_write_is_taken_from_nodes() {
        let labels = json!({
            "kubevirt.io/schedulable": "true",
            "cpu-vendor.node.kubevirt.io/GenuineIntel": "true",
            "machine-type.node.kubevirt.io/q35": "true",
            "kubernetes.io/hostname": "node-1",
            "example.kubevirt.io/mine": "x",
            "garboard.dev/connected-controllers": "2 2026-01-01T00:00:00Z",
            "garboard.dev/mine": "x",
        });
        assert_eq!(
            own_objects(&labels),
            [
                "kubevirt.io/schedulable",
                "cpu-vendor.node.kubevirt.io/GenuineIntel",
                "machine-type.node.kubevirt.io/q35",
                "garboard.dev/connected-controllers"
            ]
        );
    }
}
