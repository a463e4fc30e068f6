//! Looking at everything `why` judges by, as far as the user may.

use std::collections::BTreeSet;

use garboard_api::VirtualMachine;
use garboard_api::metadata::node_annotation::{CONTROLLERS, HEARTBEAT};
use garboard_api::v1::cdi::DataVolumeSpec;
use garboard_api::v1::{VirtualMachineInstanceSpec, Volume};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Event, ExecAction, HTTPGetAction, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::facts::{Facts, Parts, when};
use crate::failure::Failure;
use crate::find;
use crate::kubectl::typed;
use crate::look::{Look, Question};

/// Events that are looked at; a crash loop makes many.
const MOST_EVENTS: usize = 50;
/// Objects whose events are asked for: each by a question of its own, for which a thread waits. A machine's author may name any number
/// of claims.
const MOST_OBJECTS: usize = 64;
/// What node agents report in annotations of their nodes. All other annotations are left out.
const OF_AGENTS: [&str; 2] = [HEARTBEAT, CONTROLLERS];

/// Looks. What the user may not see is noted, and is no failure.
pub(super) fn gather(cluster: &impl Look, name: &str, now: Timestamp) -> Result<Facts, Failure> {
    let mut facts = Facts { now, name: name.to_owned(), ..Facts::default() };
    std::thread::scope(|scope| {
        let machine = scope.spawn(|| find::machine(cluster, name));
        let nodes = scope.spawn(|| list(cluster, Question::Nodes));
        let controller = scope.spawn(|| list(cluster, Question::Controller));
        let controllers = scope.spawn(|| list(cluster, Question::Controllers));
        let agents = scope.spawn(|| list(cluster, Question::Agents));
        let kubevirts = scope.spawn(|| cluster.look(Question::KubeVirts));
        let runs = scope.spawn(|| cluster.look(Question::RunsOf(name)));
        let lost = || Failure::Other("the query failed".to_owned());
        let machine = machine.join().unwrap_or_else(|_| Err(lost()))?;
        (facts.vm, facts.vmi, facts.pods) = (machine.vm, machine.vmi, machine.pods);
        facts.nodes = noted(nodes.join().unwrap_or_else(|_| Err(lost())), "nodes", &mut facts.unseen);
        let controller = noted(controller.join().unwrap_or_else(|_| Err(lost())), "the controller", &mut facts.unseen);
        let agents = noted(agents.join().unwrap_or_else(|_| Err(lost())), "node agents", &mut facts.unseen);
        if let (Some(mut controller), Some(agents)) = (controller, agents) {
            // Why none works; that none does is known of the deployment.
            let controllers = controllers.join().unwrap_or_else(|_| Err(lost())).unwrap_or_default();
            facts.parts = Some(Parts { controller: controller.pop(), controllers, agents });
        }
        // A cluster need not have these kinds, and who may not see them sees what there is besides.
        facts.runs = runs.join().unwrap_or_else(|_| Err(lost())).unwrap_or_default();
        facts.kubevirts = kubevirts.join().unwrap_or_else(|_| Err(lost())).unwrap_or_default();
        Ok(())
    })?;
    facts.namespace = namespace(cluster, &facts);
    claims_and_events(cluster, &mut facts);
    data_volumes(cluster, &mut facts);
    if facts.vm.is_none() && facts.vmi.is_none() {
        let others = cluster.look(Question::Machines).unwrap_or_default();
        let names = others.iter().filter_map(|each| each["metadata"]["name"].as_str());
        facts.near = find::nearest(name, names);
    }
    strip(&mut facts);
    Ok(facts)
}

pub(super) fn list<T: DeserializeOwned>(cluster: &impl Look, question: Question<'_>) -> Result<Vec<T>, Failure> {
    cluster.look(question).map(typed)
}

pub(super) fn noted<T>(outcome: Result<T, Failure>, what: &str, unseen: &mut Vec<String>) -> Option<T> {
    match outcome {
        Ok(seen) => Some(seen),
        Err(Failure::Forbidden(_)) => {
            unseen.push(format!("{what}: you may not see them"));
            None
        }
        Err(failure) => {
            unseen.push(format!("{what}: {failure}"));
            None
        }
    }
}

fn namespace(cluster: &impl Look, facts: &Facts) -> String {
    let of_vm = facts.vm.as_ref().and_then(|vm| vm.metadata.namespace.clone());
    let of_vmi = facts.vmi.as_ref().and_then(|vmi| vmi.metadata.namespace.clone());
    of_vm.or(of_vmi).unwrap_or_else(|| cluster.looked_at())
}

fn claims_and_events(cluster: &impl Look, facts: &mut Facts) {
    let claims = claims_of(facts);
    let pods = facts.pods.iter().filter_map(|pod| pod.metadata.name.as_deref());
    let objects = [facts.name.as_str()].into_iter().chain(pods).chain(claims.iter().map(String::as_str));
    let names: BTreeSet<&str> = objects.take(MOST_OBJECTS).collect();
    let left_out = (1 + facts.pods.len() + claims.len()).saturating_sub(MOST_OBJECTS);
    let (found, events) = std::thread::scope(|scope| {
        let found =
            scope.spawn(|| if claims.is_empty() { Ok(Vec::new()) } else { list(cluster, Question::Claims(&claims)) });
        // One field selector cannot name several objects, and a namespace may have many events.
        let asked: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(move || -> Result<Vec<Event>, Failure> { list(cluster, Question::EventsOf(name)) }))
            .collect();
        let lost = || Failure::Other("the query failed".to_owned());
        let events: Result<Vec<Vec<Event>>, Failure> =
            asked.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(lost()))).collect();
        (found.join().unwrap_or_else(|_| Err(lost())), events)
    });
    if left_out > 0 {
        facts.unseen.push(format!("events of {left_out} claims or pods: there are more than are asked for"));
    }
    facts.claims = noted(found, "claims", &mut facts.unseen).unwrap_or_default();
    let mut events: Vec<Event> =
        noted(events, "events", &mut facts.unseen).unwrap_or_default().into_iter().flatten().collect();
    events.sort_by_key(|event| std::cmp::Reverse(when(event)));
    events.truncate(MOST_EVENTS);
    facts.events = events;
}

/// The DataVolumes it names. Which they are is written where its claims are: each fills the claim of its name. A cluster need
/// not have the kind.
fn data_volumes(cluster: &impl Look, facts: &mut Facts) {
    let claims = claims_of(facts);
    if !claims.is_empty() {
        facts.data_volumes = cluster.look(Question::DataVolumes(&claims)).unwrap_or_default();
    }
}

/// The claims that the instance, or else the machine, names.
fn claims_of(facts: &Facts) -> Vec<String> {
    facts.spec().map(|spec| spec.claims(&facts.name).collect()).unwrap_or_default()
}

/// What no rule looks at, and what may be secret, is not written down.
fn strip(facts: &mut Facts) {
    // Every field: of a new fact it has to be decided here whether it may hold a secret.
    let Facts {
        now: _,
        namespace: _,
        name: _,
        vm,
        vmi,
        pods,
        events,
        runs,
        claims,
        data_volumes,
        nodes,
        parts,
        kubevirts,
        near: _,
        unseen: _,
    } = facts;
    vm.iter_mut().for_each(strip_machine);
    if let Some(vmi) = vmi {
        strip_object(&mut vmi.metadata);
        strip_spec(&mut vmi.spec);
    }
    pods.iter_mut().for_each(strip_pod);
    if let Some(Parts { controller, controllers, agents }) = parts {
        controllers.iter_mut().chain(agents).for_each(strip_pod);
        controller.iter_mut().for_each(strip_deployment);
    }
    runs.iter_mut().for_each(strip_run);
    events.iter_mut().for_each(|event| strip_object(&mut event.metadata));
    // The importer copies into them where a DataVolume comes from, and with which headers it asks for that.
    claims.iter_mut().for_each(|claim| strip_object(&mut claim.metadata));
    for node in nodes.iter_mut().flatten() {
        node.metadata.managed_fields = None;
        node.metadata.annotations.iter_mut().for_each(|all| all.retain(|key, _| OF_AGENTS.contains(&key.as_str())));
        if let Some(status) = &mut node.status {
            status.images = None;
        }
    }
    kubevirts.iter_mut().for_each(strip_metadata);
    for object in data_volumes {
        strip_metadata(object);
        // The source of a DataVolume may have a password in it.
        object["spec"] = Value::Null;
    }
}

fn strip_object(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    metadata.annotations = None;
}

pub(super) fn strip_deployment(deployment: &mut Deployment) {
    strip_object(&mut deployment.metadata);
}

fn strip_machine(vm: &mut VirtualMachine) {
    strip_object(&mut vm.metadata);
    vm.spec.template.metadata.iter_mut().for_each(|metadata| metadata.annotations = None);
    // Where a DataVolume comes from may have a password in it.
    for template in &mut vm.spec.data_volume_templates {
        template.metadata.iter_mut().for_each(|metadata| metadata.annotations = None);
        template.spec = DataVolumeSpec::default();
    }
    vm.spec.template.spec.iter_mut().for_each(strip_spec);
}

fn strip_spec(spec: &mut VirtualMachineInstanceSpec) {
    spec.volumes.iter_mut().for_each(without_secrets);
    for probe in spec.readiness_probe.iter_mut().chain(spec.liveness_probe.iter_mut()) {
        strip_probe(&mut probe.exec, &mut probe.http_get);
    }
}

/// A command or a header of a probe may have a password in it.
fn strip_probe(exec: &mut Option<ExecAction>, http_get: &mut Option<HTTPGetAction>) {
    exec.iter_mut().for_each(|exec| exec.command = None);
    http_get.iter_mut().for_each(|http_get| http_get.http_headers = None);
}

fn strip_pod(pod: &mut Pod) {
    // The order has the user's whole machine in it, cloud-init too.
    strip_object(&mut pod.metadata);
    let Some(spec) = &mut pod.spec else { return };
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        let Container { liveness_probe, readiness_probe, startup_probe, .. } = container;
        for probe in [liveness_probe, readiness_probe, startup_probe].into_iter().flatten() {
            strip_probe(&mut probe.exec, &mut probe.http_get);
        }
    }
}

fn strip_metadata(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
        metadata.remove("annotations");
    }
}

/// What a guest printed, and what people sent to QEMU, is in the record itself.
fn strip_run(run: &mut Value) {
    strip_metadata(run);
    if let Some(Value::Object(spec)) = run.get_mut("spec") {
        for field in ["serial", "transcript", "argv"] {
            spec.remove(field);
        }
    }
}

/// Takes out what may have a secret in it. What only names a Secret, an image or a claim stays.
fn without_secrets(volume: &mut Volume) {
    // Every field: of a new source it has to be decided here whether it may hold a secret.
    let Volume {
        name: _,
        cloud_init_config_drive,
        cloud_init_no_cloud,
        config_map: _,
        container_disk: _,
        container_path: _,
        data_volume: _,
        downward_api: _,
        downward_metrics: _,
        empty_disk: _,
        ephemeral: _,
        host_disk: _,
        iscsi: _,
        memory_dump: _,
        persistent_volume_claim: _,
        secret: _,
        service_account: _,
        sysprep,
    } = volume;
    *cloud_init_config_drive = None;
    *cloud_init_no_cloud = None;
    *sysprep = None;
}

#[cfg(test)]
mod tests;
